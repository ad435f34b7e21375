"""Sessions, or a span of time, as one page of HTML that opens everywhere.

Nothing leaves the file: its policy forbids requests, and lets no script run but page.js, by digest.
All that the page says can be read without scripts. Its form is page.html and page.css.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from iogauge.core.paths import project_root
from iogauge.core.text import count, visible
from iogauge.core.units import format_bytes, format_value, in_order
from iogauge.core.untrusted import numbers
from iogauge.evidence.fingerprint import identity
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord, Record, microseconds
from iogauge.report import outcome
from iogauge.report.outcome import SessionRecords, Word, newest
from iogauge.session.current import suite
from iogauge.site import folders
from iogauge.site.references import References
from iogauge_extras.ceilings.table import Shown, beside
from iogauge_extras.page import bars, charts, svg, sweeps
from iogauge_extras.page.collect import against
from iogauge_extras.page.marks import MARKS
from iogauge_extras.page.past import GRAVEST
from iogauge_extras.page.sweeps import Dot
from iogauge_extras.page.trouble import DRIFT, Alarm, Trouble

if TYPE_CHECKING:
    from iogauge_extras.compare.sides import Contrast

#: Most figures of metrics without trouble, so that the page stays small.
_FIGURES: Final = 500

#: Records whose details are printed; of more, those that the reader has opened.
_PRINTED: Final = 60

#: Sign of each verdict, which tells them apart without colours.
SIGNS: Final = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.ERROR: "✗",
    Verdict.INVALID: "⊘",
    Verdict.UNREFERENCED: "?",
    Verdict.UNSTABLE: "≈",
    Verdict.CONTAMINATED: "≈",
}

#: Keys of a fingerprint that the header shows, in its order: name of the fact, and patterns of the keys.
_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "file system": (
        *("mount.type", "mount.source", "lustre.client", "layout.default"),
        *("mount.options", "fs.uuid"),
    ),
    "servers": ("lustre.servers", "lustre.osts", "lustre.mdts"),
    "clients": (
        *("nodes", "node.model", "cpu.model", "cpu.cores"),
        *("mem.bytes", "os", "kernel"),
    ),
    "network": ("nic.*.model", "nic.*.speed_mbps", "ib.*.model", "ib.*.rate"),
    "software": ("tool.*", "mpi", "stack"),
}
#: What a reader of the header calls a fact, where the key of the fingerprint is not plain.
_NAMES: Final[Mapping[str, str]] = {
    "mount.type": "",
    "mount.source": "from",
    "mount.options": "options",
    "lustre.client": "Lustre client",
    "lustre.servers": "servers",
    "lustre.osts": "OSTs",
    "lustre.mdts": "MDTs",
    "layout.default": "default layout",
    "fs.uuid": "UUID",
    "cpu.model": "",
    "cpu.cores": "cores",
    "mem.bytes": "memory",
    "node.model": "",
    "os": "",
    "kernel": "kernel",
    "mpi": "",
}
_FOLDER: Final = Path(__file__).parent

#: What the marks of a control chart are.
RUNS_LEGEND: Final = (
    *("solid line: level of the baseline", "dotted lines: 3 standard deviations around it"),
    *("dashed line and band: reference, and the values that meet it", "hollow: not valid"),
    *(
        "triangle: beyond the axis",
        "dotted vertical: new series or level",
        "red vertical: an alarm began",
    ),
)

_Anchor = Callable[[Record], str]

#: What a page without a script may do.
NO_SCRIPT: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that one look must tell, with the verdicts that it counts."""

    name: str
    count: int
    sign: str
    style: str
    meaning: str


def page(alarm: Alarm, records: Sequence[Record], layers: Mapping[str, Shown] | None = None) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each.

    ``layers`` are those of each partition (``system:partition``) whose site is known here.
    """
    below = {
        name: shown for name, shown in (layers or {}).items() if name in set(map(_where, records))
    }
    found = SessionRecords(records)
    anchors = {_key(record): f"r{n}" for n, record in enumerate(records)}

    def anchor(record: Record) -> str:
        return anchors[_key(record)]

    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    several = [c for c in alarm.curves if len(c.points) > 1]
    others = [c for c in several if c.points not in drawn]
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    by_line = {record.line: anchor(record) for record in newest(records)}
    return TEMPLATES.get_template("page.html").render(
        alarm=alarm,
        systems=", ".join(alarm.systems),
        conclusion=conclusion(alarm, found),
        tiles=tiles(alarm, found),
        systems_said=list(_systems(alarm, found)),
        overviews=_overviews(records, anchor),
        overlays=[Markup(charts.overlay(name, mine)) for name, mine in _by_system(several)],
        cards=cards(alarm.troubles),
        span=_span(records),
        written=written_by(),
        suites=sorted({str(record.suite) for record in records if record.suite}),
        sessions=alarm.sessions,
        places=_places(records),
        results=_results(records, anchor, below),
        layers=list(_layers(records, anchor, below)),
        plots=list(_plots(records, anchor)),
        needles=list(_needles(records, anchor)),
        others=others[:_FIGURES],
        left_out=max(len(others) - _FIGURES, 0),
        calendar=_calendar(alarm, {_named(record): anchor(record) for record in newest(records)}),
        prices=[
            (price, anchor(price.record), price.record.system)
            for price in outcome.costs(sorted(records, key=lambda record: record.time))
        ],
        records=[_detail(record, anchor(record)) for record in records],
        fingerprints=_fingerprints(records),
        few=len(records) <= _PRINTED,
        legend=[(SIGNS[v], MARKS[v], v) for v in Verdict],
        verdicts=[v.value for v in Verdict],
        runs_legend=RUNS_LEGEND,
        count=count,
        minute=_minute,
        signs={verdict.value: sign for verdict, sign in SIGNS.items()} | {DRIFT: "↓"},
        by_line=by_line,
        chart=_Charts(records, anchor),
        gauge=lambda metric: Markup(bars.gauge(metric)) if metric else "",
        style=page_style(),
        script=Markup(script),
        policy=_policy(script),
    )


def _policy(script: str) -> str:
    """Return what the page may do: nothing but its own script, by its digest, and its style."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


class _Charts:
    """Makes the control charts of a page; each run leads to its row, and the row to its record."""

    def __init__(self, records: Sequence[Record], anchor: _Anchor) -> None:
        """Remember the records that the page has."""
        self._here = {(r.session, r.line, microseconds(r.time)): anchor(r) for r in records}
        self._fingerprints = {identity(r.fingerprint) for r in records if r.fingerprint}
        self._count = 0

    def __call__(self, curve: charts.Curve) -> dict[str, Any]:
        """Return the figure, and a row for each run."""
        self._count += 1
        names = [f"u{self._count}-{number}" for number in range(len(curve.points))]
        rows = []
        for name, run in zip(names, curve.points, strict=True):
            time = run.time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
            known = run.fingerprint or ""
            rows.append(
                {
                    "id": name,
                    "time": time,
                    "value": format_value(run.value),
                    "verdict": run.verdict.value,
                    "session": run.session,
                    "record": self._here.get((run.session, curve.key, microseconds(time)), ""),
                    "fingerprint": known,
                    "known": known in self._fingerprints,
                }
            )
        return {"svg": Markup(charts.svg(curve, names)), "rows": rows[::-1]}


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
    from iogauge_extras.compare.sides import HEADINGS, cells  # with numpy

    drawn = [
        bars.Between(
            case=re.sub(r"(^| )\w+=", r"\1", one.case),
            metric=one.metric,
            ratio=one.ratio,
            low=one.ratio if one.low is None else one.low,
            high=one.ratio if one.high is None else one.high,
            sure=one.mark in ("better", "worse"),
        )
        for one in found.ratios
    ]
    counts = Counter(one.mark for one in found.ratios)
    return TEMPLATES.get_template("compare.html").render(
        found=found,
        rows=[(one, cells(one)) for one in found.ratios],
        headings=HEADINGS,
        figure=Markup(bars.ratios("B / A, with the 95 % interval", drawn)),
        written=written_by(),
        conclusion=[
            words.format(counts[mark]) for mark, words in _MARKS_OF_B.items() if counts[mark]
        ],
        signs={"better": "▲ ", "worse": "▼ "},
        kinds={"better": "PASS", "worse": "FAIL"},
        count=count,
        style=page_style(),
        policy=NO_SCRIPT,
    )


def page_style() -> Markup:
    """Return the style of a page and of its figures."""
    css = (_FOLDER / "page.css").read_text(encoding="utf-8")
    return Markup(css + svg.FIGURE_STYLE)


def cards(troubles: Sequence[Trouble]) -> list[list[tuple[Trouble, dict[str, str]]]]:
    """Return the troubles by case, each with its facts; what a card has said is not said again."""
    found: dict[tuple[str, ...], list[tuple[Trouble, dict[str, str]]]] = {}
    for trouble in troubles:
        card = found.setdefault((trouble.kind, trouble.where, trouble.case), [])
        said = {text for _, facts in card for text in facts.values()}
        facts = {name: text for name, text in trouble.facts.items() if text not in said}
        card.append((trouble, facts))
    return list(found.values())


def _by_system(curves: Sequence[charts.Curve]) -> list[tuple[str, list[charts.Curve]]]:
    found: dict[str, list[charts.Curve]] = {}
    for curve in curves:
        found.setdefault(curve.system, []).append(curve)
    return list(found.items())


def _systems(alarm: Alarm, found: SessionRecords) -> Iterator[tuple[str, str, str]]:
    """Yield each of several systems with its word and a sentence: its verdicts, and its gravest trouble."""
    for system in alarm.systems if len(alarm.systems) > 1 else ():
        mine = SessionRecords(r for r in found if visible(r.system) == system)
        troubles = [t for t in alarm.troubles if t.where.partition(":")[0] == system]
        word = Word.FAILED if any(t.kind == DRIFT for t in troubles) else mine.ending(False).word
        gravest = f"; first of all {troubles[0].headline}" if troubles else ""
        yield system, word.value, f"{mine.ending(False).sentence}{gravest}"


def _overviews(records: Sequence[Record], anchor: _Anchor) -> list[Markup]:
    """Return the best case of each check as bars, beside what documents print of other systems."""
    sites = folders.site_folders(project_root() / "site-configs")
    published = [one for site in sites for one in References.of_site(site.name).published()]
    return list(map(Markup, bars.overviews(newest(records), published, anchor)))


def tiles(alarm: Alarm, records: SessionRecords) -> list[Tile]:
    """Return how many cases are accepted, failed, invalid, unproven and missing."""
    counts = Counter(record.verdict for record in records if records.counts(record))
    unproven = (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED)
    failed = counts[Verdict.FAIL] + counts[Verdict.ERROR]
    return [
        Tile("accepted", counts[Verdict.PASS], "✓", "PASS", "proven, and as the reference demands"),
        Tile("failed", failed, "✗", "FAIL", "below the reference, or the tool failed"),
        Tile("invalid", counts[Verdict.INVALID], "⊘", "INVALID", "the number is not the storage's"),
        Tile(
            "unproven",
            sum(counts[v] for v in unproven),
            "?",
            "UNREFERENCED",
            "no reference, or too much noise",
        ),
        Tile("missing", alarm.missing, "–", "MISSING", "asked for, and not measured"),
    ]


_CONCLUSIONS: Final = {
    Word.OK: "Everything that was asked for is accepted.",
    Word.PARTLY_PROVEN: "Accepted in part: what is unproven or missing stays open.",
    Word.NOTHING_PROVEN: "Nothing is accepted: no case is proven against a reference.",
    Word.FAILED: "Not accepted.",
}


def conclusion(alarm: Alarm, records: SessionRecords) -> str:
    """Return what follows from the records, in sentences: the decision, and its gravest reason."""
    said = [_CONCLUSIONS[alarm.ending.word]]
    worst = min(
        (
            (_loss(metric), metric, record)
            for record in records
            if records.counts(record)
            for metric in record.metrics
            if metric.verdict is Verdict.FAIL and metric.reference
        ),
        key=lambda found: found[0],
        default=None,
    )
    if worst:
        _, metric, record = worst
        said.append(
            f"The gravest failure: {metric.name} of {record.short_name} on {record.system}:{record.partition} "
            f"is {against(metric)}."
        )
    drifts = [trouble for trouble in alarm.troubles if trouble.kind == DRIFT]
    if drifts:
        said.append(f"{count(len(drifts), 'metric')} became worse over time.")
    invalid = [r for r in records if r.verdict is Verdict.INVALID]
    guards = Counter(
        guard
        for record in invalid
        for guard in {f.name for f in record.findings if f.objects(Verdict.INVALID)}
    ).most_common(3)
    if guards:
        names = ", ".join(f"{guard} ({times} x)" for guard, times in guards)
        said.append(f"Guards refuse {count(len(invalid), 'case')}, most often {names}.")
    return " ".join(said)


def _loss(metric: MetricRecord) -> float:
    """Return ln(value over reference), signed so that a loss is below 0."""
    value = float(metric.median) / float(metric.reference.value) if metric.reference else 1.0
    return (value - 1) if metric.better == "more" else (1 - value)


def written_by() -> str:
    """Return who wrote the page when, with which commit of the suite."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):
        who = "somebody"
    now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"{now} by {who} on {socket.gethostname()}, iogauge {suite()}"


def _span(records: Sequence[Record]) -> str:
    times = sorted(record.time for record in records)
    ends = " to ".join(dict.fromkeys(_minute(time) for time in times[:1] + times[-1:]))
    return f"{ends} UTC" if ends else ""


def _minute(time: str) -> str:
    """Return the time of a record as people write it, to the minute."""
    return time[:16].replace("T", " ")


def _fact(key: str, value: object) -> str:
    """Return a fact of a fingerprint as a reader of the header calls it."""
    name = _NAMES.get(key, re.sub(r"^(tool|nic|ib)\.", "", key).replace(".", " "))
    known = format_bytes(value) if key == "mem.bytes" and type(value) is int else value
    return f"{name} {known}".strip()


def _key(record: Record) -> tuple[str, str, str]:
    """Return what tells a record from all others."""
    return record.session, record.time, record.line


def _file(record: Record) -> str:
    return f"history/{record.system}/{record.session}.jsonl"


def _where(record: Record) -> str:
    return f"{record.system}:{record.partition}"


def _places(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition, from its newest record with a fingerprint.

    Each tool is known from the records of its cases.
    """
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: (bool(r.fingerprint), r.time)):
        found[_where(record)] = record
    places = []
    for where, record in sorted(found.items()):
        mine = [r for r in records if _where(r) == where]
        facts = {"target": record.target_path}
        for name, patterns in _FACTS.items():
            values = [
                _fact(key, value)
                for pattern in patterns
                for one in (mine if name == "software" else [record])
                for key, value in one.fingerprint.items()
                if fnmatchcase(key, pattern)
            ]
            facts[name] = ", ".join(dict.fromkeys(values))
        if not facts["software"]:
            facts["software"] = sweeps.stack_of(mine)
        limits = {str(m.ceiling_from) for r in mine for m in r.metrics if m.ceiling_from}
        facts["declared ceilings"] = "; ".join(sorted(limits)[:4])
        facts["records"] = f"{len(mine)}, {_span(mine)}"
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places


def _results(
    records: Sequence[Record], anchor: _Anchor, layers: Mapping[str, Shown]
) -> list[dict[str, Any]]:
    """Return, by target, the rows of every metric, and the notes that they refer to by number."""
    groups: dict[str, dict[str, Any]] = {}
    for record in records:
        target = f"{_where(record)} at {record.target_path}"
        group = groups.setdefault(target, {"target": target, "rows": [], "notes": {}})
        metrics = {metric.name: metric for metric in record.metrics}
        for row in outcome.rows([record]):
            metric = metrics.get(row.metric)
            reference = metric.reference if metric else None
            group["rows"].append(
                {
                    "row": row,
                    "metric": metric,
                    "samples": len(numbers(metric.samples)) if metric else 0,
                    "source": _note(group["notes"], reference.source if reference else None),
                    "ceilings": beside(layers.get(_where(record)), record.nodes, metric)
                    if metric
                    else {},
                    "limits": _note(group["notes"], metric.ceiling_from if metric else None),
                    "why": [_note(group["notes"], reason) for reason in row.reasons],
                    "record": anchor(record),
                    "system": record.system,
                    "time": record.time[:10],
                }
            )
    return list(groups.values())


def _note(notes: dict[str, int], text: object) -> int:
    """Return the number of a note, which is added if it is new; 0 without text."""
    return notes.setdefault(str(text), len(notes) + 1) if text else 0


def _plots(records: Sequence[Record], anchor: _Anchor) -> Iterator[dict[str, Any]]:
    def of(dot: Dot) -> str:
        return anchor(dot.record)

    for plot in sweeps.plots(records):
        several = len({dot.x for dot in plot.dots}) > 1
        yield {
            "svg": Markup((charts.sweep if several else bars.beside)(plot, of)),
            "caption": plot.caption,
            "system": plot.system,
            "text": plot.title,
            "dots": [
                (trace.name, dot.text, dot.value, dot.metric.verdict.value)
                for trace in plot.traces
                for dot in trace.dots
            ],
        }


def _needles(records: Sequence[Record], anchor: _Anchor) -> Iterator[dict[str, Any]]:
    """Yield the ranked bars of each needle; the outliers are those that its verdict names."""
    for record in newest(records):
        for metric in record.metrics:
            probes = bars.probes_of(metric)
            if len(probes) < 2:
                continue
            said = " ".join([record.reason, *(m.reason for m in record.metrics)])
            slow = metric.verdict is Verdict.FAIL or record.verdict is Verdict.FAIL

            def named(name: str, said: str = said, slow: bool = slow) -> bool:
                return slow and bool(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said))

            outliers = [name for name in probes if named(name)]
            title = f"{record.short_name} {metric.name} on {_where(record)}"
            yield {
                "svg": Markup(bars.ranking(title, metric, named)),
                "caption": f"n = {len(probes)} probes in {count(len(metric.rounds) if isinstance(metric.rounds, list) else 1, 'round')}; "
                f"{metric.unit}; {record.time[:10]}; {count(record.nodes or '?', 'node')}; {sweeps.stack_of([record])}",
                "outliers": ", ".join(outliers) or "none",
                "said": record.reason,
                "record": anchor(record),
                "system": record.system,
                "text": title,
            }


def _layers(
    records: Sequence[Record], anchor: _Anchor, below: Mapping[str, Shown]
) -> Iterator[dict[str, str]]:
    """Yield the layers of each partition and direction; what was reached leads to its record."""
    for name, shown in sorted(below.items()):
        for chain in shown.chains:
            if not chain.limit:
                continue
            best = chain.reached.record if chain.reached else None
            here = best is not None and any(_key(record) == _key(best) for record in records)
            said = [chain.sentence]
            if chain.reached:
                said.append(f"n = {count(chain.reached.samples, 'sample')}")
            if best:
                said.append(sweeps.stack_of([best]))
            if best and not here:
                said.append(
                    f"record in {_file(best)}, shown by: iogauge report {best.session} --html FILE"
                )
            yield {
                "svg": Markup(bars.layers(chain, name)),
                "caption": "; ".join(filter(None, said)),
                "where": name,
                "record": anchor(best) if best and here else "",
            }


def _fingerprints(records: Sequence[Record]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return each fingerprint with its name, and where it was seen."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.fingerprint:
            found.setdefault(identity(record.fingerprint), []).append(record)
    return [
        (
            name,
            f"{', '.join(sorted(set(map(_where, of))))}, {count(len(of), 'record')}",
            of[0].fingerprint,
        )
        for name, of in found.items()
    ]


def _named(record: Record) -> tuple[str, str]:
    """Return where a record was made and its case, as the calendar names them."""
    return visible(_where(record)), visible(record.short_name)


def _calendar(alarm: Alarm, anchors: Mapping[tuple[str, str], str]) -> dict[str, Any] | None:
    """Return the columns and rows of the calendar; None if all was measured on one day."""
    days = {day for line in alarm.days for day in line.worst}
    if len(days) < 2:
        return None
    first, last = min(days), max(days)
    columns: list[date] = [first + timedelta(days=k) for k in range((last - first).days + 1)]
    merged: dict[tuple[str, str], dict[date, Verdict]] = {}
    for line in alarm.days:
        mine = merged.setdefault((line.where, line.case), {})
        for day, verdict in line.worst.items():
            mine[day] = min(mine.get(day, verdict), verdict, key=GRAVEST.index)
    return {
        "columns": columns,
        "rows": sorted(merged.items(), key=lambda line: [*map(in_order, line[0])]),
        "marks": MARKS,
        "anchors": anchors,
    }


def _detail(record: Record, anchor: str) -> dict[str, Any]:
    """Return what the page keeps of a record: commands, findings, samples, and where it is."""
    told = [f for f in record.findings if f.outcome != Outcome.OK.value]
    return {
        "anchor": anchor,
        "record": record,
        "where": _where(record),
        "file": _file(record),
        "samples": [
            (
                metric,
                ", ".join(format_value(sample) for sample in numbers(metric.samples)[:40]),
                "".join(map(format_value, numbers([metric.cold]))),
            )
            for metric in record.metrics
        ],
        "told": told,
        "fine": len(record.findings) - len(told),
        "tools": ", ".join(sweeps.texts(record.tools)),
        "commands": sweeps.texts(record.commands),
        "fingerprint": identity(record.fingerprint) if record.fingerprint else "",
        "parameters": ", ".join(f"{key}={value}" for key, value in record.parameters.items()),
    }


def _shown(value: object) -> object:
    """Make text visible before it is escaped; our own markup stays as it is."""
    return visible(value) if type(value) is str else value


TEMPLATES: Final = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
