# shellcheck shell=dash
# iogauge: start a program in the background, remember it, end it. Sourced by dash and by bash.
#
#   iog_run CMD...           run CMD and return its exit status; $IOG_TOOL is its process meanwhile
#   iog_start NAME CMD...    start CMD; $NAME is its process
#   iog_stop NAME [TENTHS]   end the process $NAME, if there is one: TERM, and KILL after so many tenths of a
#                            second (8); fails if the process has not ended as long after that
#   iog_end_on_signal        at a signal, end the program of iog_run and then this script; the program has a minute,
#                            because fio and scripts leave processes behind if they are killed
#
# A shell acts upon a signal at once only while it waits for a program in the background. The signal may come at
# any moment, also between a start and the next line. But the shell sets $! with the start, before it acts upon
# a signal: iog_stop finds there what iog_start had no time to remember.

IOG_TOOL=
IOG_STARTING=
IOG_BEFORE=

iog_run() {
    local status
    iog_start IOG_TOOL "$@"
    wait "$IOG_TOOL"
    status=$?
    IOG_TOOL=
    return "$status"
}

iog_end_on_signal() {
    trap 'trap "" TERM INT HUP; iog_stop IOG_TOOL 600; exit 143' TERM INT HUP
}

iog_start() {
    IOG_STARTING=$1 IOG_BEFORE=$!
    shift
    "$@" &
    iog_remember
}

iog_remember() {
    [ -z "$IOG_STARTING" ] || [ "$!" = "$IOG_BEFORE" ] || eval "$IOG_STARTING=\$!"
    IOG_STARTING=
}

# Does not wait(1p): bash 5.2, in a trap, may wait for ever for a process that has ended.
iog_stop() {
    local pid signal sent tenths
    iog_remember
    eval "pid=\$$1 $1="
    [ -n "$pid" ] || return 0
    for signal in TERM KILL; do
        sent='' tenths=${2:-8}
        while [ "$tenths" -gt 0 ]; do
            kill -0 "$pid" 2>/dev/null || return 0
            if [ -z "$sent" ]; then
                # A copy of this shell loses a signal that comes before it becomes the program: send it again.
                iog_is_copy "$pid" || sent=1
                kill "-$signal" "$pid" 2>/dev/null
            fi
            sleep 0.1
            tenths=$((tenths - 1))
        done
    done
    ! kill -0 "$pid" 2>/dev/null
}

# Whether a process has not become another program since its fork: PF_FORKNOEXEC among its flags, proc(5).
iog_is_copy() {
    local line
    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    # shellcheck disable=SC2086 # one word for each field
    set -- ${line##*) }
    [ $(($7 & 64)) -ne 0 ]
}
