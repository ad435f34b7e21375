"""Sessions, or a span of time, as one page of HTML that opens everywhere.

Nothing leaves the file: its policy forbids requests, and lets no script run but page.js, by digest.
All that the page says can be read without scripts. Its form is page.html and page.css.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import itertools
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.core.units import (
    BANDWIDTH_UNITS,
    convert,
    format_bytes,
    format_value,
)
from iogauge.core.untrusted import numbers
from iogauge.evidence.fingerprint import identity
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import LAYER_CHECKS, MetricRecord, Record, microseconds
from iogauge.report import outcome
from iogauge.report.endings import SessionRecords, Word
from iogauge.report.layout import LOOKS
from iogauge.report.outcome import newest
from iogauge.report.ranking import load_of
from iogauge.session.current import suite
from iogauge_extras.ceilings.table import Shown, beside
from iogauge_extras.page import bars, charts, sweeps
from iogauge_extras.page.news import DRIFT, Alarm, Trouble, conclusion, tiles

if TYPE_CHECKING:
    from iogauge_extras.compare.sides import Contrast

FOLDER: Final = Path(__file__).parent


def page_style() -> Markup:
    """Return the style of a page and of its figures."""
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    return Markup(css + charts.FIGURE_STYLE)


def written_by() -> str:
    """Return who wrote the page when, with which commit of the suite."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):
        who = "somebody"
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"{now} by {who} on {socket.gethostname()}, iogauge {suite()}"


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    return visible(value) if type(value) is str else value


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

TEMPLATES.globals |= {"count": count, "format_value": format_value, "signs": SIGNS}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of the page."""

    svg: Markup
    caption: str
    #: What a filter finds it by.
    text: str
    system: str
    #: Where its record is on the page.
    record: str = ""
    outliers: str = ""


#: Returns where a record is on the page; empty if it is not on it.
_Anchor = Callable[[Record], str]


def page(
    alarm: Alarm, records: Sequence[Record], layers: Mapping[str, Shown] | None = None
) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each.

    ``layers`` are those of each partition (``system:partition``) whose site is known here.
    """
    found = SessionRecords(records)
    places = {}
    for number, record in enumerate(records):
        places[record.session, record.line, microseconds(record.time)] = f"r{number}"

    def anchor(record: Record) -> str:
        return places.get((record.session, record.line, microseconds(record.time)), "")

    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    curves = alarm.history.curves if alarm.history else []
    others = [c for c in curves if len(c.points) > 1 and c.points not in drawn]
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    last = newest(records)
    return TEMPLATES.get_template("page.html").render(
        alarm=alarm,
        conclusion=conclusion(alarm),
        tiles=tiles(alarm, found),
        verdicts=[
            verdict.value
            for verdict in LOOKS
            if any(record.verdict is verdict for record in records)
        ],
        systems=list(_systems(alarm, found)),
        overviews=[tuple(map(Markup, pair)) for pair in bars.overviews(last, anchor)],
        cards=cards(alarm.troubles),
        span=span_of(records),
        written=written_by(),
        suites=sorted({str(record.suite) for record in records if record.suite}),
        places=places_of(records),
        results=list(_results(records, layers or {})),
        plots=list(_plots(records, anchor)),
        needles=[*_needles(last, anchor), *_maps(records, anchor)],
        others=others[:_FIGURES],
        left_out=max(len(others) - _FIGURES, 0),
        prices=list(costs(sorted(records, key=lambda record: record.time))),
        records=records,
        detail=_detail,
        fingerprints=grouped((r for r in records if r.fingerprint), _fingerprint),
        few=len(records) <= _PRINTED,
        anchor=anchor,
        by_line={record.line: anchor(record) for record in last},
        chart=partial(_chart, places, itertools.count(1)),
        gauge=_gauge,
        style=page_style(),
        script=Markup(script),
        policy=_policy(script),
    )


def _gauge(metric: MetricRecord | None) -> Markup:
    return Markup(bars.gauge(metric) if metric else "")


def _fingerprint(record: Record) -> str:
    return identity(record.fingerprint) if record.fingerprint else ""


def _policy(script: str) -> str:
    """Return what a page may do: nothing but its own script, by its digest, and its style."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    by = f"script-src 'sha256-{digest}'; " if script else ""
    return f"default-src 'none'; style-src 'unsafe-inline'; {by}base-uri 'none'; form-action 'none'"


def _chart(
    here: Mapping[tuple[str, str, int], str],
    numbers: Iterator[int],
    curve: charts.Curve,
) -> tuple[Markup, list[tuple[str, charts.Run, str, str]]]:
    """Return a control chart, and each run with its row, its time, and where its record is; the newest first."""
    names = [
        f"u{number}-{nth}"
        for number in [next(numbers)]
        for nth in range(len(curve.points))
    ]
    rows = []
    for name, run in zip(names, curve.points, strict=True):
        time = run.time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        rows.append(
            (
                name,
                run,
                time,
                here.get((run.session, curve.key, microseconds(time)), ""),
            )
        )
    return Markup(charts.svg(curve, names)), rows[::-1]


#: What a mark of a comparison says of B.
_MARKS_OF_B: Final = {
    "better": "B is better in {}",
    "worse": "B is worse in {}",
    "differs": "{} differ by more than the noise within a run",
    "alike": "{} cannot be told apart",
    "?": "{} have too few values for an interval",
}


def comparison(found: Contrast) -> str:
    """Return the page of two sets of records side by side."""
    from iogauge_extras.compare.sides import told

    headings, rows = told(found.ratios)

    counts = Counter(one.mark for one in found.ratios)
    return TEMPLATES.get_template("compare.html").render(
        found=found,
        rows=list(zip(found.ratios, rows, strict=True)),
        headings=headings,
        figure=Markup(bars.ratios("B / A, with the 95 % interval", found.ratios)),
        written=written_by(),
        conclusion=[
            words.format(counts[mark])
            for mark, words in _MARKS_OF_B.items()
            if counts[mark]
        ],
        signs={"better": "▲ ", "worse": "▼ "},
        kinds={"better": "PASS", "worse": "FAIL"},
        style=page_style(),
        policy=_policy(""),
    )


def costs(records: Iterable[Record]) -> Iterator[tuple[Record, str, float]]:
    """Yield what holds the best bandwidth of each target with a price, and metric: its record, name and bytes/s.

    ``records`` come in the order in which they were made: the newest valid value of each case counts. What a layer
    below the target carries is left out.
    """
    newest: dict[tuple[str, str], dict[str, tuple[float, Record]]] = {}
    for record in records:
        for metric in (
            record.metrics if record.price and record.check not in LAYER_CHECKS else ()
        ):
            if (
                metric.unit in BANDWIDTH_UNITS
                and metric.verdict.is_valid
                and metric.median > 0
            ):
                bytes_s = convert(metric.median, metric.unit, "B/s")
                cases = newest.setdefault((record.where, metric.name), {})
                cases[record.case] = (bytes_s, record)
    for (_, name), cases in newest.items():
        bytes_s, record = max(cases.values(), key=lambda measured: measured[0])
        yield record, name, bytes_s


def cards(troubles: Sequence[Trouble]) -> list[list[tuple[Trouble, dict[str, str]]]]:
    """Return the troubles by case, each with its facts; what a card has said is not said again."""
    found = []
    for mine in grouped(troubles, lambda one: (one.kind, one.where, one.case)).values():
        said: set[str] = set()
        card = []
        for trouble in mine:
            known = (
                trouble.facts
                if trouble.measured
                else {"reason": trouble.reason} | trouble.facts
            )
            facts = {
                name: text for name, text in known.items() if text and text not in said
            }
            said |= {*facts.values()}
            card.append((trouble, facts))
        found.append(card)
    return found


def _systems(alarm: Alarm, found: SessionRecords) -> Iterator[tuple[str, str, str]]:
    """Yield each of several systems with its word and a sentence: its verdicts, and its gravest trouble."""
    for system in alarm.systems if len(alarm.systems) > 1 else ():
        mine = SessionRecords(r for r in found if visible(r.system) == system)
        troubles = [t for t in alarm.troubles if t.where.partition(":")[0] == system]
        ending = mine.ending(False)
        word, sentence = ending.word, ending.sentence
        if any(trouble.kind == DRIFT for trouble in troubles):
            word = Word.FAILED
        if troubles:
            sentence += f"; first of all {troubles[0].gist}"
        yield system, word.value, sentence


@dataclass
class Target:
    """The results of a target."""

    name: str
    #: Rows of each case, by its line.
    cases: dict[str, list[dict[str, Any]]]
    #: Headings of the columns that have a value.
    columns: list[str]
    #: Numbers of the notes below the table.
    notes: dict[str, int]
    remarks: list[str]


#: Columns of results that may be empty, with the keys of a row's values.
_COLUMNS: Final = {
    "reference": "reference",
    "ceiling, declared": "declared",
    "ceiling, measured": "measured",
    "side by side": "gauge",
    "notes": "why",
}


def _results(
    records: Sequence[Record], layers: Mapping[str, Shown]
) -> Iterator[Target]:
    """Yield the rows of every metric by target, and the notes that they refer to by number."""
    rows = outcome.folded(outcome.rows(records))
    targets = grouped(
        rows, lambda row: f"{row.record.where} at {row.record.target_path}"
    )
    for name, mine in targets.items():
        alike = outcome.notes_of(r for row in mine for r in outcome.to_act_on(row))
        notes: dict[str, int] = {}
        shown = [
            _result(row, layers.get(row.record.where), alike, notes) for row in mine
        ]
        columns = [h for h, key in _COLUMNS.items() if any(row[key] for row in shown)]
        cases = grouped(shown, lambda row: row["row"].record.line)
        yield Target(name, cases, columns, notes, outcome.remarks_of(mine))


def _result(
    row: outcome.Row,
    layers: Shown | None,
    alike: Mapping[str, str],
    notes: dict[str, int],
) -> dict[str, Any]:
    """Return what the page shows of a metric."""
    metric = row.of
    reference = metric.reference if metric else None
    ceilings = beside(layers, row.record.nodes, metric) if metric else {}
    texts = dict.fromkeys(alike[reason] for reason in outcome.to_act_on(row))
    why = [_note(notes, text) for text in texts]
    return {
        "row": row,
        "samples": len(numbers(metric.samples)) if metric else 0,
        "reference": "" if row.reference in ("-", "none") else row.reference,
        "source": _note(notes, reference.source if reference else None),
        "declared": ceilings.get("declared", ""),
        "measured": ceilings.get("measured", ""),
        "held": ceilings.get("held", ""),
        "limits": _note(notes, metric.ceiling_from if metric else None),
        "gauge": _gauge(metric),
        "why": why,
    }


def _note(notes: dict[str, int], text: object) -> int:
    """Return the number of a note, which is added if it is new; 0 without text."""
    return notes.setdefault(str(text), len(notes) + 1) if text else 0


def _plots(records: Sequence[Record], anchor: _Anchor) -> Iterator[Drawing]:
    """Yield curves over a parameter, and bars if it has one value."""
    for plot in sweeps.plots(records):
        several = len({dot.x for dot in plot.dots}) > 1
        drawn = (charts.sweep if several else bars.beside)(
            plot, lambda dot: anchor(dot.record)
        )
        yield Drawing(Markup(drawn), plot.caption, plot.title, plot.system)


def _needles(records: Sequence[Record], anchor: _Anchor) -> Iterator[Drawing]:
    """Yield the ranked bars of each needle; the outliers are those that its verdict names."""
    for record in records:
        for metric in record.metrics:
            probes = bars.probes_of(metric)
            if len(probes) < 2:
                continue
            outliers = _named(record, metric.name, probes)
            title = f"{record.short_name} {metric.name} on {record.where}"
            rounds = len(metric.rounds) if isinstance(metric.rounds, list) else 1
            caption = (
                f"n = {len(probes)} probes in {count(rounds, 'round')}; {metric.unit}; {record.time[:10]}; "
                f"{record.pinned or count(record.nodes or '?', 'node')}; {sweeps.stack_of([record])}"
            )
            drawn = Markup(bars.ranking(title, metric, outliers))
            named = ", ".join(outliers) or "none"
            yield Drawing(drawn, caption, title, record.system, anchor(record), named)


def _maps(records: Sequence[Record], anchor: _Anchor) -> Iterator[Drawing]:
    """Yield the maps of nodes and targets, with those that a failure names."""
    for title, metric, unit, cells, record in bars.maps(records):
        ends = {name for place in cells for name in place}
        named: set[str] = set()
        for other in records:
            if (other.check, other.where) == (record.check, record.where):
                named.update(_named(other, metric, ends))
        drawn = Markup(bars.cells_map(title, unit, cells, named))
        caption = f"darker: slower than the median of the faster half; {unit}"
        text = ", ".join(sorted(named)) or "none"
        yield Drawing(drawn, caption, title, record.system, anchor(record), text)


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


def _detail(record: Record) -> dict[str, Any]:
    """Return what the page keeps of a record: facts by name, commands, and what guards found."""
    layout = record.layout if isinstance(record.layout, Mapping) else {}
    scale = f"{count(record.nodes or '?', 'node')}, {count(record.tasks_per_node or '?', 'task')} a node"
    named = [f"{key}={value}" for key, value in record.parameters.items()]
    load = load_of(record)
    facts: dict[str, object] = {
        "record": f"{file_of(record)}, line {record.line}, series {record.series}",
        "verdict": record.reason,
        "parameters": ", ".join(named),
        "scale": f"{scale}, tier {record.tier or '-'}, variant {record.variant or '-'}",
        "load before the run": "" if load is None else f"{load:g} x the cores",
        "tools": ", ".join(sweeps.texts(record.tools)),
        "layout": layout.get("kinds", ""),
    }
    for metric in record.metrics:
        samples = ", ".join(map(format_value, numbers(metric.samples)[:40]))
        text = f"samples {samples} {metric.unit}"
        for value in numbers([metric.cold]):
            text += f"; warm-up {format_value(value)}"
        facts[metric.name] = text
    findings: dict[str, str] = {}
    fine = 0
    for finding in record.findings:
        if finding.outcome == Outcome.OK.value:
            fine += 1
            continue
        text = f"{finding.saw}; demanded: {finding.demands}"
        if finding.remedy:
            text += f". {finding.remedy}"
        name = f"{finding.name} {finding.outcome}"
        findings[name] = f"{findings[name]}; {text}" if name in findings else text
    findings["guards"] = f"{count(fine, 'finding')} without objection"
    return {
        "facts": {name: text for name, text in facts.items() if text},
        "commands": sweeps.texts(record.commands),
        "findings": findings,
        "fingerprint": _fingerprint(record),
    }


# Where records were made, and what is known of each place: the header of a page.
#: Keys of a fingerprint that the header shows, by the name of the fact: patterns, and what a reader calls them if
#: the key is not plain.
_FACTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "file system": {
        **{"mount.type": "", "mount.source": "from", "lustre.client": "Lustre client"},
        **{
            "layout.default": "default layout",
            "mount.options": "options",
            "fs.uuid": "UUID",
        },
    },
    "servers": {
        "lustre.servers": "servers",
        "lustre.osts": "OSTs",
        "lustre.mdts": "MDTs",
    },
    "clients": {
        **{"nodes": None, "node.model": "", "cpu.model": "", "cpu.cores": "cores"},
        **{"mem.bytes": "memory", "os": "", "kernel": "kernel"},
    },
    "network": dict.fromkeys(
        ("nic.*.model", "nic.*.speed_mbps", "ib.*.model", "ib.*.rate")
    ),
    "software": {"tool.*": None, "mpi": "", "stack": None},
}


def _values(
    patterns: Mapping[str, str | None], records: Iterable[Record]
) -> Iterator[str]:
    """Yield facts of fingerprints whose keys fit patterns, as a reader of the page calls them."""
    for pattern, shown in patterns.items():
        for record in records:
            for key, value in record.fingerprint.items():
                if not fnmatchcase(key, pattern):
                    continue
                name = shown
                if name is None:
                    name = re.sub(r"^(tool|nic|ib)\.", "", key).replace(".", " ")
                text = value
                if key == "mem.bytes" and type(value) is int:
                    text = format_bytes(value)
                yield f"{name} {text}".strip()


def span_of(records: Sequence[Record]) -> str:
    """Return the first and the last time of records, to the minute."""
    times = sorted(record.minute for record in records)
    ends = " to ".join(dict.fromkeys(times[:1] + times[-1:]))
    return f"{ends} UTC" if ends else ""


def file_of(record: Record) -> str:
    """Return the record's file, below the state directory."""
    return f"history/{record.system}/{record.session}.jsonl"


def places_of(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition, from its newest record with a fingerprint.

    Each tool is known from the records of its cases.
    """
    places = []
    for where, mine in sorted(grouped(records, lambda record: record.where).items()):
        newest = sorted(
            mine, key=lambda record: (bool(record.fingerprint), record.time)
        )[-1]
        facts = {"target": newest.target_path}
        for fact, patterns in _FACTS.items():
            known = mine if fact == "software" else [newest]
            facts[fact] = ", ".join(dict.fromkeys(_values(patterns, known)))
        if not facts["software"]:
            facts["software"] = sweeps.stack_of(mine)
        metrics = [metric for record in mine for metric in record.metrics]
        limits = {str(m.ceiling_from) for m in metrics if m.ceiling_from}
        facts["declared ceilings"] = "; ".join(sorted(limits)[:4])
        facts["load before the runs"] = _loads(mine)
        facts["records"] = f"{len(mine)}, {span_of(mine)}"
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places


def _loads(records: Iterable[Record]) -> str:
    """Return the least and the largest load of the nodes before runs; empty if none is known."""
    known = [load_of(record) for record in records]
    loads = sorted(load for load in known if load is not None)
    if not loads:
        return ""
    ends = dict.fromkeys([f"{loads[0]:g}", f"{loads[-1]:g}"])
    return f"{' to '.join(ends)} x the cores of a node"
