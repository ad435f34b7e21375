"""The history of the lines that some records measured: runs, curves with their limits, what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from iogauge.core.text import count, visible
from iogauge.core.units import with_unit
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record, short_name
from iogauge.report.history_table import narrowed
from iogauge_extras.history import states, statistics
from iogauge_extras.history.states import Judged, State
from iogauge_extras.page.charts import Curve, Run
from iogauge_extras.page.sweeps import drawable

#: Runs in a figure.
SHOWN: Final = 60

#: Control limits lie so many standard deviations of the baseline from its level.
_SIGMAS: Final = 3.0

#: Most changes of a fingerprint to name.
_NAMED: Final = 6

_COLUMNS: Final = (
    *(*states.HEAD, "position"),
    *(
        "time",
        "session",
        "median",
        "metric_verdict",
        "verdict",
        "fingerprint",
        "confirms",
    ),
)
UNCHANGED: Final = (
    "nothing that the fingerprint knows (software, client, mount, network) changed with it: look at the "
    "storage itself, its servers and its load"
)


class Span(NamedTuple):
    """A part of the history; None is no limit, and both ends belong to it."""

    since: datetime | None = None
    until: datetime | None = None


ALWAYS: Final = Span()


class History:
    """The history of the lines that some records measured."""

    def __init__(
        self, folder: Path, records: Sequence[Record], span: Span = ALWAYS
    ) -> None:
        """Load the rows of the records' lines; those after the span's end do not count."""
        self._span = span
        #: The newest record of each line.
        self.newest = {record.line: record for record in records}
        self._frame = narrowed(query.load(folder, columns=_COLUMNS), until=span.until)
        judged = states.states_of(self._frame, self.newest)
        self.judged = {(series.line, series.metric): series for series in judged}
        known = self._frame["fingerprint"].drop_nulls().unique()
        self.fingerprints = query.fingerprints(folder, known.to_list())
        self._references = {
            (r.line, m.name): drawable(m) for r in records for m in r.metrics
        }

    def _rows(self, line: str, metric: str) -> pl.DataFrame:
        """Return the rows of a metric, or those of the case; a long history has millions, so none is kept twice."""
        which = pl.col("metric") == metric if metric else pl.col("position") == 0
        return self._frame.filter(pl.col("line") == line, which)

    def runs(self, line: str, metric: str) -> list[dict[str, Any]]:
        """Return the runs of a metric (of the case if empty), oldest first."""
        rows = self._rows(line, metric)
        return (
            rows if metric else rows.with_columns(metric_verdict="verdict")
        ).to_dicts()

    @property
    def curves(self) -> list[Curve]:
        """Return the curves of all that has a value; what repeats another metric is in the curve of that one."""
        keys = (
            self._frame.select("line", "metric")
            .drop_nulls()
            .unique(maintain_order=True)
        )
        return [
            self.curve(*key)
            for key in keys.iter_rows()
            if key[0] in self.newest
            and not ((one := self.judged.get(key)) and one.repeats)
        ]

    def curve(self, line: str, metric: str, since: datetime | None = None) -> Curve:
        """Return the newest runs of a metric that have the unit of the last run.

        The curve's ``since`` is the begin of the trend's alarm, or ``since`` if there is no such alarm.
        """
        every, series = self._rows(line, metric), self.judged.get((line, metric))
        rows = every.tail(SHOWN).to_dicts()
        if first := self._span.since:
            rows = [row for row in rows if row["time"] >= first] or rows[-1:]
        last, bound = rows[-1], self._references.get((line, metric))
        if series and series.state is State.ALARM and series.change:
            since = series.change.time
        return Curve(
            title=f"{last['partition']} {short_name(last['case'])} {metric}",
            unit=str(last["unit"]),
            points=[
                Run(
                    row["time"],
                    row["session"],
                    row["median"],
                    Verdict(row["metric_verdict"]),
                    row["series"],
                    row["fingerprint"],
                )
                for row in rows
                if row["unit"] == last["unit"]
                and row["metric_verdict"]
                and (row["median"] or 0) > 0
            ],
            reference=bound.value if bound else None,
            least=bound.least if bound else None,
            most=bound.most if bound else None,
            since=since,
            system=visible(str(last["system"])),
            key=line,
            under="; ".join(
                filter(None, [*self._repeating(line, metric), self._under(last)])
            ),
            **self._limits(every, series),
        )

    def _repeating(self, line: str, metric: str) -> Iterator[str]:
        """Yield the newest value of each metric that repeats one: ``read_bw is proportional, newest 9.971 MiB/s``."""
        for name in [
            name
            for (of, name), s in self.judged.items()
            if (of, s.repeats) == (line, metric)
        ]:
            last = self._rows(line, name).row(-1, named=True)
            if last["median"] is not None:
                value = with_unit(last["median"], last["unit"])
                yield visible(f"{name} is proportional, newest {value}")

    def _limits(self, rows: pl.DataFrame, series: Judged | None) -> dict[str, Any]:
        """Return level, control limits and steps of the newest series, if it has a baseline."""
        if series is None or series.level is None:
            return {}
        valid = states.counting(rows).filter(
            pl.col("series") == series.series,
            pl.col("unit").eq_missing(pl.lit(series.unit)),
        )
        values = valid["median"].to_list()
        location, scale = statistics.fit(np.log(np.array([values[: series.baseline]])))
        low, high = (
            float(np.exp(location[0] + k * scale[0])) for k in (-_SIGMAS, _SIGMAS)
        )
        steps = tuple(valid["time"][k] for k in statistics.change_points(values))
        return {"level": series.level, "low": low, "high": high, "steps": steps}

    def _under(self, row: Mapping[str, Any]) -> str:
        """Return nodes, tasks, tools and stack of a run."""
        known = self.fingerprints.get(row["fingerprint"] or "", {})
        tools = [
            f"{key[5:]} {value}"
            for key, value in known.items()
            if key.startswith("tool.")
        ]
        stack = [f"stack {known['stack']}"] if "stack" in known else []
        record = self.newest[row["line"]]
        scale = ""
        if record.nodes and record.tasks_per_node:
            scale = f"{count(record.nodes, 'node')} x {count(record.tasks_per_node, 'task')}"
        return visible("; ".join(filter(None, [scale, *tools, *stack])))

    def changed(self, before: str | None, after: str | None) -> str:
        """Return a sentence on how two fingerprints differ, or that they do not."""
        if before is None or after is None:
            return ""
        old, new = self.fingerprints.get(before, {}), self.fingerprints.get(after, {})
        keys = [
            visible(f"{key}: {a} -> {b}") for key, a, b in fingerprint.changed(old, new)
        ]
        if not keys:
            return UNCHANGED if all(map(fingerprint.is_of_node, (old, new))) else ""
        more = f"; and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return "changed just before: " + "; ".join(keys[:_NAMED]) + more
