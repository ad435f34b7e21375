"""The history of the lines that some records measured: runs, curves, what changed, and what else went on then."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from iogauge.core import registry
from iogauge.core.text import count, some, visible
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Record, microseconds
from iogauge.report.outcome import repeated
from iogauge_extras.history import states
from iogauge_extras.page.charts import Curve, Run

#: Runs in a figure.
SHOWN: Final = 60

UNCHANGED: Final = (
    "nothing that the fingerprint knows (software, client, mount, network) changed with it: look at the "
    "storage itself, its servers and its load"
)


#: All of the history.
ALWAYS: Final = query.Choice()

#: Seconds before the end of a case in which a probe says something of it.
PROBED_S: Final = 3600

#: A load of the node from which it may explain a loss, in its cores: half of them are busy.
_LOADED: Final = 0.5


def utc_minute(time: datetime) -> str:
    """Return a time as people write it, to the minute."""
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


def probed(system: str, partition: str, begin: int, end: int) -> str:
    """Return when probes found a target slow in a time (seconds since 1970); empty if none did, or if none are here."""
    with contextlib.suppress(registry.Missing):
        slow = registry.load("iogauge_answers", "probe.while_it_ran")
        found: str = slow(system, partition, begin - PROBED_S, end)
        return found
    return ""


def circumstances(cause: str, record: Record) -> str:
    """Return a cause with the load of the nodes, and with what probes say of that time, if they may explain a loss."""
    busy = record.busy
    if not busy and (record.load or 0.0) >= _LOADED:
        busy = f"the nodes were loaded before the run, {record.load:g} x their cores"
    texts = []
    if busy:
        texts.append(f"{busy}: see what else runs there, and measure again without it")
    end = microseconds(record.time) // 1_000_000
    slow = probed(record.system, record.partition, end, end)
    if slow:
        texts.append(f"probes found the target {slow}")
    if texts and cause not in ("", UNCHANGED):
        texts.insert(0, cause)
    return "; and ".join(texts) or cause


class History:
    """The history of the lines that some records measured."""

    def __init__(
        self, folder: Path, records: Sequence[Record], span: query.Choice
    ) -> None:
        """Load the rows of the records' lines; those after the span's end do not count."""
        self._span = span
        #: The newest record of each line.
        self.newest = {record.line: record for record in records}
        #: Line and metric of each bandwidth that repeats its operations per second: both are one fact.
        self.repeats: set[tuple[str, str]] = set()
        for line, record in self.newest.items():
            for metric in record.metrics:
                if repeated(record, metric):
                    self.repeats.add((line, metric.name))
        self._history = query.connect(folder)
        self._until = query.Choice(until=span.until)
        judged = states.states_of(self._history, self._until, self.newest)
        self.judged = {(series.line, series.metric): series for series in judged}
        self.fingerprints = query.fingerprints(self._history)

    def runs(self, line: str, metric: str, count: int = -1) -> list[Run]:
        """Return the newest runs of a metric (of the case if empty), oldest first; a negative count is no limit."""
        judged, which = "verdict", query.Condition("position = 0")
        if metric:
            judged, which = "metric_verdict", query.Condition("metric = ?", (metric,))
        of_line = query.Condition("line = ?", (line,))
        condition = query.every(of_line, which, self._until.of_time)
        columns = (
            f"time, session, ifnull(median, 0) AS value, {judged} AS verdict, series, metric, unit, "
            "fingerprint"
        )
        newest = f"ORDER BY time DESC, file DESC, start DESC LIMIT {count}"
        found = []
        for row in query.rows(self._history, columns, condition, newest):
            run = Run(**dict(row))
            time, verdict = query.moment(row["time"]), Verdict(row["verdict"])
            found.append(replace(run, time=time, verdict=verdict))
        return found[::-1]

    @property
    def curves(self) -> list[Curve]:
        """Return the curves of all that has a value; what repeats another metric has none."""
        condition = query.every(
            query.among("line", list(self.newest)),
            query.Condition("metric IS NOT NULL"),
            self._until.of_time,
        )
        order = "GROUP BY line, metric ORDER BY min(time)"
        curves = []
        for line, metric in query.rows(self._history, "line, metric", condition, order):
            if (line, metric) not in self.repeats:
                curves.append(self.curve(line, metric))
        return curves

    def curve(self, line: str, metric: str, since: datetime | None = None) -> Curve:
        """Return the newest runs of a metric that have the unit of the last run.

        The curve's ``since`` is the begin of the trend's alarm, or ``since`` if there is no such alarm.
        """
        runs = self.runs(line, metric, SHOWN)
        last = runs[-1]
        points = []
        for run in runs:
            # Of a span without a run the last one before it is shown.
            early = self._span.since and run.time < self._span.since
            if early and run is not last:
                continue
            alike = run.unit == last.unit and run.value > 0
            # A figure that is INVALID is not the storage's.
            if alike and run.verdict not in (Verdict.INVALID, Verdict.ERROR):
                points.append(run)
        newest = self.newest[line]
        under = ""
        if newest.nodes and newest.tasks_per_node:
            tasks = count(newest.tasks_per_node, "task")
            under = f"{count(newest.nodes, 'node')} x {tasks}"
        curve = Curve(
            title=f"{newest.partition} {newest.short_name} {metric}",
            unit=last.unit,
            points=points,
            since=since,
            system=visible(newest.system),
            key=line,
            under=under,
        )
        for measured in newest.metrics:
            if measured.name == metric:
                curve = replace(curve, reference=measured.reference)
        series = self.judged.get((line, metric))
        if series and series.change:
            change = series.change
            curve = replace(curve, level=change.level, since=change.time)
        return curve

    def changed(self, before: str | None, after: str | None) -> str:
        """Return a sentence on how two fingerprints differ, or that they do not."""
        if before is None or after is None:
            return ""
        old, new = self.fingerprints.get(before, {}), self.fingerprints.get(after, {})
        changes = []
        for key, first, second in fingerprint.changed(old, new):
            changes.append(visible(f"{key}: {first} -> {second}"))
        if changes:
            return f"changed just before: {some(changes)}"
        if fingerprint.is_of_node(old) and fingerprint.is_of_node(new):
            return UNCHANGED
        return ""
