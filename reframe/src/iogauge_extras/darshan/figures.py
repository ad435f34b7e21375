"""The figures and facts of a Darshan log."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.core.measurement import Quantity
from iogauge.core.units import format_bytes, format_value
from iogauge.tools.darshan import KEEP_RANKS
from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan.log import ALL_RANKS, COUNTED, DarshanLog, FileRecord, total

_SMALL_BINS: Final = tuple(
    f"SIZE_{way}_{size}"
    for way in ("READ", "WRITE")
    for size in ("0_100", "100_1K", "1K_10K", "10K_100K")
)


#: Modules of which no other one counts the calls.
_LOWEST: Final = ("POSIX", "STDIO", "DFS")

#: Share of the run time below which I/O does not matter to the run.
_TRIFLE: Final = 0.05

#: Modules that trace what others count.
_TRACES: Final = re.compile(r"DXT_\w+|HEATMAP")


TIMES: Final = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")


def of_log(name: str, log: DarshanLog) -> Figures:
    """Return the figures of a Darshan log.

    The time of a module is that of its slowest rank (Darshan's ``agg_time_by_slowest``). ``slowest
    rank`` and ``fastest rank`` are those of POSIX. Accesses are shares of the POSIX reads and writes. A small access has at most 100 KiB (Darshan's four
    lowest bins). Metadata time is a share of POSIX time over all ranks. POSIX over MPI-IO bytes
    covers the files that MPI-IO opened. It is above 1 if data sieving reads or writes more than was
    asked for.
    """
    posix = log.of("POSIX")
    values = {"run time": Quantity(log.run_seconds, "s")}
    for module in COUNTED:
        if log.of(module):
            values[f"{module} time"] = Quantity(busy_seconds(log, module), "s")
            for word, counter in (("read", "BYTES_READ"), ("written", "BYTES_WRITTEN")):
                values[f"{module} bytes {word}"] = Quantity(
                    total(log.of(module), counter), "B"
                )
    values |= _amplification(log)
    if posix:
        values |= _posix_values(posix)
    values |= _rank_values(log)
    several = (row for row in rows(log) if row.shared and row.written)
    shared = max(several, key=lambda row: row.written, default=None)
    notes = _notes(log)
    if shared and shared.writers is None:
        notes.append(
            f"shared files are summed up over the ranks: set {KEEP_RANKS}=1 to have the writers "
            "counted"
        )
    elif shared:
        values["writers of the shared file"] = Quantity(shared.writers or 0, "1")
    facts = {
        "command": log.command,
        "tasks": str(log.tasks),
        "Darshan": log.library_version or f"log format {log.format_version}",
        "modules": ", ".join(log.modules),
        "access sizes": _access_sizes(posix),
        "shared file": shared.file if shared else "",
        "file system": _file_system(posix),
        "layout": _layouts(log.of("LUSTRE")),
    }
    return Figures(name=name, values=values, facts=facts, notes=tuple(notes))


def _notes(log: DarshanLog) -> list[str]:
    """Return what a log holds that the figures do not, and whether its I/O matters to the run."""
    notes = [
        f"module {module} is incomplete: its figures are too low"
        for module, complete in log.modules.items()
        if not complete
    ]
    read = (*COUNTED, "LUSTRE")
    if unread := [m for m in log.modules if m not in read and not _TRACES.fullmatch(m)]:
        named = ", ".join(unread).replace(
            "(null)", "a module that is newer than darshan-parser"
        )
        notes.append(f"not read, though the log has it: {named}")
    notes += [
        f"module {module} is in the log, but darshan-parser printed nothing of it: is darshan-parser older than the log?"
        for module, complete in log.modules.items()
        if module in read and complete and not log.of(module)
    ]
    notes += [
        f"module {module} counts or times what cannot be, as old versions of Darshan did: its figures may be too low"
        for module in COUNTED
        if _contradicts(log.of(module))
    ]
    lowest = [module for module in _LOWEST if module in log.modules]
    seconds = sum(busy_seconds(log, module) for module in lowest)
    if lowest and log.run_seconds and seconds < _TRIFLE * log.run_seconds:
        notes.append(
            f"no rank spent more than {format_value(100 * seconds / log.run_seconds)} % of the run time in "
            f"{' and '.join(lowest)} calls"
        )
    return notes


def _contradicts(records: Sequence[FileRecord]) -> bool:
    """Return whether records have negative times, or more sequential accesses than accesses."""
    negative = any(
        -1 != one.counters.get(name, 0) < 0 for one in records for name in TIMES
    )
    return negative or total(records, "SEQ_READS", "SEQ_WRITES") > total(
        records, "READS", "WRITES"
    )


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


def rows(log: DarshanLog) -> list[FileRow]:
    """Return the files that POSIX calls touched, in the order of the log."""
    stripes: dict[str, int] = {}
    for record in log.of("LUSTRE"):
        counts = [
            v for name, v in record.counters.items() if name.endswith("_STRIPE_COUNT")
        ]
        stripes[record.file] = int(max(counts, default=0))
    found = []
    for file, records in log.by_file("POSIX").items():
        wrote = {r.rank for r in records if total([r], "BYTES_WRITTEN")}
        found.append(
            FileRow(
                file=file,
                read=total(records, "BYTES_READ"),
                written=total(records, "BYTES_WRITTEN"),
                seconds=total(records, *TIMES),
                writers=None if ALL_RANKS in wrote else len(wrote),
                stripes=stripes.get(file, 0),
                fs_type=records[0].fs_type,
                shared=len(records) > 1
                or (records[0].rank == ALL_RANKS and log.tasks > 1),
            )
        )
    return found


def ranks(log: DarshanLog) -> dict[int, dict[str, float]]:
    """Return the seconds that each rank spent in POSIX reads, writes and metadata calls, slowest first.

    It is empty if Darshan summed up a file over the ranks: then no rank's time is known.
    """
    by_rank = log.by_rank("POSIX")
    found = {
        rank: dict(
            zip(
                ("reads", "writes", "meta"),
                (total(records, t) for t in TIMES),
                strict=True,
            )
        )
        for rank, records in by_rank.items()
        if ALL_RANKS not in by_rank
    }
    return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))


def busy_seconds(log: DarshanLog, module: str) -> float:
    """Return the most seconds that a rank can have spent in a module's calls."""
    by_rank = log.by_rank(module)
    summed = sum(
        total(
            [one],
            *(
                ("F_SLOWEST_RANK_TIME",)
                if "F_SLOWEST_RANK_TIME" in one.counters
                else TIMES
            ),
        )
        for one in by_rank.pop(ALL_RANKS, ())
    )
    return summed + max(
        (total(records, *TIMES) for records in by_rank.values()), default=0.0
    )


def _amplification(log: DarshanLog) -> dict[str, Quantity]:
    mpiio, posix = log.of("MPI-IO"), log.by_file("POSIX")
    below = [one for file in log.by_file("MPI-IO") for one in posix.get(file, ())]
    values = {}
    for word, counter in (("read", "BYTES_READ"), ("written", "BYTES_WRITTEN")):
        if requested := total(mpiio, counter):
            ratio = total(below, counter) / requested
            values[f"POSIX / MPI-IO bytes {word}"] = Quantity(ratio, "1")
    return values


def _posix_values(posix: Sequence[FileRecord]) -> dict[str, Quantity]:
    values = {}
    operations = total(posix, "READS", "WRITES")
    for word, counters in (
        ("small accesses", _SMALL_BINS),
        ("sequential accesses", ("SEQ_READS", "SEQ_WRITES")),
        ("consecutive accesses", ("CONSEC_READS", "CONSEC_WRITES")),
        ("unaligned accesses", ("FILE_NOT_ALIGNED",)),
    ):
        # Darshan 3.1 left the calls of stdio out of the operations of older logs, and in these.
        if operations >= (counted := total(posix, *counters)) and operations:
            values[word] = Quantity(100 * counted / operations, "%")
    if seconds := total(posix, *TIMES):
        values["metadata time"] = Quantity(
            100 * total(posix, "F_META_TIME") / seconds, "%"
        )
    opened = {record.file for record in posix if record.counters.get("OPENS", 0) > 0}
    return {**values, "files opened": Quantity(len(opened), "1")}


def _rank_values(log: DarshanLog) -> dict[str, Quantity]:
    """Return the POSIX time of the slowest and the fastest rank.

    If files were reduced over the ranks, the times are those of the reduced file with most bytes.
    """
    if reduced := log.by_rank("POSIX").get(ALL_RANKS):
        file = max(reduced, key=lambda r: total([r], "BYTES_READ", "BYTES_WRITTEN"))
        times = [
            file.counters.get(f"F_{word}_RANK_TIME", 0.0)
            for word in ("SLOWEST", "FASTEST")
        ]
    else:
        known = [sum(parts.values()) for parts in ranks(log).values()]
        times = [*known[:1], *known[-1:]]
    names = ("slowest rank", "fastest rank")
    return {
        name: Quantity(seconds, "s")
        for name, seconds in zip(names, times, strict=False)
    }


def _access_sizes(posix: Sequence[FileRecord]) -> str:
    """Return the four most frequent sizes, of the four that Darshan keeps of each record."""
    counts: Counter[int] = Counter()
    for record in posix:
        for n in range(1, 5):
            size, count = (
                record.counters.get(f"ACCESS{n}_{w}", 0) for w in ("ACCESS", "COUNT")
            )
            if count > 0:
                counts[int(size)] += int(count)
    return ", ".join(f"{format_bytes(size)} x {n}" for size, n in counts.most_common(4))


def _file_system(posix: Sequence[FileRecord]) -> str:
    moved: Counter[str] = Counter()
    for record in posix:
        text = f"{record.fs_type} on {record.mount}"
        moved[text] += int(total([record], "BYTES_READ", "BYTES_WRITTEN"))
    return moved.most_common(1)[0][0] if moved else ""


def _layouts(lustre: Sequence[FileRecord]) -> str:
    """Return stripe count and size of the files' components.

    Each combination appears once, the most frequent first.
    """
    layouts: Counter[str] = Counter()
    for record in lustre:
        parts = []
        for n in itertools.count(1):
            if (count := record.counters.get(f"COMP{n}_STRIPE_COUNT")) is None:
                break
            size = record.counters.get(f"COMP{n}_STRIPE_SIZE", 0)
            parts.append(f"{count:.0f} x {format_bytes(size)}")
        layouts[" + ".join(parts)] += 1
    return "; ".join(layout for layout, _ in layouts.most_common())
