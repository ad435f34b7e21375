"""The form of a record: what is kept of a case.

A record is one line of JSON in a session's file; docs/results.md describes its keys.

What an older or a newer version wrote is read, and written back as it was, but for the order of keys.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import from_json
from typing_extensions import TypedDict  # of Python 3.12

from iogauge.core.form import Form
from iogauge.core.measurement import Reference
from iogauge.core.text import digest, visible
from iogauge.evidence.fingerprint import DIVIDING, series_subset
from iogauge.guards.finding import Finding
from iogauge.judge.verdict import MetricVerdict, Verdict
from iogauge.site.topology import Ceiling


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

#: A figure that can be drawn and sorted, also times another one.
_Figure = Annotated[float, Field(ge=-1e150, le=1e150)]
_Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]

#: The latest time that is accepted.
_LAST = 200_000_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def since_1970(time: datetime) -> int:
    """Return the microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


@lru_cache(maxsize=64)
def microseconds(text: object) -> int:
    """Return the microseconds since 1970 of a time such as 2026-01-31T12:00:00Z.

    Raises ValueError, also for earlier times.
    """
    try:
        found = since_1970(datetime.fromisoformat(str(text).replace("Z", "+00:00")))
    except (ValueError, TypeError, OverflowError):
        found = -1
    if not 0 <= found < _LAST:
        raise ValueError(
            f"time is {text!r:.60}: expected UTC such as 2026-01-31T12:00:00Z"
        )
    return found


def _after_1970(time: str) -> str:
    microseconds(time)
    return time


class _Target(TypedDict):
    """What the record of a target must have, among other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    path: str


class FindingRecord(Form):
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
        return cls.new(outcome=finding.outcome.value, **taken)

    @property
    def name(self) -> str:
        """Return number and subject of the guard."""
        return f"{self.guard} {self.subject}".rstrip()

    def objects(self, verdict: Verdict) -> bool:
        """Return whether the guard is a reason for a verdict."""
        return self.outcome == verdict.value.lower()


class ReferenceRecord(Form):
    """The reference for a metric; bounds are shares of the value, None if open."""

    seldom = ("of_ceiling",)

    value: Annotated[_Figure, Field(gt=0)]
    lower: _Figure | None
    upper: _Figure | None = None
    unit: Any = ""
    source: Any = ""
    xfail: Any = None
    of_ceiling: float | None = None

    @classmethod
    def of(cls, reference: Reference) -> ReferenceRecord:
        """Return the record of a reference."""
        bounds = _taken(reference, "value", "lower", "upper", "unit")
        return cls.new(**bounds, **_taken(reference, "source", "xfail", "of_ceiling"))

    @property
    def least(self) -> float | None:
        """Return the least value that meets the reference; None if any does."""
        return None if self.lower is None else self.value * (1 + self.lower)

    @property
    def most(self) -> float | None:
        """Return the largest value that meets the reference; None if any does."""
        return None if self.upper is None else self.value * (1 + self.upper)


class MetricRecord(Form):
    """The measured values of one metric, in its unit, and the verdict on it."""

    seldom = ("probes", "rounds", "derived_from", "notes", "open")

    name: str
    unit: str
    better: Literal["more", "less"] = "more"
    samples: Sequence[Any] = ()
    median: _Figure
    spread: float | None
    verdict: Verdict = Field(strict=False)
    reason: str
    cold: Any = None
    probes: Mapping[str, float] | None = None
    rounds: Sequence[Mapping[str, float]] | None = None
    ceiling: float | None
    ceiling_from: Any = None
    reference: ReferenceRecord | None
    derived_from: Any = None
    notes: str | None = None
    #: True if the median is a bound of the figure: statistics leave it out.
    open: Any = None

    @classmethod
    def of(
        cls,
        decided: MetricVerdict,
        *,
        limit: Ceiling | None = None,
        cold: float | None = None,
        rounds: Sequence[Mapping[str, float]] = (),
    ) -> MetricRecord:
        """Return the record of a verdict, with its ceiling, the value of the warm-up (``cold``), and those of its parts in each round."""
        metric = decided.metric
        ceiling = ceiling_from = reference = None
        if limit:
            ceiling, ceiling_from = limit.value, limit.limited_by
        if decided.reference:
            reference = ReferenceRecord.of(decided.reference)
        return cls.new(
            # The median is None for a verdict without samples, which is read as damaged.
            **_taken(decided, "samples", "median", "spread", "verdict", "reason"),
            **_taken(metric, "name", "unit", "better"),
            cold=cold,
            rounds=rounds or None,
            notes=decided.notes or None,
            open=decided.open or None,
            ceiling=ceiling,
            ceiling_from=ceiling_from,
            reference=reference,
        )

    def is_trouble(self, gate: bool) -> bool:
        """Return whether somebody must look at the metric: its reference does not say to expect a failure."""
        if self.verdict is Verdict.FAIL and self.reference and self.reference.xfail:
            return False
        return self.verdict.is_trouble(gate)


class Record(Form):
    """The record of a case. The fields are in the order in which a new record has its keys."""

    seldom = (
        *("selection", "accepts", "confirms", "pinned", "layout", "suite"),
        *("busy", "load"),
    )

    form: Any = Field(SCHEMA, alias="schema")
    session: str
    time: Annotated[str, AfterValidator(_after_1970)]
    gate: Any = False
    selection: str | None = None
    accepts: Any = None
    system: str
    partition: str
    environment: str
    check: str
    case: str
    hash: str | None = None
    verdict: Verdict = Field(strict=False)
    reason: str
    confirms: str | None = None
    expected: Any = False
    tier: str | None = None
    variant: str | None = None
    nodes: _Whole | None = None
    tasks_per_node: _Whole | None = None
    repetitions: Any = None
    parameters: Mapping[str, Any] = {}
    pinned: str | None = None
    overridden: Mapping[str, Any] = {}
    price: Any = None
    target: _Target | None = None
    layout: Any = None
    tools: Sequence[str] = ()
    stack: Mapping[str, Any] | None = None
    suite: Any = None
    busy: str | None = None
    load: float | None = None
    commands: Any = ()
    metrics: tuple[MetricRecord, ...] = Field(strict=False)
    findings: tuple[FindingRecord, ...] = Field(strict=False)
    own_line: str | None = Field(None, alias="line")
    own_series: str | None = Field(None, alias="series")
    fingerprint: Mapping[str, Any] = {}

    def to_line(self) -> bytes:
        """Return the line in a session's file, without its end.

        Raises ValueError for a number that is not finite.
        """
        return json.dumps(
            self.to_json(), allow_nan=False, separators=(",", ":")
        ).encode()

    def with_fingerprint(self, fingerprint: Mapping[str, Any]) -> Record:
        """Return a new record with its fingerprint, and the line and series that follow from it."""
        line = line_of(self.to_json())
        subset = series_subset(fingerprint)
        for key in DIVIDING:
            subset.pop(key, None)
        series = series_of(line, subset)
        named = {"own_line": line, "own_series": series, "fingerprint": fingerprint}
        return self.model_copy(update=named)

    @property
    def line(self) -> str:
        """Return the name of what was measured; see docs/results.md."""
        return self.own_line or line_of(self.to_json())

    @property
    def series(self) -> str:
        """Return the name of the line under one fingerprint; see docs/results.md.

        An older record has none: of the software it knows the tools and the stack alone.
        """
        if self.own_series:
            return self.own_series
        known = {}
        if self.tools:
            known["tools"] = self.tools
        if self.stack and self.stack.get("fingerprint"):
            known["stack"] = self.stack["fingerprint"]
        return series_of(self.line, known)

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
    pinned = record.get("pinned")
    if pinned:  # each node has a line of its own
        parameters = {**parameters, ".nid": pinned}
    measured = {name: record.get(name, old) for name, old in _MEASURED.items()}
    return digest(
        [measured, {name: _word(value) for name, value in parameters.items()}]
    )


def series_of(line: str, subset: Mapping[str, Any]) -> str:
    """Return twelve hex digits that name a series: a line and its relevant fingerprint."""
    return digest([line, dict(subset)])


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
