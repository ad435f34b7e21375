#!/bin/sh
# Run a tool, and write down what the kernel says that it did: the second witness.
#
#   witness.sh [--sync DIRECTORY] COMMAND...   the exit status is the command's
#   witness.sh --look                          look at this node, whose fio server does the work
#
# Prints one line, so that the launcher brings it to the first node. It goes to standard error after a command that ended
# well, and to standard output after a look. evidence/witness.py reads it:
#
#   iogauge-witness HOST START END SYNCED RCHAR WCHAR READ WRITTEN CANCELLED [COUNTER=READ,WRITTEN]... end
#
# START and END are seconds since boot. SYNCED is the end of syncfs(2) after the command, or -. The five sums come from
# /proc/PID/io (proc(5)), of the command and all children that it waited for. A COUNTER is a block device MAJOR:MINOR in
# sectors of 512 bytes (/proc/diskstats), or the point of a mounted NFS in bytes (/proc/self/mountstats). After a command
# its growth is given; in a look its value, and the sums are 0: fio's server does not wait for its jobs. Only the first task of a node gives counters, if the launcher numbers the tasks.

# shellcheck shell=dash source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"
set -f

# Set $counted to all counters that are not zero.
count() {
    local major minor point word rest read written
    counted='' point=''
    while read -r major minor _ _ _ read _ _ _ written _; do
        [ "$read$written" = 00 ] || counted="$counted $major:$minor=$read,$written"
    done </proc/diskstats
    # A line "device SOURCE mounted on POINT with fstype TYPE" begins a mount. On NFS a line of eight sums follows: the
    # fifth and the sixth are those of the server.
    while read -r word rest; do
        case $word in
            device)
                # shellcheck disable=SC2086 # one word for each field
                set -- $rest
                case ${7:-} in nfs | nfs4) point=$4 ;; *) point='' ;; esac
                ;;
            bytes:)
                # shellcheck disable=SC2086
                set -- $rest
                [ -z "$point" ] || counted="$counted $point=$5,$6"
                ;;
        esac
    done 2>/dev/null </proc/self/mountstats
}

# Set $grown to the counters that have grown since $1.
grow() {
    local before counter name now read written
    before=$1
    grown=
    count
    for counter in $counted; do
        name=${counter%=*} now=${counter##*=} read=0 written=0
        case "$before " in
            *" $counter "*) continue ;;
            *" $name="*)
                read=${before#*" $name="}
                read=${read%% *}
                written=${read#*,} read=${read%,*}
                ;;
        esac
        grown="$grown $name=$((${now%,*} - read)),$((${now#*,} - written))"
    done
}

# Set the sums of this shell; all are 0 if the kernel does not count.
account() {
    local key value
    rchar=0 wchar=0 fetched=0 stored=0 cancelled=0
    while read -r key value; do
        case $key in
            rchar:) rchar=$value ;;
            wchar:) wchar=$value ;;
            read_bytes:) fetched=$value ;;
            write_bytes:) stored=$value ;;
            cancelled_write_bytes:) cancelled=$value ;;
        esac
    done 2>/dev/null <"/proc/$$/io"
}

read -r host </proc/sys/kernel/hostname

if [ "$1" = --look ]; then
    count
    read -r now _ </proc/uptime
    echo "iogauge-witness $host $now $now - 0 0 0 0 0$counted end"
    exit
fi

directory=
if [ "$1" = --sync ]; then
    directory=$2
    shift 2
fi
number=${OMPI_COMM_WORLD_LOCAL_RANK:-${SLURM_LOCALID:-${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-${FLUX_TASK_LOCAL_ID:-0}}}}}
iog_end_on_signal
counted='' grown=''
[ "$number" != 0 ] || count
account
before="$rchar $wchar $fetched $stored $cancelled"
read -r started _ </proc/uptime

iog_run "$@"
status=$?
read -r ended _ </proc/uptime
account
[ "$status" -eq 0 ] || exit "$status"

synced=-
if [ -n "$directory" ] && [ "$number" = 0 ]; then
    # Twice: Linux lets a journal pass the limit of a control group, and makes what comes next wait for it.
    sync -f -- "$directory" && sync -f -- "$directory" || exit 1
    read -r synced _ </proc/uptime
fi
[ "$number" != 0 ] || grow "$counted"
# shellcheck disable=SC2086 # one word for each sum
set -- $before
echo "iogauge-witness $host $started $ended $synced $((rchar - $1)) $((wchar - $2)) $((fetched - $3)) $((stored - $4))" \
    "$((cancelled - $5))$grown end" >&2
