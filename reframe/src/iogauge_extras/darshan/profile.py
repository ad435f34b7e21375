"""What a program did to the file system, from its Darshan log, and what stands out in it. A profile judges nothing: references do."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from iogauge.core.text import count
from iogauge.core.units import format_value
from iogauge_extras.compare.logs import Figures, amount
from iogauge_extras.darshan.log import ALL_RANKS, DarshanLog, FileRecord
from iogauge_extras.darshan.subject import TIMES, of_log, total

#: From here on a share or a ratio is worth a sentence.
_SMALL, _META, _UNALIGNED, _SIEVED, _UNEVEN = 50.0, 30.0, 50.0, 1.2, 1.5
_SLOW_TARGET: Final = 3.0

#: Seconds in calls from which the files of a storage target tell its speed.
_BUSY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Profile:
    """A log under its name, and its figures."""

    name: str
    log: DarshanLog
    figures: Figures

    @classmethod
    def of(cls, name: str, log: DarshanLog) -> Profile:
        """Return the profile of a log."""
        return cls(name, log, of_log(name, log))

    def value(self, name: str) -> float | None:
        """Return a figure of the log; None if the log does not tell it."""
        found = self.figures.values.get(name)
        return found.value if found else None


@dataclass(frozen=True, slots=True)
class FileRow:
    """What was done to one file. ``writers`` is None if the ranks were summed up; ``stripes`` 0 if not known."""

    file: str
    read: float
    written: float
    seconds: float
    writers: int | None
    stripes: int
    fs_type: str


def files(log: DarshanLog) -> list[FileRow]:
    """Return the files that POSIX calls touched, those with most bytes first, then the slowest."""
    grouped: dict[str, list[FileRecord]] = defaultdict(list)
    for record in log.of("POSIX"):
        grouped[record.file].append(record)
    stripes: dict[str, int] = {}
    for record in log.of("LUSTRE"):
        counts = [v for name, v in record.counters.items() if name.endswith("_STRIPE_COUNT")]
        stripes[record.file] = int(max(counts, default=0))
    rows = []
    for file, records in grouped.items():
        wrote = {r.rank for r in records if total([r], "BYTES_WRITTEN")}
        rows.append(
            FileRow(
                file=file,
                read=total(records, "BYTES_READ"),
                written=total(records, "BYTES_WRITTEN"),
                seconds=total(records, *TIMES),
                writers=None if ALL_RANKS in wrote else len(wrote),
                stripes=stripes.get(file, 0),
                fs_type=records[0].fs_type,
            )
        )
    return sorted(rows, key=lambda row: (-(row.read + row.written), -row.seconds, row.file))


def ranks(log: DarshanLog) -> dict[int, dict[str, float]]:
    """Return the seconds that each rank spent in POSIX reads, writes and metadata calls, slowest first.

    It is empty if Darshan summed up a file over the ranks: then no rank's time is known.
    """
    found: dict[int, dict[str, float]] = {}
    for record in log.of("POSIX"):
        if record.rank == ALL_RANKS:
            return {}
        mine = found.setdefault(record.rank, dict.fromkeys(("reads", "writes", "meta"), 0.0))
        for kind, counter in zip(mine, TIMES, strict=True):
            mine[kind] += total([record], counter)
    return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))


def targets(log: DarshanLog) -> dict[int, float]:
    """Return the seconds per byte of each storage target, slowest first, by the target's number.

    They are those of all its files that lie on no other target. A target that was busy for less than
    :data:`_BUSY_S` seconds is left out.
    """
    places = {}
    for record in log.of("LUSTRE"):
        found = {int(v) for name, v in record.counters.items() if "_OST_ID_" in name}
        if len(found) == 1:
            places[record.file] = found.pop()
    seconds: dict[int, float] = defaultdict(float)
    moved: dict[int, float] = defaultdict(float)
    for row in files(log):
        if row.file in places:
            seconds[places[row.file]] += row.seconds
            moved[places[row.file]] += row.read + row.written
    rates = {t: seconds[t] / moved[t] for t in moved if moved[t] and seconds[t] >= _BUSY_S}
    return dict(sorted(rates.items(), key=lambda item: -item[1]))


def told(profile: Profile) -> list[str]:
    """Return what stands out in a log, a sentence each; empty if nothing does."""
    said = []
    times = {rank: sum(parts.values()) for rank, parts in ranks(profile.log).items()}
    slowest = next(iter(times), None)
    middle = median(times.values()) if times else 0.0
    if slowest is not None and middle > 0 and times[slowest] >= _UNEVEN * middle:
        said.append(
            f"Rank {slowest} spends {format_value(times[slowest])} s in POSIX calls, "
            f"{times[slowest] / middle:.1f} times the median of the ranks."
        )
    by_target = targets(profile.log)
    usual = median(by_target.values()) if len(by_target) > 2 else math.inf
    if slow := [t for t, rate in by_target.items() if rate >= _SLOW_TARGET * usual]:
        said.append(
            f"A byte on {', '.join(f'OST {t}' for t in slow[:5])} takes "
            f"{by_target[slow[0]] / usual:.1f} times as long as on the median of {len(by_target)} targets."
        )
    small, meta = profile.value("small accesses") or 0, profile.value("metadata time") or 0
    if small >= _SMALL:
        said.append(f"{small:.0f} % of the reads and writes move at most 100 KiB each.")
    if meta >= _META:
        said.append(f"{meta:.0f} % of the time in POSIX calls goes to open, stat, seek and close.")
    unaligned = profile.value("unaligned accesses") or 0
    if unaligned >= _UNALIGNED:
        said.append(
            f"{unaligned:.0f} % of the reads and writes begin at no boundary of the file's blocks."
        )
    for word in ("read", "written"):
        ratio = profile.value(f"POSIX / MPI-IO bytes {word}") or 0
        if ratio >= _SIEVED:
            said.append(
                f"MPI-IO's own files have {ratio:.1f} times the bytes {word} that the program asked for: "
                "the MPI library sieves data."
            )
    for row in files(profile.log)[:1]:
        if row.stripes > 1 and row.writers is not None and 0 < row.writers < row.stripes:
            said.append(
                f"{count(row.writers, 'rank')} write{'s' * (row.writers == 1)} {row.file}, which has {row.stripes} stripes: more writers could "
                "use more targets at once."
            )
    return said


def lines(profile: Profile) -> Mapping[str, str]:
    """Return the facts and values of one log as text by name."""
    facts = {name: text for name, text in profile.figures.facts.items() if text}
    values = {name: amount(q.value, q.unit) for name, q in profile.figures.values.items()}
    return {**facts, **values}


def to_json(profile: Profile) -> str:
    """Return a profile as a JSON object; values are numbers, each with its unit."""
    return json.dumps(
        {
            "log": profile.name,
            "facts": dict(profile.figures.facts),
            "values": {
                n: {"value": q.value, "unit": q.unit} for n, q in profile.figures.values.items()
            },
            "told": told(profile),
            "notes": list(profile.figures.notes),
            "files": [asdict(row) for row in files(profile.log)],
            "ranks": ranks(profile.log),
        },
        indent=2,
        allow_nan=False,
    )
