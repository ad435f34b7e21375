"""Choose the runs of a history on which references may rest. Compute their median, spread and bound.

All statistics use logarithms, so that a spread of 5 % means 5 % up and down. All are robust,
because others use the storage too. Runs that prove nothing are refused: too few, too much noise, a
step or a trend, two populations. docs/design.md has the formulas and simulations of them.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from iogauge.core.groups import grouped
from iogauge.core.text import some
from iogauge.core.units import format_value
from iogauge.evidence.fingerprint import changed
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record, short_name
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
    """Valid runs of one metric on one line, oldest first, and the record of the newest."""

    record: Record
    metric: str
    unit: str
    better: Better
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    series: tuple[str, ...]
    contents: tuple[Mapping[str, Any], ...]
    #: Valid runs that are left out: others had more work than cores on a node.
    busy: int = 0

    @property
    def left_out(self) -> str:
        """Return how many runs on busy nodes are left out, for a message."""
        return f" ({self.busy} on busy nodes left out)" if self.busy else ""

    @property
    def name(self) -> str:
        """Return case and metric, as messages name them."""
        return f"{self.record.partition} {self.record.short_name} {self.metric}"


def check_one_series(runs: Runs) -> None:
    """Raise :class:`Refused` for runs of several series; it says how the last two differ."""
    names = list(dict.fromkeys(runs.series))
    if len(names) <= 1:
        return
    newest = 1
    while runs.series[-newest - 1] == runs.series[-1]:
        newest += 1
    first = len(runs.series) - newest
    differing = []
    for key, old, new in changed(runs.contents[first - 1], runs.contents[first]):
        differing.append(f"{key} {old} -> {new}")
    shown = some(differing, 6) or "nothing that the fingerprints name"
    raise Refused(
        f"runs of {len(names)} series ({', '.join(names)}); changed last: {shown}. The newest has "
        f"{newest} run(s): --since {runs.times[first]:%Y-%m-%dT%H:%M:%S}{_more(newest)}"
    )


def runs_of(
    folder: Path, history: sqlite3.Connection, chosen: query.Condition
) -> list[Runs]:
    """Return the runs on which references may rest, by line and metric, each oldest first.

    Runs that confirm another run are left out, since a failure caused them. Raises OSError for a file that cannot be
    read.
    """
    rows = query.rows(
        history,
        "line, metric, unit, better, time, median, series, fingerprint, busy, file, start",
        query.every(chosen, query.Condition(query.COUNTING)),
        "ORDER BY line, metric, time, file, start",
    )
    contents = query.fingerprints(
        history, {row["fingerprint"] for row in rows if row["fingerprint"]}
    )
    of_metric = grouped(rows, lambda row: (row["line"], row["metric"]))
    newest = {
        key: (mine[-1]["file"], mine[-1]["start"]) for key, mine in of_metric.items()
    }
    records = query.records(folder, history, newest.values())
    found = []
    for key, mine in of_metric.items():
        if newest[key] not in records:  # its file has gone meanwhile
            continue
        last = mine[-1]
        calm = [row for row in mine if not row["busy"]]
        runs = Runs(
            record=records[newest[key]],
            metric=last["metric"],
            unit=last["unit"],
            better=last["better"],
            times=tuple(query.moment(row["time"]) for row in calm),
            values=tuple(row["median"] for row in calm),
            series=tuple(row["series"] for row in calm),
            busy=len(mine) - len(calm),
            contents=tuple(contents.get(row["fingerprint"], {}) for row in calm),
        )
        found.append(runs)
    return found


def without_valid_run(
    history: sqlite3.Connection, chosen: query.Condition
) -> list[tuple[str, str]]:
    """Return the metrics that no run measured validly, and why, with what to do next."""
    rows = query.rows(
        history,
        'partition, "case", metric, metric_verdict, count(*) AS number',
        query.every(chosen, query.Condition("metric IS NOT NULL")),
        'GROUP BY partition, "case", metric, metric_verdict ORDER BY number DESC',
    )
    found = []
    of_metric = grouped(
        rows, lambda row: (row["partition"], row["case"], row["metric"])
    )
    for (partition, case, metric), mine in sorted(of_metric.items()):
        verdicts = {Verdict(row["metric_verdict"]): row["number"] for row in mine}
        if any(verdict.is_valid for verdict in verdicts):
            continue
        counted = ", ".join(f"{n} {verdict.value}" for verdict, n in verdicts.items())
        commonest = next(iter(verdicts))
        why = f"no run is valid ({counted}). Next: iogauge explain {commonest.value}"
        found.append((f"{partition} {short_name(case)} {metric}", why))
    return found
