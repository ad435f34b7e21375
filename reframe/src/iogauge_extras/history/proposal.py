"""Propose references from what was measured, as a diff for references.yaml that a person reads: ``iogauge calibrate``.

A reference is the median of one series. Its bound is the value that all but a share of healthy runs
meet (:mod:`iogauge_extras.history.runs`). Runs that prove nothing are refused, as are runs of
several series. No demand becomes softer unless the user says so and gives a reason.
"""

from __future__ import annotations

import difflib
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

from iogauge.core import untrusted, yamlfile
from iogauge.core.groups import grouped
from iogauge.core.paths import written_beside
from iogauge.core.text import did_you_mean
from iogauge.core.units import format_value, with_unit
from iogauge.core.yamlfile import LIMIT_BYTES
from iogauge.records import query
from iogauge.records.record import Record
from iogauge.site import settings
from iogauge.site.folders import LOCAL, NAME, site_dir
from iogauge.site.reference_notes import ACCEPTED
from iogauge.site.references import FILE, SOURCES, XFAIL, find_mistakes
from iogauge_extras.history import yamledit
from iogauge_extras.history.quantiles import normal_quantile
from iogauge_extras.history.runs import (
    Better,
    CalibrateError,
    Refused,
    Runs,
    SeriesSummary,
    check_one_series,
    runs_of,
    summary_of,
    without_valid_run,
)
from iogauge_extras.history.statistics import CONFIDENCE

_SOURCE: Final = "calibrated by iogauge from records of this site"
_NOTE: Final = "(values marked calibrated are from records of this site)"


def _rounded(value: float) -> float | int:
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def _share(bound: float, value: float, better: Better) -> float | int:
    """Return a bound as ReFrame's share of the value, four digits, rounded to the strict side."""
    share = bound / value - 1
    rounded = (
        math.ceil(share * 1e4 - 1e-7)
        if better == "more"
        else math.floor(share * 1e4 + 1e-7)
    )
    return rounded / 1e4 if rounded else 0


def follow(
    summary: SeriesSummary,
    old: Sequence[Any] | None,
    *,
    unit: str,
    better: Better,
    accepted: bool,
    lower: str | None,
) -> tuple[list[Any], str] | None:
    """Return the new reference and a note for the reader; None if it stays.

    The value moves to the median if that is certainly better. The bound moves only to the stricter
    side. Once the value was ``accepted``, the bound moves only together with the value. With the
    reason ``lower``, both move to what was measured. Raises :class:`Refused` if the median is
    certainly worse and there is no reason.
    """
    side, sign = (1, 1) if better == "more" else (2, -1)
    value, bound, note = _rounded(summary.median), summary.bound, ""
    if old is None:
        leaf: list[Any] = [value, None, None, unit]
        leaf[side] = _share(bound, value, better)
        return leaf, ""
    before, share, leaf = float(old[0]), old[side], list(old)
    bound_before = None if share is None or share == -1 else before * (1 + share)
    gain = sign * math.log(summary.median / before)
    doubt = normal_quantile((1 + CONFIDENCE) / 2) * summary.error
    if lower or gain > doubt:
        leaf[0] = value
    elif gain < -doubt:
        verb = "lower" if better == "more" else "raise"
        raise Refused(
            f"would {verb} the reference from {format_value(before)} to {with_unit(value, unit)} "
            f"({value / before - 1:+.1%}): never done without --lower REASON"
        )
    elif accepted:
        return None
    if not lower:
        if bound_before is not None and sign * bound < sign * bound_before:
            bound = bound_before
            note = (
                f"the bound stays at {format_value(bound)}; the noise alone would ask for "
                f"{format_value(summary.bound)}"
            )
        bound = min(bound, float(leaf[0]), key=lambda one: sign * one)
    if leaf[0] == old[0] and bound == bound_before:
        return None
    leaf[side] = _share(bound, float(leaf[0]), better)
    return (leaf, note) if leaf != list(old) else None


def _at(data: Any, path: Sequence[yamledit.Key]) -> Any:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return None
        data = data[key]
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricOutcome:
    """What happened to one metric."""

    name: str
    state: Literal["proposed", "holds", "refused", "left out"]
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The old and the new text of the file, and what happened to each metric."""

    before: str
    after: str
    outcomes: list[MetricOutcome] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Return whether any metric was refused."""
        return any(outcome.state == "refused" for outcome in self.outcomes)

    def diff(self, file: str) -> str:
        """Return a unified diff; returns "" if nothing changes."""
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
    runs: Runs,
    summary: SeriesSummary,
    accepted: Sequence[Any],
    reason: str | None,
    day: date,
) -> str:
    words = [
        f"calibrated {day}, {summary.runs} runs {runs.times[0]:%Y-%m-%d} to {runs.times[-1]:%Y-%m-%d}",
        f"spread {summary.spread:.1%}",
        f"nodes {runs.provenance('nodes')}",
        f"stack {runs.provenance('stack')}",
        f"series {runs.series[-1]}",
        f"accepted {accepted[0]} on {accepted[2]}",
    ]
    if reason:
        words.append(f"softened because {' '.join(reason.split())}")
    return ", ".join(words)


def _apply(
    text: str,
    data: dict[str, Any],
    check: str,
    position: yamledit.FilePosition,
    new: list[Any],
    accepted: Sequence[Any],
    remark: str,
) -> str:
    """Return the file's text with one reference set, together with its source and remarks."""
    path, name = (check, *position.keys), ".".join(map(str, position.keys))
    if check not in data:
        text = yamledit.put(text, (SOURCES, check), _SOURCE)
        if position.index:
            text = yamledit.put(text, (check, "$index"), list(position.index))
    elif data[SOURCES][check] != _SOURCE:
        text = yamledit.add_words(text, (SOURCES, check), _NOTE)
    text = yamledit.put(text, path, new, f"{name}: {remark}", f"{name}: calibrated")
    if _at(data, (ACCEPTED, *path)) is None:
        text = yamledit.put(text, (ACCEPTED, *path), accepted)
    return text


#: Runs of a metric, where their reference stands, and what they show.
_Candidate = tuple[Runs, yamledit.FilePosition, SeriesSummary]


def _examine(
    runs: Runs, data: Mapping[str, Any], max_spread: Callable[[str, str], float]
) -> _Candidate:
    """Return a candidate from the runs of a metric; raises :class:`Refused`."""
    check = runs.record.check
    position = yamledit.position_of(data.get(check), runs.record, runs.metric)
    check_one_series(runs)
    limit = max_spread(runs.record.partition, check)
    summary = summary_of(runs.times, runs.values, better=runs.better, max_spread=limit)
    return runs, position, summary


def propose(
    text: str,
    all_runs: Iterable[Runs],
    max_spread: Callable[[str, str], float],
    lower: str | None,
    today: date,
) -> Proposal:
    """Return the references that follow from the runs of one system, set in the text of its file.

    ``max_spread`` returns a site's limit by partition and check, and raises :class:`Refused` if
    there is no such partition. ``lower`` is the reason to make references softer; None forbids that. Raises
    :class:`CalibrateError` if the file has mistakes.
    """
    try:
        data = yamlfile.parse(text, FILE) or {}
    except yamlfile.YamlError as error:
        raise CalibrateError(str(error)) from error
    if mistakes := "; ".join(f"{FILE}: {mistake}" for mistake in find_mistakes(data)):
        raise CalibrateError(mistakes)
    outcomes: list[MetricOutcome] = []
    candidates: dict[tuple[yamledit.Key, ...], list[_Candidate]] = {}

    def refuse(runs: Runs, why: Refused) -> None:
        text = f"{why}{runs.left_out}"
        outcomes.append(MetricOutcome(name=runs.name, state=why.state, text=text))

    for runs in all_runs:
        try:
            candidate = _examine(runs, data, max_spread)
            path = (runs.record.check, *candidate[1].keys)
            candidates.setdefault(path, []).append(candidate)
        except Refused as error:
            refuse(runs, error)
    after = text
    for path, rivals in candidates.items():
        for candidate in rivals:
            try:
                _check_rivals(candidate, rivals)
                after, outcome = _settle(after, path, candidate, lower, today)
                outcomes.append(outcome)
            except Refused as error:
                refuse(candidate[0], error)
    if wrong := "; ".join(map(str, find_mistakes(yamlfile.parse(after, FILE) or {}))):
        raise CalibrateError(f"the proposal would not be read: {wrong}")
    return Proposal(text, after, outcomes)


def _check_rivals(candidate: _Candidate, rivals: Sequence[_Candidate]) -> None:
    """Raise :class:`Refused` if one entry would hold for several kinds of runs."""
    if len(rivals) == 1:
        return

    def described(record: Record) -> dict[str, str]:
        kept = {
            name: str(getattr(record, name)) for name in (*yamledit.KEPT, "environment")
        }
        return kept | {k: str(v) for k, v in record.parameters.items()}

    own = described(candidate[0].record)
    others = [described(rival[0].record) for rival in rivals if rival is not candidate]
    differing = [
        f"{name}={own[name]} beside {', '.join(sorted({other.get(name, '') for other in others}))}"
        for name in own
        if any(other.get(name) != own[name] for other in others)
    ]
    raise Refused(
        f"its entry holds for {len(rivals)} kinds of runs ({'; '.join(differing)}): name the difference in "
        "$index, or choose with -n or --since"
    )


def _settle(
    text: str,
    path: tuple[yamledit.Key, ...],
    candidate: _Candidate,
    lower: str | None,
    today: date,
) -> tuple[str, MetricOutcome]:
    """Return the text with one candidate's reference, and the outcome; raises :class:`Refused`."""
    runs, position, summary = candidate
    data = yamlfile.parse(text, FILE) or {}
    old, kept = _at(data, path), _at(data, (ACCEPTED, *path))
    if old is not None and old[0] == XFAIL:
        raise Refused(f"its failure is expected ({old[1]}): remove {XFAIL} first")
    if old is not None and old[3] != runs.unit:
        raise Refused(
            f"its reference is in {old[3]!r}, the records are in {runs.unit!r}"
        )
    since = _since_accepted(kept, summary.median)
    words: dict[str, Any] = {"unit": runs.unit, "better": runs.better, "lower": lower}
    try:
        change = follow(summary, old, accepted=kept is not None, **words)
    except Refused as error:
        raise Refused(f"{error}{since}") from error
    figures = (
        f"median {with_unit(summary.median, runs.unit)} of {summary.runs} runs{runs.left_out}, spread "
        f"{summary.spread:.1%}{since}"
    )
    if change is None:
        return text, MetricOutcome(name=runs.name, state="holds", text=figures)
    new, note = change
    accepted = kept or [old[0] if old is not None else new[0], runs.unit, today]
    remark = _remark(runs, summary, accepted, lower if old else None, today)
    after = _apply(text, data, path[0], position, new, accepted, remark)  # type: ignore[arg-type]
    wide = ", ".join(map(repr, position.wide))
    notes = [note, f"the entry {wide} holds for other cases too" if wide else ""]
    message = "; ".join(filter(None, ["changed" if old else "new", figures, *notes]))
    return after, MetricOutcome(name=runs.name, state="proposed", text=message)


def _since_accepted(accepted: Sequence[Any] | None, median: float) -> str:
    if accepted is None:
        return ""
    share = median / float(accepted[0]) - 1
    return f" ({share:+.1%} of what was accepted on {accepted[2]}: {format_value(float(accepted[0]))})"


def site_limits(folder: Path) -> Callable[[str, str], float]:
    """Return a site's limit of noise by partition and check.

    Raises :class:`CalibrateError` for a broken site.
    """
    if not folder.is_dir():
        raise CalibrateError(
            f"{folder}: no such site; its records have nothing to be a reference of"
        )
    if mistakes := settings.read_site(folder)[1]:
        raise CalibrateError("; ".join(map(str, mistakes)))
    partitions = settings.partitions(folder)

    def limit(partition: str, check: str) -> float:
        if partition not in partitions:
            raise Refused(f"{folder.name} has no partition {partition} (any more)")
        return partitions[partition].for_check(check).limits.max_spread

    return limit


def _chosen(
    history: sqlite3.Connection, choice: query.Choice, metrics: Sequence[str]
) -> query.Condition:
    """Return the condition of the chosen rows; raises ValueError if there are none."""
    present = query.column(history, "SELECT DISTINCT name FROM metric ORDER BY name")
    for name in metrics:
        if name not in present:
            raise CalibrateError(
                f"no record has the metric {name!r}{did_you_mean(name, present)}; there are: "
                f"{', '.join(present) or 'none'}"
            )
    chosen = choice.condition(history)
    if metrics:
        chosen = query.every(chosen, query.among("metric", metrics))
    if not query.rows(history, "1", chosen, "LIMIT 1"):
        raise CalibrateError("no record is chosen: see what 'iogauge history' lists")
    return chosen


def calibrate(
    history_folder: Path,
    choice: query.Choice,
    metrics: Sequence[str],
    lower: str | None,
    *,
    write: bool,
    say: Callable[[str], None],
) -> bool:
    """Say what follows for every system's references, and write them if asked to.

    Returns whether nothing was refused. Raises ValueError for an impossible choice,
    and :class:`CalibrateError` for a broken site.
    """
    if lower is not None and not lower.strip():
        raise CalibrateError(
            "--lower: expected the reason, which is kept beside the reference"
        )
    with closing(query.connect(history_folder)) as history:
        chosen = _chosen(history, choice, metrics)
        listed = query.rows(history, "DISTINCT system", chosen, "ORDER BY system")
        systems = [row["system"] for row in listed]
        runs, without = {}, {}
        for system in systems:
            of_system = query.Condition("system = ?", (system,))
            mine = query.every(chosen, of_system)
            runs[system] = runs_of(history_folder, history, mine)
            without[system] = without_valid_run(history, mine)
    refused = False
    for system in systems:
        if not NAME.fullmatch(system):  # a record may say anything
            raise CalibrateError(
                f"records of a system named {system!r}: no site has such a name"
            )
        if system == LOCAL and not choice.system and len(systems) > 1:
            say(
                f"{LOCAL}: left out, because nobody described that machine; name it with --system={LOCAL}"
            )
            continue
        file = site_dir(system) / FILE
        proposal = propose(
            read_text(file),
            runs[system],
            site_limits(file.parent),
            lower,
            datetime.now(timezone.utc).date(),
        )
        told = [(one.name, f"{one.state}: {one.text}") for one in proposal.outcomes]
        told += [(name, f"left out: {why}") for name, why in without[system]]
        for what, named in grouped(told, lambda one: one[1]).items():
            say(f"{system}: {what}")
            for name, _ in named:
                say(f"  {name}")
        refused = refused or proposal.refused
        diff = proposal.diff(str(file))
        if not diff:
            say(f"{file}: nothing to change")
            continue
        say(diff)
        if write:
            try:
                write_text(file, proposal.after)
            except OSError as error:
                raise CalibrateError(f"{file}: not written: {error}") from error
        say(f"{file}: " + ("written" if write else "not written: review, then --write"))
    return not refused


def read_text(file: Path) -> str:
    """Return a file's text with its own line ends; returns "" if there is no file.

    Raises :class:`CalibrateError`.
    """
    try:
        return untrusted.read_bytes(file, LIMIT_BYTES).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrateError(f"{file}: {error}") from error


def write_text(file: Path, text: str) -> None:
    """Replace a file's text in one step and keep its mode; raises OSError."""
    file = file.resolve()
    with written_beside(file, text.encode()) as scratch:
        os.chmod(scratch, file.stat().st_mode & 0o777 if file.exists() else 0o644)
        os.rename(scratch, file)
