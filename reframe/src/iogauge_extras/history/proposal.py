"""Propose references from what was measured, as a diff for references.yaml that a person reads: ``iogauge calibrate``.

A reference is the median of the newest series. Its bound is the value that all but a share of healthy runs
meet (:mod:`iogauge_extras.history.runs`). Runs that prove nothing are refused. No demand becomes softer unless the user says so and gives a reason.
"""

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

from iogauge.core import untrusted, yamlfile
from iogauge.core.groups import grouped
from iogauge.core.paths import scratch_file
from iogauge.core.units import format_value, with_unit
from iogauge.records import query
from iogauge.site import settings
from iogauge.site.folders import LOCAL, NAME, site_dir
from iogauge.site.references import FILE, SOURCES, XFAIL, find_mistakes
from iogauge_extras.history import yamledit
from iogauge_extras.history.position import FilePosition, Key, position_of
from iogauge_extras.history.runs import (
    Better,
    CalibrateError,
    Refused,
    Runs,
    SeriesSummary,
    runs_of,
    summary_of,
)
from iogauge_extras.history.statistics import REACH

_SOURCE: Final = "calibrated by iogauge from records of this site"
_NOTE: Final = "(values marked calibrated are from records of this site)"
#: What both say.
_CALIBRATED: Final = "calibrated"


def _share(bound: float, value: float, better: Better) -> float | int:
    """Return a bound as ReFrame's share of the value, four digits, rounded to the strict side."""
    parts = (bound / value - 1) * 1e4
    if better == "more":
        return math.ceil(parts - 1e-7) / 1e4 or 0
    return math.floor(parts + 1e-7) / 1e4 or 0


def follow(
    summary: SeriesSummary,
    old: Sequence[Any] | None,
    *,
    unit: str,
    better: Better,
    calibrated: bool,
    lower: str | None,
) -> list[Any] | None:
    """Return the new reference; None if the old one stays.

    The value moves to the median if that is certainly better. The bound moves only to the stricter
    side, and the bound of a ``calibrated`` reference only together with the value. With the
    reason ``lower``, both move to what was measured. Raises :class:`Refused` if the median is
    certainly worse and there is no reason.
    """
    side, sign = (1, 1) if better == "more" else (2, -1)
    value = float(f"{summary.median:.5g}")
    if value.is_integer():
        value = int(value)
    bound = summary.bound
    if old is None:
        old = [value, None, None, unit]
        lower = "new"
    new = list(old)
    before, share = float(old[0]), old[side]
    gain = sign * math.log(summary.median / before)
    doubt = REACH * summary.error
    if lower or gain > doubt:
        new[0] = value
    elif gain < -doubt:
        verb = "lower" if better == "more" else "raise"
        raise Refused(
            f"would {verb} the reference from {format_value(before)} to {with_unit(value, unit)} "
            f"({value / before - 1:+.1%}): never done without --lower REASON"
        )
    elif calibrated:
        return None
    if not lower:
        if share is not None and share != -1:
            kept = before * (1 + share)
            if sign * kept >= sign * bound:
                bound = kept
                if new[0] == old[0]:
                    return None
        bound = min(bound, float(new[0]), key=lambda least: sign * least)
    new[side] = _share(bound, float(new[0]), better)
    return new if new != list(old) else None


def _at(data: Any, path: Sequence[Key]) -> Any:
    """Return the value at a path; None if there is none."""
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
    """The old and the new text of a file, and what happened to each metric."""

    before: str
    after: str
    outcomes: list[MetricOutcome]

    @property
    def changes(self) -> bool:
        """Return whether the file becomes another one."""
        return self.before != self.after

    @property
    def refused(self) -> bool:
        """Return whether any metric was refused."""
        return any(outcome.state == "refused" for outcome in self.outcomes)

    def diff(self, old: str, new: str) -> str:
        """Return a unified diff, with these names of the file; returns "" if nothing changes."""
        before, after = self.before.splitlines(), self.after.splitlines()
        lines = difflib.unified_diff(before, after, old, new, lineterm="")
        return "".join(f"{line}\n" for line in lines)

    def told(self, system: str) -> list[str]:
        """Return what happened to each metric, a text once with its metrics."""
        lines = []
        alike = grouped(self.outcomes, lambda one: f"{one.state}: {one.text}")
        for text, outcomes in alike.items():
            lines.append(f"{system}: {text}")
            for outcome in outcomes:
                lines.append(f"  {outcome.name}")
        return lines


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Runs of a metric, where their reference stands, and what they show."""

    runs: Runs
    position: FilePosition
    summary: SeriesSummary

    @property
    def path(self) -> tuple[Key, ...]:
        """Return the keys of the reference in the file."""
        return (self.runs.record.check, *self.position.keys)

    @property
    def kind(self) -> str:
        """Return what distinguishes the runs of one entry."""
        record = self.runs.record
        scale = f"nodes={record.nodes}, tasks_per_node={record.tasks_per_node}"
        return f"environment={record.environment}, tier={record.tier}, {scale}, {record.short_name}"


def _examine(
    runs: Runs, data: Mapping[str, Any], max_spread: Callable[[str, str], float]
) -> _Candidate:
    """Return a candidate from the runs of a metric; raises :class:`Refused`."""
    check = runs.record.check
    position = position_of(data.get(check), runs.record, runs.metric)
    limit = max_spread(runs.record.partition, check)
    summary = summary_of(runs.times, runs.values, better=runs.better, max_spread=limit)
    return _Candidate(runs, position, summary)


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
    data = _data(text)
    outcomes: list[MetricOutcome] = []
    candidates: list[_Candidate] = []

    def refuse(runs: Runs, why: Refused) -> None:
        said = f"{why}{runs.left_out}"
        outcomes.append(MetricOutcome(name=runs.name, state=why.state, text=said))

    for runs in all_runs:
        try:
            candidates.append(_examine(runs, data, max_spread))
        except Refused as error:
            refuse(runs, error)
    after = text
    for candidate in candidates:
        kinds = [rival.kind for rival in candidates if rival.path == candidate.path]
        try:
            if len(kinds) > 1:
                raise Refused(
                    f"its entry holds for {len(kinds)} kinds of runs ({' beside '.join(kinds)}): name the "
                    "difference in $index, or choose with -n or --since"
                )
            after, outcome = _settle(after, candidate, lower, today)
            outcomes.append(outcome)
        except Refused as error:
            refuse(candidate.runs, error)
    _data(after)
    return Proposal(text, after, outcomes)


def _data(text: str) -> dict[str, Any]:
    """Return what a file of references says; raises :class:`CalibrateError` for mistakes."""
    try:
        data: dict[str, Any] = yamlfile.parse(text, FILE) or {}
    except yamlfile.YamlError as error:
        raise CalibrateError(str(error)) from error
    mistakes = [f"{FILE}: {mistake}" for mistake in find_mistakes(data)]
    if mistakes:
        raise CalibrateError("; ".join(mistakes))
    return data


def _settle(
    text: str, candidate: _Candidate, lower: str | None, today: date
) -> tuple[str, MetricOutcome]:
    """Return the text with one candidate's reference, and the outcome; raises :class:`Refused`."""
    runs, summary, path = candidate.runs, candidate.summary, candidate.path
    data = _data(text)
    old = _at(data, path)
    if old is not None and old[0] == XFAIL:
        raise Refused(f"its failure is expected ({old[1]}): remove {XFAIL} first")
    if old is not None and old[3] != runs.unit:
        raise Refused(
            f"its reference is in {old[3]!r}, the records are in {runs.unit!r}"
        )
    new = follow(
        summary,
        old,
        unit=runs.unit,
        better=runs.better,
        calibrated=_CALIBRATED in data.get(SOURCES, {}).get(path[0], ""),
        lower=lower,
    )
    figures = (
        f"median {with_unit(summary.median, runs.unit)} of {summary.runs} runs{runs.left_out}, spread "
        f"{summary.spread:.1%}"
    )
    if new is None:
        return text, MetricOutcome(name=runs.name, state="holds", text=figures)
    remark = (
        f"calibrated {today}, {summary.runs} runs {runs.times[0]:%Y-%m-%d} to {runs.times[-1]:%Y-%m-%d}, spread "
        f"{summary.spread:.1%}, series {runs.series}"
    )
    message = f"new; {figures}"
    if old:
        message = f"changed; {figures}"
        if lower:
            remark += f", softened because {' '.join(lower.split())}"
    after = _apply(text, data, candidate, new, remark)
    return after, MetricOutcome(name=runs.name, state="proposed", text=message)


def _apply(
    text: str,
    data: Mapping[str, Any],
    candidate: _Candidate,
    new: list[Any],
    remark: str,
) -> str:
    """Return the file's text with one reference set, together with its source and remarks."""
    position, path = candidate.position, candidate.path
    check, name = str(path[0]), ".".join(map(str, position.keys))
    if check not in data:
        text = yamledit.put(text, (SOURCES, check), _SOURCE)
        if position.index:
            text = yamledit.put(text, (check, "$index"), list(position.index))
    elif _CALIBRATED not in data[SOURCES][check]:
        text = yamledit.put(text, (SOURCES, check), f"{data[SOURCES][check]} {_NOTE}")
    return yamledit.put(text, path, new, f"{name}: {remark}", f"{name}: calibrated")


def site_limits(folder: Path) -> Callable[[str, str], float]:
    """Return a site's limit of noise by partition and check.

    Raises :class:`CalibrateError` for a broken site.
    """
    if not folder.is_dir():
        raise CalibrateError(
            f"{folder}: no such site; its records have nothing to be a reference of"
        )
    mistakes = settings.read_site(folder)[1]
    if mistakes:
        raise CalibrateError("; ".join(map(str, mistakes)))
    partitions = settings.partitions(folder)

    def limit(partition: str, check: str) -> float:
        if partition not in partitions:
            raise Refused(f"{folder.name} has no partition {partition} (any more)")
        return partitions[partition].for_check(check).limits.max_spread

    return limit


def calibrate(
    folder: Path, choice: query.Choice, lower: str | None
) -> dict[Path, Proposal]:
    """Return what follows from a history for the references of every system, by their file.

    Raises ValueError for an impossible choice, and :class:`CalibrateError` for a broken site.
    """
    if lower is not None and not lower.strip():
        raise CalibrateError(
            "--lower: expected the reason, which is kept beside the reference"
        )
    found = {}
    today = datetime.now(timezone.utc).date()
    with closing(query.connect(folder)) as history:
        chosen = choice.condition(history)
        listed = query.rows(history, "DISTINCT system", chosen, "ORDER BY system")
        systems = [row["system"] for row in listed]
        if not systems:
            raise CalibrateError(
                "no record is chosen: see what 'iogauge history' lists"
            )
        if LOCAL in systems and len(systems) > 1:
            systems.remove(LOCAL)  # nobody described that machine
        for system in systems:
            if not NAME.fullmatch(system):  # a record may say anything
                raise CalibrateError(
                    f"records of a system named {system!r}: no site has such a name"
                )
            mine = query.every(chosen, query.Condition("system = ?", (system,)))
            runs = runs_of(folder, history, mine)
            file = site_dir(system) / FILE
            limits = site_limits(file.parent)
            found[file] = propose(read_text(file), runs, limits, lower, today)
    return found


def read_text(file: Path) -> str:
    """Return a file's text with its own line ends; returns "" if there is no file.

    Raises :class:`CalibrateError`.
    """
    try:
        return untrusted.read_bytes(file, yamlfile.LIMIT_BYTES).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrateError(f"{file}: {error}") from error


def write_text(file: Path, text: str) -> None:
    """Replace a file's text in one step and keep its mode; raises :class:`CalibrateError`."""
    file = file.resolve()
    mode = 0o644
    try:
        if file.exists():
            mode = file.stat().st_mode & 0o777
        with scratch_file(file, text.encode()) as scratch:
            os.chmod(scratch, mode)
            os.rename(scratch, file)
    except OSError as error:
        raise CalibrateError(f"{file}: not written: {error}") from error
