"""Compare two sets of records metric by metric: the ratio of medians, with its uncertainty.

A side is chosen by words such as ``system=mysite,since=2027-01-01``: sessions, dates, stacks, targets, sites; or by the
name of a session. Cases of both sides belong together if check, parameters and variant agree. The interval is that of
the ranks of all ratios (:func:`iogauge_extras.history.statistics.interval`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, some
from iogauge.core.units import UnitError, convert, moment, with_unit
from iogauge.records import query
from iogauge.records.names import chosen
from iogauge.records.record import MetricRecord, Record
from iogauge.report.layout import Table, columns
from iogauge_extras.compare.logs import CompareError, Comparison, differences
from iogauge_extras.history.statistics import TIE, interval

#: Fewest runs of a side that decide: fewer know nothing of the noise between runs.
FEWEST_RUNS: Final = 3

#: Newest runs of a case that count of a side: more make no interval narrower that matters.
NEWEST: Final = 30

#: Columns of the history that choose a side, each by one value or by several with ``+`` between them.
_COLUMNS: Final = (
    *("session", "system", "partition", "environment"),
    *("check", "tier", "nodes"),
)

#: All that chooses a side.
KEYS: Final = (*_COLUMNS, "case", "stack", "since", "until", "day")

#: Facts that differ from run to run, or that the sides are chosen by.
_LEFT_OUT: Final = ("command", "command.text", "data_type", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The records of a side, oldest first."""

    name: str
    records: tuple[Record, ...]

    @property
    def title(self) -> str:
        """Return the name with the numbers of its records and sessions."""
        sessions = {record.session for record in self.records}
        return f"{self.name} ({count(len(self.records), 'record')} of {count(len(sessions), 'session')})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A metric of both sides."""

    case: str
    metric: str
    unit: str
    #: Medians in ``unit``.
    a: float
    b: float
    runs: tuple[int, int]
    #: B / A, and its 95 % interval; None if a side has fewer than three runs.
    ratio: float
    low: float | None
    high: float | None
    #: ``better`` or ``worse`` if the interval excludes 1 by half a percent, ``alike`` if it does not, and ``?`` without one.
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Comparison):
    """Two sets of records, metric by metric."""

    ratios: tuple[Ratio, ...]
    #: Metrics that only one side has.
    alone: tuple[str, ...]

    def render(self) -> Table:
        """Return the contrast for a terminal."""
        rows, last = [], ""
        for ratio in self.ratios:
            case = ratio.case
            if case == last:
                case = ""
            last = ratio.case
            reach = "-"
            if ratio.low is not None:
                reach = f"{ratio.low:.3f} to {ratio.high:.3f}"
            a, b = with_unit(ratio.a, ratio.unit), with_unit(ratio.b, ratio.unit)
            runs = "/".join(map(str, ratio.runs))
            size = f"{ratio.ratio:.3f}"
            rows.append((case, ratio.metric, a, b, runs, size, reach, ratio.mark))
        right = ("A", "B", "runs", "B / A", "95 %")
        headings = columns("case", "metric", *right, "", right=right)
        table = Table(headings, {self.title: rows})
        return self.below(table, *[f"note: only in {name}" for name in self.alone])


def read(folder: Path, text: str) -> Side:
    """Return a side, from the history in ``folder``; raises :class:`CompareError` if it is empty."""
    words = _words(text)
    try:
        records = _of_history(folder, words)
    except OSError as error:
        raise CompareError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise CompareError(str(error)) from error
    if "stack" in words:
        records = [record for record in records if _is_of(record, words["stack"])]
    if not records:
        raise CompareError(
            f"{text}: no record in {folder} fits; 'iogauge history' lists what there is, and a side is a session, or "
            "key=value such as system=NAME or day=YYYY-MM-DD (docs/results.md)"
        )
    return Side(name=text, records=tuple(records))


def _words(text: str) -> dict[str, str]:
    """Return the values in ``key=value,key=value``, or of a session; raises :class:`CompareError`, which lists the keys."""
    if not re.match("[a-z]+=", text):
        return {"session": text}
    words: dict[str, str] = {}
    for word in text.split(","):
        key, _, value = word.partition("=")
        if key not in KEYS or not value:
            raise CompareError(
                f"{word!r} in {text!r}: expected key=value, with a key of {', '.join(KEYS)}"
            )
        words[key] = value
    return words


def _of_history(folder: Path, words: Mapping[str, str]) -> list[Record]:
    """Return the newest records of each case that is chosen; raises OSError and ValueError."""
    day = words.get("day", "")
    since, until = words.get("since", day), words.get("until", day)
    parts = [query.Condition("position = 0")]
    if since:
        parts.append(query.Choice(since=moment(since)).of_time)
    if until:
        parts.append(query.Choice(until=moment(until, end=True)).of_time)
    for column in _COLUMNS:
        if column in words:
            name = f'CAST("{column}" AS TEXT)'
            parts.append(query.among(name, words[column].split("+")))
    with closing(query.connect(folder)) as history:
        if "case" in words:
            cases = query.column(history, 'SELECT DISTINCT "case" FROM place')
            parts.append(query.among('"case"', chosen(words["case"], cases)))
        rows = query.rows(
            history, "line, file, start", query.every(*parts), "ORDER BY time, start"
        )
        places = []
        for mine in grouped(rows, lambda row: row["line"]).values():
            for row in mine[-NEWEST:]:
                places.append((row["file"], row["start"]))
        records = query.records(folder, history, places).values()
    return sorted(records, key=lambda record: record.time)


def _is_of(record: Record, name: str) -> bool:
    """Return whether a record was made with a stack of this name or fingerprint."""
    if record.stack is None:
        return False
    return name in (record.stack.get("name"), record.stack.get("fingerprint"))


#: The runs of a metric, and all metrics by the name of their case and their own.
_Runs = Sequence[tuple[Record, MetricRecord]]
_Metrics = Mapping[tuple[str, str], _Runs]


def _metrics(side: Side, apart: bool) -> _Metrics:
    """Return the valid metrics of a side, by partition if they are to be told ``apart``.

    Raises :class:`CompareError` if a case was measured in several places that are not told apart.
    """
    found: dict[tuple[str, str], list[tuple[Record, MetricRecord]]] = {}
    for record in side.records:
        if record.confirms:
            continue
        variant = place = ""
        if record.variant not in (None, "", "sound"):
            variant = str(record.variant)
        if apart:
            place = record.partition
        case = " ".join(filter(None, (place, record.short_name, variant)))
        for metric in record.metrics:
            if metric.verdict.is_valid and metric.median > 0:
                found.setdefault((case, metric.name), []).append((record, metric))
    for (case, _), runs in found.items():
        places = {_place(record): record for record, _ in runs}
        if len(places) > 1:
            words = side.name if "=" in side.name else f"session={side.name}"
            record = runs[0][0]
            raise CompareError(
                f"{side.name}: {case} was measured as {', '.join(places)}: choose one of them, for example "
                f"{words},partition={record.partition},tier={record.tier},nodes={record.nodes}"
            )
    return found


def _place(record: Record) -> str:
    """Return where and at which scale a record was made."""
    return f"{record.where} {record.environment} (tier {record.tier}, {count(record.nodes, 'node')})"


def contrast(a: Side, b: Side) -> Contrast:
    """Return the ratios of all metrics that both sides have, and what else differs.

    Raises :class:`CompareError` if they have none in common.
    """
    of_a = {record.where for record in a.records}
    of_b = {record.where for record in b.records}
    apart = len(of_a) > 1 and of_a == of_b
    mine, other = _metrics(a, apart), _metrics(b, apart)
    ratios: list[Ratio] = []
    alone: list[str] = []
    notes: list[str] = []
    first: list[Record] = []
    second: list[Record] = []
    for key, runs in mine.items():
        name = " ".join(key)
        if key not in other:
            alone.append(f"A: {name}")
            continue
        try:
            ratios.append(_ratio(key[0], runs, other[key]))
        except UnitError:
            notes.append(f"{name}: the units have nothing in common")
            continue
        first += [record for record, _ in runs]
        second += [record for record, _ in other[key]]
    for key in other:
        if key not in mine:
            alone.append(f"B: {' '.join(key)}")
    if not ratios:
        raise CompareError(
            f"{a.name} and {b.name} have no valid metric of the same case in common (A has {len(mine)}, B "
            f"{len(other)}{_refused(a)}{_refused(b)}): compare the same checks and parameters"
        )
    if any(ratio.low is None for ratio in ratios):
        notes.append(
            f"?: undecided, measure {FEWEST_RUNS} runs of each side: fewer know nothing of the noise between runs"
        )
    return Contrast(
        a=a.title,
        b=b.title,
        ratios=tuple(ratios),
        changes=tuple(differences(_facts(first), _facts(second))),
        alone=tuple(alone),
        notes=tuple(notes),
    )


def _refused(side: Side) -> str:
    """Return why a metric of a side is not valid; empty if all are."""
    for record in side.records:
        for metric in record.metrics:
            if not metric.verdict.is_valid:
                return f"; {side.name}: {metric.name} is {metric.verdict.value}: {metric.reason}"
    return ""


def _ratio(case: str, mine: _Runs, other: _Runs) -> Ratio:
    """Return the ratio of one metric; raises UnitError if the units cannot be converted."""
    unit, better = mine[-1][1].unit, mine[-1][1].better
    first = [convert(metric.median, metric.unit, unit) for _, metric in mine]
    second = [convert(metric.median, metric.unit, unit) for _, metric in other]
    a, b = median(first), median(second)
    ratio = b / a
    low = high = None
    mark = "?"
    if min(len(first), len(second)) >= FEWEST_RUNS:
        _, least, most = interval(first, second)
        # The estimate of the ranks is not the ratio of the medians, which is shown.
        low, high = min(least, ratio), max(most, ratio)
        mark = "worse"
        if low - TIE <= 1 <= high + TIE:
            mark = "alike"
        elif (low > 1) == (better == "more"):
            mark = "better"
    return Ratio(
        case=case,
        metric=mine[-1][1].name,
        unit=unit,
        a=a,
        b=b,
        runs=(len(first), len(second)),
        ratio=ratio,
        low=low,
        high=high,
        mark=mark,
    )


def _facts(records: Collection[Record]) -> dict[str, str]:
    """Return the values of every fact in some records, each once: fingerprints, targets, scale, settings."""
    found: dict[str, set[str]] = {}
    for record in records:
        facts: dict[str, Any] = {"tier": record.tier, "nodes of the case": record.nodes}
        if record.target:
            for key, value in record.target.items():
                facts[f"target.{key}"] = value
        for key, value in record.overridden.items():
            facts[f"-S {key}"] = value
        facts |= record.fingerprint
        for key, value in facts.items():
            if value is not None and key not in _LEFT_OUT:
                found.setdefault(key, set()).add(str(value))
    return {key: some(sorted(values), 3) for key, values in found.items()}
