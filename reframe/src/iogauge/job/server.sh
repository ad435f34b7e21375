#!/bin/sh
# A server of fio or elbencho on this node for the lifetime of the job.
#
#   server.sh OUT INTERFACE LEASE SECONDS PROGRAM
#
# The server is reached at the IPv4 address of INTERFACE (empty: the address of the host's name). fio
# listens on this address alone: a fio server runs any job that anybody sends. elbencho listens on all,
# and takes no work from those who do not know the secret beside LEASE.
# Writes "host address,port pid" to OUT.<host>. Ends the server if LEASE says "stop" or stays the same for SECONDS, at a signal, and when this process or its
# launcher is gone.
#
# The watcher is a process with its own session: a kill of this process and its group does not reach
# it.

# shellcheck source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"

host=$(uname -n)

if [ "$1" != --watch ]; then
    iog_start setsid sh "$0" --watch "$$" "$PPID" "$@"
    watcher=$IOG_TOOL IOG_TOOL=
    trap 'kill -TERM "$watcher" 2>/dev/null' TERM INT HUP
    while :; do
        wait "$watcher"
        status=$?
        # A signal ends the wait as well.
        kill -0 "$watcher" 2>/dev/null || exit "$status"
    done
fi

front=$2 launcher=$3 out=$4 interface=$5 lease=$6 seconds=$7 program=$8
name=${program##*/}
token=
server=

fail() {
    end_server
    echo "$name server failed on $host: $*" >&2
    exit 1
}

# fio's jobs have their own sessions and outlive the server: their environment identifies them.
end_server() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        # shellcheck disable=SC2046,SC2086 # one word for each process
        set -- $server $([ -z "$token" ] || grep -lszFx "IOG_SERVER=$token" /proc/[0-9]*/environ | cut -d / -f 3)
        [ $# -gt 0 ] || return 0
        kill -KILL "$@" 2>/dev/null
        server=
        sleep 0.1
    done
    echo "$name does not end on $host: processes $*" >&2
    return 1
}

address() {
    if [ -z "$interface" ]; then
        getent ahostsv4 "$host" | head -n 1 | cut -d ' ' -f 1
    else
        PATH=$PATH:/usr/sbin:/sbin ip -o -4 addr show dev "$interface" | sed -n '1s/^.* inet \([0-9.]*\).*/\1/p'
    fi
}

# Print how many sockets of this node listen on a port. fio lets several servers of a user share a
# port, and each would get some of the connections.
listeners() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -c "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A "
}

# Start the server on a free port; below 32768 the kernel assigns no ports to others.
start_server() {
    for _ in 1 2 3 4 5; do
        read -r token </proc/sys/kernel/random/uuid
        port=$((20000 + 0x${token%%-*} % 12000))
        [ "$(listeners "$port")" -eq 0 ] || continue
        case $name in
            elbencho) set -- --service --foreground --port "$port" --svcpwfile "${lease%.lease}.secret" ;;
            *) set -- --server="ip:$address,$port" ;;
        esac
        iog_start env "IOG_SERVER=$token" "$program" "$@" </dev/null
        server=$IOG_TOOL IOG_TOOL=
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            sleep 0.2
            kill -0 "$server" 2>/dev/null || break
            [ "$(listeners "$port")" -eq 0 ] || break
        done
        # Two listeners would be ours and another job's, started at the same time.
        ! kill -0 "$server" 2>/dev/null || [ "$(listeners "$port")" -ne 1 ] || return 0
        end_server
    done
    return 1
}

# Set $parent to the parent of a process; empty if it is gone.
find_parent() {
    parent=
    while read -r key value; do
        [ "$key" != PPid: ] || parent=$value
    done 2>/dev/null <"/proc/$1/status"
}

# Set $why if the server must end.
look() {
    find_parent "$$"
    [ "$parent" = "$front" ] || why="the process that started it is gone"
    find_parent "$front"
    [ "$parent" = "$launcher" ] || why="what started it is gone"
    kill -0 "$server" 2>/dev/null || why="$name ended by itself"
    # A thousand nodes must not open a shared file all the time: ten times in a lease is enough.
    [ "$(((tick += 1) % every))" -eq 0 ] || return 0
    if read -r beat 2>/dev/null <"$lease" && [ "$beat" != "$last" ]; then
        last=$beat quiet=0
        [ "$beat" != stop ] || why=stop
    elif [ "$((quiet += every))" -gt "$((2 * seconds))" ]; then
        why="the job did not renew $lease for $seconds s"
    fi
}

why=
trap 'why="a signal"' TERM INT HUP
command -v "$program" >/dev/null || fail "$program: No such file or directory"
address=$(address)
[ "$address" != 0.0.0.0 ] || fail "the name of the host has the address 0.0.0.0, which is every interface: name one in extras.interface"
[ -n "$address" ] || fail "no IPv4 address of ${interface:-the name of the host}: name an interface that all nodes have in extras.interface"
start_server || fail "$program does not listen on $address"
{ echo "$host $address,$port $server" >"$out-$host.$$" && mv "$out-$host.$$" "$out.$host"; } || fail "cannot write $out.$host"

last='' quiet=0 tick=0 every=$((seconds / 5))
[ "$every" -gt 0 ] || every=1
while [ -z "$why" ]; do
    iog_run sleep 0.5
    [ -n "$why" ] || look
done
case $why in
    stop) end_server ;;
    "$name "*) fail "$why" ;;
    *)
        end_server
        echo "$name server on $host was ended: $why" >&2
        exit 1
        ;;
esac
