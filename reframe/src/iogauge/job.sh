# shellcheck shell=bash
# iogauge: functions for the job script of a case. Sourced, not run.
#
#   iog_open COMMAND...     run the agent that checks the target and makes $IOG_DIR; stops the job if refused
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

# Remove the case's directory. Only one that the agent has made for this job: the session's marker stands
# beside it.
iog_close() {
    local status=$?
    trap '' TERM INT HUP USR1 ALRM
    iog_stop_tool
    [ "$(type -t iog_servers_stop)" != function ] || iog_servers_stop
    [ "${#IOG_AT_CLOSE[@]}" -eq 0 ] || "${IOG_AT_CLOSE[@]}" || status=1
    case $IOG_MINE$IOG_DIR in
        1*/iogauge/*/*/*)
            if [ -f "${IOG_DIR%/*}/.iogauge-session" ] && [ ! -L "$IOG_DIR" ]; then
                # A rank that is being killed may still create files: try again.
                rm -rf --one-file-system -- "$IOG_DIR" 2>/dev/null || { sleep 0.3; rm -rf --one-file-system -- "$IOG_DIR"; }
            fi
            ;;
    esac
    exit "$status"
}

# A signal ends the job. Its name stays in told.txt: a scheduler's own account may be that of a success.
iog_told() {
    echo "$1" >told.txt
    exit "$2"
}

iog_open() {
    trap iog_close EXIT
    trap 'iog_told TERM 143' TERM
    trap 'iog_told INT 130' INT
    trap 'iog_told HUP 129' HUP
    trap 'iog_told USR1 138' USR1
    trap 'iog_told ALRM 142' ALRM # Flux, at the time limit
    rm -f told.txt
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
