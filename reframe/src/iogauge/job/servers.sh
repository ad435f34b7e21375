# shellcheck shell=bash
# iogauge: clients of fio's servers, which the agents of the nodes have started (iog_agents). Sourced after job.sh.
#
#   iog_client NAME JOBFILE OUTPUT [OPTION...]   a phase that runs fio's job, with more options, on all servers
#   iog_parts NAME FIRST LAST JOBFILE OUTPUT [FIRST LAST JOBFILE OUTPUT]   a phase that runs fio's job on the servers of
#                                         these lines of servers.txt, and another job on others at the same time
#
# fio names files by the server's address.

iog_client() {
    local name=$1 job=$2 output=$3
    shift 3
    # fio takes a file with an address on each line: with a thousand nodes the command line stays
    # short.
    cut -d ' ' -f 2 servers.txt >"$name.$IOG_REP.servers"
    if [ $# -gt 0 ]; then
        # Servers are sent the job file, and nothing of the command line.
        { cat "$job" && printf '%s\n' "${@#--}"; } >"$name.$IOG_REP.fio" || exit 1
        job=$name.$IOG_REP.fio
    fi
    iog_phase "$name" fio --output-format=json --output="$output" --client="$name.$IOG_REP.servers" "$job"
}

iog_parts() {
    local name=$1 clients=()
    shift
    while [ $# -ge 4 ]; do
        sed -n "$1,$2p" servers.txt | cut -d ' ' -f 2 >"$name.$IOG_REP.$1.servers"
        mkdir -p "./$(dirname -- "$4")" || exit 1
        clients+=("$name.$IOG_REP.$1.servers" "$3" "$4")
        shift 4
    done
    iog_phase "$name" iog_clients "${clients[@]}"
}

# Each three words are a client: the file with its servers, its job, its output. All end before this does.
iog_clients() {
    local pids=() pid status=0
    trap 'trap "" TERM; iog_stop_tool 600; for pid in "${pids[@]}"; do iog_stop "$pid" 600; done; exit 143' TERM
    while [ $# -ge 3 ]; do
        iog_start fio --output-format=json --output="$3" --client="$1" "$2"
        pids+=("$IOG_TOOL") IOG_TOOL=
        shift 3
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || status=$?
    done
    return "$status"
}
