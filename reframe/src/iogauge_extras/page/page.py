"""Sessions, or a span of time, as one page of HTML that opens everywhere.

Nothing leaves the file: its policy forbids requests, and lets no script run but page.js, by digest.
All that the page says can be read without scripts. Its form is page.html and page.css.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import re
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.core.units import format_value, with_unit
from iogauge.core.untrusted import numbers, texts
from iogauge.evidence.fingerprint import identity, is_of_node
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord, Record, microseconds
from iogauge.report import outcome
from iogauge.report.endings import UNPROVEN, SessionRecords
from iogauge.report.layout import LOOKS
from iogauge.report.outcome import newest
from iogauge.report.ranking import load_of, ranked
from iogauge.session.current import suite
from iogauge_extras.ceilings.table import Shown, beside
from iogauge_extras.page.charts import Timeline, by_second, short
from iogauge_extras.page.past import probed
from iogauge_extras.page.sheets import Sheet
from iogauge_extras.page.trouble import DRIFT, Alarm, Trouble

FOLDER: Final = Path(__file__).parent


def page_style() -> Markup:
    """Return the style of a page and of its figures."""
    files = (FOLDER / "page.css", FOLDER / "figure.css")
    return Markup("".join(file.read_text(encoding="utf-8") for file in files))


def written_by() -> str:
    """Return who wrote the page when, with which commit of the suite."""
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"{now} by {getpass.getuser()} on {socket.gethostname()}, iogauge {suite()}"


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    if type(value) is str:
        return visible(value)
    return value


TEMPLATES: Final = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


#: Most figures of metrics without trouble, so that the page stays small.
_FIGURES: Final = 500

#: Records whose details are printed; of more, those that the reader has opened.
_PRINTED: Final = 60

#: Sign of each verdict, which tells them apart without colours.
SIGNS: Final = {verdict.value: look.sign for verdict, look in LOOKS.items()} | {
    DRIFT: "↓"
}

TEMPLATES.globals |= {
    "count": count,
    "format_value": format_value,
    "identity": identity,
    "numbers": numbers,
    "short": short,
    "signs": SIGNS,
    "texts": texts,
    "with_unit": with_unit,
}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The probes of a needle."""

    record: Record
    metric: MetricRecord
    #: Rates of all by their names.
    probes: Mapping[str, float]
    #: Names of those that are shown, the slowest first.
    shown: Sequence[str]
    #: Names that a failure names.
    slow: Sequence[str]


#: Probes of a ranking that are shown: the slowest, and the fastest.
_SLOWEST, _FASTEST = 12, 4


def page(
    alarm: Alarm,
    records: Sequence[Record],
    layers: Mapping[str, Shown] | None = None,
    silence: str = "",
) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each.

    ``layers`` are those of each partition (``system:partition``) whose site is known here. ``silence`` says until when
    nobody is told of anything.
    """
    places = {}
    for number, record in enumerate(records):
        places[record.session, record.line, microseconds(record.time)] = f"r{number}"

    def anchor(session: str, line: str, time: str) -> str:
        return places.get((session, line, microseconds(time)), "")

    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    others = []
    for curve in alarm.history.curves if alarm.history else ():
        if len(curve.points) > 1 and curve.points not in drawn:
            others.append(curve)
    shown = {record.verdict for record in records}
    last = newest(records)
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    return TEMPLATES.get_template("page.html").render(
        alarm=alarm,
        silence=silence,
        counts=_counts(alarm, SessionRecords(records)),
        verdicts=[verdict.value for verdict in LOOKS if verdict in shown],
        cards=cards([*alarm.troubles, *alarm.unproven]),
        span=span_of(records),
        written=written_by(),
        suites=sorted({str(record.suite) for record in records if record.suite}),
        places=places_of(records),
        results=list(_results(ranked(records), layers or {})),
        rankings=list(_rankings(last)),
        timelines=list(_timelines(last)),
        others=others[:_FIGURES],
        left_out=max(len(others) - _FIGURES, 0),
        records=records,
        facts_of=_facts,
        fingerprints=grouped(records, lambda record: identity(record.fingerprint)),
        few=len(records) <= _PRINTED,
        anchor=anchor,
        by_line={record.line: record for record in last},
        style=page_style(),
        script=Markup(script),
        policy=_policy(script),
    )


def sheet(shown: Sheet) -> str:
    """Return a sheet as a page of its own, to be printed."""
    return TEMPLATES.get_template("sheet.html").render(
        sheet=shown, written=written_by(), style=page_style(), policy=_policy("")
    )


def _counts(alarm: Alarm, records: SessionRecords) -> dict[str, int]:
    """Return how many cases are accepted, failed, invalid, unproven, missing, by the style of each."""
    counts = Counter(record.verdict for record in records if records.counts(record))
    return {
        "PASS": counts[Verdict.PASS],
        "FAIL": counts[Verdict.FAIL] + counts[Verdict.ERROR],
        "INVALID": counts[Verdict.INVALID],
        "UNREFERENCED": sum(counts[verdict] for verdict in UNPROVEN),
        "MISSING": alarm.missing,
    }


def _policy(script: str) -> str:
    """Return what a page may do: nothing but its own script, by its digest, and its style."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rights = ["default-src 'none'", "style-src 'unsafe-inline'"]
    rights += [f"script-src 'sha256-{digest}'", "base-uri 'none'", "form-action 'none'"]
    return "; ".join(rights)


def cards(troubles: Sequence[Trouble]) -> list[list[tuple[Trouble, dict[str, str]]]]:
    """Return the troubles by case, each with its facts; what a card has said is not said again."""
    found = []
    alike = grouped(
        troubles, lambda trouble: (trouble.kind, trouble.where, trouble.case)
    )
    for mine in alike.values():
        said: set[str] = set()
        card = []
        for trouble in mine:
            facts = trouble.facts
            card.append((trouble, {n: t for n, t in facts.items() if t not in said}))
            said.update(facts.values())
        found.append(card)
    return found


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A metric of a target."""

    row: outcome.Row
    #: Values of its ceilings by their kind.
    ceilings: Mapping[str, str]
    #: Numbers of its notes.
    notes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Target:
    """The results of a target."""

    name: str
    #: Rows of each case, by its line.
    cases: dict[str, list[ShownRow]]
    #: Columns that have a value.
    columns: set[str]
    #: What the numbers mean.
    notes: Sequence[str]
    remarks: list[str]


def _results(
    records: Sequence[Record], layers: Mapping[str, Shown]
) -> Iterator[Target]:
    """Yield the rows of every metric by target, and the notes that they refer to by number."""
    rows = outcome.folded(outcome.rows(records))
    targets = grouped(
        rows, lambda row: f"{row.record.where} at {row.record.target_path}"
    )
    for name, mine in targets.items():
        notes = outcome.Notes(r for row in mine for r in outcome.to_act_on(row))
        shown = []
        columns: set[str] = set()
        for row in mine:
            ceilings: Mapping[str, str] = {}
            if row.of:
                ceilings = beside(
                    layers.get(row.record.where), row.record.nodes, row.of
                )
            numbers = notes.numbers(outcome.to_act_on(row))
            shown.append(ShownRow(row, ceilings, numbers))
            columns.update(ceilings)
            if row.reference:
                columns.add("reference")
            if numbers:
                columns.add("notes")
        if len(notes.texts) == 1 and all(one.notes for one in shown):
            columns.remove("notes")  # it is of all rows
        cases = grouped(shown, lambda one: one.row.record.line)
        yield Target(name, cases, columns, notes.texts, outcome.remarks_of(mine))


def _rankings(records: Sequence[Record]) -> Iterator[Ranking]:
    """Yield the probes of each needle; of many the slowest, the fastest, and those that its verdict names."""
    for record in records:
        for metric in record.metrics:
            probes = _named_numbers(metric.probes)
            if len(probes) < 2:
                continue
            slow = _named(record, metric.name, probes)
            shown = []
            for place, name in enumerate(sorted(probes, key=probes.__getitem__)):
                is_end = place < _SLOWEST or place >= len(probes) - _FASTEST
                if is_end or name in slow:
                    shown.append(name)
            yield Ranking(record, metric, probes, shown, slow)


def _named_numbers(values: object) -> dict[str, float]:
    """Return the numbers of a mapping from outside by their names; empty if it is none."""
    found: dict[str, float] = {}
    if isinstance(values, Mapping):
        for name, value in values.items():
            for number in numbers([value]):
                found[str(name)] = number
    return found


def _timelines(records: Sequence[Record]) -> Iterator[tuple[Timeline, Record]]:
    """Yield the rates over the seconds of each run that has them: Failover, Endurance."""
    for record in records:
        marks: dict[str, float] = {}
        lines: list[tuple[MetricRecord, list[dict[str, float]]]] = []
        for metric in record.metrics:
            rounds = []
            if isinstance(metric.rounds, Sequence) and not metric.probes:
                rounds = list(map(_named_numbers, metric.rounds))
            if metric.unit == "s":
                marks |= next(iter(rounds), {})
            elif any(rounds):
                lines.append((metric, rounds))
        for metric, rounds in lines:
            name = metric.name.removeprefix("before_")
            title = f"{record.short_name} on {record.where}: {name} over time"
            with contextlib.suppress(ValueError):
                rates = list(map(by_second, rounds))
                yield Timeline(title, metric.unit, rates, marks), record


def _named(record: Record, metric: str, names: Iterable[str]) -> list[str]:
    """Return the targets or nodes that a failure of the metric's direction names."""
    reasons = []
    for other in record.metrics:
        alike = other.name.partition("_")[0] == metric.partition("_")[0]
        if alike and other.verdict is Verdict.FAIL:
            reasons.append(other.reason)
    text = " ".join(reasons)
    found = []
    for name in names:
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            found.append(name)
    return found


def _facts(record: Record) -> dict[str, str]:
    """Return what the page keeps of a record by name, and what guards found."""
    nodes = count(record.nodes or "?", "node")
    tasks = count(record.tasks_per_node or "?", "task")
    facts = {
        "record": f"history/{record.system}/{record.session}.jsonl, line {record.line}, series {record.series}",
        "verdict": record.reason,
        "scale": f"{nodes}, {tasks} a node, tier {record.tier}, variant {record.variant}",
        "tools": ", ".join(texts(record.tools)),
        "load before the run": _loads([record]),
    }
    if isinstance(record.layout, Mapping):
        facts["layout"] = str(record.layout.get("kinds", ""))
    for metric in record.metrics:
        facts[metric.name] = _samples(metric)
    found = grouped(record.findings, lambda f: f"{f.name} {f.outcome}")
    fine = 0
    for name, findings in found.items():
        if findings[0].outcome == Outcome.OK.value:
            fine += len(findings)
        else:
            facts[name] = "; ".join(map(outcome.said_of, findings))
    facts["guards"] = f"{count(fine, 'finding')} without objection"
    return {name: text for name, text in facts.items() if text}


def _samples(metric: MetricRecord) -> str:
    """Return the samples of a metric, and where its reference and its ceiling come from."""
    samples = ", ".join(map(format_value, numbers(metric.samples)[:40]))
    text = f"samples {samples} {metric.unit}"
    for value in numbers([metric.cold]):
        text += f"; warm-up {format_value(value)}"
    if metric.reference and metric.reference.source:
        text += f"; reference: {metric.reference.source}"
    if metric.ceiling_from:
        text += f"; ceiling: {metric.ceiling_from}"
    return text


def span_of(records: Sequence[Record]) -> str:
    """Return the first and the last time of records, to the minute."""
    times = sorted(record.minute for record in records)
    if not times:
        return ""
    return f"{' to '.join(dict.fromkeys([times[0], times[-1]]))} UTC"


def places_of(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition: its target, tools and load, and the fingerprint of its newest record."""
    places = []
    for where, mine in sorted(grouped(records, lambda record: record.where).items()):
        tools: dict[str, None] = {}
        for record in mine:
            tools |= dict.fromkeys(texts(record.tools))
        facts = {
            "target": mine[-1].target_path,
            "tools": ", ".join(tools),
            "load before the runs": _loads(mine),
            "probes": _probed(mine),
            "records": f"{len(mine)}, {span_of(mine)}",
        }
        last = max(mine, key=lambda r: (is_of_node(r.fingerprint), r.time))
        for key, value in last.fingerprint.items():
            if not key.startswith(("command", "settings")):
                facts[key] = str(value)
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places


def _probed(records: Sequence[Record]) -> str:
    """Return when probes found a target slow, since the first of its records was begun; empty if none did."""
    first = min(records, key=lambda record: record.time)
    begin = microseconds(first.time) // 1_000_000
    return probed(first.system, first.partition, begin, int(time.time()))


def _loads(records: Iterable[Record]) -> str:
    """Return the largest load of the nodes before runs; empty if none is known."""
    known = [load for load in map(load_of, records) if load is not None]
    if not known:
        return ""
    return f"{max(known):g} x the cores of the busiest node"
