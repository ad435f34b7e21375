"""What a program did to the file system, from its Darshan log, and what stands out in it. A profile judges nothing: references do."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from iogauge.core.text import count
from iogauge.core.units import format_value
from iogauge_extras.compare.logs import Figures, amount
from iogauge_extras.darshan.log import ALL_RANKS, DarshanLog, FileRecord
from iogauge_extras.darshan.subject import COUNTED, TIMES, busy_seconds, of_log, total

#: From here on a share or a ratio is worth a sentence.
_SMALL, _META, _UNALIGNED, _SIEVED, _UNEVEN = 50.0, 30.0, 50.0, 1.2, 1.5
_SLOW_TARGET, _ABOVE_POSIX = 3.0, 2.0

#: What is less than this share of the run time, or less than so many seconds, is a trifle. Old logs round the run time to seconds.
_SHARE, _LEAST_S = 0.05, 1.0

#: Seconds that an access may cost for being small or unaligned: a round trip to a busy server.
_ACCESS_S: Final = 0.001

#: Seconds in calls from which the files of a storage target tell its speed.
_BUSY_S: Final = 0.1

#: Bytes from which one stripe is little for a file that several ranks share.
_LARGE: Final = 1 << 30


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
    shared: bool


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
                shared=len(records) > 1 or (records[0].rank == ALL_RANKS and log.tasks > 1),
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


@dataclass(frozen=True, slots=True)
class SlowTarget:
    """A storage target: how many times the median's seconds a byte takes there, and what that costs each rank that used it."""

    number: int
    times: float
    lost_s: float
    compared: int


def targets(log: DarshanLog) -> list[SlowTarget]:
    """Return the storage targets, slowest first, by the reads and writes of files that lie on no other target.

    Like is compared with like: reads with reads, and transfers with those of the same power of ten. A target is left out if it
    was busy with them for less than :data:`_BUSY_S` seconds. So are transfers that fewer than three targets saw.
    """
    places = {}
    for record in log.of("LUSTRE"):
        found = {int(v) for name, v in record.counters.items() if "_OST_ID_" in name}
        if len(found) == 1:
            places[record.file] = found.pop()
    alike: dict[tuple[str, int], dict[int, list[float]]] = {}
    for record in log.of("POSIX"):
        for word, calls in (("READ", "READS"), ("WRITE", "WRITES")):
            moved = total([record], "BYTES_READ" if word == "READ" else "BYTES_WRITTEN")
            done, seconds = total([record], calls), total([record], f"F_{word}_TIME")
            if record.file in places and moved and done:
                kind = alike.setdefault((word, round(math.log10(moved / done))), {})
                sums = kind.setdefault(places[record.file], [0.0, 0.0, 0.0])
                ranks_of = log.tasks if record.rank == ALL_RANKS else 1
                for n, value in enumerate((seconds, moved, ranks_of)):
                    sums[n] += value
    slowest: dict[int, SlowTarget] = {}
    for kind in alike.values():
        rates = {t: sums[0] / sums[1] for t, sums in kind.items() if sums[0] >= _BUSY_S}
        usual = median(rates.values()) if len(rates) > 2 else math.inf
        for number, rate in rates.items():
            seconds, moved, users = kind[number]
            lost = max(seconds - usual * moved, 0.0) / users
            target = SlowTarget(number, rate / usual, lost, len(rates))
            if usual < math.inf and lost >= slowest.get(number, target).lost_s:
                slowest[number] = target
    return sorted(slowest.values(), key=lambda target: -target.times)


def told(profile: Profile) -> list[str]:
    """Return what stands out in a log and took time that matters to the run, a sentence each; empty if nothing does."""
    parts = (_of_ranks, _of_targets, _of_accesses, _of_mpiio, _of_files)
    return [sentence for part in parts for sentence in part(profile)]


def _matters(log: DarshanLog, seconds: float) -> bool:
    return seconds >= max(_LEAST_S, _SHARE * log.run_seconds)


def _of_ranks(profile: Profile) -> Iterator[str]:
    times = {rank: sum(parts.values()) for rank, parts in ranks(profile.log).items()}
    slowest = next(iter(times), 0)
    moved = dict.fromkeys(times, 0.0)
    for record in profile.log.of("POSIX") if times else []:
        moved[record.rank] += total([record], "BYTES_READ", "BYTES_WRITTEN")
    # The writers of a collective write are compared with each other, not with ranks that wait for them.
    alike = [rank for rank in times if moved[rank] >= moved[slowest] / 2]
    middle = median([times[rank] for rank in (alike if len(alike) > 2 else times)] or [0.0])
    uneven = bool(middle) and times[slowest] >= _UNEVEN * middle
    if uneven and _matters(profile.log, times[slowest] - middle):
        yield (
            f"Rank {slowest} spends {format_value(times[slowest])} s in POSIX calls, "
            f"{times[slowest] / middle:.1f} times the median of the ranks."
        )


def _of_targets(profile: Profile) -> Iterator[str]:
    slow = [t for t in targets(profile.log) if t.times >= _SLOW_TARGET]
    if slow := [t for t in slow if _matters(profile.log, t.lost_s)]:
        yield (
            f"A byte on {', '.join(f'OST {t.number}' for t in slow[:5])} takes "
            f"{slow[0].times:.1f} times as long as on the median of {slow[0].compared} targets."
        )


def _of_accesses(profile: Profile) -> Iterator[str]:
    log, busy = profile.log, busy_seconds(profile.log, "POSIX")
    each = total(log.of("POSIX"), "READS", "WRITES") / log.tasks
    for name, least, costs, text in (
        (
            "small accesses",
            _SMALL,
            each * _ACCESS_S,
            "of the reads and writes move at most 100 KiB each.",
        ),
        (
            "metadata time",
            _META,
            busy,
            "of the time in POSIX calls goes to open, stat, seek and close.",
        ),
        (
            "unaligned accesses",
            _UNALIGNED,
            each * _ACCESS_S,
            "of the reads and writes begin at no boundary of the file's blocks.",
        ),
    ):
        share = profile.value(name) or 0
        if share >= least and _matters(log, min(busy, share / 100 * costs)):
            yield f"{share:.0f} % {text}"


def _of_mpiio(profile: Profile) -> Iterator[str]:
    log, busy = profile.log, busy_seconds(profile.log, "POSIX")
    for word in ("read", "written"):
        ratio = profile.value(f"POSIX / MPI-IO bytes {word}") or 0
        asked = profile.value(f"MPI-IO bytes {word}") or 0
        moved = profile.value(f"POSIX bytes {word}") or 0
        if ratio >= _SIEVED and (ratio - 1) * asked >= moved / 10 and _matters(log, busy):
            yield (
                f"MPI-IO's own files have {ratio:.1f} times the bytes {word} that the program asked for: "
                "the MPI library sieves data."
            )
    collective = busy_seconds(log, "MPI-IO")
    if collective >= _ABOVE_POSIX * busy and _matters(log, collective - busy):
        yield (
            f"The slowest rank spends {format_value(collective)} s in MPI-IO, and {format_value(busy)} s of it in POSIX "
            "calls: the ranks wait for each other, or exchange data."
        )


def _of_files(profile: Profile) -> Iterator[str]:
    for row in files(profile.log)[:1]:
        if not _matters(profile.log, row.seconds / (row.writers or profile.log.tasks)):
            return
        if row.stripes > 1 and 0 < (row.writers or 0) < row.stripes:
            yield (
                f"{count(row.writers or 0, 'rank')} write{'s' * (row.writers == 1)} {row.file}, which has {row.stripes} stripes: more writers could "
                "use more targets at once."
            )
        if row.stripes == 1 and row.shared and row.read + row.written >= _LARGE:
            yield (
                f"Several ranks share {row.file}, which lies on one storage target: more stripes (lfs setstripe -c) could use "
                "more targets at once."
            )


def verdict(profile: Profile) -> list[str]:
    """Return what stands out; else that nothing does, in the modules that were read."""
    counted = [module for module in COUNTED if module in profile.log.modules]
    nothing = f"nothing stands out in {' and '.join(counted)}." if counted else "nothing was read."
    return told(profile) or [nothing]


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
