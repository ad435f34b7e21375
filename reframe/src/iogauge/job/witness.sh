#!/bin/sh
# Run a tool, and keep what the kernel forgets with it: the second witness.
#
#   witness.sh STAGE EXECUTION [--sync DIRECTORY] COMMAND...            the exit status is the command's
#   witness.sh STAGE EXECUTION [--sync DIRECTORY] --look before|after   on a node whose server does the work
#
# After a command that ended well there is a line in STAGE/tasks.HOST: seconds since boot, and the sums of /proc/PID/io
# and the processor's ticks of this shell, the command and all children that it waited for (plan/observations.py). What the tool prints, and where a launcher
# takes it, changes nothing. The first task of a node lets the node's agent look at all counters, before and after.

set -f
read -r host </proc/sys/kernel/hostname
file=$1/tasks.$host agent=$1/agent.$host execution=$2 directory='' synced=-
shift 2
[ "$1" != --sync ] || { directory=$2 && shift 2; }

# Ask the agent of this node. If it is dead, its pipes are at their end at once, whatever has killed whom: nobody waits to open
# them. "failed" before the question means that it could not do it, and says why.
# shellcheck disable=SC2016 # the inner shell's own arguments
ask='exec 3<>"$0.said" 4<"$0.said" 3<&- && echo "$1" 1<>"$0" && while read -r said <&4; do
    case $said in
        "$1") exit 0 ;;
        "failed $1: "*) echo "iogauge: $said" >&2 && exit 1 ;;
    esac
done; exit 1'

look() {
    [ ! -p "$agent" ] || /usr/bin/timeout 10 /bin/sh -c "$ask" "$agent" "$1 $execution" ||
        echo "iogauge: $host: the agent of this node does not answer" >&2
}

no_stage() {
    echo "iogauge: $host cannot write $file: every node must see the stage directory" >&2
    exit 1
}

# Let the agent call syncfs(2): a program on PATH may do nothing. A stage directory may take no named pipes (9p).
sync_target() {
    if [ -p "$agent" ]; then
        /bin/sh -c "$ask" "$agent" "sync $execution"
    else
        /bin/sync -f -- "$directory" && /bin/sync -f -- "$directory"
    fi
}

# Before the tool writes a byte. Let the kernel tell now what others met: syncfs(2) tells the next caller of an error of the
# whole mount.
begin() {
    [ -p "$agent" ] || true >>"$file" || no_stage
    [ -z "$directory" ] || sync_target || echo "iogauge: the line above is of a write before this command" >&2
    look before
}

# Bring what was written to storage.
finish() {
    if [ -n "$directory" ]; then
        sync_target || exit 1
        read -r synced _ </proc/uptime
    fi
    look after
}

# The launcher's own number first: Hydra starts its proxies by srun, and all of their tasks have the proxy's SLURM_LOCALID.
number=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${MV2_COMM_WORLD_LOCAL_RANK:-${PALS_LOCAL_RANKID:-}}}}
number=${number:-${SLURM_LOCALID:-${FLUX_TASK_LOCAL_ID:-0}}}
sums='' ticks=''
if [ "$1" = --look ]; then
    read -r started _ </proc/uptime
    [ "$2" = after ] || { begin && exit; }
    ended=$started number=-
    finish
else
    [ "$number" != 0 ] || begin
    read -r started _ </proc/uptime
    # Read at a signal alone: a shell takes time to read functions. In a trap, $! is known before the next line.
    # shellcheck source-path=SCRIPTDIR source=background.sh
    trap 'trap "" TERM INT HUP; . "${0%/*}/background.sh"; iog_stop "$!" 600; exit 143' TERM INT HUP
    "$@" &
    tool=$!
    # The agent looks at the tool and its children while they run. The start tells it from one of another name space.
    if [ "$number" = 0 ] && [ -p "$agent" ] && read -r line 2>/dev/null <"/proc/$tool/stat"; then
        # shellcheck disable=SC2086 # one word for each field
        set -- ${line##*) }
        echo "task $tool ${20}" 1<>"$agent"
    fi
    wait "$tool" || exit
    trap - TERM INT HUP
    read -r ended _ </proc/uptime
    while read -r _ sum; do sums="$sums $sum"; done 2>/dev/null </proc/$$/io
    if read -r line 2>/dev/null </proc/$$/stat; then
        # shellcheck disable=SC2086 # one word for each field
        set -- ${line##*) }
        ticks=" $((${12} + ${13} + ${14} + ${15}))"
    fi
    [ "$number" != 0 ] || finish
fi
line="$execution $number $started $ended $synced${sums:- 0 0 0 0 0 0 0}$ticks end"
# The agent writes the lines of all tasks at once: a stage that all nodes share would be opened by every task.
if [ -p "$agent" ]; then
    echo "$line" 1<>"$agent"
else
    echo "$line" >>"$file" || no_stage
fi
