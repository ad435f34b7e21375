"""What a session found, one row a metric, and what its records mean for its ending: cases without a record, and the
sentence that says so.

``ok`` needs a PASS, and nothing that is left unproven: no UNREFERENCED, UNSTABLE or CONTAMINATED
case, no case that a missing feature keeps from running, no name or tag that fits no case.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from rich.markup import escape

from iogauge.core import untrusted
from iogauge.core.text import count, visible, visible_lines
from iogauge.core.units import BANDWIDTH_UNITS, convert, format_value, of_runs, with_unit
from iogauge.core.words import NO_WITNESS, POINTS
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import (
    LAYER_CHECKS,
    MetricRecord,
    PriceRecord,
    Record,
    operations_of,
    parameters_in,
    same_spread,
    short_name,
)
from iogauge.records.selected import Unmeasured, UnrunCase
from iogauge.report.layout import Column, Group, Table
from iogauge.report.plan_table import first_and_more

#: Names to print before the rest becomes a number.
_NAMED: Final = 6

#: Verdicts that neither fail a run nor prove anything.
_UNPROVEN: Final = (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED)


class Word(Enum):
    """What a session has shown, in a word."""

    OK = "ok"
    PARTLY_PROVEN = "partly proven"
    NOTHING_PROVEN = "nothing proven"
    FAILED = "FAILED"

    @property
    def style(self) -> str:
        """Return the word as a name of a style: ``nothing-proven``."""
        return self.value.replace(" ", "-").lower()


@dataclass(frozen=True, slots=True)
class Ending:
    """The word of a session and its sentence, safe for a terminal.

    ``besides`` are the parts of the sentence that no case shows. ``remarks`` are a line each, on
    what was not run and how that is changed.
    """

    word: Word
    sentence: str
    besides: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """Return the exit status that the word stands for."""
        return int(self.word is Word.FAILED)

    def __str__(self) -> str:
        """Return word and sentence: ``ok: 5 passed``."""
        return f"{self.word.value}: {self.sentence}"


def conclude(
    counts: Mapping[Verdict, int],
    *,
    gate: bool,
    expected: int = 0,
    refuted: int = 0,
    unwitnessed: int = 0,
    unmeasured: Unmeasured | None = None,
    problems: Collection[str] = (),
) -> Ending:
    """Return the ending of a session.

    ``counts`` are the verdicts that count. ``expected`` and ``refuted`` are failures that do not: a
    reference expects them, or a second run passed. ``unwitnessed`` of the passes have no second witness. ``problems`` are sentences about what fails the
    session besides its cases. A gate fails on all but PASS, and if nothing passed.
    """
    lack = unmeasured or Unmeasured()
    passed = counts.get(Verdict.PASS, 0)
    failed = {v: n for v, n in counts.items() if n and v.fails_run}
    unproven: dict[Verdict, int] = {v: n for v, n in counts.items() if n and v in _UNPROVEN}
    absent = () if lack.accepted else (*lack.unmatched, *lack.gone)
    besides = (*_nothing_measured(counts, expected + refuted, lack), *absent, *problems)
    parts = [
        _passed(passed, unwitnessed),
        f"{sum(failed.values())} failed ({_kinds(failed)})" if failed else "",
        f"{expected} failed as expected" if expected else "",
        f"{refuted} FAIL not confirmed by a second run" if refuted else "",
        _unproven(unproven),
        _left_out(lack.left_out),
        *besides,
    ]
    trouble = any(n and verdict.is_trouble(gate) for verdict, n in counts.items())
    if problems or trouble or (gate and (absent or not passed)):
        word = Word.FAILED
    elif not passed:
        word = Word.NOTHING_PROVEN
    elif unproven or lack.left_out or absent:
        word = Word.PARTLY_PROVEN
    else:
        word = Word.OK
    sentence = "; ".join(part for part in parts if part) + (" (gate)" if gate else "")
    return Ending(word, visible(sentence), tuple(map(visible, besides)), tuple(remarks(lack)))


def _passed(passed: int, unwitnessed: int) -> str:
    """Return how many cases passed, and how many of them on a figure that nothing but the tool confirms."""
    some = f", {unwitnessed} of them without a second witness" if unwitnessed else ""
    return f"{passed} passed{some}" if passed else ""


def _kinds(counts: Mapping[Verdict, int]) -> str:
    """Return the verdicts of a group, with their numbers if there are several."""
    ordered = [verdict for verdict in Verdict if verdict in counts]
    if len(ordered) == 1:
        return ordered[0].value
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ordered)


def _unproven(counts: Mapping[Verdict, int]) -> str:
    if not counts:
        return ""
    number = sum(counts.values())
    return f"{number} {'proves' if number == 1 else 'prove'} nothing ({_kinds(counts)})"


def _nothing_measured(
    counts: Mapping[Verdict, int], excused: int, lack: Unmeasured
) -> tuple[str, ...]:
    """Return why there is no record; empty if there is a record."""
    if excused or any(counts.values()):
        return ()
    said = ["no case was measured"]
    if lack.nothing:
        said.append(f"these options select no case: {lack.nothing}")
    if lack.unfit:
        said.append(f"{_names(lack.unfit)}: not for this site")
    return tuple(said)


def _left_out(cases: Sequence[UnrunCase]) -> str:
    """Return how many cases cannot run, with their checks by missing feature."""
    if not cases:
        return ""
    checks: dict[str, list[str]] = {}
    for case in cases:
        checks.setdefault(case.feature, []).append(case.check)
    groups = [f"{_names(names)}: no {feature}" for feature, names in checks.items()]
    return f"{len(cases)} not run ({'; '.join(groups)})"


def _names(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    more = len(unique) - _NAMED
    return ", ".join(unique[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def remarks(lack: Unmeasured) -> list[str]:
    """Return a line for each reason why cases were not run, safe for a terminal."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for case in lack.left_out:
        groups.setdefault((case.holder, case.feature, case.why), []).append(case.check)
    lines = [
        f"not run: {_names(checks)} ({len(checks)} case(s)): {holder} lacks {feature}: {why}"
        for (holder, feature, why), checks in groups.items()
    ]
    if lack.unfit:
        lines.append(
            f"not for this site: {_names(lack.unfit)}: no partition declares the points, nodes, "
            "hosts or targets that they need (docs/checks.md)"
        )
    if lack.accepted:
        lines += [f"accepted: {line}" for line in (*lack.unmatched, *lack.gone)]
    return list(map(visible, lines))


class SessionRecords(tuple[Record, ...]):
    """The records of a session, and of the sessions that measured its failures once more."""

    @cached_property
    def _passed_again(self) -> frozenset[tuple[object, ...]]:
        return frozenset(
            (record.confirms, *record.place, record.hash)
            for record in self
            if record.confirms and record.verdict is Verdict.PASS
        )

    def is_unconfirmed(self, record: Record) -> bool:
        """Return whether a record is of a failure whose case passed in a later run."""
        case = (record.session, *record.place, record.hash)
        return record.needs_confirmation and case in self._passed_again

    def counts(self, record: Record) -> bool:
        """Return whether a record counts: neither expected nor unconfirmed failures do."""
        return not record.expected and not self.is_unconfirmed(record)

    def ending(
        self, gate: bool, unmeasured: Unmeasured | None = None, problems: Collection[str] = ()
    ) -> Ending:
        """Return the word and the sentence of the session; see :func:`conclude`."""
        return conclude(
            Counter(record.verdict for record in self if self.counts(record)),
            gate=gate,
            expected=sum(bool(record.expected) for record in self),
            refuted=sum(map(self.is_unconfirmed, self)),
            unwitnessed=sum(
                record.verdict is Verdict.PASS and self.counts(record) and not is_witnessed(record)
                for record in self
            ),
            unmeasured=unmeasured,
            problems=problems,
        )


def is_witnessed(record: Record) -> bool:
    """Return whether no figure of a record lacks a second witness."""
    return not any(finding.saw.startswith(NO_WITNESS) for finding in record.findings)


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of each line, in the order of their first records."""
    found: dict[str, Record] = {}
    for record in records:
        line = record.line
        if line not in found or record.time >= found[line].time:
            found[line] = record
    return list(found.values())


def same_fault(record: Record, metric: MetricRecord) -> MetricRecord:
    """Return the operations per second that a bandwidth repeats, or the metric itself.

    Samples that are proportional have the same spread. Single samples miss their references by
    the same share.
    """
    if metric.verdict is not Verdict.FAIL:
        return metric
    for other in record.metrics:
        fails = other.verdict is Verdict.FAIL and other.is_trouble(gate=False)
        alike = other.name == operations_of(metric.name) and same_spread(
            other.spread, metric.spread
        )
        if not (alike and fails):
            continue
        if metric.spread is not None:
            return other
        if metric.reference and other.reference:
            shares = (m.median / m.reference.value for m in (metric, other) if m.reference)
            if math.isclose(*shares, rel_tol=1e-3):
                return other
    return metric


def of_damage(damaged: Sequence[journal.Damaged]) -> list[str]:
    """Return a sentence that damaged lines fail a session: each may have been a failure."""
    return [f"{len(damaged)} line(s) of the history are no record"] if damaged else []


def undecided(
    reframe_report: Path, records: Sequence[Record], run: Mapping[str, Any]
) -> list[Record]:
    """Return records of the cases that ReFrame ran without a verdict (time limit, cancelled).

    They come from ReFrame's run report. ``run`` has the keys for all of them: ``session``,
    ``time``, ``gate`` and its marks. Raises OSError or ValueError if the report cannot be read.
    """
    try:
        return list(_undecided(untrusted.read_json(reframe_report), records, run))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error


def unable(reframe_report: Path) -> list[str]:
    """Return a line for each reason why cases of a dry run cannot run, with their names.

    Raises OSError or ValueError if the report cannot be read.
    """
    names: dict[str, list[str]] = {}
    try:
        for tests in untrusted.read_json(reframe_report)["runs"]:
            for case in tests["testcases"]:
                if reason := untrusted.build(str | None, case.get("fail_reason"), "fail_reason"):
                    reason = re.sub("^(sanity error: )?(ERROR: )?", "", reason)
                    names.setdefault(reason, []).append(short_name(case["display_name"]))
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{reframe_report}: not a run report: {error!r}") from error
    return [
        f"{reason}. So {count(len(cases), 'case')} cannot run: {first_and_more(cases)}"
        for reason, cases in names.items()
    ]


#: Keys that ReFrame reports under our names; empty or 0 if the case was not set up.
_KNOWN: Final = ("tier", "variant", "nodes", "tasks_per_node", "repetitions")


def _parameters(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in the case's name, with ReFrame's values, else as text."""
    named = parameters_in(case["display_name"])
    return {name: case.get(name, text) for name, text in named.items()}


def _undecided(report: Any, records: Sequence[Record], run: Mapping[str, Any]) -> Iterator[Record]:
    decided = Counter((r.case, r.partition, r.environment) for r in records)
    for tests in report["runs"]:
        for case in tests["testcases"]:
            name, partition, environment = key = untrusted.build(
                tuple[str, str, str], (case["display_name"], case["partition"], case["environ"])
            )
            if decided[key] > 0:
                decided[key] -= 1
                continue
            reason = str(
                case.get("fail_reason") or f"ReFrame says {case['result']}, nothing was decided"
            )
            values = {
                "time": run["time"],
                "gate": run["gate"],
                "system": untrusted.build(str | None, case.get("system"), "system"),
                "partition": partition,
                "environment": environment,
                "check": name.split()[0],
                "case": name,
                "hash": untrusted.build(str | None, case.get("hashcode"), "hashcode"),
                "verdict": Verdict.ERROR,
                "reason": f"{case.get('fail_phase') or 'run'}: {reason}",
                "expected": False,
                **{key: case[key] for key in _KNOWN if case.get(key)},
                "parameters": _parameters(case),
                "target": None,
                "tools": [],
                "commands": [],
                "metrics": (),
                "findings": (),
                **run,
            }
            yield Record(**values, order=("schema", *values))


#: Style of each verdict on a terminal.
STYLE: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INVALID: "bold magenta",
    Verdict.ERROR: "bold red",
    Verdict.UNSTABLE: "yellow",
    Verdict.CONTAMINATED: "yellow",
    Verdict.UNREFERENCED: "cyan",
}

#: How the source of a reference begins for which the ceiling stands in (plan.cost).
_CEILINGS_SHARE: Final = re.compile(r"(\d+%) of the ceiling ")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; everything but the verdict is text."""

    scenario: str
    target: str
    metric: str
    measured: str
    reference: str
    ceiling: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Return all reasons as one text."""
        return "; ".join(self.reasons)


def plain(text: str) -> str:
    """Return text from outside for a rich console; its markup and control characters do nothing."""
    return escape(visible_lines(text))


def _reasons(record: Record, metric: MetricRecord) -> tuple[str, ...]:
    """Return why a metric has its verdict, and the remarks of guards.

    The bandwidth of a block size is its operations per second, times the block. If both fail alike,
    that is one fault with one reason.
    """
    about = same_fault(record, metric)
    objections = [
        f"{f.name}: {f.saw}; demanded: {f.demands}" + (f". {f.remedy}" if f.remedy else "")
        for f in record.findings
        if f.metric in (None, about.name) and f.objects(about.verdict)
    ]
    if objections:
        return tuple(objections)
    remarks = [
        f"{f.name}, a remark, no fault: {f.saw}" + (f". {f.remedy}" if f.remedy else "")
        for f in record.findings
        if f.metric in (None, about.name)
        and f.outcome == Outcome.WARN.value
        and not (f.guard == "G4" and record.tier == "quick")
    ]
    reason = about.reason if about.verdict is not Verdict.PASS else ""
    return (*([reason] if reason else []), *remarks)


def folded(records: Iterable[Record]) -> list[Row]:
    """Return the rows of records, those of ``--repeat`` as one row a case, metric and verdict, in the first one's place.

    Its measured values are the least, the most and their median; its reasons are those of the first run.
    """
    groups: dict[tuple[object, ...], list[tuple[Row, MetricRecord | None]]] = {}
    for number, record in enumerate(records):
        measured = {metric.name: metric for metric in record.metrics}
        for row in rows([record]):
            again = "" if "%.repeat_no=" in record.case else number
            key = (again, record.place, row.scenario, row.metric, row.verdict)
            groups.setdefault(key, []).append((row, measured.get(row.metric)))
    return [_folded(found) for found in groups.values()]


def _folded(found: Sequence[tuple[Row, MetricRecord | None]]) -> Row:
    row, metric = found[0]
    values = [one.median for _, one in found if one]
    if len(found) == 1:
        return row
    if metric is None or not values:
        return replace(row, measured=f"{len(found)} runs")
    return replace(row, measured=of_runs(values, metric.unit))


def rows(records: Iterable[Record]) -> list[Row]:
    """Return the rows of a session's records; a case without metrics has one row."""
    lines: list[Row] = []
    for record in records:
        name = visible(record.short_name)
        target = record.target_path
        if not record.metrics:
            reason = visible(record.reason)
            lines.append(Row(name, target, "-", "-", "-", "-", record.verdict, (reason,)))
        for metric in record.metrics:
            spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
            lines.append(
                Row(
                    name,
                    target,
                    metric.name,
                    f"{with_unit(metric.median, metric.unit)}{spread}",
                    _bound(metric),
                    format_value(metric.ceiling) if metric.ceiling else "unknown",
                    metric.verdict,
                    tuple(map(visible, _reasons(record, metric))),
                )
            )
        lines += _not_computed(record, name, target)
    return lines


def _bound(metric: MetricRecord) -> str:
    """Return the reference of a metric, with its bound or with the share of the ceiling that it is."""
    reference = metric.reference
    if not reference:
        return "none"
    if share := _CEILINGS_SHARE.match(str(reference.source)):
        return f"{format_value(reference.value)} ({share[1]})"
    allowed = reference.lower if metric.better == "more" else reference.upper
    return format_value(reference.value) + (f" {allowed:+.0%}" if allowed else "")


def judged_by_ceiling(records: Iterable[Record]) -> bool:
    """Return whether the ceiling stands in for the reference of a metric."""
    references = (metric.reference for record in records for metric in record.metrics)
    return any(_CEILINGS_SHARE.match(str(r.source)) for r in references if r)


def _not_computed(record: Record, name: str, target: str) -> list[Row]:
    """Return rows for the metrics that a derived case could not compute, if it computed others."""
    computed = {metric.name for metric in record.metrics}
    lines = []
    for finding in record.findings if computed else ():
        if finding.guard != POINTS or finding.metric is None or finding.metric in computed:
            continue
        invalid = finding.objects(Verdict.INVALID)
        verdict = Verdict.INVALID if invalid else Verdict.UNREFERENCED
        reason = visible(finding.saw)
        lines.append(Row(name, target, finding.metric, "-", "-", "-", verdict, (reason,)))
    return lines


_COLUMNS: Final = (
    Column("scenario"),
    Column("metric", whole=True),
    Column("median ±spread"),
    Column("reference", right=True),
    Column("ceiling", right=True),
    Column("verdict", whole=True),
)


#: Figures of a moment in G15 and G17, which differ from case to case; the row shows its own spread.
_MOMENT: Final = re.compile(r"(load before the run|coefficient of variation) ([0-9.]+)")


def _joined(reasons: Sequence[str]) -> str:
    """Return reasons that differ at most in such a figure as one, with the least and the most."""
    figures = sorted(
        {found[2] for reason in reasons if (found := _MOMENT.search(reason))}, key=float
    )
    if len(figures) < 2:
        return reasons[0]
    return _MOMENT.sub(rf"\1 {figures[0]} to {figures[-1]}", reasons[0])


def table(lines: Sequence[Row], wide: bool = False) -> Table:
    """Return the rows as a table, by target; the reasons are numbered below it.

    With ``wide`` the reasons stand in the rows.
    """
    alike: dict[str, list[str]] = {}
    for line in lines:
        for reason in line.reasons:
            alike.setdefault(_MOMENT.sub(r"\1", reason), []).append(reason)
    numbers = {text: number for number, text in enumerate(alike, 1)}
    groups = []
    for target in dict.fromkeys(line.target for line in lines):
        cells, last = [], None
        for line in (line for line in lines if line.target == target):
            known = ",".join(str(numbers[_MOMENT.sub(r"\1", reason)]) for reason in line.reasons)
            cells.append(
                (
                    line.scenario if wide or line.scenario != last else "",
                    line.metric,
                    line.measured,
                    line.reference,
                    line.ceiling,
                    line.verdict.value,
                    line.reason if wide else f"[{known}]" * bool(known),
                )
            )
            last = line.scenario
        groups.append(Group(f"target {target}", cells))
    return Table(
        columns=(*_COLUMNS, Column("reason" if wide else "why")),
        groups=groups,
        notes=() if wide else tuple(map(_joined, alike.values())),
        styles={verdict.value: style for verdict, style in STYLE.items()},
        wide=wide,
    )


#: Keys of a metric that :func:`to_json` shows as they are recorded.
_FIGURES: Final = ("median", "unit", "spread", "reference", "ceiling")


def to_json(records: Iterable[Record], ending: Ending) -> str:
    """Return the ending of a session and each metric, with its reasons, as JSON."""
    metrics = []
    for record in records:
        measured = {metric.name: metric.to_json() for metric in record.metrics}
        for row in rows([record]):
            figures = measured.get(row.metric, {})
            metrics.append(
                {
                    "case": record.short_name,
                    "system": record.system,
                    "partition": record.partition,
                    "environment": record.environment,
                    "target": record.target_path,
                    "metric": None if row.metric == "-" else row.metric,
                    **{key: figures.get(key) for key in _FIGURES},
                    "verdict": row.verdict.value,
                    "reasons": row.reasons,
                }
            )
    ended = {"word": ending.word.value, "sentence": ending.sentence, "status": ending.status}
    return json.dumps({**ended, "remarks": ending.remarks, "metrics": metrics}, indent=2)


@dataclass(frozen=True, slots=True)
class BandwidthPrice:
    """The price of a target's best measured bandwidth: information, never a verdict."""

    target: str
    currency: str
    per_gb_month: float
    metric: str
    case: str
    gb_s: float
    per_gb_s_month: float
    source: str
    record: Record


def costs(records: Iterable[Record]) -> list[BandwidthPrice]:
    """Return the prices by partition and bandwidth metric.

    ``records`` come in the order in which they were made. The newest valid value of each case
    counts, and for each metric the best case. Partitions without a price are left out, and so is what
    a layer below the target carries.
    """
    newest: dict[tuple[str, ...], dict[str, tuple[float, Record, PriceRecord]]] = {}
    for record in records:
        price = record.price
        for metric in record.metrics if price else ():
            if metric.unit not in BANDWIDTH_UNITS or not metric.verdict.is_valid:
                continue
            if price is None or metric.median <= 0 or record.check in LAYER_CHECKS:
                continue
            bytes_s = convert(metric.median, metric.unit, "B/s")
            cases = newest.setdefault((record.system, record.partition, metric.name), {})
            cases[record.case] = (bytes_s, record, price)
    prices = []
    for (*_, name), cases in newest.items():
        bytes_s, record, price = max(cases.values(), key=lambda measured: measured[0])
        prices.append(
            BandwidthPrice(
                target=record.target_path,
                currency=price.currency,
                per_gb_month=price.per_gb_month,
                metric=name,
                case=record.short_name,
                gb_s=bytes_s / 1e9,
                per_gb_s_month=price.per_gb_s_month(bytes_s),
                source=price.source,
                record=record,
            )
        )
    return prices


def cost_table(prices: Sequence[BandwidthPrice]) -> Table:
    """Return the prices as a table."""
    columns = (
        Column("what it costs"),
        Column("per GB and month", right=True),
        Column("for"),
        Column("GB/s", right=True),
        Column("per GB/s and month", right=True),
    )
    sources = list(dict.fromkeys(price.source for price in prices))
    rows = [
        (
            price.case,
            f"{price.per_gb_month:g} {price.currency}",
            price.metric,
            format_value(price.gb_s),
            f"{price.per_gb_s_month:,.2f} {price.currency} [{sources.index(price.source) + 1}]",
        )
        for price in prices
    ]
    groups = [
        Group(
            f"target {target}", [r for r, p in zip(rows, prices, strict=True) if p.target == target]
        )
        for target in dict.fromkeys(price.target for price in prices)
    ]
    return Table(columns, groups, [f"price: {source}" for source in sources])
