"""What a needle's pass measures next: all probes round by round, and then the suspects again.

rounds.sh asks, by ``python -m iogauge.job.agent turns JOBFILE ROUNDS MEASURED [SERVERS]``, and runs
fio once for each line of the answer: ``ROUND PROBE OPTION``. MEASURED is the file of what it has
printed so far. The probes are the jobs of the job file, or else the hosts in SERVERS.
"""

from __future__ import annotations

import json
import os
import re
import sys

from iogauge.core import untrusted
from iogauge.plan.stage import ROUNDS
from iogauge_extras.needle import rounds as plan
from iogauge_extras.needle.measured import by_round, parse_turns, rates_of


def next_turns(job_file: str, rounds: int, measured: str, servers: str | None) -> list[str]:
    """Return the lines of the answer: none if no probe is a suspect.

    Raises OSError or ValueError for files that are missing or damaged.
    """
    options = _probes(job_file, servers)
    done = parse_turns(untrusted.read_text(measured))
    names, first = tuple(options), 1
    if done:
        deviation = json.loads(untrusted.read_text(ROUNDS))["max_deviation"]
        rates = rates_of(by_round(done), names, range(1, rounds + 1))
        names = plan.again(rates, float(deviation)).names
        first, rounds = rounds + 1, plan.turns_again(rounds)
    # Another order in each execution: what only a place in the order makes slow must not hit one probe in every sweep.
    orders = plan.orders(names, rounds, f"{os.environ['IOG_TOKEN']} {first}")
    return [
        f"{number} {name} {options[name]}"
        for number, order in enumerate(orders, first)
        for name in order
    ]


def _probes(job_file: str, servers: str | None) -> dict[str, str]:
    """Return fio's option for each probe."""
    if servers is None:
        names = re.findall(r"^\[(\S+)\]$", untrusted.read_text(job_file), re.MULTILINE)
        return {name: f"--section={name}" for name in names}
    words = (line.split() for line in untrusted.read_text(servers).splitlines())
    return {line[0]: f"--client={line[1]}" for line in words}


def command(words: list[str]) -> int | None:
    """``turns JOBFILE ROUNDS MEASURED [SERVERS]``: print the next lines; return None for other words."""
    match words:
        case [job_file, rounds, measured, *servers]:
            lines = next_turns(job_file, int(rounds), measured, servers[0] if servers else None)
            sys.stdout.writelines(f"{line}\n" for line in lines)
            return 0
    return None
