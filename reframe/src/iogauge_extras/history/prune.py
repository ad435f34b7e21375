"""Old records as one compressed file beside the history: ``iogauge history prune``.

Session files move whole, and only those in which every record is old and needed by nothing: the baseline of each
series that goes on and its newest runs, which is all that its level and its alarms come from, stay.
"""

import os
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.screen import say, slips, time_of
from iogauge.core import paths
from iogauge.core.text import count
from iogauge.core.units import format_bytes
from iogauge.records import query
from iogauge.records.record import since_1970
from iogauge_extras.history import states


class PruneError(ValueError):
    """Nothing was removed; the message says why."""


@dataclass(frozen=True, slots=True)
class Old:
    """The session files that were last written to before a time."""

    #: Paths below the history that are needed by nothing.
    free: Sequence[str]
    #: Number of those that are needed.
    needed: int


def old_files(folder: Path, before: datetime) -> Old:
    """Return the old session files of a history; raises OSError."""
    with closing(query.connect(folder)) as history:
        rows: set[int] = set()
        for runs in states.series_runs(history, query.Choice()).values():
            rows.update(run.row for run in runs)
        needed = set(query.column(history, "SELECT file FROM damage"))
        found = history.execute("SELECT rowid, file FROM run")
        needed.update(file for row, file in found if row in rows)
        time = (since_1970(before),)
        question = "SELECT id, path FROM file JOIN run ON file = id GROUP BY id HAVING max(time) < ? ORDER BY path"
        old = history.execute(question, time).fetchall()
    free = [row["path"] for row in old if row["id"] not in needed]
    return Old(free, len(old) - len(free))


def archive(folder: Path, files: Sequence[str], into: Path) -> None:
    """Move session files, and what their sessions did not measure, into a new archive.

    A file is removed once the archive is on disk and has been read back. Raises OSError, and :class:`PruneError` if a
    file changed meanwhile.
    """
    names = []
    for file in files:
        names.append(file)
        beside = str(Path(file).with_suffix(".json"))
        if (folder / beside).exists():
            names.append(beside)
    with tempfile.NamedTemporaryFile(prefix=".prune-", dir=into.parent) as scratch:
        with tarfile.open(fileobj=scratch, mode="w:gz") as tar:
            for name in names:
                tar.add(folder / name, arcname=name, recursive=False)
        scratch.flush()
        os.fsync(scratch.fileno())
        scratch.seek(0)
        with tarfile.open(fileobj=scratch, mode="r:gz") as tar:
            for name in names:
                kept = tar.extractfile(name)
                if kept is None or kept.read() != (folder / name).read_bytes():
                    raise PruneError(f"{folder / name} changed meanwhile: try again")
        os.link(scratch.name, into)
        os.chmod(into, 0o644)
    directory = os.open(into.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    for name in names:
        os.unlink(folder / name)


def prune(
    before: Annotated[
        datetime,
        typer.Argument(
            parser=time_of, metavar="TIME", help="A day or time (UTC), or 52w ago."
        ),
    ],
) -> None:
    """Move records older than a time into one compressed file beside the history.

    The baseline of every series and its newest 365 runs stay, so that no level and no alarm changes.
    """
    folder = paths.history_dir()
    with slips(OSError, PruneError):
        old = old_files(folder, before)
        stay = f"{count(old.needed, 'older session')} stay: baselines, newest runs, damaged lines"
        if not old.free:
            say(f"nothing to archive before {before:%Y-%m-%d}; {stay}")
            return
        into = folder.parent / f"history-{before:%Y%m%dT%H%M%S}.tar.gz"
        archive(folder, old.free, into)
    size = format_bytes(into.stat().st_size)
    say(f"{into}: {count(len(old.free), 'session')}, {size}; {stay}")
    say(f"to have them back: tar -xzf {into} -C {folder}")
