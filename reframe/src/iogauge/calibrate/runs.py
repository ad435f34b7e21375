"""Choose the runs of a history on which references may rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from iogauge.calibrate.statistics import LEAST_RUNS, Better, Refused
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import Record


class SkippedRuns(Exception):
    """Runs to which references do not apply; the message says why."""


class CalibrateError(ValueError):
    """A site cannot be calibrated at all; the message names the mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Valid runs of one metric on one line, oldest first, and the record of the newest."""

    record: Record
    metric: str
    unit: str
    better: Better
    times: tuple[datetime, ...]
    values: tuple[float, ...]
    series: tuple[str, ...]
    contents: tuple[Mapping[str, Any], ...]

    @property
    def name(self) -> str:
        """Return case and metric, as messages name them."""
        return f"{self.record.partition} {self.record.short_name} {self.metric}"

    def provenance(self, key: str) -> str:
        """Return on one line the values that the fingerprints have under a key."""
        values = list(
            dict.fromkeys(str(content[key]) for content in self.contents if key in content)
        )
        if not values:
            return "unknown"
        return values[0] if len(values) == 1 else f"{values[-1]} and {len(values) - 1} other(s)"


def check_one_series(runs: Runs) -> None:
    """Raise :class:`Refused` for runs of several series; it says how the last two differ."""
    names = list(dict.fromkeys(runs.series))
    if len(names) == 1:
        return
    last = runs.series[-1]
    first = next(
        i for i in range(len(runs.series)) if all(name == last for name in runs.series[i:])
    )
    before = runs.series[first - 1]

    def values_in(series: str) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for name, content in zip(runs.series, runs.contents, strict=True):
            for key, value in content.items() if name == series else ():
                values.setdefault(key, []).append(str(value))
        return values

    old, new = values_in(before), values_in(last)
    differing = [
        f"{key} {old.get(key, ['none'])[-1]} -> {new.get(key, ['none'])[-1]}"
        for key in sorted({*old, *new})
        if not {*old.get(key, ())} & {*new.get(key, ())}
    ]
    shown = "; ".join(differing[:6]) or "nothing that the fingerprints name"
    more = f" and {len(differing) - 6} more" if len(differing) > 6 else ""
    missing = max(0, LEAST_RUNS - (len(runs.series) - first))
    raise Refused(
        f"runs of {len(names)} series ({', '.join(names)}); changed last: {shown}{more}. The newest has "
        f"{len(runs.series) - first} run(s): --since {runs.times[first]:%Y-%m-%dT%H:%M:%S}"
        + (f", {missing} more run(s) needed" if missing else "")
    )


def runs_of(
    frame: pl.DataFrame,
    newest: Callable[[Mapping[str, Any]], Record],
    contents: Mapping[str, Mapping[str, Any]],
    limit: int | None = None,
) -> list[Runs]:
    """Return the runs by line and metric from a frame of :func:`iogauge.records.query.load`.

    ``limit`` restricts them to the newest. ``newest`` returns the record of a row, ``contents``
    holds the fingerprints by id. Runs that confirm another run are left out, since a failure caused
    them.
    """
    valid = frame.filter(
        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),
        pl.col("median").is_not_null(),
        pl.col("confirms").is_null(),
    )
    runs = []
    for _, group in valid.group_by(["line", "metric"], maintain_order=True):
        rows = group.sort("time").tail(limit or group.height)
        last = rows.row(-1, named=True)
        runs.append(
            Runs(
                record=newest(last),
                metric=last["metric"],
                unit=last["unit"],
                better=last["better"],
                times=tuple(rows["time"].to_list()),
                values=tuple(rows["median"].to_list()),
                series=tuple(rows["series"].to_list()),
                contents=tuple(contents.get(name, {}) for name in rows["fingerprint"].to_list()),
            )
        )
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """Which runs to calibrate from; ``name`` is a regular expression, ``newest`` a number."""

    system: str = ""
    name: str = ""
    metrics: tuple[str, ...] = ()
    since: datetime | None = None
    newest: int | None = None

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the chosen rows of a history; raises :class:`CalibrateError` if there are none."""
        for column, wanted in (
            ("system", (self.system,) if self.system else ()),
            ("metric", self.metrics),
        ):
            present = sorted(frame[column].drop_nulls().unique().to_list())
            missing = [name for name in wanted if name not in present]
            if missing:
                listed = ", ".join(present) or "none"
                raise CalibrateError(
                    f"no record has the {column} {missing[0]!r}; there are: {listed}"
                )
            if wanted:
                frame = frame.filter(pl.col(column).is_in(wanted))
        if self.newest is not None and self.newest < LEAST_RUNS:
            raise CalibrateError(f"--runs {self.newest}: expected {LEAST_RUNS} or more")
        try:
            fits = re.compile(self.name).search
        except re.error as error:
            raise CalibrateError(f"-n {self.name!r} is no regular expression: {error}") from error
        cases = [case for case in frame["case"].unique().to_list() if case and fits(case)]
        frame = frame.filter(pl.col("case").is_in(cases))
        if self.since is not None:
            frame = frame.filter(pl.col("time") >= self.since)
        if frame.is_empty():
            raise CalibrateError("no record is chosen: see what 'iogauge history' lists")
        return frame


def newest_record(folder: Path) -> Callable[[Mapping[str, Any]], Record]:
    """Return a function that finds the record of a row of the history's frame.

    It reads each file once.
    """
    sessions: dict[tuple[str, str], list[Record]] = {}

    def find(row: Mapping[str, Any]) -> Record:
        key = (str(row["system"]), str(row["session"]))
        if key not in sessions:
            file = folder / key[0] / f"{key[1]}.jsonl"
            if file.parent.parent != folder or ".." in key:
                raise CalibrateError(f"{key!r}: a record names a session that is none")
            whole = list(journal.read_whole(file))
            if len(whole) == 1 and isinstance(whole[0], journal.Damaged):
                raise CalibrateError(f"{file}: {whole[0].problem}")
            sessions[key] = [record for record in whole if isinstance(record, Record)]
        for record in reversed(sessions[key]):
            if record.line == row["line"]:
                return record
        raise CalibrateError(
            f"{folder / key[0] / key[1]}.jsonl: no record of line {row['line']}: was the file changed?"
        )

    return find
