"""Cases that ReFrame knows and that have no verdict: those of a run, and those that cannot run."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from iogauge.core import untrusted
from iogauge.core.groups import grouped
from iogauge.core.text import count, some
from iogauge.judge.verdict import Verdict
from iogauge.records.record import SCHEMA, Record, parameters_in, short_name


def undecided(
    reframe_report: Path, records: Sequence[Record], run: Mapping[str, Any]
) -> list[Record]:
    """Return records of the cases that ReFrame ran without a verdict (time limit, cancelled).

    They come from ReFrame's run report. ``run`` has the keys for all of them: ``session``,
    ``time``, ``gate`` and its marks. Raises OSError or ValueError if the report cannot be read.
    """
    with _read(reframe_report) as cases:
        return list(_undecided(cases, records, run))


class Unable(NamedTuple):
    """Why cases of a dry run cannot run."""

    #: Kind of the refusal, as in ``vocabulary``; empty for all others.
    kind: str
    #: The reason, with the names of the cases.
    text: str


def unable(reframe_report: Path) -> list[Unable]:
    """Return each reason why cases of a dry run cannot run.

    Raises OSError or ValueError if the report cannot be read.
    """
    found = []
    with _read(reframe_report) as cases:
        failed = [case for case in cases if case.get("fail_reason")]
        reasons = grouped(
            failed, lambda case: (case.get("refusal", ""), str(case["fail_reason"]))
        )
    for (kind, reason), mine in reasons.items():
        reason = re.sub("^(sanity error: )?(ERROR: )?", "", reason)
        names = some([short_name(case["display_name"]) for case in mine], 1)
        text = f"{reason}. So {count(len(mine), 'case')} cannot run: {names}"
        found.append(Unable(kind, text))
    return found


@contextlib.contextmanager
def _read(reframe_report: Path) -> Iterator[list[Any]]:
    """Give the cases of a run report; what is not of its form raises ValueError."""
    try:
        report = untrusted.read_json(reframe_report)
        cases: list[Any] = []
        for tests in report["runs"]:
            cases += tests["testcases"]
        yield cases
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error


#: Keys that ReFrame reports under our names; empty or 0 if the case was not set up.
_KNOWN: Final = ("tier", "variant", "nodes", "tasks_per_node", "repetitions")


def _parameters(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in the case's name, with ReFrame's values, else as text."""
    named = parameters_in(case["display_name"])
    return {name: case.get(name, text) for name, text in named.items()}


#: What ReFrame says of a case that it left because of a signal, and what happened.
_TOLD: Final = re.compile(
    r"aborted due to (ForceExitError|KeyboardInterrupt)|force exit error(: received signal \d+)?|cancelled by user"
)
_TOLD_TO_END: Final = "a signal told the session to end, before the case began"


def _undecided(
    cases: Iterable[Any], records: Sequence[Record], run: Mapping[str, Any]
) -> Iterator[Record]:
    decided = Counter((r.case, r.partition, r.environment) for r in records)
    for case in cases:
        key = (case["display_name"], case["partition"], case["environ"])
        if decided[key] > 0:
            decided[key] -= 1
            continue
        name, partition, environment = key
        reason = str(
            case.get("fail_reason")
            or f"ReFrame says {case['result']}, nothing was decided"
        )
        values = {
            "schema": SCHEMA,
            "system": case.get("system"),
            "partition": partition,
            "environment": environment,
            "check": name.split()[0],
            "case": name,
            "hash": case.get("hashcode"),
            "verdict": Verdict.ERROR.value,
            "reason": f"{case.get('fail_phase') or 'run'}: {_TOLD.sub(_TOLD_TO_END, reason)}",
            **{key: case[key] for key in _KNOWN if case.get(key)},
            "expected": False,
            "parameters": _parameters(case),
            "target": None,
            "tools": [],
            "commands": [],
            "metrics": [],
            "findings": [],
            **run,
        }
        yield Record.from_json(values)
