# shellcheck shell=bash
# Sourced by bash, zsh or dash from the folder of this repository. Its sites come first, and iogauge and its programs
# are on PATH.
#
#   . ./activate

export IOGAUGE_SITES="$PWD/sites"
# In GitLab the history must outlast the checkout: iogauge/ci/pipeline says where it is.
[ -n "${CI_PROJECT_DIR:-}" ] || export IOGAUGE_HOME="${IOGAUGE_HOME:-$PWD/.iogauge}"
if [ -e iogauge/.venv/.iogauge-runtime ]; then
    # shellcheck source=/dev/null
    . iogauge/activate
elif [ -z "${CI_PROJECT_DIR:-}" ]; then
    echo "activate: iogauge is not here yet; run: ./setup" >&2
fi
