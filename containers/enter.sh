#!/bin/sh
# Run a program of the image's stack: enter.sh ior -a MPIIO ...
#
# IOGAUGE_HOST_MPI=DIR: use the host's MPI, bound into the image at DIR, in place of the image's MPI. If ior would not
# load the host's MPI, the program is refused: tasks with another MPI than the launcher's would each run alone.
set -eu

here=$(cd -- "$(dirname -- "$0")/.." >/dev/null && pwd -P)
# shellcheck source=/dev/null
. "$here/environments/local/.spack-env/activate.sh"
# docker's default user is root, which Open MPI refuses unless told twice.
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ -n "${IOGAUGE_HOST_MPI:-}" ]; then
    for folder in "$IOGAUGE_HOST_MPI/lib64" "$IOGAUGE_HOST_MPI/lib"; do
        [ ! -d "$folder" ] || LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
    export LD_LIBRARY_PATH PATH="$IOGAUGE_HOST_MPI/bin:$PATH"
    library=$(ldd "$(command -v ior)" | awk '$1 ~ /^libmpi[a-z_]*\.so/ && $3 ~ /^\// { print $3; exit }')
    case $library in
        "$IOGAUGE_HOST_MPI"/*) ;;
        *)
            echo "enter: ior would run with ${library:-no MPI}, not with the host's MPI at $IOGAUGE_HOST_MPI" >&2
            echo "enter: bind an MPI whose libmpi.so has the same number: apptainer run --bind HOST_DIR:$IOGAUGE_HOST_MPI" >&2
            exit 1
            ;;
    esac
fi
exec "$@"
