#!/bin/sh
# A job of fio, run again and again with nothing beside it; a program of its own, not sourced.
#
#   rounds.sh JOBFILE ROUNDS             here, once in each round
#   rounds.sh JOBFILE ROUNDS SERVERS     on each server alone, one after the other, in each round
#
# SERVERS has a line "host address,port pid" for each (fio_servers.sh). Prints a line "needle ROUND HOST" before
# each of fio's results; HOST is - where fio runs here. The first failure ends it, with fio's status.

job=$1 rounds=$2 servers=${3:-}
fio=

finish() {
    trap '' TERM INT HUP
    [ -z "$fio" ] || kill -TERM "$fio" 2>/dev/null
    [ -z "$fio" ] || wait "$fio"
    exit 143
}
trap finish TERM INT HUP

# A turn in the background, so that a signal is acted upon at once.
turn() {
    echo "needle $round $host"
    fio --output-format=json "$@" "$job" </dev/null &
    fio=$!
    wait "$fio" || exit
    fio=
}

round=1
while [ "$round" -le "$rounds" ]; do
    if [ -z "$servers" ]; then
        host=-
        turn
    else
        while read -r host address _; do
            turn "--client=$address"
        done <"$servers" || exit
    fi
    round=$((round + 1))
done
