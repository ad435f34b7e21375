#!/bin/sh
# Run a tool, and write down what the kernel says that it did: the second witness.
#
#   witness.sh FILE EXECUTION [--sync DIRECTORY] COMMAND...           the exit status is the command's
#   witness.sh FILE EXECUTION [--sync DIRECTORY] --look before|after  look at this node, whose server does the work
#
# Appends one line to FILE.HOST.0 for the first task of a node, which alone counts, or to FILE.HOST for another, after a
# command that ended well. evidence/witness.py reads it. What the tool prints, and where a launcher takes it, changes nothing.
#
#   EXECUTION HOST START END SYNCED RCHAR WCHAR SYSCR SYSCW READ WRITTEN CANCELLED [COUNTER=READ,WRITTEN[,READS,WRITES]]... end
#
# START and END are seconds since boot. SYNCED is the end of syncfs(2) after the command or before the look after it, or -. The seven sums come from
# /proc/PID/io (proc(5)), of the command and all children that it waited for. A COUNTER is a block device MAJOR:MINOR in
# sectors of 512 bytes and in requests (/proc/diskstats), the point of a mounted NFS in bytes (/proc/self/mountstats), a Lustre client's
# device in bytes and in requests (osc.*.stats, mdc.*.stats), or all networks in bytes (net). After a command its growth is given; in a look its value, and the sums are 0:
# a server does not wait for its jobs. Only the first task of a node gives counters, if the launcher numbers the tasks.
# Preparation and warm-up, repetition 0, are not judged and give none of Lustre: each count starts a program.
# "disks=N,N" tells how many block devices the kernel lists: none in some containers. A client of Lustre adds "lustre=ANSWERED,ASKED": how many of its devices told their counters.

# shellcheck shell=dash source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"
set -f

# Set the sums of this shell; all are 0 if the kernel does not count. Their order is the kernel's.
account() {
    rchar=0 wchar=0 syscr=0 syscw=0 fetched=0 stored=0 cancelled=0
    {
        read -r _ rchar && read -r _ wchar && read -r _ syscr && read -r _ syscw
        read -r _ fetched && read -r _ stored && read -r _ cancelled
    } 2>/dev/null <"/proc/$$/io"
}

read -r host </proc/sys/kernel/hostname
into=$1.$host execution=$2
shift 2

# End if this node cannot write into the stage directory.
no_stage() {
    echo "iogauge: $host cannot write $into: every node must see the stage directory" >&2
    exit 1
}

# Let the kernel tell now what others met before this command: syncfs(2) tells the next caller of an error of the whole mount.
hear_old_errors() {
    [ -z "$directory" ] || sync -f -- "$directory" || echo "iogauge: the line above is of a write before this command"
} >&2

# Bring the directory's file system to storage, and set `synced` to the end, or to - without a directory.
sync_directory() {
    synced=-
    [ -z "$directory" ] && return
    # Twice: Linux lets a journal pass the limit of a control group, and makes what comes next wait for it.
    sync -f -- "$directory" && sync -f -- "$directory" || exit 1
    read -r synced _ </proc/uptime
}

directory=
if [ "$1" = --sync ]; then
    directory=$2
    shift 2
fi

if [ "$1" = --look ]; then
    . "${0%/*}/counters.sh"
    read -r started _ </proc/uptime
    synced=-
    if [ "$2" = before ]; then hear_old_errors; else sync_directory; fi
    iog_count
    into=$into.0
    echo "$execution $host $started $started $synced 0 0 0 0 0 0 0$counted end" >>"$into" || no_stage
    exit
fi

# The launcher's own number first: Hydra starts its proxies by srun, and all of their tasks have the proxy's SLURM_LOCALID.
number=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${MV2_COMM_WORLD_LOCAL_RANK:-${PALS_LOCAL_RANKID:-}}}}
number=${number:-${SLURM_LOCALID:-${FLUX_TASK_LOCAL_ID:-0}}}
iog_end_on_signal
counted='' answers=''
if [ "$number" = 0 ]; then
    into=$into.0
    true >>"$into" || no_stage # before the tool writes a byte
    hear_old_errors
    . "${0%/*}/counters.sh"
    iog_count
fi
account
before="$rchar $wchar $syscr $syscw $fetched $stored $cancelled"
read -r started _ </proc/uptime

iog_start "$@"
# The agent on the first node looks at the tool and its children while they run, and not at what counts here.
# Its start, in ticks since boot, tells it from another process of this number outside of the launcher's name space.
if [ "$number" = 0 ] && [ "$host" = "${IOG_HOST:-}" ] && read -r line 2>/dev/null <"/proc/$IOG_TOOL/stat"; then
    # shellcheck disable=SC2086 # one word for each field
    set -- ${line##*) }
    echo "$IOG_TOOL ${20}" >"$IOG_TASK"
fi
wait "$IOG_TOOL"
status=$?
IOG_TOOL=
read -r ended _ </proc/uptime
account
[ "$status" -eq 0 ] || exit "$status"

[ "$number" = 0 ] || directory=
sync_directory
[ "$number" != 0 ] || iog_grow "$counted" "$answers"
# shellcheck disable=SC2086 # one word for each sum
set -- $before
echo "$execution $host $started $ended $synced $((rchar - $1)) $((wchar - $2)) $((syscr - $3)) $((syscw - $4))" \
    "$((fetched - $5)) $((stored - $6)) $((cancelled - $7))$counted end" >>"$into" || no_stage
