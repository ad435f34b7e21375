"""The series of an execution: its bandwidth over time, and the dips and minutes in it.

The agent on the first node writes down the counters under the target's mount several times a second (job/opening.py). Their
growth, second by second, is the series. On several nodes it is that of the first node, whose bytes are its share of
all.
"""

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from typing import Final, Literal

from iogauge.core.measurement import Quantity, ToolOutput, ToolOutputError
from iogauge.core.units import format_seconds
from iogauge.evidence.model import SERIES
from iogauge.plan.observations import MOVED, Instant, NodeObservations
from iogauge.plan.stage import PhaseRun

#: Seconds of a step and of a window, at most; a short execution has this many of each at least.
_STEP_S: Final = 1.0
_WINDOW_S: Final = 60.0
_LEAST: Final = 10
#: Share of the mean rate from which a tool has begun.
_BEGUN: Final = 0.1
#: The agent looks five times a second.
_LOOK_S: Final = 0.2

#: Share of the median below which a step is a dip.
_DIP: Final = 0.5


@dataclass(frozen=True, slots=True)
class Dip:
    """A time below half of the median: its begin and length in seconds, and its lowest share."""

    begin_s: float
    seconds: float
    lowest: float


@dataclass(frozen=True, slots=True)
class Series:
    """Bytes per second in each step of an execution."""

    step_s: float
    rates: tuple[float, ...]

    @property
    def window_s(self) -> float:
        """Return the seconds of a window: a minute, or a tenth of a shorter execution."""
        steps = min(_WINDOW_S / self.step_s, len(self.rates) / _LEAST)
        return max(1, int(steps)) * self.step_s

    @property
    def mean(self) -> float:
        """Return the mean in bytes/s."""
        return statistics.fmean(self.rates)

    @property
    def windows(self) -> list[float]:
        """Return the mean of each window in bytes/s; windows begin with every step."""
        size = round(self.window_s / self.step_s)
        sums = [0.0, *accumulate(self.rates)]
        pairs = zip(sums, sums[size:], strict=False)
        return [(after - before) / size for before, after in pairs]

    @property
    def dips(self) -> list[Dip]:
        """Return the times below half of the median, the longest first."""
        middle, found, begin = statistics.median(self.rates), [], 0
        for low, steps in groupby(self.rates, lambda rate: rate < _DIP * middle):
            of_dip = list(steps)
            if low:
                length = len(of_dip) * self.step_s
                found.append(Dip(begin * self.step_s, length, min(of_dip) / middle))
            begin += len(of_dip)
        return sorted(found, key=lambda dip: -dip.seconds)

    @property
    def unsteady(self) -> list[str]:
        """Return the dips in words, for G17."""
        saw, dips = [], self.dips
        if dips:
            longest = dips[0]
            saw.append(
                f"{len(dips)} dip(s), the longest of {format_seconds(longest.seconds)} "
                f"after {format_seconds(longest.begin_s)}, down to {longest.lowest:.0%} of the median"
            )
        return saw


def series_of_instants(
    instants: Sequence[Instant],
    direction: Literal["read", "write"],
    run: PhaseRun,
    seconds: float,
) -> Series | None:
    """Return the series of an execution whose tool reports so many seconds; None if nothing moved, or
    a counter went back.

    It begins with the first look between which and the next its bytes move: the tool starts its clock
    after the execution has begun.
    """
    ordered = sorted(instants, key=lambda instant: instant.time)
    times = [instant.time for instant in ordered]
    counts = [instant.written for instant in ordered]
    if direction == "read":
        counts = [instant.read for instant in ordered]
    first = bisect_right(times, run.started)
    last = bisect_right(times, run.ended)
    if last - first < 2 or seconds < _LEAST * _LOOK_S:
        return None
    length = max(times[last - 1] - times[first], _LOOK_S)
    least = _BEGUN * (counts[last - 1] - counts[first]) / length
    begins = (
        times[n - 1]
        for n in range(first + 1, last)
        if counts[n] - counts[n - 1] >= least * (times[n] - times[n - 1])
    )
    begin = next(begins, times[first])
    step = min(_STEP_S, seconds / _LEAST)
    looks = [
        _at(times, counts, begin + n * step)
        for n in range(int(seconds / step + 1e-6) + 1)
    ]
    rates = tuple((after - before) / step for before, after in pairwise(looks))
    return Series(step, rates) if sum(rates) > 0 and min(rates) >= 0 else None


def _at(times: Sequence[float], counts: Sequence[int], when: float) -> float:
    """Return the count at a time, between two looks in proportion."""
    after = bisect_right(times, when)
    if after in (0, len(times)):
        return float(counts[max(0, after - 1)])
    share = (when - times[after - 1]) / (times[after] - times[after - 1])
    return counts[after - 1] + share * (counts[after] - counts[after - 1])


def with_series(
    output: ToolOutput, noted: NodeObservations, run: PhaseRun, what: str
) -> ToolOutput:
    """Return an output with the series of its only phase, and the quantities that follow from it.

    ``best_minute`` and ``worst_minute`` are the tool's bandwidth times the share that the best and the worst window
    have of the mean. ``dip`` is the seconds of the longest dip, at least one step. Raises :class:`ToolOutputError`
    if nobody counted; ``what`` names the execution.
    """
    (phase,) = output.phases
    direction: Literal["read", "write"] = "write"
    if phase.name == "read":
        direction = "read"
    instants = noted.instants(MOVED)
    series = series_of_instants(instants, direction, run, phase.seconds)
    if series is None:
        raise ToolOutputError(
            f"{what}: no counter under the target's mount showed on the first node when the bytes of "
            f"{phase.seconds:.3g} s moved; expected those of a block device, of NFS, or of a Lustre client "
            "that root asks, and two seconds or more: raise limits.phase_seconds, or leave this check out"
        )
    bandwidth = phase.rates["bw"]
    windows = [window / series.mean for window in series.windows]
    longest = max((dip.seconds for dip in series.dips), default=0.0)
    # A measurement is positive: a minute without a byte counts as a millionth of the mean.
    rates = {
        "best_minute": Quantity(bandwidth.value * max(windows), bandwidth.unit),
        "worst_minute": Quantity(
            bandwidth.value * max(min(windows), 1e-6), bandwidth.unit
        ),
        "dip": Quantity(max(longest, series.step_s), "s"),
    }
    return replace(
        output,
        phases=(replace(phase, rates={**phase.rates, **rates}),),
        parameters={**output.parameters, SERIES: series},
    )
