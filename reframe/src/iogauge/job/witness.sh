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
# sectors of 512 bytes (/proc/diskstats), the point of a mounted NFS in bytes (/proc/self/mountstats), or a Lustre client's
# device in bytes (osc.*.stats, mdc.*.stats). After a command its growth is given; in a look its value, and the sums are 0:
# fio's server does not wait for its jobs. Only the first task of a node gives counters, if the launcher numbers the tasks.
#
# A client of Lustre adds "lustre=ANSWERED,ASKED": how many of its devices told their counters. Hundreds of devices do not
# fit into a line that no launcher cuts. They come before it, in lines that its word "more=LINES,0" counts:
#
#   iogauge-more HOST START COUNTER=READ,WRITTEN... end

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

# Set $devices to the names of this node's Lustre devices, as lctl(8) wants them. A metadata server has devices of its own
# for the storage targets, which are not the client's.
find_devices() {
    local device
    devices=''
    set +f
    set -- /sys/fs/lustre/osc/*-OST*-osc-* /sys/fs/lustre/mdc/*-MDT*-mdc-*
    set -f
    for device; do
        case $device in
            *'*'* | *-osc-MDT*) ;;
            *) devices="$devices ${device#/sys/fs/lustre/}" ;;
        esac
    done
}

# Set $answers to what $devices have moved, DEVICE=READ,WRITTEN each. Every device is asked for by its whole name: for a
# pattern, lctl of 2.17 gives an ordinary user values under wrong names. Its exit status is 2 even if it answers.
ask_devices() {
    local device names=''
    for device in $devices; do
        names="$names ${device%%/*}.${device#*/}.stats"
    done
    # shellcheck disable=SC2086 # one word for each name
    answers=$(PATH=$PATH:/usr/sbin:/sbin lctl get_param $names 2>/dev/null | awk '
        function tell() { if (name != "" && sound) print name "=" read "," written }
        /^(osc|mdc)\.[^ ]*\.stats=$/ { tell(); split($1, part, "."); name = part[2]; read = written = 0; sound = 1; next }
        $1 == "read_bytes" { read = $7; sound = sound && $4 == "[bytes]" && NF > 6 }
        $1 == "write_bytes" { written = $7; sound = sound && $4 == "[bytes]" && NF > 6 }
        END { tell() }')
}

# Set $moved to the growth of $answers since $1, and $heard to the number of devices in both. Both are in the same order.
grow_devices() {
    local now old new
    moved='' heard=0
    # shellcheck disable=SC2086 # one word for each device
    set -- $1
    for now in $answers; do
        while [ "${1%=*}" != "${now%=*}" ]; do
            [ $# -gt 0 ] || return 0
            shift
        done
        heard=$((heard + 1))
        old=${1#*=} new=${now#*=}
        [ "$old" = "$new" ] ||
            moved="$moved ${now%=*}=$((${new%,*} - ${old%,*})),$((${new#*,} - ${old#*,}))"
        shift
    done
}

# Print a line of the words $1 and the counters $2, and before it as many as $moved, of $heard devices, needs.
tell() {
    local counter line='' lines=0 asked
    # shellcheck disable=SC2086
    set -- "$1" "$2" $devices
    asked=$(($# - 2))
    [ "$asked" -gt 0 ] || moved=''
    for counter in $moved; do
        line="$line $counter"
        if [ "${#line}" -gt 3000 ]; then
            echo "iogauge-more $host $started$line end"
            lines=$((lines + 1)) line=''
        fi
    done
    [ "$asked" -eq 0 ] || line="$line lustre=$heard,$asked more=$lines,0"
    echo "iogauge-witness $host $started $1$2$line end"
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

devices='' answers='' heard=0
if [ "$1" = --look ]; then
    count
    find_devices
    [ -z "$devices" ] || ask_devices
    # shellcheck disable=SC2086 # one word for each device
    set -- $answers
    heard=$# moved=$answers
    read -r started _ </proc/uptime
    tell "$started - 0 0 0 0 0" "$counted"
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
if [ "$number" = 0 ]; then
    count
    find_devices
    [ -z "$devices" ] || ask_devices
fi
device_answers=$answers
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
if [ "$number" = 0 ]; then
    grow "$counted"
    [ -z "$devices" ] || ask_devices
    grow_devices "$device_answers"
fi
# shellcheck disable=SC2086 # one word for each sum
set -- $before
tell "$ended $synced $((rchar - $1)) $((wchar - $2)) $((fetched - $3)) $((stored - $4)) $((cancelled - $5))" "$grown" >&2
