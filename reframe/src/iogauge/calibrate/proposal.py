"""References from what was measured: proposals for references.yaml, as a diff that a person reads.

A reference is the median of one series, and its bound the value that all but a share of healthy runs meet
(:mod:`iogauge.calibrate.statistics`). Runs that prove nothing, or that belong to several series, are refused. Nothing here
makes a demand softer unless it is told to, with a reason.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from typing import Any, Final, Literal

from scipy import stats

from iogauge.calibrate.runs import CalibrateError, LeftOut, Runs, check_one_series
from iogauge.calibrate.statistics import Baseline, Better, Refused, baseline_of, outlook
from iogauge.calibrate.yamledit import EditError, Key, add_words, put
from iogauge.core import yamlfile
from iogauge.core.units import format_value
from iogauge.records.record import Record
from iogauge.site.references import ACCEPTED, FILE, SOURCES, XFAIL, find_mistakes

_SOURCE: Final = "calibrated by iogauge from records of this site"
_NOTE: Final = "(values marked calibrated are from records of this site)"

#: Variables of every check that a record keeps beside its parameters.
_KEPT: Final = ("nodes", "tasks_per_node", "repetitions", "tier", "variant")


def _rounded(value: float) -> float | int:
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _share(bound: float, value: float, better: Better) -> float | int:
    """A bound as ReFrame's share of the value, four digits, rounded to the strict side."""
    share = bound / value - 1
    rounded = math.ceil(share * 1e4 - 1e-7) if better == "more" else math.floor(share * 1e4 + 1e-7)
    return rounded / 1e4 if rounded else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A leaf of the file before (None: none) and after; ``note``: what a reader should know."""

    old: list[Any] | None
    new: list[Any]
    note: str = ""


def follow(
    baseline: Baseline,
    old: Sequence[Any] | None,
    *,
    unit: str,
    better: Better,
    accepted: bool,
    confidence: float,
    lower: str | None,
) -> Change | None:
    """What becomes of a reference; None where it holds.

    A value moves to the median where that is better beyond doubt. The bound moves to the stricter side
    only, and once it was ``accepted`` only together with the value. With ``lower``, the reason, both move to
    what was measured. Raises :class:`Refused` where the median is worse beyond doubt and there is no reason.
    """
    side, sign = (1, 1) if better == "more" else (2, -1)
    value = _rounded(baseline.median)
    if old is None:
        leaf: list[Any] = [value, None, None, unit]
        leaf[side] = _share(baseline.bound, value, better)
        return Change(old=None, new=leaf)
    before = float(old[0])
    share = old[side]
    open_end = share is None or share == -1
    bound_before = None if open_end else before * (1 + share)
    leaf, note = list(old), ""
    gain = sign * math.log(baseline.median / before)
    doubt = float(stats.norm.ppf((1 + confidence) / 2)) * baseline.error
    if lower:
        leaf[0], bound = value, baseline.bound
    elif gain < -doubt:
        verb = "lower" if better == "more" else "raise"
        raise Refused(
            f"would {verb} the reference from {format_value(before)} to {format_value(value)} {unit} "
            f"({value / before - 1:+.1%}): never done without --lower REASON"
        )
    else:
        if gain > doubt:
            leaf[0] = value
        elif accepted:
            return None
        bound = baseline.bound
        if bound_before is not None and sign * bound < sign * bound_before:
            bound = bound_before
            note = (
                f"the bound stays at {format_value(bound)}; the noise alone would ask for "
                f"{format_value(baseline.bound)}"
            )
        if sign * bound > sign * float(leaf[0]):
            bound = float(leaf[0])
    if leaf[0] == old[0] and bound == bound_before:
        return None
    leaf[side] = _share(bound, float(leaf[0]), better)
    return Change(old=list(old), new=leaf, note=note) if leaf != list(old) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Keys of a leaf below its check; ``wide``: keys that hold for other cases as well."""

    keys: tuple[Key, ...]
    index: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()


def _value_of(part: str, record: Record) -> Key:
    """What a part of ``$index`` is in a record; raises :class:`Refused`."""
    special = {
        "$system": record.system,
        "$partition": f"{record.system}:{record.partition}",
        "$environ": record.environment,
    }
    kept: dict[str, Any] = {name: getattr(record, name) for name in _KEPT if name in record.order}
    sources = [special, record.parameters, record.overridden, kept]
    for source in sources:
        if part in source:
            value = source[part]
            if value is None or isinstance(value, (str, int, float)):
                return value
            raise Refused(f"$index: {part} is {value!r}: only text and numbers can be keys")
    raise Refused(f"$index names {part}, which a record does not keep: write this entry by hand")


def _matching(mapping: Mapping[Any, Any], key: Key) -> Key | None:
    """The key that ReFrame takes: the same, else the first that matches as a regular expression."""
    if key in mapping:
        return key
    for name in mapping:
        if isinstance(name, str) and isinstance(key, str) and re.match(f"^{name}$", key):
            return name
    return None


def place_of(entry: Mapping[str, Any] | None, record: Record, metric: str) -> Place:
    """Where the reference of a record's metric stands, or will stand, in the entry of its check.

    Found as ReFrame finds it. A check without an entry gets an ``$index`` of the partition and its
    parameters. Raises :class:`LeftOut` for runs with overridden variables that the index does not name.
    """
    if "parameters" not in record.order:
        raise Refused(
            "its records are older than their parameters: only newer runs can be calibrated"
        )
    if record.pinned:
        raise LeftOut(
            f"pinned to {record.pinned} by --distribute: one node's value, not the target's"
        )
    plain = entry is not None and "$index" not in entry
    if entry is None:
        named = ["$partition", *record.parameters]
        index, entry = ([] if len(named) == 1 else named), {}
    else:
        index = [str(part) for part in entry.get("$index") or ()]
    foreign = [f"{name}={value}" for name, value in record.overridden.items() if name not in index]
    if foreign:
        raise LeftOut(
            f"measured with {', '.join(foreign)}; references hold for what the site declares, "
            "unless $index names it"
        )
    if plain or not index:
        scopes = (f"{record.system}:{record.partition}", record.system, "*")
        scope = next((name for name in scopes if metric in (entry.get(name) or {})), scopes[0])
        wide = () if scope == scopes[0] else (scope,)
        return Place(keys=(scope, metric), wide=wide)
    keys: list[Key] = []
    wide_keys: list[str] = []
    below: Any = {name: value for name, value in entry.items() if name != "$index"}
    for part in index:
        value = _value_of(part, record)
        key = _matching(below, value)
        if key is None:
            key, below = value, {}
        else:
            below = below[key]
            if key != value:
                wide_keys.append(str(key))
        keys.append(key)
    return Place(keys=(*keys, metric), index=tuple(index), wide=tuple(wide_keys))


def _at(data: Any, path: Sequence[Key]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return None
        data = data[key]
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to calibrate. ``lower``: why references may be made softer, None: they may not."""

    coverage: float = 0.99
    confidence: float = 0.95
    lower: str | None = None
    today: date = field(default_factory=lambda: datetime.now(timezone.utc).date())

    def __post_init__(self) -> None:
        if self.lower is not None and not self.lower.strip():
            raise CalibrateError("--lower: expected the reason, which is kept beside the reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one metric."""

    name: str
    state: Literal["proposed", "holds", "refused", "left out"]
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The file as it is and as it should be, and what became of each metric."""

    before: str
    after: str
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether anything was."""
        return any(outcome.state == "refused" for outcome in self.outcomes)

    def diff(self, file: str) -> str:
        """Unified diff; empty where nothing changes."""
        return "".join(
            line if line.endswith("\n") else f"{line}\n"
            for line in difflib.unified_diff(
                self.before.splitlines(keepends=True),
                self.after.splitlines(keepends=True),
                file,
                file,
            )
        )


def _remark(
    runs: Runs, baseline: Baseline, accepted: Sequence[Any], reason: str | None, day: date
) -> str:
    words = [
        f"calibrated {day}, {baseline.runs} runs {runs.times[0]:%Y-%m-%d} to {runs.times[-1]:%Y-%m-%d}",
        f"spread {baseline.spread:.1%}",
        f"nodes {runs.provenance('nodes')}",
        f"stack {runs.provenance('stack')}",
        f"series {runs.series[-1]}",
        f"accepted {accepted[0]} on {accepted[2]}",
    ]
    if reason:
        words.append(f"softened because {' '.join(reason.split())}")
    return ", ".join(words)


def _apply(
    text: str, data: dict[str, Any], runs: Runs, place: Place, new: list[Any], **words: Any
) -> str:
    """The file's text with one reference set, and with what is kept beside it."""
    check = runs.record.check
    path = (check, *place.keys)
    if check not in data:
        text = put(text, (SOURCES, check), _SOURCE)
        if place.index:
            text = put(text, (check, "$index"), list(place.index))
    elif data[SOURCES][check] != _SOURCE:
        text = add_words(text, (SOURCES, check), _NOTE)
    label = ".".join(map(str, place.keys)) + ": calibrated"
    remark = ".".join(map(str, place.keys)) + ": " + words["remark"]
    text = put(text, path, new, remark, label)
    if _at(data, (ACCEPTED, *path)) is None:
        text = put(text, (ACCEPTED, *path), words["accepted"])
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    runs: Runs
    place: Place
    baseline: Baseline


def _examine(
    runs: Runs, data: Mapping[str, Any], max_spread: Callable[[str, str], float], settings: Settings
) -> _Candidate:
    """Raises :class:`Refused` or :class:`LeftOut`."""
    check = runs.record.check
    place = place_of(data.get(check), runs.record, runs.metric)
    check_one_series(runs)
    baseline = baseline_of(
        runs.times,
        runs.values,
        better=runs.better,
        max_spread=max_spread(runs.record.partition, check),
        coverage=settings.coverage,
        confidence=settings.confidence,
    )
    return _Candidate(runs=runs, place=place, baseline=baseline)


def propose(
    text: str,
    all_runs: Iterable[Runs],
    max_spread: Callable[[str, str], float],
    settings: Settings,
) -> Proposal:
    """References that follow from the runs of one system, set in the text of its file.

    ``max_spread`` gives a site's limit by partition and check; it raises :class:`Refused` where there is
    none. Raises :class:`CalibrateError` where the file has mistakes.
    """
    try:
        data = yamlfile.parse(text, FILE) or {}
    except yamlfile.YamlError as error:
        raise CalibrateError(str(error)) from error
    mistakes = find_mistakes("references.yaml", data)
    if mistakes:
        raise CalibrateError("; ".join(map(str, mistakes)))
    outcomes: list[Outcome] = []
    candidates: dict[tuple[Key, ...], list[_Candidate]] = {}
    for runs in all_runs:
        try:
            one = _examine(runs, data, max_spread, settings)
            candidates.setdefault((runs.record.check, *one.place.keys), []).append(one)
        except Refused as error:
            outcomes.append(Outcome(name=runs.name, state="refused", text=str(error)))
        except LeftOut as error:
            outcomes.append(Outcome(name=runs.name, state="left out", text=str(error)))
    after = text
    for path, rivals in candidates.items():
        if len(rivals) > 1:
            outcomes += [_rivalry(one, rivals) for one in rivals]
            continue
        (one,) = rivals
        try:
            after, outcome = _settle(after, path, one, settings)
        except (Refused, EditError) as error:
            outcome = Outcome(name=one.runs.name, state="refused", text=str(error))
        outcomes.append(outcome)
    wrong = find_mistakes("references.yaml", yamlfile.parse(after, FILE) or {})
    if wrong:
        raise CalibrateError("the proposal would not be read: " + "; ".join(map(str, wrong)))
    return Proposal(text, after, outcomes)


def _rivalry(one: _Candidate, rivals: Sequence[_Candidate]) -> Outcome:
    def described(record: Record) -> dict[str, str]:
        kept = {name: str(getattr(record, name)) for name in (*_KEPT, "environment")}
        return kept | {k: str(v) for k, v in record.parameters.items()}

    mine = described(one.runs.record)
    others = [described(rival.runs.record) for rival in rivals if rival is not one]
    differing = [
        f"{name}={mine[name]} beside {', '.join(sorted({other.get(name, '') for other in others}))}"
        for name in mine
        if any(other.get(name) != mine[name] for other in others)
    ]
    text = (
        f"its entry holds for {len(rivals)} kinds of runs ({'; '.join(differing)}): name the difference in "
        "$index, or choose with -n or --since"
    )
    return Outcome(name=one.runs.name, state="refused", text=text)


def _settle(
    text: str, path: tuple[Key, ...], one: _Candidate, settings: Settings
) -> tuple[str, Outcome]:
    """The text with one candidate's reference, and what to say; raises :class:`Refused`, EditError."""
    runs, baseline = one.runs, one.baseline
    data = yamlfile.parse(text, FILE) or {}
    old = _at(data, path)
    kept = _at(data, (ACCEPTED, *path))
    if old is not None and old[0] == XFAIL:
        raise Refused(f"its failure is expected ({old[1]}): remove {XFAIL} first")
    if old is not None and old[3] != runs.unit:
        raise Refused(f"its reference is in {old[3]!r}, the records are in {runs.unit!r}")
    try:
        change = follow(
            baseline,
            old,
            unit=runs.unit,
            better=runs.better,
            accepted=kept is not None,
            confidence=settings.confidence,
            lower=settings.lower,
        )
    except Refused as error:
        raise Refused(f"{error}{_beside(kept, baseline.median)}") from error
    figures = (
        f"median {format_value(baseline.median)} {runs.unit} of {baseline.runs} runs, spread "
        f"{baseline.spread:.1%}{_beside(kept, baseline.median)}; {outlook(baseline.runs, baseline.spread)}"
    )
    if change is None:
        return text, Outcome(name=runs.name, state="holds", text=figures)
    accepted = kept or [old[0] if old is not None else change.new[0], runs.unit, settings.today]
    after = _apply(
        text,
        data,
        runs,
        one.place,
        change.new,
        accepted=accepted,
        remark=_remark(runs, baseline, accepted, settings.lower if old else None, settings.today),
    )
    notes = [change.note] if change.note else []
    if one.place.wide:
        notes.append(f"the entry {', '.join(map(repr, one.place.wide))} holds for other cases too")
    was = f"{change.old} -> " if change.old else "new: "
    said = "; ".join([f"{was}{change.new}; {figures}", *notes])
    return after, Outcome(name=runs.name, state="proposed", text=said)


def _beside(accepted: Sequence[Any] | None, median: float) -> str:
    if accepted is None:
        return ""
    share = median / float(accepted[0]) - 1
    return (
        f" ({share:+.1%} of what was accepted on {accepted[2]}: {format_value(float(accepted[0]))})"
    )
