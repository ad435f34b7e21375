#!/bin/sh
# Run a job of fio again and again with nothing beside it; a program of its own, not sourced.
#
#   rounds.sh JOBFILE ROUNDS             here, once in each round
#   rounds.sh JOBFILE ROUNDS SERVERS     on each server alone, server after server, in each round
#
# SERVERS has a line "host address,port pid" for each server (fio_servers.sh). Prints a line "needle
# ROUND HOST" before each of fio's results; HOST is - if fio runs here. Each fio gets $IOG_TOKEN with
# .ROUND.HOST added. The first failure ends it, with fio's status.

# shellcheck source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"

job=$1 rounds=$2 servers=${3:-} token=$IOG_TOKEN
iog_end_on_signal

turn() {
    echo "needle $round $host"
    IOG_TOKEN=$token.$round.$host iog_run fio --output-format=json "$@" "$job" </dev/null || exit
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
