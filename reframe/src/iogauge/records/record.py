"""The form of a record: what is kept of a case.

A record is one line of JSON in a session's file; docs/results.md describes its keys.

The dataclasses keep what JSON held. So an object that an older or a newer version wrote is read, and written back as it was.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

from pydantic_core import from_json

from iogauge.core import untrusted
from iogauge.core.measurement import Reference
from iogauge.core.text import digest, visible
from iogauge.evidence.fingerprint import DIVIDING, series_subset
from iogauge.guards.finding import Finding
from iogauge.judge.verdict import MetricVerdict, Verdict

#: Metadata of a field that a new object leaves out if it is None.
LEFT_OUT: Mapping[str, Any] = {"left out": True}


def named(key: str) -> Mapping[str, Any]:
    """Return the metadata of a field whose key in JSON has another name."""
    return {"key": key}


def _taken(source: object, *names: str) -> dict[str, Any]:
    """Return attributes of an object by their names."""
    return {name: getattr(source, name) for name in names}


#: Version of the record's form. It grows if a key changes its meaning, not if keys are added.
SCHEMA = 1

#: Keys that, with the parameters, name what is measured; each with its value for older records.
_MEASURED: Mapping[str, Any] = {
    "system": None,
    "partition": None,
    "environment": None,
    "check": None,
    "variant": "sound",
    "tier": None,
    "nodes": None,
    "tasks_per_node": None,
    "overridden": {},
}

#: The largest figure and the latest time that are accepted; drawing and sorting need finite values.
_MOST = 1e300
_LAST = 200_000_000_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@lru_cache(maxsize=64)
def microseconds(text: object) -> int:
    """Return the microseconds since 1970 of a time such as 2026-01-31T12:00:00Z.

    Raises ValueError, also for earlier times.
    """
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        since_epoch = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError):
        since_epoch = -1
    if not 0 <= since_epoch < _LAST:
        raise ValueError(
            f"time is {text!r:.60}: expected UTC such as 2026-01-31T12:00:00Z"
        )
    return since_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord(untrusted.Form):
    """What a guard saw; ``metric`` is None if it concerns the whole case. Older records have no ``subject``."""

    guard: str
    outcome: str
    metric: str | None
    saw: str
    demands: str
    remedy: Any = ""
    subject: Any = ""

    @classmethod
    def of(cls, finding: Finding) -> FindingRecord:
        """Return the record of a finding."""
        taken = _taken(
            finding, "guard", "metric", "saw", "demands", "remedy", "subject"
        )
        return cls(outcome=finding.outcome.value, **taken)

    @property
    def name(self) -> str:
        """Return number and subject of the guard."""
        return f"{self.guard} {self.subject}".rstrip()

    def objects(self, verdict: Verdict) -> bool:
        """Return whether the guard is a reason for a verdict."""
        return self.outcome == verdict.value.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord(untrusted.Form):
    """The reference for a metric; bounds are shares of the value, None if open."""

    value: float
    lower: float | None
    upper: float | None = None
    unit: Any = ""
    source: Any = ""
    xfail: Any = None
    of_ceiling: float | None = field(default=None, metadata=LEFT_OUT)

    @classmethod
    def of(cls, reference: Reference) -> ReferenceRecord:
        """Return the record of a reference."""
        return cls(
            **_taken(reference, "value", "lower", "upper", "unit", "source", "xfail"),
            of_ceiling=reference.of_ceiling,
        )

    @property
    def least(self) -> float | None:
        """Return the least value that meets the reference; None if any does."""
        return None if self.lower is None else self.value * (1 + self.lower)

    @property
    def most(self) -> float | None:
        """Return the largest value that meets the reference; None if any does."""
        return None if self.upper is None else self.value * (1 + self.upper)

    def _check(self) -> None:
        """Raise ValueError for a reference that is not positive, or too large to draw."""
        if self.value <= 0:
            raise ValueError("value is not more than 0")
        bounds = filter(None, (self.value, self.least, self.most))
        if max(map(abs, bounds)) > _MOST:
            raise ValueError(f"value or a bound is more than {_MOST:g}: {self.value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRecord(untrusted.Form):
    """The measured values of one metric, in its unit, and the verdict on it."""

    name: str
    unit: str
    better: Any = "more"
    samples: Any = ()
    median: float
    spread: float | None
    verdict: Verdict
    reason: str
    cold: Any = None
    probes: Any = field(default=None, metadata=LEFT_OUT)
    rounds: Any = field(default=None, metadata=LEFT_OUT)
    ceiling: float | None
    ceiling_from: Any = None
    reference: ReferenceRecord | None
    derived_from: Any = field(default=None, metadata=LEFT_OUT)
    notes: str | None = field(default=None, metadata=LEFT_OUT)
    #: True if the median is a bound of the figure: statistics leave it out.
    open: Any = field(default=None, metadata=LEFT_OUT)

    @classmethod
    def of(
        cls,
        decided: MetricVerdict,
        *,
        ceiling: float | None,
        ceiling_from: str | None,
        cold: float | None,
        probes: Mapping[str, float],
        rounds: Sequence[Mapping[str, float]] = (),
    ) -> MetricRecord:
        """Return the record of a verdict, with the values of the warm-up (``cold``), of each part
        (``probes``), and of each part in every round.
        """
        metric, reference = decided.metric, decided.reference
        return cls(
            # The median is None for a verdict without samples, which is read as damaged.
            **_taken(decided, "samples", "median", "spread", "verdict", "reason"),
            **_taken(metric, "name", "unit", "better"),
            cold=cold,
            probes=probes or None,
            rounds=rounds or None,
            notes=decided.notes or None,
            open=decided.open or None,
            ceiling=ceiling,
            ceiling_from=ceiling_from,
            reference=ReferenceRecord.of(reference) if reference else None,
        )

    @property
    def failed_as_expected(self) -> bool:
        """Return whether the metric failed and its reference says to expect that."""
        return (
            self.verdict is Verdict.FAIL
            and self.reference is not None
            and bool(self.reference.xfail)
        )

    def is_trouble(self, gate: bool) -> bool:
        """Return whether somebody must look at the metric."""
        return self.verdict.is_trouble(gate) and not self.failed_as_expected

    def _check(self) -> None:
        """Raise ValueError for a name that is not valid Unicode, and for a figure too large to
        draw.
        """
        self.name.encode()
        if abs(self.median) > _MOST:
            raise ValueError(f"median is {self.median!r}: expected {_MOST:g} at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(untrusted.Form):
    """The record of a case. The fields are in the order in which a new record has its keys."""

    schema: Any = SCHEMA
    session: str
    time: str
    gate: Any = False
    selection: Any = field(default=None, metadata=LEFT_OUT)
    accepts: Any = field(default=None, metadata=LEFT_OUT)
    system: str
    partition: str
    environment: str
    check: str
    case: str
    hash: str | None = None
    verdict: Verdict
    reason: str
    confirms: str | None = field(default=None, metadata=LEFT_OUT)
    expected: Any = False
    tier: str | None = None
    variant: Any = None
    nodes: Any = None
    tasks_per_node: Any = None
    repetitions: Any = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    pinned: Any = field(default=None, metadata=LEFT_OUT)
    overridden: Mapping[str, Any] = field(default_factory=dict)
    price: Any = None
    target: Any = None
    layout: Any = field(default=None, metadata=LEFT_OUT)
    tools: Any = ()
    stack: Any = None
    suite: Any = field(default=None, metadata=LEFT_OUT)
    busy: str | None = field(default=None, metadata=LEFT_OUT)
    load: float | None = field(default=None, metadata=LEFT_OUT)
    commands: Any = ()
    metrics: tuple[MetricRecord, ...] = field()
    findings: tuple[FindingRecord, ...] = field()
    own_line: str | None = field(default=None, metadata=named("line"))
    own_series: str | None = field(default=None, metadata=named("series"))
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    def to_line(self) -> bytes:
        """Return the line in a session's file, without its end.

        Raises ValueError for a number that is not finite.
        """
        return json.dumps(
            self.to_json(), allow_nan=False, separators=(",", ":")
        ).encode()

    def _check(self) -> None:
        """Raise for text that is not valid Unicode, an impossible time, and a target without a
        path.
        """
        names = (self.session, self.time, self.system, self.partition, self.environment)
        for text in (*names, self.check, self.case, self.own_line, self.own_series):
            (text or "").encode()
        microseconds(self.time)
        if self.target is not None:
            _Target.from_json(self.target, "target.")

    def with_fingerprint(self, fingerprint: Mapping[str, Any]) -> Record:
        """Return a new record with its fingerprint, and the line and series that follow from it."""
        line = line_of(self.to_json())
        subset = series_subset(fingerprint)
        for key in DIVIDING:
            subset.pop(key, None)
        series = series_of(line, subset)
        return replace(self, own_line=line, own_series=series, fingerprint=fingerprint)

    @property
    def line(self) -> str:
        """Return the name of what was measured; see docs/results.md."""
        return self.own_line or keys_of(self.to_json())[0]

    @property
    def series(self) -> str:
        """Return the name of the line under one fingerprint; see docs/results.md."""
        return self.own_series or keys_of(self.to_json())[1]

    @property
    def short_name(self) -> str:
        """Return the case's name without ReFrame's parameter names."""
        return short_name(self.case)

    @property
    def target_path(self) -> str:
        """Return the path of the target; returns the partition's name if no path is known."""
        return self.partition if self.target is None else str(self.target["path"])

    @property
    def place(self) -> tuple[str, str, str]:
        """Return system, partition and environment."""
        return (self.system, self.partition, self.environment)

    @property
    def where(self) -> str:
        """Return system and partition, safe for a terminal: ``mysite:scratch``."""
        return visible(f"{self.system}:{self.partition}")

    @property
    def minute(self) -> str:
        """Return the time as people write it, to the minute."""
        return self.time[:16].replace("T", " ")

    @property
    def needs_confirmation(self) -> bool:
        """Return whether a second run may refute the failure: a FAIL that nobody expects."""
        return self.verdict is Verdict.FAIL and not self.expected and not self.confirms

    def is_trouble(self, gate: bool) -> bool:
        """Return whether the verdict fails a run; in a gate all but PASS do."""
        return self.verdict.is_trouble(gate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target(untrusted.Form):
    """The keys that the record of a target must have."""

    path: str


def decode(line: bytes) -> dict[str, Any]:
    """Return the object in a line if it is a record of this version; else raise ValueError.

    The values are not checked: :meth:`Record.from_json` does that.
    """
    try:
        # Few values come again.
        values = from_json(line, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(values, dict) or "schema" not in values:
        raise ValueError("not a record")
    if values["schema"] != SCHEMA:
        raise ValueError(f"schema {values['schema']!r}, this version reads {SCHEMA}")
    return values


def line_of(record: Mapping[str, Any]) -> str:
    """Return twelve hex digits that name what a record measured: where, which case, at which scale.

    A record that is older than ``parameters`` has them in the case's name.
    """
    parameters = record.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = parameters_in(str(record.get("case")))
    if pinned := record.get("pinned"):  # each node has a line of its own
        parameters = {**parameters, ".nid": pinned}
    measured = {name: record.get(name, old) for name, old in _MEASURED.items()}
    return digest(
        [measured, {name: _word(value) for name, value in parameters.items()}]
    )


def series_of(line: str, subset: Mapping[str, Any]) -> str:
    """Return twelve hex digits that name a series: a line and its relevant fingerprint."""
    return digest([line, dict(subset)])


def keys_of(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return line and series of a record.

    Both are computed for a record that is older than these keys. The series then comes from the
    tools and the stack's fingerprint, which is all such a record knows of the software.
    """
    line, series = record.get("line"), record.get("series")
    if not (isinstance(line, str) and line):
        line = line_of(record)
    if not (isinstance(series, str) and series):
        stack = record.get("stack")
        subset = {
            "tools": record.get("tools"),
            "stack": stack.get("fingerprint") if isinstance(stack, Mapping) else None,
        }
        series = series_of(
            line, {name: value for name, value in subset.items() if value}
        )
    return line, series


def _word(value: object) -> str:
    """Return a parameter's value as text, so that 4 in a record is 4 in the name of a case."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def parameters_in(case: str) -> dict[str, str]:
    """Return the parameters that ReFrame writes into a case's name, as text."""
    return dict(re.findall(r"%([\w.]+)=(\S+)", case))


#: What ``--repeat`` adds to a case's name, and what it and ``--distribute`` add.
REPEATED = re.compile(r" %\.repeat_no=\S+")
ADDED = re.compile(r" %\.(?:part|repeat_no)=\S+")


def short_name(case: str) -> str:
    """Return a case's name without ReFrame's parameter names: ``IorPosix shared random direct``.

    The partition that ``--distribute`` adds and the number that ``--repeat`` adds are left out.
    """
    return re.sub(r"%[\w.]+=", "", ADDED.sub("", case))


def operations_of(metric: str) -> str:
    """Return the operations per second that a bandwidth may repeat: ``read_iops`` of ``read_bw``.

    With blocks of one size the bandwidth is the operations times the block: both are one fact. The
    text is empty for other metrics.
    """
    return metric.removesuffix("_bw") + "_iops" if metric.endswith("_bw") else ""


def same_spread(one: float | None, other: float | None) -> bool:
    """Return whether two spreads can be those of proportional samples; None is a single sample."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)
