# shellcheck shell=bash
# iogauge: servers of fio or elbencho on the nodes of a job, and their client here. Sourced after job.sh.
#
#   iog_servers TOOL N INTERFACE LAUNCHER...   start a server on each of N nodes, by a launcher's words
#                                         (empty: here); stops the job unless all answer
#   iog_client NAME JOBFILE OUTPUT [OPTION...]   a phase that runs fio's job, with more options, on all servers
#   iog_parts NAME FIRST LAST JOBFILE OUTPUT [FIRST LAST JOBFILE OUTPUT]   a phase that runs fio's job on the servers of
#                                         these lines of SERVERS, and another job on others at the same time
#   iog_servers_stop                      end the servers; iog_end does so as well
#
# Files in the stage directory, by their names in plan/stage.py. The judge reads the first:
#   SERVERS servers.txt                   a line "host address,port pid" for each
#   SERVERS_HOSTS servers.hosts           for elbencho: a line "address:port" for each
#   SERVERS_NEXT servers.next             the same, but the first one last: what a node wrote is then read by the next node
#   SERVERS_SECRET servers.secret         the word that a server of elbencho wants to hear from those who send it work
#
# fio names files by the server's address.
# servers.lease is renewed while this script lives. A server ends when it says "stop", or when it is
# not renewed for $IOG_SERVERS_LEASE seconds. All must answer within $IOG_SERVERS_SECONDS seconds.

IOG_LAUNCHER=
IOG_BEAT=

# Renew the lease until the job script, its parent, is gone. A server opens the file to read it,
# which makes NFS fetch it anew; the file's time would come from a cache, and from another node's
# clock.
iog_servers_beat() {
    local beat=1 key value parent=$$
    trap 'iog_stop_tool 8; exit' TERM
    while [ "$parent" = "$$" ]; do
        iog_run sleep 2
        while read -r key value; do
            [ "$key" != PPid: ] || parent=$value
        done <"/proc/$BASHPID/status"
        [ "$parent" != "$$" ] || echo "$((beat += 1))" >servers.lease
    done
}

iog_servers() {
    local tool=$1 nodes=$2 interface=$3 host pid _
    shift 3
    rm -f server.* servers.*
    (umask 077 && cat /proc/sys/kernel/random/uuid >servers.secret) || exit 1
    echo 1 >servers.lease
    iog_start iog_servers_beat </dev/null >/dev/null 2>&1
    IOG_BEAT=$IOG_TOOL IOG_TOOL=
    # Full paths: a launcher may start in another directory, and with another PATH. Slurm lets no
    # other step run beside one unless it declares that it shares its node.
    SLURM_OVERLAP=1 iog_start "$@" sh "${BASH_SOURCE[0]%/*}/server.sh" "$PWD/server" "$interface" \
        "$PWD/servers.lease" "${IOG_SERVERS_LEASE:-30}" "$(type -P "$tool" || echo "$tool")" \
        </dev/null >servers.out 2>servers.err
    IOG_LAUNCHER=$IOG_TOOL IOG_TOOL=
    iog_phase servers iog_servers_await "$tool" "$nodes" "${IOG_SERVERS_SECONDS:-60}"
    while read -r host _ pid; do
        # shellcheck disable=SC2034 # job.sh tells the agent of it
        [ "$host" != "$IOG_HOST" ] || IOG_SERVER_PID=$pid
    done <servers.txt
    cut -d ' ' -f 2 servers.txt | tr , : >servers.hosts
    { tail -n +2 servers.hosts && head -n 1 servers.hosts; } >servers.next
}

iog_servers_await() {
    local tool=$1 nodes=$2 seconds=$3 end=$((SECONDS + $3)) why='' found=() answered=() host address _
    until [ "${#answered[@]}" -eq "$nodes" ]; do
        sleep 0.2
        if [ "$SECONDS" -ge "$end" ]; then
            why="within $seconds s"
        elif ! kill -0 "$IOG_LAUNCHER" 2>/dev/null; then
            why="and what started them has ended"
        fi
        found=(server.*)
        [ -e "${found[0]}" ] || found=()
        if [ "${#found[@]}" -ge "$nodes" ] || [ -n "$why" ]; then
            LC_ALL=C sort -- "${found[@]:-/dev/null}" >servers.txt
            iog_servers_apart "$tool"
            while read -r host address _; do
                [[ " ${answered[*]} " == *" $host "* ]] || ! iog_servers_answers "$address" || answered+=("$host")
                [ "$SECONDS" -lt "$end" ] || break
            done <servers.txt
        fi
        if [ -n "$why" ] && [ "${#answered[@]}" -lt "$nodes" ]; then
            grep "^$tool server failed on" servers.err >&2 || tail -n 3 servers.err >&2
            # If the launcher has ended, so have the servers that it started.
            while [ "$SECONDS" -ge "$end" ] && read -r host address _; do
                [[ " ${answered[*]} " == *" $host "* ]] ||
                    echo "$host serves at $address, which cannot be reached from $(uname -n)" >&2
            done <servers.txt
            echo "$tool servers failed: ${#answered[@]} of $nodes nodes answered $why (${answered[*]:-none})" >&2
            return 1
        fi
    done
}

# Servers at one address would share their files.
iog_servers_apart() {
    local shared
    shared=$(cut -d ' ' -f 2 servers.txt | cut -d , -f 1 | sort | uniq -d | head -n 1)
    [ -z "$shared" ] || {
        echo "$1 servers failed: several nodes serve at $shared; name their interface in extras.interface" >&2
        exit 1
    }
}

iog_servers_answers() {
    # shellcheck disable=SC2016 # the inner shell's own arguments
    timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "${1%,*}" "${1#*,}" 2>/dev/null
}

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

iog_servers_stop() {
    local _
    # It must not renew the lease after we write "stop".
    iog_stop "$IOG_BEAT" 20
    IOG_BEAT=
    [ -n "$IOG_LAUNCHER" ] || return 0
    echo stop >servers.lease
    for _ in {1..40}; do
        kill -0 "$IOG_LAUNCHER" 2>/dev/null || break
        sleep 0.1
    done
    iog_stop "$IOG_LAUNCHER" 40 ||
        echo "iogauge: what started the servers does not end: process $IOG_LAUNCHER" >&2
    IOG_LAUNCHER=
    rm -f servers.secret
}
