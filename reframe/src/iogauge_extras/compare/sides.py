"""Compare two sets of records metric by metric: the ratio of medians, with its uncertainty.

A side is chosen by words such as ``system=mysite,since=2027-01-01``: sessions, dates, stacks,
targets, sites; or by the name of a session, or its file, and perhaps a case of it. Cases of both sides belong together
if check, parameters and variant agree. The
interval is that of the ranks of all ratios (:func:`iogauge_extras.history.statistics.interval`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.core.units import UnitError, convert, moment, with_unit
from iogauge.core.untrusted import numbers
from iogauge.records import journal, query
from iogauge.records.record import MetricRecord, Record
from iogauge.report.layout import Table, columns
from iogauge_extras.compare.logs import CompareError, Comparison, Difference
from iogauge_extras.history.statistics import interval

#: ``session`` or ``session:case``; the file of a session in its place, whose name may hold a colon.
_NAMED: Final = re.compile(r"(.+?\.jsonl|[^:]+)(?::(.*))?")

#: Fewest runs of a side that decide; with fewer the interval is over the samples, and decides nothing.
FEWEST_RUNS: Final = 3


#: Newest runs of a case that count of a side: more make no interval narrower that matters.
NEWEST: Final = 60


#: Facts that differ from run to run, or that the sides are chosen by.
_NOT_TOLD: Final = ("command", "command.text", "data_type", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records belong to a side; an empty text lets all through.

    ``case`` is the name of a case (with or without ReFrame's parameter names), its check or its hash. ``file`` is a
    session's file, in place of the history.
    """

    session: str = ""
    case: str = ""
    file: str = ""
    system: str = ""
    partition: str = ""
    environment: str = ""
    stack: str = ""
    check: str = ""
    tier: str = ""
    nodes: str = ""
    since: str = ""
    until: str = ""
    day: str = ""

    @classmethod
    def of(cls, text: str) -> Choice:
        """Return the choice in ``key=value,key=value``, or of a session and a case.

        Raises :class:`CompareError`, which lists the keys.
        """
        if not re.match("[a-z]+=", text):
            match = _NAMED.fullmatch(text)
            place, case = (match[1], match[2] or "") if match else (text, "")
            named = "file" if place.endswith(".jsonl") else "session"
            return cls(**{named: place, "case": case})
        known = [
            field.name for field in fields(cls) if field.name not in ("case", "file")
        ]
        words: dict[str, str] = {}
        for word in text.split(","):
            key, _, value = word.partition("=")
            if key not in known or not value:
                raise CompareError(
                    f"{word!r} in {text!r}: expected key=value, with a key of {', '.join(known)}"
                )
            words[key] = value
        return cls(**words)

    def span(self) -> tuple[datetime | None, datetime | None]:
        """Return begin and end; raises :class:`CompareError` for text that is no time."""
        since, until = self.since or self.day, self.until or self.day
        try:
            return moment(since) if since else None, moment(
                until, end=True
            ) if until else None
        except ValueError as error:
            raise CompareError(str(error)) from error

    def in_file(self) -> list[Record]:
        """Return the records of the named file; raises OSError."""
        found = journal.read_records(Path(self.file))
        return [one for one in found if isinstance(one, Record)]

    def fits(self, record: Record) -> bool:
        """Return whether a record of the file or of the history is meant."""
        stack = record.stack if isinstance(record.stack, Mapping) else {}
        names = (record.case, record.short_name, record.hash, record.check)
        return (not self.case or self.case in names) and (
            not self.stack
            or self.stack in (stack.get("name"), stack.get("fingerprint"))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The records of a side, and what its values may be divided by; None is not known."""

    name: str
    records: tuple[Record, ...]
    tib: float | None = None
    servers: float | None = None

    @property
    def sessions(self) -> int:
        """Return the number of sessions."""
        return len({record.session for record in self.records})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A metric of both sides: medians in one unit, the ratio B / A, and its 95 % interval.

    ``over`` says what was resampled, and is empty without an interval. ``mark`` is ``better`` or ``worse`` if an
    interval over runs excludes 1, and ``differs`` if one over samples does. It is ``alike`` if neither does, and
    ``?`` without an interval. ``per_tib`` and ``per_server`` are ratios of the values divided by these.
    """

    case: str
    metric: str
    unit: str
    a: float
    b: float
    runs: tuple[int, int]
    ratio: float
    low: float | None
    high: float | None
    over: str
    mark: str
    per_tib: float | None
    per_server: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast(Comparison):
    """Two sets of records, metric by metric; ``alone`` names metrics that only one side has."""

    ratios: tuple[Ratio, ...]
    alone: tuple[str, ...]

    def render(self, wide: bool = False) -> Table:
        """Return the contrast for a terminal."""
        rows, last = [], ""
        (*right, _), values = told(self.ratios)
        for one, texts in zip(self.ratios, values, strict=True):
            case = visible(one.case) if one.case != last else ""
            rows.append((case, visible(one.metric), *map(visible, texts)))
            last = one.case
        table = Table(
            columns("case", "metric", *right, "", right=right, whole=("B / A",)),
            {f"A: {visible(self.a)}; B: {visible(self.b)}": rows},
            wide=wide,
        )
        starred = any(ratio.over == "samples" for ratio in self.ratios)
        remarks = ["*: interval over the samples of the runs"] if starred else []
        return self.below(
            table, *remarks, *(f"note: only in {name}" for name in self.alone)
        )


def read(
    folder: Path, text: str, servers: float | None = None, tib: float | None = None
) -> Side:
    """Return a side, from the history in ``folder``; raises :class:`CompareError` if it is empty.

    Without ``servers`` and ``tib`` they are what the records know: the servers that the Lustre
    client sees, and the capacity that the price is of.
    """
    choice = Choice.of(text)
    try:
        every = choice.in_file() if choice.file else _of_history(folder, choice)
    except OSError as error:
        raise CompareError(f"{error.filename}: {error.strerror}") from error
    every.sort(key=lambda record: record.time)
    records = [record for record in every if choice.fits(record)]
    if not records:
        there = "".join(f"\n  {r.hash}  {r.short_name}" for r in every)
        listed = f"; there are:{there}" if choice.case and every else ""
        raise CompareError(
            f"{text}: no record in {choice.file or folder} fits; 'iogauge history' lists what there is, and a side is a "
            f"session, or key=value such as system=NAME or day=YYYY-MM-DD (docs/results.md){listed}"
        )
    last = records[-1]
    seen = last.fingerprint.get("lustre.servers")
    return Side(
        name=text,
        records=tuple(records),
        servers=servers or (float(seen) if isinstance(seen, int) and seen else None),
        tib=tib or (last.price.capacity / 2**40 if last.price else None),
    )


def _of_history(folder: Path, choice: Choice) -> list[Record]:
    since, until = choice.span()
    parts = [query.Choice(since=since, until=until).of_time]
    for column in ("session", "system", "partition", "environment", "check", "tier"):
        value = getattr(choice, column)
        if value:
            parts.append(query.among(f'"{column}"', value.split("+")))
    if choice.nodes:
        parts.append(query.among("CAST(nodes AS TEXT)", choice.nodes.split("+")))
    with closing(query.connect(folder)) as history:
        chosen = query.every(*parts, query.Condition("position = 0"))
        rows = query.rows(history, "line, file, start", chosen, "ORDER BY time, start")
        newest = [
            row
            for mine in grouped(rows, lambda row: row["line"]).values()
            for row in mine[-NEWEST:]
        ]
        places = [(row["file"], row["start"]) for row in newest]
        return list(query.records(folder, history, places).values())


_Key = tuple[str, str, str]
_Metrics = Mapping[_Key, Sequence[tuple[Record, MetricRecord]]]


def _metrics(side: Side, apart: bool) -> dict[_Key, list[tuple[Record, MetricRecord]]]:
    """Return the valid metrics of a side by partition (if ``apart``), case and name.

    Raises :class:`CompareError` if a case was measured in several places that are not told apart.
    """
    found: dict[_Key, list[tuple[Record, MetricRecord]]] = {}
    for record in side.records:
        parameters = " ".join(f"{k}={v}" for k, v in sorted(record.parameters.items()))
        case = " ".join(filter(None, (record.check, parameters, _variant(record))))
        for metric in record.metrics:
            if metric.verdict.is_valid and metric.median > 0 and not record.confirms:
                place = f"{record.partition}: " if apart else ""
                found.setdefault((place, case, metric.name), []).append(
                    (record, metric)
                )
    for (_, case, _), entries in found.items():
        places = {_place(record): record for record, _ in entries}
        if len(places) > 1:
            words = side.name if "=" in side.name else f"session={side.name}"
            record = next(iter(places.values()))
            raise CompareError(
                f"{side.name}: {case} was measured as {', '.join(places)}: choose one of them, for example "
                f"{words},partition={record.partition},tier={record.tier},nodes={record.nodes}"
            )
    return found


def _place(record: Record) -> str:
    """Return where and at which scale a record was made."""
    where = f"{record.system}:{record.partition} {record.environment}"
    return f"{where} (tier {record.tier}, {count(record.nodes, 'node')})"


def contrast(a: Side, b: Side) -> Contrast:
    """Return the ratios of all metrics that both sides have, and what else differs."""
    of_a, of_b = ({(r.system, r.partition) for r in side.records} for side in (a, b))
    apart = len(of_a) > 1 and {place for _, place in of_a} == {
        place for _, place in of_b
    }
    mine, other = _metrics(a, apart), _metrics(b, apart)
    both = [key for key in mine if key in other]
    found = {key: _ratio(key, mine[key], other[key], a, b) for key in both}
    ratios = {key: ratio for key, ratio in found.items() if ratio is not None}
    notes = [
        f"{_name(key, mine[key][0][0])} {key[2]}: the units have nothing in common"
        for key, ratio in found.items()
        if ratio is None
    ]
    alone = [
        f"{name}: {_name(key, here[key][0][0])} {key[2]}"
        for name, here, there in (("A", mine, other), ("B", other, mine))
        for key in here
        if key not in there
    ]
    if any(ratio.over == "samples" for ratio in ratios.values()):
        notes.append(
            f"an interval over samples knows the noise within a run, not between runs: measure {FEWEST_RUNS} runs of each side"
        )
    if not ratios:
        refused = "".join(
            f"; {said}" for side in (a, b) for said in [*_refused(side)][:1]
        )
        raise CompareError(
            f"{a.name} and {b.name} have no valid metric of the same case in common (A has {len(mine)}, B "
            f"{len(other)}{refused}): compare the same checks and parameters"
        )
    return Contrast(
        a=f"{a.name} ({count(len(a.records), 'record')} of {count(a.sessions, 'session')})",
        b=f"{b.name} ({count(len(b.records), 'record')} of {count(b.sessions, 'session')})",
        ratios=tuple(ratios.values()),
        changes=tuple(_changes(*(_of(side, ratios) for side in (mine, other)))),
        alone=tuple(alone),
        notes=tuple(dict.fromkeys(notes)),
    )


def _refused(side: Side) -> Iterable[str]:
    """Yield the metrics of a side that prove nothing."""
    for record in side.records:
        for metric in record.metrics:
            if not metric.verdict.is_valid:
                yield f"{side.name}: {metric.name} is {metric.verdict.value}: {metric.reason}"


def _ratio(
    key: _Key,
    mine: Sequence[tuple[Record, MetricRecord]],
    other: Sequence[tuple[Record, MetricRecord]],
    a: Side,
    b: Side,
) -> Ratio | None:
    """Return the ratio of one metric; None if the units cannot be converted."""
    unit, better = mine[-1][1].unit, mine[-1][1].better
    try:
        first, second = (
            [convert(m.median, m.unit, unit) for _, m in side] for side in (mine, other)
        )
        over = "runs"
        values = (first, second)
        if min(len(first), len(second)) < FEWEST_RUNS:
            over = "samples"
            values = (_samples(mine, unit), _samples(other, unit))
    except UnitError:
        return None
    middle = (median(first), median(second))
    ratio = middle[1] / middle[0]
    low = high = None
    if min(len(values[0]), len(values[1])) > 1:
        _, least, most = interval(*values)
        # The estimate of the ranks is not the ratio of the medians, which is shown.
        low, high = min(least, ratio), max(most, ratio)
    if low is None or high is None:
        over, mark = "", "?"
    elif low <= 1 <= high:
        mark = "alike"
    elif over == "samples":  # noise between runs may explain it
        mark = "differs"
    else:
        mark = "better" if (low > 1) == (better == "more") else "worse"
    return Ratio(
        case=_name(key, mine[0][0]),
        metric=key[2],
        unit=unit,
        a=middle[0],
        b=middle[1],
        runs=(len(first), len(second)),
        ratio=ratio,
        low=low,
        high=high,
        over=over,
        mark=mark,
        per_tib=_share(ratio, a.tib, b.tib) if "/s" in unit else None,
        per_server=_share(ratio, a.servers, b.servers) if "/s" in unit else None,
    )


def _name(key: _Key, record: Record) -> str:
    """Return the case as all tables name it, after its partition if both sides have several."""
    place, *_ = key
    return " ".join(filter(None, (place.strip(), record.short_name, _variant(record))))


def _variant(record: Record) -> str:
    return "" if record.variant in (None, "", "sound") else str(record.variant)


def _share(ratio: float, a: float | None, b: float | None) -> float | None:
    return ratio * a / b if a and b else None


def _samples(side: Sequence[tuple[Record, MetricRecord]], unit: str) -> list[float]:
    """Return the samples of all runs of a side."""
    return [
        convert(s, m.unit, unit) for _, m in side for s in numbers(m.samples) if s > 0
    ]


def _of(side: _Metrics, keys: Collection[_Key]) -> list[Record]:
    """Return the records of a side that some of its ratios rest on."""
    return [
        record for key, entries in side.items() if key in keys for record, _ in entries
    ]


def _changes(a: Collection[Record], b: Collection[Record]) -> Iterable[Difference]:
    """Yield the facts that differ: of the fingerprints, the targets, the scale and the settings."""
    first, second = _facts(a), _facts(b)
    for name in {**first, **second}:
        if name not in _NOT_TOLD and first.get(name) != second.get(name):
            yield Difference(
                name, _some(first.get(name, ())), _some(second.get(name, ()))
            )


def _facts(records: Collection[Record]) -> dict[str, tuple[str, ...]]:
    """Return the values of every fact in some records, each once."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        target = record.target if isinstance(record.target, Mapping) else {}
        facts: dict[str, Any] = {
            f"target.{key}": value for key, value in target.items()
        }
        facts |= {"tier": record.tier, "nodes of the case": record.nodes}
        facts |= {f"-S {key}": value for key, value in record.overridden.items()}
        facts |= record.fingerprint
        for key, value in facts.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    return {key: tuple(sorted(values)) for key, values in found.items()}


def _some(values: Sequence[str]) -> str:
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return ", ".join(values[:3]) + more


def told(ratios: Sequence[Ratio]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings, and a row of cells for each ratio; shares that no row has are left out."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    stars = {"runs": "", "samples": " *"}
    rows = [
        {
            "A": with_unit(one.a, one.unit),
            "B": with_unit(one.b, one.unit),
            "runs": "/".join(map(str, one.runs)),
            "B / A": share(one.ratio),
            "95 %": f"{share(one.low)} to {share(one.high)}{stars[one.over]}"
            if one.over
            else "-",
            "per server": share(one.per_server),
            "per TiB": share(one.per_tib),
            "": one.mark,
        }
        for one in ratios
    ]
    shown = [
        h
        for h in rows[0]
        if not h.startswith("per ") or any(row[h] != "-" for row in rows)
    ]
    return tuple(shown), [tuple(row[heading] for heading in shown) for row in rows]
