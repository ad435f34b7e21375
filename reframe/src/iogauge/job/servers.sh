# shellcheck shell=bash
# iogauge: clients of fio's servers, which the agents of the nodes have started (iog_agents). Sourced after job.sh.
#
#   iog_client NAME JOBFILE OUTPUT [OPTION...]   a phase that runs fio's job, with more options, on all servers
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
