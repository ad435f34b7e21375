"""Sessions, or a span of time, as one page of HTML that opens everywhere.

Nothing leaves the file: its policy forbids requests, and lets no script run but page.js, by digest.
All that the page says can be read without scripts. Its form is page.html and page.css.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from iogauge.core.paths import project_root
from iogauge.core.text import count, visible
from iogauge.core.units import format_value, in_order
from iogauge.core.untrusted import numbers
from iogauge.evidence.fingerprint import identity
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import Record, microseconds
from iogauge.report import outcome, pricing
from iogauge.report.endings import SessionRecords, Word
from iogauge.report.outcome import newest
from iogauge.site import folders
from iogauge.site.references import References
from iogauge_extras.ceilings.table import Shown, beside
from iogauge_extras.page import bars, charts, heat, sweeps
from iogauge_extras.page.form import FOLDER, NO_SCRIPT, TEMPLATES, page_style, written_by
from iogauge_extras.page.marks import MARKS
from iogauge_extras.page.past import GRAVEST
from iogauge_extras.page.places import file_of, key_of, minute, places_of, span_of, where_of
from iogauge_extras.page.summary import conclusion, tiles
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


def page(alarm: Alarm, records: Sequence[Record], layers: Mapping[str, Shown] | None = None) -> str:
    """Return the page of some sessions: what is wrong, every metric, and the runs of each.

    ``layers`` are those of each partition (``system:partition``) whose site is known here.
    """
    below = {
        name: shown for name, shown in (layers or {}).items() if name in set(map(where_of, records))
    }
    found = SessionRecords(records)
    anchors = {key_of(record): f"r{n}" for n, record in enumerate(records)}

    def anchor(record: Record) -> str:
        return anchors[key_of(record)]

    drawn = [trouble.curve.points for trouble in alarm.troubles if trouble.curve]
    several = [c for c in alarm.curves if len(c.points) > 1]
    others = [c for c in several if c.points not in drawn]
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
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
        span=span_of(records),
        written=written_by(),
        suites=sorted({str(record.suite) for record in records if record.suite}),
        sessions=alarm.sessions,
        places=places_of(records),
        results=_results(records, anchor, below),
        layers=list(_layers(records, anchor, below)),
        plots=list(_plots(records, anchor)),
        needles=list(_needles(records, anchor)),
        others=others[:_FIGURES],
        left_out=max(len(others) - _FIGURES, 0),
        calendar=_calendar(alarm, {_named(record): anchor(record) for record in newest(records)}),
        prices=[
            (price, anchor(price.record), price.record.system)
            for price in pricing.costs(sorted(records, key=lambda record: record.time))
        ],
        records=[_detail(record, anchor(record)) for record in records],
        fingerprints=_fingerprints(records),
        few=len(records) <= _PRINTED,
        legend=[(SIGNS[v], MARKS[v], v) for v in Verdict],
        verdicts=[v.value for v in Verdict],
        runs_legend=RUNS_LEGEND,
        count=count,
        minute=minute,
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


def _results(
    records: Sequence[Record], anchor: _Anchor, layers: Mapping[str, Shown]
) -> list[dict[str, Any]]:
    """Return, by target, the rows of every metric, and the notes that they refer to by number."""
    groups: dict[str, dict[str, Any]] = {}
    for record in records:
        target = f"{where_of(record)} at {record.target_path}"
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
                    "ceilings": beside(layers.get(where_of(record)), record.nodes, metric)
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
                return slow and _says(said, name)

            outliers = [name for name in probes if named(name)]
            title = f"{record.short_name} {metric.name} on {where_of(record)}"
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
    for title, unit, cells, record in heat.maps(records):
        said = " ".join(m.reason for m in record.metrics if m.verdict is Verdict.FAIL)
        names = [n for n in {n for place in cells for n in place} if _says(said, n)]
        yield {
            "svg": Markup(heat.drawn(title, unit, cells, names)),
            "caption": f"darker: slower than the median of the faster half; {unit}",
            "outliers": ", ".join(sorted(names)) or "none",
            "record": anchor(record),
            "system": record.system,
            "text": title,
        }


def _says(text: str, name: str) -> bool:
    """Return whether a text has a name of a target or node."""
    return bool(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text))


def _layers(
    records: Sequence[Record], anchor: _Anchor, below: Mapping[str, Shown]
) -> Iterator[dict[str, str]]:
    """Yield the layers of each partition and direction; what was reached leads to its record."""
    for name, shown in sorted(below.items()):
        for chain in shown.chains:
            if not chain.limit:
                continue
            best = chain.reached.record if chain.reached else None
            here = best is not None and any(key_of(record) == key_of(best) for record in records)
            said = [chain.sentence]
            if chain.reached:
                said.append(f"n = {count(chain.reached.samples, 'sample')}")
            if best:
                said.append(sweeps.stack_of([best]))
            if best and not here:
                said.append(
                    f"record in {file_of(best)}, shown by: iogauge report {best.session} --html FILE"
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
            f"{', '.join(sorted(set(map(where_of, of))))}, {count(len(of), 'record')}",
            of[0].fingerprint,
        )
        for name, of in found.items()
    ]


def _named(record: Record) -> tuple[str, str]:
    """Return where a record was made and its case, as the calendar names them."""
    return visible(where_of(record)), visible(record.short_name)


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
        "where": where_of(record),
        "file": file_of(record),
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
