"""What a session's records mean for its ending, and which cases have no record."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.missing import Unmeasured
from iogauge.records.record import MetricRecord, Record, short_name
from iogauge.report.ending import Ending, conclude
from iogauge.report.plan_table import first_and_more


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

    def ending(
        self, gate: bool, unmeasured: Unmeasured | None = None, problems: Collection[str] = ()
    ) -> Ending:
        """Return the word and the sentence of the session; see :func:`conclude`."""
        return conclude(
            Counter(record.verdict for record in self if self.counts(record)),
            gate=gate,
            expected=sum(bool(record.expected) for record in self),
            refuted=sum(map(self.is_unconfirmed, self)),
            unmeasured=unmeasured,
            problems=problems,
        )


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of each line, in the order of their first records."""
    found: dict[str, Record] = {}
    for record in records:
        line = record.line
        if line not in found or record.time >= found[line].time:
            found[line] = record
    return list(found.values())


def same_fault(record: Record, metric: MetricRecord) -> MetricRecord:
    """Return the operations per second that a bandwidth repeats, or the metric itself.

    Samples that are proportional have the same spread.
    """
    if metric.verdict is not Verdict.FAIL or not metric.name.endswith("_bw"):
        return metric
    for other in record.metrics:
        fails = other.verdict is Verdict.FAIL and other.is_trouble(gate=False)
        alike = other.name == metric.name.removesuffix("_bw") + "_iops"
        if alike and fails and metric.spread is not None:
            spread = other.spread if other.spread is not None else math.inf
            if math.isclose(spread, metric.spread, rel_tol=1e-3, abs_tol=1e-6):
                return other
    return metric


def of_damage(damaged: Sequence[journal.Damaged]) -> list[str]:
    """Return a sentence that damaged lines fail a session: each may have been a failure."""
    return [f"{len(damaged)} line(s) of the history are no record"] if damaged else []


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


def unable(reframe_report: Path) -> list[str]:
    """Return a line for each reason why cases of a dry run cannot run, with their names.

    Raises OSError or ValueError if the report cannot be read.
    """
    names: dict[str, list[str]] = {}
    try:
        for tests in untrusted.read_json(reframe_report)["runs"]:
            for case in tests["testcases"]:
                if reason := untrusted.build(str | None, case.get("fail_reason"), "fail_reason"):
                    reason = re.sub("^(sanity error: )?(ERROR: )?", "", reason)
                    names.setdefault(reason, []).append(short_name(case["display_name"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error
    return [f"{first_and_more(cases)}: cannot run: {reason}" for reason, cases in names.items()]


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
