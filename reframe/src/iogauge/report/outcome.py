"""What a session's records mean for its exit status, and which cases have no record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record


class SessionRecords(tuple[Record, ...]):
    """The records of a session, and of the sessions that measured its failures once more."""

    @cached_property
    def _passed_again(self) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (record.confirms, *record.place, record.hash)
            for record in self
            if record.confirms and record.verdict is Verdict.PASS
        )

    def is_unconfirmed(self, record: Record) -> bool:
        """Return whether a record is of a failure whose case passed in a later run."""
        case = (record.session, *record.place, record.hash)
        return record.needs_confirmation and case in self._passed_again

    def counts(self, record: Record) -> bool:
        """Return whether a record counts: neither expected nor unconfirmed failures do."""
        return not record.expected and not self.is_unconfirmed(record)

    def summary(self) -> str:
        """Return the number of cases by verdict, the best first: ``12 case(s): 3 PASS, 9
        UNREFERENCED``.
        """
        counts = Counter(record.verdict for record in self)
        parts = [f"{counts[v]} {v.value}" for v in Verdict if counts[v]]
        if refuted := sum(map(self.is_unconfirmed, self)):
            parts.append(f"of which {refuted} FAIL not confirmed by a second run")
        return f"{len(self)} case(s): " + (", ".join(parts) or "nothing was measured")

    def exit_status(self, gate: bool) -> int:
        """Return 0 if the run succeeded, 1 if it failed; a gate without any PASS fails too.

        An expected failure does not fail a run, but is no PASS. Nor does a failure that a
        confirmation run, if the user asked for it, did not confirm.
        """
        verdicts = [record.verdict for record in self if self.counts(record)]
        if gate and Verdict.PASS not in verdicts:
            return 1
        return int(any(verdict.is_trouble(gate) for verdict in verdicts))


def undecided(
    reframe_report: Path, records: Sequence[Record], run: Mapping[str, Any]
) -> list[Record]:
    """Return records of the cases that ReFrame ran without a verdict (time limit, cancelled).

    They come from ReFrame's run report. ``run`` has the keys for all of them: ``session``,
    ``time``, ``gate`` and its marks. Raises OSError or ValueError if the report cannot be read.
    """
    try:
        return list(_undecided(untrusted.read_json(reframe_report), records, run))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error


#: Keys that ReFrame reports under our names; empty or 0 if the case was not set up.
_KNOWN: Final = ("tier", "variant", "nodes", "tasks_per_node", "repetitions")


def _parameters(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in the case's name, with ReFrame's values, else as text."""
    named = re.findall(r"%([\w.]+)=(\S+)", case["display_name"])
    return {name: case.get(name, text) for name, text in named}


def _undecided(report: Any, records: Sequence[Record], run: Mapping[str, Any]) -> Iterator[Record]:
    decided = Counter((r.case, r.partition, r.environment) for r in records)
    for tests in report["runs"]:
        for case in tests["testcases"]:
            name, partition, environment = key = untrusted.build(
                tuple[str, str, str], (case["display_name"], case["partition"], case["environ"])
            )
            if decided[key] > 0:
                decided[key] -= 1
                continue
            reason = str(
                case.get("fail_reason") or f"ReFrame says {case['result']}, nothing was decided"
            )
            values = {
                "time": run["time"],
                "gate": run["gate"],
                "system": untrusted.build(str | None, case.get("system"), "system"),
                "partition": partition,
                "environment": environment,
                "check": name.split()[0],
                "case": name,
                "hash": untrusted.build(str | None, case.get("hashcode"), "hashcode"),
                "verdict": Verdict.ERROR,
                "reason": f"{case.get('fail_phase') or 'run'}: {reason}",
                "expected": False,
                **{key: case[key] for key in _KNOWN if case.get(key)},
                "parameters": _parameters(case),
                "target": None,
                "tools": [],
                "commands": [],
                "metrics": (),
                "findings": (),
                **run,
            }
            yield Record(**values, order=("schema", *values))
