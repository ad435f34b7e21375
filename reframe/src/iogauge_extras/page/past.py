"""The history of the lines that some records measured: runs, curves with their limits, days, what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
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
from iogauge.report.layout import GRAVEST
from iogauge_extras.history import shown, states, statistics
from iogauge_extras.history.states import Judged, State
from iogauge_extras.page.charts import Curve, Run
from iogauge_extras.page.sweeps import drawable
from iogauge_extras.page.trouble import Days

#: Runs in a figure, and days in a calendar.
SHOWN: Final = 60
DAYS: Final = 31

#: Control limits lie so many standard deviations of the baseline from its level.
_SIGMAS: Final = 3.0

#: Most changes of a fingerprint to name.
_NAMED: Final = 6

_COLUMNS: Final = (
    *("system", "partition", "case", "line", "series", "metric", "unit", "better", "position"),
    *("time", "session", "median", "metric_verdict", "verdict", "fingerprint", "confirms"),
    *("nodes", "tasks_per_node"),
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

    def __init__(self, folder: Path, records: Sequence[Record], span: Span = ALWAYS) -> None:
        """Load the rows of the records' lines; those after the span's end do not count."""
        lines = {record.line for record in records}
        frame = query.load(folder, columns=_COLUMNS)
        rows = narrowed(frame.filter(pl.col("line").is_in(sorted(lines))), until=span.until)
        judged = states.states_of(rows)
        self.judged = {(series.line, series.metric): series for series in judged}
        self._span = span
        ids = shown.fingerprint_ids(judged)
        ids |= set(rows["fingerprint"].drop_nulls().unique())
        self.fingerprints = query.fingerprints(folder, ids)
        # Rows as columns, since a long history has millions; of a case without a metric's name.
        cases = rows.filter(pl.col("position") == 0).with_columns(metric_verdict="verdict")
        cases = cases.with_columns(metric=pl.lit("").cast(rows.schema["metric"]))
        self._rows = {
            (str(line), None if metric is None else str(metric)): mine
            for frame in (rows, cases)
            for (line, metric), mine in frame.partition_by(
                "line", "metric", as_dict=True, include_key=True, maintain_order=True
            ).items()
        }
        self._references = {(r.line, m.name): drawable(m) for r in records for m in r.metrics}

    def measured(self) -> list[tuple[str, str]]:
        """Return line and metric of everything that has a value, but for what repeats another metric.

        The curve of that one shows both.
        """
        return [
            (line, metric)
            for line, metric in self._rows
            if metric and not ((one := self.judged.get((line, metric))) and one.repeats)
        ]

    def runs(self, line: str, metric: str) -> list[dict[str, Any]]:
        """Return the runs of a metric (of the case if empty), oldest first."""
        rows = self._rows.get((line, metric))
        return [] if rows is None else rows.to_dicts()

    def curve(self, line: str, metric: str, since: str = "") -> Curve:
        """Return the newest runs of a metric that have the unit of the last run.

        The curve's ``since`` is the session of the trend's alarm, or ``since`` if there is no such
        alarm.
        """
        every, series = self._rows[line, metric], self.judged.get((line, metric))
        rows = every.tail(SHOWN).to_dicts()
        if first := self._span.since:
            rows = [row for row in rows if row["time"] >= first] or rows[-1:]
        last, bound = rows[-1], self._references.get((line, metric))
        if series and series.state is State.ALARM and series.change:
            since = series.change.session
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
            since=since or None,
            system=visible(str(last["system"])),
            key=line,
            under="; ".join(filter(None, [*self._repeating(line, metric), self._under(last)])),
            **self._limits(every, series),
        )

    def _repeating(self, line: str, metric: str) -> Iterator[str]:
        """Yield the newest value of each metric that repeats one: ``read_bw is proportional, newest 9.971 MiB/s``."""
        for name in [
            name for (of, name), s in self.judged.items() if (of, s.repeats) == (line, metric)
        ]:
            last = self._rows[line, name].row(-1, named=True)
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
        low, high = (float(np.exp(location[0] + k * scale[0])) for k in (-_SIGMAS, _SIGMAS))
        steps = tuple(valid["session"][k] for k in statistics.change_points(values))
        return {"level": series.level, "low": low, "high": high, "steps": steps}

    def _under(self, row: Mapping[str, Any]) -> str:
        """Return nodes, tasks, tools and stack of a run."""
        known = self.fingerprints.get(row["fingerprint"] or "", {})
        tools = [f"{key[5:]} {value}" for key, value in known.items() if key.startswith("tool.")]
        stack = [f"stack {known['stack']}"] if "stack" in known else []
        scale = (
            [f"{count(row['nodes'], 'node')} x {count(row['tasks_per_node'], 'task')}"]
            if row["nodes"] and row["tasks_per_node"]
            else []
        )
        return visible("; ".join([*scale, *tools, *stack]))

    def days(self) -> Days:
        """Return the worst verdict of each case on each of the last days of the span."""
        cases = [rows for (_, metric), rows in self._rows.items() if metric == ""]
        if not cases:
            return {}
        newest = max(rows["time"][-1] for rows in cases).date()
        oldest = newest - timedelta(days=DAYS - 1)
        if self._span.since:
            oldest = max(oldest, self._span.since.date())
        found: dict[tuple[str, str], dict[date, Verdict]] = {}
        for rows in cases:
            last = rows.row(-1, named=True)
            where = visible(f"{last['system']}:{last['partition']}")
            worst = found.setdefault((where, visible(short_name(last["case"]))), {})
            here = rows.filter(pl.col("time").dt.date() >= oldest)
            for time, text in here.select("time", "verdict").iter_rows():
                day, verdict = time.date(), Verdict(text)
                worst[day] = min(worst.get(day, verdict), verdict, key=GRAVEST.index)
        return found

    def changed(self, before: str | None, after: str | None) -> str:
        """Return a sentence on how two fingerprints differ, or that they do not."""
        if before is None or after is None:
            return ""
        old, new = self.fingerprints.get(before, {}), self.fingerprints.get(after, {})
        keys = [visible(f"{key}: {a} -> {b}") for key, a, b in fingerprint.changed(old, new)]
        if not keys:
            return UNCHANGED if all(map(fingerprint.is_of_node, (old, new))) else ""
        more = f"; and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return "changed just before: " + "; ".join(keys[:_NAMED]) + more
