"""Which runs of a history references may rest on."""

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


class LeftOut(Exception):
    """Runs that references do not speak of; the message says why."""


class CalibrateError(ValueError):
    """A site that cannot be calibrated at all; the message names what is wrong."""


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
        """Case and metric, as messages name them."""
        return f"{self.record.partition} {self.record.case} {self.metric}"

    def provenance(self, key: str) -> str:
        """What the fingerprints say under a key, on one line."""
        found = list(dict.fromkeys(str(one[key]) for one in self.contents if key in one))
        if not found:
            return "unknown"
        return found[0] if len(found) == 1 else f"{found[-1]} and {len(found) - 1} other(s)"


def check_one_series(runs: Runs) -> None:
    """Raise :class:`Refused` for runs of several series, with what differs between the last two."""
    names = list(dict.fromkeys(runs.series))
    if len(names) == 1:
        return
    last = runs.series[-1]
    first = next(
        i for i in range(len(runs.series)) if all(name == last for name in runs.series[i:])
    )
    before = runs.series[first - 1]

    def seen(series: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, content in zip(runs.series, runs.contents, strict=True):
            for key, value in content.items() if name == series else ():
                found.setdefault(key, []).append(str(value))
        return found

    old, new = seen(before), seen(last)
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
    """Runs by line and metric out of a frame of :func:`iogauge.records.query.load`; ``limit``: the newest only.

    ``newest`` gives the record that a row comes from, ``contents`` the fingerprints by their id. Runs that
    confirm another are left out: a failure chose them.
    """
    valid = frame.filter(
        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),
        pl.col("median").is_not_null(),
        pl.col("confirms").is_null(),
    )
    found = []
    for _, group in valid.group_by(["line", "metric"], maintain_order=True):
        rows = group.sort("time").tail(limit or group.height)
        last = rows.row(-1, named=True)
        found.append(
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
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which runs to calibrate from: system, expression in the case's name, metrics, time, the newest so many."""

    system: str = ""
    name: str = ""
    metrics: tuple[str, ...] = ()
    since: datetime | None = None
    newest: int | None = None

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows of a history that are chosen; raises :class:`CalibrateError` where there are none."""
        for column, wanted in (
            ("system", (self.system,) if self.system else ()),
            ("metric", self.metrics),
        ):
            known = sorted(frame[column].drop_nulls().unique().to_list())
            missing = [name for name in wanted if name not in known]
            if missing:
                here = ", ".join(known) or "none"
                raise CalibrateError(
                    f"no record has the {column} {missing[0]!r}; there are: {here}"
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
    """A function that finds the record that a row of the history's frame comes from; each file is read once."""
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
        for found in reversed(sessions[key]):
            if found.line == row["line"]:
                return found
        raise CalibrateError(
            f"{folder / key[0] / key[1]}.jsonl: no record of line {row['line']}: was the file changed?"
        )

    return find
