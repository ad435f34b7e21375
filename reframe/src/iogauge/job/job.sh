# shellcheck shell=bash
# iogauge: functions for the job script of a case. Sourced, not run.
#
#   iog_open AGENT... open FILE   run the agent that takes the target's lock, checks the target and
#                           makes $IOG_DIR; stops the job if refused. The same agent removes it
#   iog_repeat A N FUNCTION run FUNCTION with $IOG_REP = A..N (0: warm-up); stops at the first failure
#   iog_phase NAME CMD...   run CMD; its output goes to NAME.$IOG_REP.out and .err. Its exit status
#                           goes to phases.tsv, with seconds since boot, which no clock setting
#                           changes, and with $IOG_TOKEN, a word of this execution for CMD to repeat
#   iog_verify WORDS...     set IOG_VERIFY for the next phase: WORDS in the warm-up, else none. With them a tool checks
#                           its data, which costs time: the warm-up is not judged
#   iog_sample AFTER DIR    after the last "write" or "read" of a repetition: a sample of the files below DIR
#   iog_layouts DIR         after the last write on Lustre: the layouts of the files below DIR
#   iog_at_close CMD...     run CMD when the job ends, however it ends
#   iog_reset               empty $IOG_DIR between repetitions
#   iog_do WORDS...         a command of the agent, on this node, by the agent that runs already
#
#   iog_agents TOOL N INTERFACE LAUNCHER...   start an agent on each of N nodes, by a launcher's words (empty: here), with a
#                           server of TOOL (empty: none); stops the job unless all answer in $IOG_SERVERS_SECONDS
#
# Files in the stage directory, by their names in plan/stage.py. The job script writes the first three, the agent that keeps
# the lock the others:
#   RUNS phases.tsv         a line for each execution of a phase
#   NEIGHBOURS neighbours.txt   directories of other cases that were on the target meanwhile
#   SIGNAL told.txt         name of the signal that ended the job
#   AGENTS_ERRORS agents.err   what the launcher of the agents said
#   OPENED open.json        what the agent saw of the target before the first byte
#   LEASE agents.lease      changes while this script lives; an agent ends without it
#   SERVERS servers.txt     a line "host address,port pid" for each server
# What agents and witness.sh see on the nodes is in seen.HOST.jsonl and tasks.HOST (plan/observations.py).
#
# The job script sets $IOG_DIR. However the job ends, it removes its directory, and then gives up
# the lock.

# shellcheck source-path=SCRIPTDIR source=background.sh
. "${BASH_SOURCE[0]%/*}/background.sh"

IOG_REP=0
IOG_DIR_MADE=
IOG_KEEPER_PID=
IOG_ENDING=
IOG_AT_CLOSE=()
IOG_AGENT=()
# The launcher of the agents.
IOG_AGENTS=
# Seconds for the removal (0: no limit). After a signal it is the time before the batch system
# kills: Slurm 30 s after TERM (KillWait), or the job's warning time (--signal=B:USR1@30). The
# janitor does the rest.
IOG_REMOVAL_SECONDS=0
IOG_WARNED=30
# These make IOR report false numbers of nodes and tasks.
unset IOR_FAKE_NODES IOR_FAKE_TASK_PER_NODES
# Numbers of a task that started this job. A launcher gives each task its own (witness.sh).
unset OMPI_COMM_WORLD_LOCAL_RANK MPI_LOCALRANKID MV2_COMM_WORLD_LOCAL_RANK PALS_LOCAL_RANKID SLURM_LOCALID FLUX_TASK_LOCAL_ID
# fio would take options after its job file for names of job files, the shell would split words elsewhere, and the agent
# would look for its library in that of another Python.
unset POSIXLY_CORRECT IFS PYTHONHOME
# A builtin is meant by its name, not a function of the caller or of BASH_ENV: a read(1p) that changed the seconds since boot
# was seen.
unset -f . : [ break continue echo exec exit export kill local printf read return set shift trap true type wait
# A caller may export its shell's options: what fails or is unset here is looked at here.
set +euC +o pipefail
export -n SHELLOPTS
# If a rank dies, srun must not wait for the others until the time limit.
export SLURM_KILL_BAD_EXIT=1
IOG_STAGE=$PWD

# Remove the case's directory, only if the agent made it for this job; the agent checks again that
# it is ours.
iog_end() {
    local status=$?
    trap '' TERM INT HUP USR1 ALRM PIPE
    IOG_ENDING=1
    iog_stop_tool 8
    iog_stop "$IOG_AGENTS" 40 || echo "iogauge: what started the agents does not end: process $IOG_AGENTS" >&2
    [ "${#IOG_AT_CLOSE[@]}" -eq 0 ] || "${IOG_AT_CLOSE[@]}" || status=1
    case $IOG_DIR_MADE$IOG_DIR in
        1*/iogauge/*/*/*)
            iog_remove "$IOG_DIR" "$IOG_REMOVAL_SECONDS" ||
                echo "iogauge: left behind: $IOG_DIR; the session removes it, or: iogauge clean" >&2
            ;;
    esac
    iog_stop_keeper
    rm -f agent.* # pipes, of all nodes
    exit "$status"
}

# Remove a directory. After a signal there is no time to wait for what the agent may be at.
iog_remove() {
    if [ "$2" -eq 0 ]; then iog_do remove "$@"; else "${IOG_AGENT[@]}" remove "$@"; fi
}

# Tell the agent to give up the lock, and wait until it has.
iog_stop_keeper() {
    [ -n "$IOG_KEEPER_PID" ] || return 0
    echo end >&"$IOG_KEEPER_IN"
    iog_listen 30 end >/dev/null
    # 3: the agent did not end in time. Others that wait for the lock will see that it is dead.
    [ $? -ne 3 ] || kill -KILL "$IOG_KEEPER_PID"
} 2>/dev/null

# End the job at a signal. Its name stays in told.txt: the scheduler's accounting may report a
# success.
iog_on_signal() {
    IOG_REMOVAL_SECONDS=20
    [ "$1" != USR1 ] || IOG_REMOVAL_SECONDS=$((IOG_WARNED * 3 / 4))
    echo "$1" >told.txt
    exit "$2"
}

iog_open() {
    trap iog_end EXIT
    trap 'iog_on_signal TERM 143' TERM
    trap 'iog_on_signal INT 130' INT
    trap 'iog_on_signal HUP 129' HUP
    trap 'iog_on_signal USR1 138' USR1
    trap 'iog_on_signal ALRM 142' ALRM # Flux, at the time limit
    rm -f told.txt tasks.* seen.* agent.* agents.* servers.*
    IOG_AGENT=("${@:1:$#-2}")
    : >phases.tsv
    iog_start_keeper "$@" || exit $?
    IOG_DIR_MADE=1
    iog_neighbours
}

# Start the agent and wait for its answer. It keeps the lock while it can read from this script or
# any of its children: a tool that outlives a killed script still loads the target. Signals for the
# script, or for all its children, do not reach the agent.
iog_start_keeper() {
    local line
    coproc IOG_KEEP {
        trap '' TERM INT HUP USR1 ALRM
        export IOG_KEEPS=1 # Excludes it from the processes that have outlived the job.
        read -r line
        [ "$line" = begin ] || exit
        exec setsid "$@"
    }
    # shellcheck disable=SC2153 # bash sets it
    IOG_KEEPER_PID=$IOG_KEEP_PID
    # The shell closes its own ends of the pipes when the agent ends, which may be at once.
    exec {IOG_KEEPER_IN}>&"${IOG_KEEP[1]}" {IOG_KEEPER_OUT}<&"${IOG_KEEP[0]}" || return 1
    line=${IOG_KEEP[1]}
    exec {line}>&-
    echo begin >&"$IOG_KEEPER_IN"
    iog_hear $((1 << 30)) opened || wait "$IOG_KEEPER_PID"
}

# Read what the agent says until it has answered a question, and print the rest. Returns 0 if it says "done", 1 if
# "failed", 2 if it has ended, 3 if it says nothing for $1 seconds; "alive" means that it is still at it.
# A read with a limit may lose what came as its time was over: nobody reads on after that.
iog_listen() {
    local line status
    while :; do
        IFS= read -r -t "$1" line <&"$IOG_KEEPER_OUT"
        status=$?
        [ "$status" -eq 0 ] || return $((status > 128 ? 3 : 2))
        case $line in
            "$2" | "done $2") return 0 ;;
            "failed $2") return 1 ;;
            '' | alive) ;;
            *) echo "$line" ;;
        esac
    done
}

# Listen in another process: bash acts on a signal that comes just before read(2) only after it. A copy of the script dies of
# a signal, and in the end none comes.
iog_hear() {
    if [ -n "$IOG_ENDING" ] || [ "$BASHPID" != "$$" ]; then iog_listen "$@"; else iog_run iog_listen "$@"; fi
}

iog_agents() {
    local tool=$1 nodes=$2 interface=$3
    shift 3
    iog_ask 10 lease || exit 1
    # The agent that keeps the lock must see the end of this script and of all that loads the target. Slurm lets no other
    # step run beside one unless it declares that it shares its node. A launcher may start in another directory, and with
    # another PATH.
    SLURM_OVERLAP=1 iog_start "$@" "${IOG_AGENT[@]}" attend "$IOG_STAGE" "$IOG_DIR" "$(type -P "$tool" || echo "$tool")" "$interface" \
        </dev/null >agents.out 2>agents.err {IOG_KEEPER_IN}>&- {IOG_KEEPER_OUT}<&-
    IOG_AGENTS=$IOG_TOOL IOG_TOOL=
    iog_phase view iog_do await "$nodes" "$tool" "$IOG_AGENTS" "${IOG_SERVERS_SECONDS:-60}"
}

# Record directories of other cases on the target, of any session: they load the target as well.
iog_neighbours() {
    local directory
    for directory in "${IOG_DIR%/*/*/*}"/*/*/*/; do
        [ ! -d "$directory" ] || [ "$directory" = "$IOG_DIR/" ] || echo "${directory%/}" || exit 1
    done >>neighbours.txt || exit 1
}

iog_phase() {
    local name=$1 status started ended token
    shift
    read -r token </proc/sys/kernel/random/uuid || exit 1
    token=$name.$IOG_REP.$token
    # The agent looks at the target's counters now, and often from now on.
    # If it has ended, nobody answers tasks any more: without its pipes they do not wait for it.
    iog_ask 10 phase "$name.$IOG_REP.out" || [ $? -ne 2 ] || rm -f "agent.$HOSTNAME" "agent.$HOSTNAME.said"
    read -r started _ </proc/uptime
    IOG_TOKEN=$token iog_run "$@" >"$name.$IOG_REP.out" 2>"$name.$IOG_REP.err"
    status=$?
    read -r ended _ </proc/uptime
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' \
        "$IOG_REP" "$name" "$status" "$started" "$ended" "$token" >>phases.tsv || exit 1
    iog_neighbours
    if [ "$status" -ne 0 ]; then
        echo "iogauge: phase $name, repetition $IOG_REP: exit status $status" >&2
        # Without control bytes, which a terminal would obey.
        tail -n 5 "$name.$IOG_REP.err" | LC_ALL=C tr -d '\000-\010\013-\037\177' >&2
        exit "$status"
    fi
}

iog_verify() {
    IOG_VERIFY=()
    # shellcheck disable=SC2034 # the job script's phases use it
    [ "$IOG_REP" != 0 ] || IOG_VERIFY=("$@")
}

iog_at_close() {
    IOG_AT_CLOSE=("$@")
}

# Ask the agent that keeps the lock, which runs already; $1 is the seconds for which it may be silent. It repeats the
# question, which names the repetition, so that a late answer is not taken for the next one. Returns as iog_listen does.
iog_ask() {
    local question="$2 $IOG_REP${3:+ $3}"
    (trap '' PIPE && echo "$question" >&"$IOG_KEEPER_IN") 2>/dev/null || return 2
    iog_hear "$1" "$question"
}

# Let the agent that keeps the lock run one of the agent's commands: each start of an agent is dear. If it has ended,
# start another one. If it lives and is silent, give up: it might do later, in a phase, what it was asked for.
iog_do() {
    local words status
    printf -v words '\t%s' "$@"
    iog_ask 120 run "${words#?}" >&2
    status=$?
    case $status in
        2) "${IOG_AGENT[@]}" "$@" ;;
        3)
            echo "iogauge: the agent has not answered for 120 s, asked for: $*" >&2
            return 1
            ;;
        *) return "$status" ;;
    esac
}

iog_sample() {
    iog_ask 10 "sample" "$1 $2" || true
}

iog_layouts() {
    iog_ask 60 layouts "$1" || true
}

iog_reset() {
    iog_ask "${IOG_EMPTY_SECONDS:-60}" empty
    case $? in
        0) return 0 ;;
        1) exit 1 ;;
    esac
    iog_run "${IOG_AGENT[@]}" empty "$IOG_DIR" || exit
}

iog_repeat() {
    local first=$1 count=$2 function=$3
    for ((IOG_REP = first; IOG_REP <= count; IOG_REP++)); do
        echo "iogauge: repetition $IOG_REP of $count"
        "$function"
    done
    echo "iogauge: all $count repetitions done"
}
