"""The figures and facts of a Darshan log."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.measurement import Quantity
from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan.log import (
    ALL_RANKS,
    COUNTED,
    DarshanLog,
    FileRecord,
    read_log,
    total,
)

_TIMES: Final = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")

#: Shares of the POSIX reads and writes, by the counters that they sum up. Small is at most 100 KiB.
_SHARES: Final = {
    "small accesses": (
        "SIZE_READ_0_100",
        "SIZE_READ_100_1K",
        "SIZE_READ_1K_10K",
        "SIZE_READ_10K_100K",
        "SIZE_WRITE_0_100",
        "SIZE_WRITE_100_1K",
        "SIZE_WRITE_1K_10K",
        "SIZE_WRITE_10K_100K",
    ),
    "sequential accesses": ("SEQ_READS", "SEQ_WRITES"),
    "unaligned accesses": ("FILE_NOT_ALIGNED",),
}

#: Modules that trace what others count, or that have layouts.
_TRACES: Final = re.compile(r"DXT_\w+|HEATMAP|LUSTRE")


def read_subject(path: str) -> Figures:
    """Return what the log at a path says; raises ``CompareError``."""
    return of_log(path, read_log(Path(path)))


def of_log(name: str, log: DarshanLog) -> Figures:
    """Return the figures of a Darshan log: seconds, bytes, shares in percent, ratios.

    The time of a module is that of its slowest rank (Darshan's ``agg_time_by_slowest``). Metadata time is a share of POSIX
    time over all ranks.
    """
    posix = log.records.get("POSIX", ())
    values = {"run time": Quantity(log.run_seconds, "s")}
    for module in COUNTED:
        records = log.records.get(module)
        if records:
            values[f"{module} time"] = Quantity(_busy_seconds(records), "s")
            read, written = (
                total(records, "BYTES_READ"),
                total(records, "BYTES_WRITTEN"),
            )
            values[f"{module} bytes read"] = Quantity(read, "B")
            values[f"{module} bytes written"] = Quantity(written, "B")
    values |= _posix_values(posix)
    facts = {
        "command": log.command,
        "tasks": str(log.tasks),
        "Darshan": log.library_version or f"log format {log.format_version}",
        "modules": ", ".join(log.modules),
    }
    return Figures(name=name, values=values, facts=facts, notes=_notes(log))


def _notes(log: DarshanLog) -> tuple[str, ...]:
    """Return what a log holds that the figures do not, and what cannot be."""
    notes = []
    for module, complete in log.modules.items():
        if not complete:
            notes.append(f"module {module} is incomplete: its figures are too low")
        elif module in COUNTED and module not in log.records:
            notes.append(
                f"module {module} is in the log, but darshan-parser printed nothing of it: is darshan-parser older than the log?"
            )
        elif module not in COUNTED and not _TRACES.fullmatch(module):
            name = module.replace(
                "(null)", "a module that is newer than darshan-parser"
            )
            notes.append(f"not read, though the log has it: {name}")
    for module in COUNTED:
        if _contradicts(log.records.get(module, ())):
            notes.append(
                f"module {module} counts or times what cannot be, as old versions of Darshan did: its figures may be too low"
            )
    return tuple(notes)


def _contradicts(records: Sequence[FileRecord]) -> bool:
    """Return whether records have negative times, or more sequential accesses than accesses."""
    for record in records:
        for name in _TIMES:
            if -1 != record.counters.get(name, 0) < 0:
                return True
    sequential = total(records, "SEQ_READS", "SEQ_WRITES")
    return sequential > total(records, "READS", "WRITES")


def _busy_seconds(records: Sequence[FileRecord]) -> float:
    """Return the most seconds that a rank can have spent in a module's calls."""
    by_rank = grouped(records, lambda record: record.rank)
    summed = 0.0
    for record in by_rank.pop(ALL_RANKS, ()):
        slowest = record.counters.get("F_SLOWEST_RANK_TIME")
        if slowest is None:
            slowest = total([record], *_TIMES)
        summed += max(slowest, 0)
    alone = [total(records, *_TIMES) for records in by_rank.values()]
    return summed + max(alone, default=0.0)


def _posix_values(posix: Sequence[FileRecord]) -> dict[str, Quantity]:
    values = {}
    operations = total(posix, "READS", "WRITES")
    for name, counters in _SHARES.items():
        counted = total(posix, *counters)
        # Darshan 3.1 left the calls of stdio out of the operations of older logs, and in these.
        if 0 < operations >= counted:
            values[name] = Quantity(100 * counted / operations, "%")
    seconds = total(posix, *_TIMES)
    if seconds:
        share = 100 * total(posix, "F_META_TIME") / seconds
        values["metadata time"] = Quantity(share, "%")
    if posix:
        opened = {record.file for record in posix if total([record], "OPENS")}
        values["files opened"] = Quantity(len(opened), "1")
    return values
