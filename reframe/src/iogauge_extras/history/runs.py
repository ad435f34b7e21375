"""Choose the runs of a history on which references may rest. Compute their median, spread and bound.

All statistics use logarithms, so that a spread of 5 % means 5 % up and down. All are robust,
because others use the storage too. Runs that prove nothing are refused: too few, too much noise, a
step or a trend, two populations. docs/design.md has the formulas and simulations of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from iogauge.core.units import format_value
from iogauge.evidence.fingerprint import changed
from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record, short_name
from iogauge_extras.history import statistics

Better = Literal["more", "less"]

#: Share of healthy runs that meet a bound, with the confidence of :data:`statistics.CONFIDENCE`.
COVERAGE: Final = 0.99

#: Fewest runs for a calibration.
LEAST_RUNS: Final = 20

#: With a larger share of runs beyond the bound, the runs are not one population.
_MAX_BEYOND: Final = 0.1


class Refused(ValueError):
    """A series does not support a reference; the message says why, and what is needed."""

    state: Literal["refused", "left out"] = "refused"


class SkippedRuns(Refused):
    """Runs to which references do not apply; the message says why."""

    state = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSummary:
    """Median, spread and bound of a series of runs, in the metric's unit; ``spread`` is that of
    logarithms.
    """

    runs: int
    median: float
    spread: float
    bound: float

    @property
    def error(self) -> float:
        """Return the standard error of the logarithm of the median."""
        return self.spread / math.sqrt(statistics.MEDIAN_EFFICIENCY * self.runs)


def _more(runs: int) -> str:
    missing = LEAST_RUNS - runs
    return f", {missing} more run(s) needed" if missing > 0 else ""


def summary_of(
    times: Sequence[datetime],
    values: Sequence[float],
    *,
    better: Better,
    max_spread: float,
) -> SeriesSummary:
    """Return median and bound of runs in order of time; raises :class:`Refused` if they prove
    nothing.

    ``max_spread`` is the largest coefficient of variation, from the site's limits.
    """
    runs = len(values)
    if runs < LEAST_RUNS:
        raise Refused(
            f"{runs} valid run(s), {LEAST_RUNS} are needed: {LEAST_RUNS - runs} more"
        )
    if wrong := [value for value in values if value <= 0]:
        raise Refused(
            f"{len(wrong)} of {runs} run(s) have a value of {wrong[0]:g}: noise is a share of it"
        )
    if changes := statistics.change_points(values):
        split = changes[-1]
        old, new = float(np.median(values[:split])), float(np.median(values[split:]))
        raise Refused(
            f"the level changes on {times[split]:%Y-%m-%d}: median {format_value(old)} in {split} run(s) "
            f"before, {format_value(new)} in {runs - split} from then on ({new / old - 1:+.1%}), as a step or "
            f"a trend. Find out why; if it is to stay: --since {times[split]:%Y-%m-%dT%H:%M:%S}{_more(runs - split)}"
        )
    median, spread = statistics.location_and_spread(values)
    if statistics.variation(spread) > max_spread:
        raise Refused(
            f"the noise is too large: coefficient of variation {statistics.variation(spread):.1%} over {runs} runs, the "
            f"site allows {max_spread:.0%} (limits.max_spread)"
        )
    sign = 1 if better == "more" else -1
    room = statistics.robust_factor(runs, COVERAGE, statistics.CONFIDENCE) * spread
    bound = median * math.exp(-sign * room)
    beyond = sum(sign * value < sign * bound for value in values)
    if beyond > max(1, _MAX_BEYOND * runs):
        raise Refused(
            f"{beyond} of {runs} runs are worse than the bound {format_value(bound)} that at most "
            f"{1 - COVERAGE:.1%} should miss: these are two populations, not one with noise. Find out what "
            "the bad runs have in common"
        )
    return SeriesSummary(runs=runs, median=median, spread=spread, bound=bound)


class CalibrateError(ValueError):
    """A site cannot be calibrated at all; the message names the mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Valid runs of one metric on one line, oldest first, and the record of the newest."""

    record: Record
    metric: str
    unit: str
    better: Better
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    series: tuple[str, ...]
    contents: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """Return case and metric, as messages name them."""
        return f"{self.record.partition} {self.record.short_name} {self.metric}"

    def provenance(self, key: str) -> str:
        """Return on one line the values that the fingerprints have under a key."""
        values = [
            *dict.fromkeys(
                str(content[key]) for content in self.contents if key in content
            )
        ]
        others = f" and {len(values) - 1} other(s)" if len(values) > 1 else ""
        return f"{values[-1]}{others}" if values else "unknown"


def check_one_series(runs: Runs) -> None:
    """Raise :class:`Refused` for runs of several series; it says how the last two differ."""
    names = list(dict.fromkeys(runs.series))
    if len(names) == 1:
        return
    last, newest = runs.series[-1], 1
    while runs.series[-newest - 1] == last:
        newest += 1
    first = len(runs.series) - newest
    differing = [
        f"{key} {old} -> {new}"
        for key, old, new in changed(*runs.contents[first - 1 : first + 1])
    ]
    shown = "; ".join(differing[:6]) or "nothing that the fingerprints name"
    more = f" and {len(differing) - 6} more" if len(differing) > 6 else ""
    raise Refused(
        f"runs of {len(names)} series ({', '.join(names)}); changed last: {shown}{more}. The newest has "
        f"{newest} run(s): --since {runs.times[first]:%Y-%m-%dT%H:%M:%S}{_more(newest)}"
    )


def proven(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a frame on which references may rest, oldest first.

    Runs that confirm another run are left out, since a failure caused them.
    """
    return frame.filter(
        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),
        pl.col("median").is_not_null(),
        pl.col("confirms").is_null(),
    ).sort("time", maintain_order=True)


def runs_of(
    frame: pl.DataFrame,
    newest: Mapping[str, Record],
    contents: Mapping[str, Mapping[str, Any]],
) -> list[Runs]:
    """Return the runs by line and metric from proven rows.

    ``newest`` has the newest record of each line, ``contents`` the fingerprints by id.
    """
    runs = []
    for (line, _), rows in frame.group_by(["line", "metric"], maintain_order=True):
        if str(line) in newest:  # else its file has gone meanwhile
            last = rows.row(-1, named=True)
            runs.append(
                Runs(
                    record=newest[str(line)],
                    **{name: last[name] for name in ("metric", "unit", "better")},
                    times=tuple(rows["time"]),
                    values=tuple(rows["median"]),
                    series=tuple(rows["series"]),
                    contents=tuple(
                        contents.get(name, {}) for name in rows["fingerprint"]
                    ),
                )
            )
    return runs


def without_valid_run(frame: pl.DataFrame) -> list[tuple[str, str]]:
    """Return the metrics of a frame that no run measured validly, and why, with what to do next."""
    found = []
    for (partition, case, metric), group in frame.drop_nulls(
        ["metric", "metric_verdict"]
    ).group_by(["partition", "case", "metric"], maintain_order=True):
        verdicts = Counter(map(Verdict, group["metric_verdict"])).most_common()
        if not any(verdict.is_valid for verdict, _ in verdicts):
            counted = ", ".join(f"{number} {one.value}" for one, number in verdicts)
            why = f"no run is valid ({counted}). Next: iogauge explain {verdicts[0][0].value}"
            found.append((f"{partition} {short_name(str(case))} {metric}", why))
    return found
