"""The lines of the probes: ``probes/SYSTEM/PARTITION/NODE/2026-11.jsonl`` in the state directory, one line a probe.

Files of months before the last four weeks are folded to one line an hour (``2026-09.hours``): a year of a node stays below 2 MB.
"""

import contextlib
import json
import time
from pathlib import Path

from iogauge.core import untrusted
from iogauge.core.groups import grouped
from iogauge.core.paths import replace_file, state_dir
from iogauge.records import journal
from iogauge_extras.probe.slowdown import BASELINE_S, Line

#: The longest file of a month: one probe a minute has 15 MiB.
_MOST_BYTES = 64 << 20


def folder(system: str, partition: str) -> Path:
    """Return the folder of a partition's probes, with a folder for each node."""
    return state_dir() / "probes" / system / partition


def _month(moment: int) -> str:
    return time.strftime("%Y-%m", time.gmtime(moment))


def read(file: Path) -> list[Line]:
    """Return the lines of a file; none if it cannot be read, and damaged lines are left out."""
    lines = []
    with contextlib.suppress(OSError):
        for row in untrusted.read_text(file, _MOST_BYTES).splitlines():
            with contextlib.suppress(TypeError, ValueError):
                lines.append(Line.from_json(untrusted.parse_json(row)))
    return lines


def recent(node: Path, now: int) -> list[Line]:
    """Return the lines of the months of the four weeks before a time, oldest first."""
    months = {_month(now - age) for age in (0, BASELINE_S // 2, BASELINE_S)}
    lines = []
    for file in node.glob("????-??.*"):
        if file.stem in months:
            lines += read(file)
    return sorted(lines, key=lambda line: line.time)


def nodes(system: str, partition: str) -> list[Path]:
    """Return the folders of the nodes that have probed a partition."""
    place = folder(system, partition)
    return sorted(place.iterdir()) if place.is_dir() else []


def append(node: Path, line: Line) -> None:
    """Add a line to the file of its month; raises :class:`~iogauge.records.journal.NotRecorded`."""
    text = json.dumps(line.to_json(), separators=(",", ":"))
    journal.append(node / f"{_month(line.time)}.jsonl", text.encode())


def fold(node: Path, now: int) -> None:
    """Keep of older months one line an hour: the probe in the middle of it, with how many there were."""
    for file in node.glob("*.jsonl"):
        lines = read(file)
        # If there is none, another probe of this node has just folded it, or it cannot be read now.
        if file.stem >= _month(now - BASELINE_S) or not lines:
            continue
        text = ""
        for of_hour in grouped(lines, lambda line: line.time // 3600).values():
            of_hour.sort(key=lambda line: max(line.factors.values(), default=0.0))
            moved = sum(line.moved for line in of_hour)
            middle = of_hour[len(of_hour) // 2]
            folded = {"moved": moved, "probes": len(of_hour)}
            hour = middle.model_copy(update=folded)
            text += f"{json.dumps(hour.to_json())}\n"
        replace_file(file.with_suffix(".hours"), text.encode(), sync=True)
        file.unlink(missing_ok=True)
