# shellcheck shell=bash
# iogauge: functions for the job script of a case. Sourced, not run.
#
#   iog_open AGENT... open FILE   run the agent that checks the target and makes $IOG_DIR; stops the job if
#                           refused. The same agent removes it
#   iog_repeat A N FUNCTION run FUNCTION with $IOG_REP = A..N (0 is the warm-up); stops at the first failure
#   iog_phase NAME CMD...   run CMD; output goes to NAME.$IOG_REP.out and .err, its fate to phases.tsv
#   iog_at_close CMD...     run CMD when the job ends, however it ends
#   iog_reset               empty $IOG_DIR between repetitions
#
# $IOG_DIR is set by the job script. Whatever ends the job, its directory is removed on the way out.

IOG_PID=
IOG_REP=0
IOG_MINE=
IOG_AT_CLOSE=()
IOG_AGENT=()
# Seconds that removing may take; after a signal, what is left before a batch system kills: Slurm 30 s after
# TERM (KillWait), or as long as the job was warned before (--signal=B:USR1@120). The janitor does the rest.
IOG_PATIENCE=0
# IOR can be made to lie about nodes and tasks.
unset IOR_FAKE_NODES IOR_FAKE_TASK_PER_NODES

iog_stop_tool() {
    [ -n "$IOG_PID" ] || return 0
    kill -TERM "$IOG_PID" 2>/dev/null
    local _
    for _ in 1 2 3 4 5 6 7 8; do
        kill -0 "$IOG_PID" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "$IOG_PID" 2>/dev/null
}

# Remove the case's directory. Only one that the agent has made for this job; it looks again whether it is ours.
iog_close() {
    local status=$?
    trap '' TERM INT HUP USR1
    iog_stop_tool
    [ "$(type -t iog_servers_stop)" != function ] || iog_servers_stop
    [ "${#IOG_AT_CLOSE[@]}" -eq 0 ] || "${IOG_AT_CLOSE[@]}" || status=1
    case $IOG_MINE$IOG_DIR in
        1*/iogauge/*/*/*)
            "${IOG_AGENT[@]}" remove "$IOG_DIR" "$IOG_PATIENCE" ||
                echo "iogauge: left behind: $IOG_DIR; the session removes it, or: iogauge clean" >&2
            ;;
    esac
    exit "$status"
}

iog_open() {
    trap iog_close EXIT
    trap 'IOG_PATIENCE=20; exit 143' TERM
    trap 'IOG_PATIENCE=20; exit 130' INT
    trap 'IOG_PATIENCE=20; exit 129' HUP
    trap 'IOG_PATIENCE=90; exit 138' USR1
    IOG_AGENT=("${@:1:$#-2}")
    : >phases.tsv
    "$@" || exit $?
    IOG_MINE=1
    iog_neighbours
}

# Directories of other cases on the target, ours or another session's: they load it as well.
iog_neighbours() {
    local directory
    for directory in "${IOG_DIR%/*/*/*}"/*/*/*/; do
        [ ! -d "$directory" ] || [ "$directory" = "$IOG_DIR/" ] || echo "${directory%/}"
    done >>neighbours.txt
}

iog_phase() {
    local name=$1 status started
    shift
    started=$(date +%s.%N)
    # In the background, so that a signal to this script is acted upon at once.
    "$@" >"$name.$IOG_REP.out" 2>"$name.$IOG_REP.err" &
    IOG_PID=$!
    wait "$IOG_PID"
    status=$?
    IOG_PID=
    printf '%s\t%s\t%s\t%s\t%s\n' "$IOG_REP" "$name" "$status" "$started" "$(date +%s.%N)" >>phases.tsv
    iog_neighbours
    if [ "$status" -ne 0 ]; then
        echo "iogauge: phase $name, repetition $IOG_REP: exit status $status" >&2
        tail -n 5 "$name.$IOG_REP.err" >&2
        exit "$status"
    fi
}

iog_at_close() {
    IOG_AT_CLOSE=("$@")
}

iog_reset() {
    find "$IOG_DIR" -xdev -mindepth 1 -delete || exit 1
}

iog_repeat() {
    local first=$1 count=$2 function=$3
    for ((IOG_REP = first; IOG_REP <= count; IOG_REP++)); do
        echo "iogauge: repetition $IOG_REP of $count"
        "$function"
    done
    echo "iogauge: all $count repetitions done"
}
