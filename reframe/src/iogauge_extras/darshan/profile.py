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
from iogauge_extras.darshan.figures import FileRow, busy_seconds, ranks, rows
from iogauge_extras.darshan.log import ALL_RANKS, COUNTED, DarshanLog, total

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


def files(log: DarshanLog) -> list[FileRow]:
    """Return the files that POSIX calls touched, those with most bytes first, then the slowest."""
    return sorted(
        rows(log), key=lambda row: (-(row.read + row.written), -row.seconds, row.file)
    )


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
    alike: dict[tuple[str, int], dict[int, list[tuple[float, float, int]]]] = {}
    for record in log.of("POSIX"):
        users = log.tasks if record.rank == ALL_RANKS else 1
        for word, moved_by in (("READ", "BYTES_READ"), ("WRITE", "BYTES_WRITTEN")):
            moved, done = total([record], moved_by), total([record], f"{word}S")
            if record.file in places and moved and done:
                kind = alike.setdefault((word, round(math.log10(moved / done))), {})
                one = (total([record], f"F_{word}_TIME"), moved, users)
                kind.setdefault(places[record.file], []).append(one)
    slowest: dict[int, SlowTarget] = {}
    for kind in alike.values():
        sums = {
            number: [*map(sum, zip(*of, strict=True))] for number, of in kind.items()
        }
        rates = {
            n: seconds / moved
            for n, (seconds, moved, _) in sums.items()
            if seconds >= _BUSY_S
        }
        usual = median(rates.values()) if len(rates) > 2 else math.inf
        for number, rate in rates.items():
            seconds, moved, users = sums[number]
            lost = max(seconds - usual * moved, 0.0) / users
            target = SlowTarget(number, rate / usual, lost, len(rates))
            if usual < math.inf and lost >= slowest.get(number, target).lost_s:
                slowest[number] = target
    return sorted(slowest.values(), key=lambda target: -target.times)


def told(log: DarshanLog, figures: Figures) -> list[str]:
    """Return what stands out in a log and took time that matters to the run, a sentence each; empty if nothing does."""
    values = defaultdict(
        float, {name: one.value for name, one in figures.values.items()}
    )
    return [
        *(*_of_ranks(log), *_of_targets(log), *_of_accesses(log, values)),
        *(*_of_mpiio(log, values), *_of_files(log)),
    ]


def _matters(log: DarshanLog, seconds: float) -> bool:
    return seconds >= max(_LEAST_S, _SHARE * log.run_seconds)


def _of_ranks(log: DarshanLog) -> Iterator[str]:
    times = {rank: sum(parts.values()) for rank, parts in ranks(log).items()}
    slowest = next(iter(times), 0)
    moved = dict.fromkeys(times, 0.0)
    for record in log.of("POSIX") if times else []:
        moved[record.rank] += total([record], "BYTES_READ", "BYTES_WRITTEN")
    # The writers of a collective write are compared with each other, not with ranks that wait for them.
    alike = [rank for rank in times if moved[rank] >= moved[slowest] / 2]
    middle = median(
        [times[rank] for rank in (alike if len(alike) > 2 else times)] or [0.0]
    )
    uneven = bool(middle) and times[slowest] >= _UNEVEN * middle
    if uneven and _matters(log, times[slowest] - middle):
        yield (
            f"Rank {slowest} spends {format_value(times[slowest])} s in POSIX calls, "
            f"{times[slowest] / middle:.1f} times the median of the ranks."
        )


def _of_targets(log: DarshanLog) -> Iterator[str]:
    slow = [t for t in targets(log) if t.times >= _SLOW_TARGET]
    if slow := [t for t in slow if _matters(log, t.lost_s)]:
        yield (
            f"A byte on {', '.join(f'OST {t.number}' for t in slow[:5])} takes "
            f"{slow[0].times:.1f} times as long as on the median of {slow[0].compared} targets."
        )


#: Shares of the reads and writes, or of the time, that are told, and from where on.
_SHARES: Final = {
    "small accesses": (_SMALL, "of the reads and writes move at most 100 KiB each."),
    "metadata time": (
        _META,
        "of the time in POSIX calls goes to open, stat, seek and close.",
    ),
    "unaligned accesses": (
        _UNALIGNED,
        "of the reads and writes begin at no boundary of the file's blocks.",
    ),
}


def _of_accesses(log: DarshanLog, values: Mapping[str, float]) -> Iterator[str]:
    busy = busy_seconds(log, "POSIX")
    accesses_s = total(log.of("POSIX"), "READS", "WRITES") / log.tasks * _ACCESS_S
    for name, (least, text) in _SHARES.items():
        share, costs = values[name], busy if name == "metadata time" else accesses_s
        if share >= least and _matters(log, min(busy, share / 100 * costs)):
            yield f"{share:.0f} % {text}"


def _of_mpiio(log: DarshanLog, values: Mapping[str, float]) -> Iterator[str]:
    busy = busy_seconds(log, "POSIX")
    for word in ("read", "written"):
        ratio = values[f"POSIX / MPI-IO bytes {word}"]
        asked = values[f"MPI-IO bytes {word}"]
        moved = values[f"POSIX bytes {word}"]
        if (
            ratio >= _SIEVED
            and (ratio - 1) * asked >= moved / 10
            and _matters(log, busy)
        ):
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


def _of_files(log: DarshanLog) -> Iterator[str]:
    for row in files(log)[:1]:
        if not _matters(log, row.seconds / (row.writers or log.tasks)):
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


def verdict(log: DarshanLog, figures: Figures) -> list[str]:
    """Return what stands out; else that nothing does, in the modules that were read."""
    counted = [module for module in COUNTED if module in log.modules]
    judged = [module for module in counted if module in ("POSIX", "MPI-IO")]
    nothing = f"nothing stands out in {' and '.join(judged)}."
    if not judged:
        nothing = (
            f"figures only, of {' and '.join(counted)}."
            if counted
            else "nothing was read."
        )
    return told(log, figures) or [nothing]


def lines(figures: Figures) -> Mapping[str, str]:
    """Return the facts and values of one log as text by name."""
    facts = {name: text for name, text in figures.facts.items() if text}
    values = {name: amount(q.value, q.unit) for name, q in figures.values.items()}
    return {**facts, **values}


def to_json(log: DarshanLog, figures: Figures) -> str:
    """Return a profile as a JSON object; values are numbers, each with its unit."""
    return json.dumps(
        {
            "log": figures.name,
            "facts": dict(figures.facts),
            "values": {name: asdict(one) for name, one in figures.values.items()},
            "told": told(log, figures),
            "notes": list(figures.notes),
            "files": [asdict(row) for row in files(log)],
            "ranks": ranks(log),
        },
        indent=2,
        allow_nan=False,
    )
