#!/bin/sh
# Run a job of fio again and again, each time on one probe, with nothing beside it; a program of its own, not sourced.
#
#   rounds.sh JOBFILE ROUNDS [SERVERS] -- AGENT...
#
# The agent says which probe has its turn (iogauge_extras/needle/turns.py): first in ROUNDS rounds, then once more of
# those that seem slow. A probe is a job of the job file, or a server: SERVERS has a line "host address,port pid"
# for each (servers.sh). Prints a line "needle ROUND PROBE" before each of fio's results. Each fio gets $IOG_TOKEN
# with .ROUND.PROBE added. The first failure ends it, with the status of what failed.

# shellcheck source-path=SCRIPTDIR source=background.sh
. "${0%/*}/background.sh"

job=$1 rounds=$2 servers='' token=$IOG_TOKEN
shift 2
[ "$1" = -- ] || { servers=$1 && shift; }
shift
iog_end_on_signal

turn() {
    echo "needle $round $probe"
    IOG_TOKEN=$token.$round.$probe iog_run fio --output-format=json "$option" "$job" </dev/null
}

: >"$job.turns" || exit
for _ in rounds again; do
    iog_run "$@" turns "$job" "$rounds" "$job.turns" ${servers:+"$servers"} >"$job.next" || exit
    while read -r round probe option; do
        turn >>"$job.turns" || exit
    done <"$job.next" || exit
done
cat "$job.turns"
