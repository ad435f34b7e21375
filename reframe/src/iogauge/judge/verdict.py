"""From measurement, guards and reference to a verdict. PASS is decided here and nowhere else.

PASS needs three things: finite and positive samples in the declared unit, no objection of a guard,
and a reference that the median meets. Each missing condition has a verdict of its own.
"""

import configparser
import functools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from enum import Enum
from pathlib import Path

from iogauge.core.measurement import (
    Metric,
    Quantity,
    Reference,
    ToolOutputError,
    Unsettled,
)
from iogauge.core.units import with_unit
from iogauge.core.vocabulary import NO_REFERENCE
from iogauge.guards.finding import Finding, Outcome


@functools.cache
def _told() -> configparser.ConfigParser:
    """Return the words about each verdict, of verdicts.ini."""
    table = configparser.ConfigParser(delimiters="=", interpolation=None)
    table.read(Path(__file__).with_name("verdicts.ini"), encoding="utf-8")
    return table


class Verdict(Enum):
    """Verdicts from the best to the worst."""

    PASS = "PASS"
    UNREFERENCED = "UNREFERENCED"
    UNSTABLE = "UNSTABLE"
    CONTAMINATED = "CONTAMINATED"
    FAIL = "FAIL"
    INVALID = "INVALID"
    ERROR = "ERROR"

    @property
    def meaning(self) -> str:
        """Return what the verdict says, for README and ``iogauge explain``."""
        return _told()[self.value]["meaning"]

    @property
    def advice(self) -> str:
        """Return what to do about the verdict; empty for PASS."""
        return _told()[self.value].get("advice", "")

    @property
    def rank(self) -> int:
        """Return 0 for PASS, and more for worse verdicts."""
        return list(Verdict).index(self)

    @property
    def fails_run(self) -> bool:
        """Return whether the verdict fails any run; a gate fails on all but PASS."""
        return self in (Verdict.FAIL, Verdict.INVALID, Verdict.ERROR)

    def is_trouble(self, gate: bool) -> bool:
        """Return whether somebody must look at it: what fails a run, as a gate all but PASS."""
        return self is not Verdict.PASS if gate else self.fails_run

    @property
    def is_valid(self) -> bool:
        """Whether what was measured is a valid value, met or not; of a metric's verdict."""
        return self in (Verdict.PASS, Verdict.FAIL, Verdict.UNREFERENCED)


@dataclass(frozen=True, slots=True)
class MetricVerdict:
    """A metric of a case: all samples, their median, and the verdict with its reason."""

    metric: Metric
    samples: tuple[float, ...]
    verdict: Verdict
    reason: str
    reference: Reference | None = None
    #: What its outputs say about it, such as the slow parts; empty if nothing.
    notes: str = ""
    #: The median is a bound of the figure: a worse value may be true.
    open: bool = False

    @property
    def failed_as_expected(self) -> bool:
        """Return whether the metric fails and its reference expects that."""
        return (
            self.verdict is Verdict.FAIL
            and self.reference is not None
            and self.reference.xfail is not None
            and self.median is not None
            and not self.reference.met_by(self.median)
        )

    @property
    def median(self) -> float | None:
        """Return the median of the samples in the metric's unit, or None without samples."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def spread(self) -> float | None:
        """Return the coefficient of variation of the samples (n - 1), or None below two samples."""
        if len(self.samples) < 2:
            return None
        return statistics.stdev(self.samples) / statistics.fmean(self.samples)


def check_samples(
    metrics: Sequence[Metric],
    samples: Mapping[str, Sequence[Quantity]],
    repetitions: int,
) -> dict[str, tuple[float, ...]]:
    """Return the samples by metric: complete, finite, positive, in the metric's unit.

    Raises :class:`ToolOutputError` that names the first missing or wrong sample.
    """
    checked: dict[str, tuple[float, ...]] = {}
    for metric in metrics:
        values = samples.get(metric.name, ())
        if len(values) != repetitions:
            raise ToolOutputError(
                f"metric {metric.name} is missing: {len(values)} sample(s) in the output, "
                f"{repetitions} expected"
            )
        for quantity in values:
            if quantity.unit != metric.unit:
                raise ToolOutputError(
                    f"metric {metric.name} came in {quantity.unit!r}, declared is {metric.unit!r}"
                )
            if not math.isfinite(quantity.value) or quantity.value <= 0:
                raise ToolOutputError(
                    f"metric {metric.name} is {quantity.value!r} {quantity.unit}: "
                    "a measurement is finite and positive"
                )
        checked[metric.name] = tuple(quantity.value for quantity in values)
    return checked


def beyond_scatter(values: Sequence[float], reference: Reference | None) -> bool:
    """Return whether every sample misses a reference by more than the samples differ."""
    if reference is None or reference.xfail or not values:
        return False
    reach = max(values) - min(values)
    return not any(
        reference.least - reach <= value <= reference.most + reach for value in values
    )


def _is_bound(metric: Metric, median: float, unsettled: Unsettled | None) -> bool:
    """Return whether a worse value than the median may be true."""
    if unsettled is None:
        return False
    if metric.better == "more":
        return unsettled.value < median
    return unsettled.value > median


def _without_reference(
    unreferenced: str, unsettled: Unsettled | None
) -> tuple[Verdict, str]:
    """Return what holds of a valid figure that has no reference, and why."""
    if unsettled is not None:
        return Verdict.UNSTABLE, unsettled.why
    return Verdict.UNREFERENCED, unreferenced or NO_REFERENCE


def decide_metric(
    metric: Metric,
    samples: Sequence[float],
    findings: Sequence[Finding],
    reference: Reference | None,
    unreferenced: str = "",
    today: date | None = None,
    unsettled: Unsettled | None = None,
    busy: str = "",
) -> MetricVerdict:
    """Return the verdict on a metric. ``samples`` must have passed :func:`check_samples`.

    ``unreferenced`` says why there is no reference, if that is known. ``today`` is the day (UTC) on
    which expected failures are judged, by default the current day. After its last day an expected
    failure is dropped from the verdict's reference. UNSTABLE excuses no failure :func:`beyond_scatter`: that is FAIL.

    ``unsettled`` is the worst value that may be true and is not proven. Without a reference the verdict is UNSTABLE then,
    with a reference if it does not meet it, and the median meets it or is that very value.

    ``busy`` names a node on which others had more work than it has cores: what misses its reference there is CONTAMINATED.
    """
    today, expired = today or datetime.now(timezone.utc).date(), ""
    if (
        reference is not None
        and reference.until is not None
        and today > reference.until
    ):
        expired = f"; the expected failure expired after {reference.until}: remove $xfail ({reference.xfail})"
        reference = replace(reference, xfail=None, until=None)
    applicable = [f for f in findings if f.metric in (None, metric.name)]
    values = tuple(samples)
    median = statistics.median(values)
    is_open = _is_bound(metric, median, unsettled)

    def verdict(kind: Verdict, reason: str) -> MetricVerdict:
        return MetricVerdict(metric, values, kind, reason, reference, open=is_open)

    for kind in (Verdict.INVALID, Verdict.CONTAMINATED, Verdict.UNSTABLE):
        objections = [str(f) for f in applicable if f.outcome is Outcome[kind.name]]
        if objections and not (
            kind is Verdict.UNSTABLE and beyond_scatter(values, reference)
        ):
            return verdict(kind, "; ".join(objections))
    if reference is None:
        return verdict(*_without_reference(unreferenced, unsettled))
    if reference.unit != metric.unit:
        raise ValueError(
            f"reference of {metric.name} is in {reference.unit}, not {metric.unit}"
        )
    text = f"median {with_unit(median, metric.unit)}, reference {reference}"
    if (
        unsettled is not None
        and not reference.met_by(unsettled.value)
        and (reference.met_by(median) or median == unsettled.value)
    ):
        return verdict(Verdict.UNSTABLE, f"{text}: {unsettled.why}")
    if reference.met_by(median):
        if reference.xfail:
            return verdict(
                Verdict.FAIL,
                f"{text}: met unexpectedly, remove $xfail ({reference.xfail})",
            )
        return verdict(Verdict.PASS, text + expired)
    text += f" ({(median - reference.value) / reference.value:+.1%})"
    if reference.xfail:
        text += f", as expected: {reference.xfail}"
    elif busy:
        return verdict(
            Verdict.CONTAMINATED,
            f"{text}, while {busy}: see what else runs there, and measure again without it",
        )
    return verdict(Verdict.FAIL, text + expired)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict of a case: the worst of its metrics, or ERROR without metrics."""
    return max(verdicts, key=lambda v: v.rank, default=Verdict.ERROR)


def needed(
    decided: Sequence[MetricVerdict], recorded: Collection[str]
) -> Sequence[MetricVerdict]:
    """Return the metrics that decide a case: all, but for those that are only recorded.

    A metric that ``recorded`` names is only recorded if it has no reference. If every metric is,
    then all of them decide.
    """
    rest = [
        one
        for one in decided
        if one.metric.name not in recorded or one.verdict is not Verdict.UNREFERENCED
    ]
    return rest or decided


@dataclass(frozen=True, slots=True)
class Judgement:
    """All decisions about a case; ``metrics`` is empty if nothing could be measured."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    metrics: tuple[MetricVerdict, ...] = ()
    tools: tuple[str, ...] = ()
    #: Which node had more work of others than cores; empty if none had.
    busy: str = ""
    #: Load of the busiest node before the run, in its cores; None if it is not known.
    load: float | None = None

    @property
    def headline(self) -> str:
        """Return the medians and the start of the reason, as one line for ReFrame's screen."""
        figures = ", ".join(
            f"{m.metric.name} {with_unit(m.median, m.metric.unit)}"
            for m in self.metrics
            if m.median is not None
        )
        if not figures:
            return self.reason.split("; demanded")[0]
        return f"{figures}: {self.reason.split('; ')[0]}"

    @property
    def failed_as_expected(self) -> bool:
        """Return whether the case fails only in metrics that are expected to fail."""
        failed = [m for m in self.metrics if m.verdict is Verdict.FAIL]
        return (
            self.verdict is Verdict.FAIL
            and bool(failed)
            and all(m.failed_as_expected for m in failed)
        )
