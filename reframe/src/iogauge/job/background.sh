# shellcheck shell=dash
# iogauge: start a program in the background, remember it, end it. Sourced by dash and by bash.
#
#   iog_run CMD...           run CMD and return its exit status; a signal takes effect at once
#   iog_start CMD...         start CMD; $IOG_TOOL is its process. To keep it while others run, move
#                            it in one line: OTHER=$IOG_TOOL IOG_TOOL=
#   iog_stop_tool TENTHS     end the process of iog_start unless it was moved, as iog_stop does
#   iog_stop PID TENTHS      end a process: TERM, and KILL for it and its descendants after TENTHS tenths of a second,
#                            or if it hangs in its handler of TERM; fails if it has not ended as long after that. Does
#                            nothing if PID is empty
#   iog_end_on_signal        at a signal, end the program of iog_run and then this script; the program
#                            has a minute to end
#
# A shell acts on a signal at once only while it waits for a program in the background. The signal
# may come at any moment, even between a start and the next line. But the shell sets $! with the
# start, before it acts on a signal: there iog_stop_tool finds a process that iog_start had no time
# to remember.

IOG_TOOL=
IOG_STARTING=
IOG_BEFORE=

iog_run() {
    local status
    iog_start "$@"
    wait "$IOG_TOOL"
    status=$?
    IOG_TOOL=
    return "$status"
}

iog_end_on_signal() {
    trap 'trap "" TERM INT HUP; iog_stop_tool 600; exit 143' TERM INT HUP
}

iog_start() {
    IOG_STARTING=1 IOG_BEFORE=$!
    "$@" &
    iog_remember
}

iog_remember() {
    [ -z "$IOG_STARTING" ] || [ "$!" = "$IOG_BEFORE" ] || IOG_TOOL=$!
    IOG_STARTING=
}

iog_stop_tool() {
    iog_remember
    iog_stop "$IOG_TOOL" "$1"
}

# Does not use wait(1p): in a trap, bash 5.2 may wait forever for a process that has ended.
iog_stop() {
    local tenths sent blocked='' hangs=0
    [ -n "$1" ] || return 0
    sent='' tenths=$2
    while [ "$tenths" -gt 0 ]; do
        kill -0 "$1" 2>/dev/null || return 0
        if [ -z "$sent" ]; then
            # A signal before this shell's copy becomes the program is lost: send it again.
            iog_is_copy "$1" || sent=1
            blocked=''
            ! iog_blocks_term "$1" || blocked=1
            kill -TERM "$1" 2>/dev/null
        elif [ -z "$blocked" ]; then
            # fio 3.33 allocates memory in its handler. If TERM comes during fork(2), it waits there for ever.
            if iog_blocks_term "$1"; then hangs=$((hangs + 1)); else hangs=0; fi
            [ "$hangs" -lt 5 ] || break
        fi
        sleep 0.1
        tenths=$((tenths - 1))
    done
    iog_kill "$1"
    tenths=$2
    while [ "$tenths" -gt 0 ]; do
        kill -0 "$1" 2>/dev/null || return 0
        sleep 0.1
        tenths=$((tenths - 1))
    done
    ! kill -0 "$1" 2>/dev/null
}

# KILL a process and all that descend from it: fio's jobs have their own sessions, and wait for a dead fio for ever.
iog_kill() (
    set +f
    # While they are stopped they start no others.
    kill -STOP "$1" 2>/dev/null || exit 0
    found=" $1 " new=1
    while [ -n "$new" ]; do
        new='' all=''
        for file in /proc/[0-9]*/stat; do
            read -r line 2>/dev/null <"$file" || continue
            # shellcheck disable=SC2086 # one word for each field
            set -- ${line##*) }
            all="$all ${line%% *}:$2"
        done
        more=1
        while [ -n "$more" ]; do
            more=''
            for pair in $all; do
                case $found in
                    *" ${pair%:*} "*) ;;
                    *" ${pair#*:} "*)
                        kill -STOP "${pair%:*}" 2>/dev/null
                        found="$found${pair%:*} " more=1 new=1
                        ;;
                esac
            done
        done
    done
    # shellcheck disable=SC2086 # one word for each process
    kill -KILL $found 2>/dev/null
)

# Succeeds if a process is still a mere fork: PF_FORKNOEXEC among its flags, proc(5).
iog_is_copy() {
    local line
    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    # shellcheck disable=SC2086 # one word for each field
    set -- ${line##*) }
    [ $(($7 & 64)) -ne 0 ]
}

# Succeeds if a process blocks TERM, as it does while it handles one.
iog_blocks_term() {
    local key value
    while read -r key value; do
        [ "$key" != SigBlk: ] || return $(((0x${value#????????????} & 0x4000) == 0))
    done 2>/dev/null <"/proc/$1/status"
    return 1
}
