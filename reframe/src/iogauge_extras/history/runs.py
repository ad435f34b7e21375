"""Choose the runs of a history on which references may rest. Compute their median, spread and bound.

All statistics use logarithms, so that a spread of 5 % means 5 % up and down. All are robust,
because others use the storage too. Runs that prove nothing are refused: too few, too much noise, a
step or a trend, two populations. docs/design.md has the formulas and simulations of them.
"""

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final, Literal

from iogauge.core.groups import grouped
from iogauge.core.units import format_value
from iogauge.records import query
from iogauge.records.record import Record
from iogauge_extras.history import statistics

Better = Literal["more", "less"]

#: Fewest runs for a calibration.
LEAST_RUNS: Final = 20

#: With a larger share of runs so many spreads from the median, the runs are not one population.
_MAX_BEYOND: Final = 0.1
_FAR: Final = 4.0

#: Variance of a mean over that of a median, of normal values.
_EFFICIENCY: Final = 2 / math.pi


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
        return self.spread / math.sqrt(_EFFICIENCY * self.runs)


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
    changes = statistics.change_points(values)
    if changes:
        split = changes[-1]
        old, new = median(values[:split]), median(values[split:])
        raise Refused(
            f"the level changes on {times[split]:%Y-%m-%d}: median {format_value(old)} in {split} run(s) "
            f"before, {format_value(new)} in {runs - split} from then on ({new / old - 1:+.1%}), as a step or "
            f"a trend. Find out why; if it is to stay: --since {times[split]:%Y-%m-%dT%H:%M:%S}{_more(runs - split)}"
        )
    middle, spread = statistics.location_and_spread(values)
    if statistics.variation(spread) > max_spread:
        raise Refused(
            f"the noise is too large: coefficient of variation {statistics.variation(spread):.1%} over {runs} runs, the "
            f"site allows {max_spread:.0%} (limits.max_spread)"
        )
    sign = 1 if better == "more" else -1
    far = middle * math.exp(-sign * _FAR * spread)
    beyond = sum(sign * value < sign * far for value in values)
    if beyond > max(1, _MAX_BEYOND * runs):
        raise Refused(
            f"{beyond} of {runs} runs are worse than {format_value(far)}, {_FAR:g} spreads from the median: these are "
            "two populations, not one with noise. Find out what the bad runs have in common"
        )
    bound = statistics.bound(values, sign)
    return SeriesSummary(runs=runs, median=middle, spread=spread, bound=bound)


class CalibrateError(ValueError):
    """A site cannot be calibrated at all; the message names the mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Valid runs of one metric in the newest series of its line, oldest first, and the record of the newest."""

    record: Record
    metric: str
    unit: str
    better: Better
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    series: str
    #: Why valid runs are left out, with their number; empty if none is.
    left_out: str = ""

    @property
    def name(self) -> str:
        """Return case and metric, as messages name them."""
        return f"{self.record.partition} {self.record.short_name} {self.metric}"


def runs_of(
    folder: Path, history: sqlite3.Connection, chosen: query.Condition
) -> list[Runs]:
    """Return the runs on which references may rest, by line and metric, each oldest first.

    Runs that confirm another run are left out, since a failure caused them. Raises OSError for a file that cannot be
    read.
    """
    rows = query.rows(
        history,
        "line, metric, unit, better, time, median, series, busy, file, start",
        query.every(chosen, query.Condition(query.COUNTING)),
        "ORDER BY line, metric, time, file, start",
    )
    of_metric = grouped(rows, lambda row: (row["line"], row["metric"]))
    places = [(mine[-1]["file"], mine[-1]["start"]) for mine in of_metric.values()]
    records = query.records(folder, history, places)
    found = []
    for place, mine in zip(places, of_metric.values(), strict=True):
        if place not in records:  # its file has gone meanwhile
            continue
        last = mine[-1]
        newest = [row for row in mine if row["series"] == last["series"]]
        calm = [row for row in newest if not row["busy"]]
        left_out = []
        if len(newest) > len(calm):
            left_out.append(f"{len(newest) - len(calm)} on busy nodes")
        if len(mine) > len(newest):
            left_out.append(f"{len(mine) - len(newest)} of earlier series")
        text = ""
        if left_out:
            text = f" ({', '.join(left_out)} left out)"
        runs = Runs(
            record=records[place],
            metric=last["metric"],
            unit=last["unit"],
            better=last["better"],
            times=tuple(query.moment(row["time"]) for row in calm),
            values=tuple(row["median"] for row in calm),
            series=last["series"],
            left_out=text,
        )
        found.append(runs)
    return found
