"""The history of the lines that some records measured: runs, curves with their limits, what changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from iogauge.core.text import count, visible
from iogauge.core.units import with_unit
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record, short_name
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

#: What is known of a run.
_COLUMNS: Final = (
    'line, series, system, partition, "case", metric, unit, better, position, time, session, median, '
    "metric_verdict, verdict, fingerprint, confirms"
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
        self._history = query.connect(folder)
        self._until = query.Choice(until=span.until)
        judged = states.states_of(self._history, self._until, self.newest)
        self.judged = {(series.line, series.metric): series for series in judged}
        self.fingerprints = query.fingerprints(self._history)
        self._references = {
            (r.line, m.name): drawable(m) for r in records for m in r.metrics
        }

    def runs(self, line: str, metric: str, count: int = -1) -> list[dict[str, Any]]:
        """Return the newest runs of a metric (of the case if empty), oldest first; a negative count is no limit."""
        of_case = query.Condition("position = 0")
        of_metric = query.Condition("metric = ?", (metric,))
        condition = query.every(
            query.Condition("line = ?", (line,)),
            of_metric if metric else of_case,
            self._until.of_time,
        )
        newest = f"ORDER BY time DESC, file DESC, start DESC LIMIT {count}"
        found = []
        for row in reversed(query.rows(self._history, _COLUMNS, condition, newest)):
            run = dict(row) | {"time": query.moment(row["time"])}
            if not metric:
                run["metric_verdict"] = run["verdict"]
            found.append(run)
        return found

    @property
    def curves(self) -> list[Curve]:
        """Return the curves of all that has a value; what repeats another metric is in the curve of that one."""
        lines = query.every(
            query.among("line", list(self.newest)),
            query.Condition("metric IS NOT NULL"),
            self._until.of_time,
        )
        keys = query.rows(
            self._history,
            "line, metric",
            lines,
            "GROUP BY line, metric ORDER BY min(time)",
        )
        curves = []
        for line, metric in keys:
            series = self.judged.get((line, metric))
            if series is None or not series.repeats:
                curves.append(self.curve(line, metric))
        return curves

    def curve(self, line: str, metric: str, since: datetime | None = None) -> Curve:
        """Return the newest runs of a metric that have the unit of the last run.

        The curve's ``since`` is the begin of the trend's alarm, or ``since`` if there is no such alarm.
        """
        series = self.judged.get((line, metric))
        rows = every = self.runs(line, metric, SHOWN)
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
            (last,) = self.runs(line, name, 1)
            if last["median"] is not None:
                value = with_unit(last["median"], last["unit"])
                yield visible(f"{name} is proportional, newest {value}")

    def _limits(
        self, rows: Sequence[Mapping[str, Any]], series: Judged | None
    ) -> dict[str, Any]:
        """Return level, control limits and steps of the newest series, if it has a baseline."""
        if series is None or series.level is None:
            return {}
        valid = [
            run
            for run in rows
            if run["series"] == series.series
            and run["unit"] == series.unit
            and run["confirms"] is None
            and Verdict(run["metric_verdict"]).is_valid
            and run["median"] > 0
        ]
        points = statistics.change_points([run["median"] for run in valid])
        steps = tuple(valid[point]["time"] for point in points)
        reach = _SIGMAS * series.spread
        low, high = series.level * math.exp(-reach), series.level * math.exp(reach)
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
