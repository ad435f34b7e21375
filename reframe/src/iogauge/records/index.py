"""The index of a history: an SQLite database beside the session files, made from them.

The session files are what is true. The index is a cache: it is made anew if it is gone, damaged, of another version or of
another history, and may be deleted at any time. It is written beside the old one and renamed, and read without
locks, which homes on network file systems do not have. So of two writers at once one does its work in vain, and nothing
is lost. Where nothing can be written it is kept in memory.

A line that is in several files counts once, so session files may be copied and merged.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from iogauge.evidence.fingerprint import identity
from iogauge.judge.verdict import Verdict
from iogauge.records import series
from iogauge.records.journal import Damaged, Line, read_lines
from iogauge.records.record import MetricRecord, Record, microseconds

#: Grows when the same session files make another index.
_VERSION = 5

#: Size and time of change (ns) of a session file.
State = tuple[int, int]

#: Values that a verdict of a valid measurement has, for SQL.
VALID = ", ".join(f"'{one.value}'" for one in Verdict if one.is_valid)

#: Condition of the runs that statistics count: valid, above zero, and no confirmation of another, which a failure caused.
COUNTING = f"median > 0 AND confirms IS NULL AND metric_verdict IN ({VALID})"

#: ``runs`` is what is asked: a row for each metric of each record, or one for a record without metrics.
_SCHEMA = """
CREATE TABLE history (folder TEXT);
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT UNIQUE, size INTEGER, changed INTEGER);
CREATE TABLE damage (file INTEGER, line INTEGER, problem TEXT);
CREATE TABLE fingerprint (id INTEGER PRIMARY KEY, name TEXT UNIQUE, content TEXT);
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE session (id INTEGER PRIMARY KEY, name TEXT, selection TEXT);
CREATE TABLE metric (id INTEGER PRIMARY KEY, name TEXT, unit TEXT, better TEXT);
CREATE TABLE place (
    id INTEGER PRIMARY KEY, system TEXT, partition TEXT, environment TEXT, "check" TEXT, "case" TEXT,
    variant TEXT, tier TEXT, nodes INTEGER, tasks_per_node INTEGER, pinned TEXT, line TEXT);
CREATE TABLE run (
    record INTEGER, position INTEGER, time INTEGER, place INTEGER, session INTEGER, verdict TEXT, expected INTEGER, busy INTEGER,
    confirms TEXT, own INTEGER, series INTEGER, fingerprint INTEGER, file INTEGER, start INTEGER, digest INTEGER,
    metric INTEGER, median REAL, spread REAL, samples INTEGER, metric_verdict TEXT,
    reference REAL, lower REAL, upper REAL);
CREATE VIEW runs AS SELECT
    time, session.name AS session, system, partition, environment, "check", "case", variant, tier, nodes,
    tasks_per_node, line, series.name AS series, verdict, metric.name AS metric, unit, better, median, spread, samples,
    metric_verdict, reference, lower, upper, expected, busy, confirms, fingerprint.name AS fingerprint, selection, pinned,
    record, position, file, start
FROM run JOIN place ON place.id = run.place JOIN session ON session.id = run.session
    JOIN series ON series.id = run.series LEFT JOIN metric ON metric.id = run.metric
    LEFT JOIN fingerprint ON fingerprint.id = run.fingerprint;
"""
_INDEXES = f"""
CREATE INDEX IF NOT EXISTS run_time ON run (time);
CREATE INDEX IF NOT EXISTS run_place ON run (place, position, time);
CREATE INDEX IF NOT EXISTS run_series ON run (series, metric, time, file, start, median) WHERE {COUNTING};
CREATE INDEX IF NOT EXISTS run_file ON run (file);
CREATE INDEX IF NOT EXISTS place_line ON place (line);
"""

#: Where SQLite's header has the application's number: here the checksum of all else.
_CHECKSUM = slice(68, 72)


def connect(folder: Path) -> sqlite3.Connection:
    """Return the index of the session files below a folder, as they are now; rows have names."""
    folder = folder.resolve()
    files = session_files(folder)
    known: sqlite3.Connection | None = None
    for place in _places(folder):
        known = _opened(place, folder)
        if known is None:
            continue
        if _states(known) == files:
            return known
        break
    for place in _places(folder):
        with contextlib.suppress(OSError, sqlite3.Error):
            _write(place, known, folder, files)
            made = _opened(place, folder)
            if made:
                return made
    memory = sqlite3.connect(":memory:")
    _renew(memory, known, folder, files)
    return _named(memory)


def session_files(folder: Path) -> dict[str, State]:
    """Return the session files below a folder, by their paths there."""
    found = {}
    for path in folder.rglob("*.jsonl"):
        try:
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            continue
        except OSError:  # reading it says what is wrong
            state = (0, 0)
        found[str(path.relative_to(folder))] = state
    return found


def _places(folder: Path) -> Iterator[Path]:
    """Yield where the index may be: beside the history, else in the user's cache."""
    yield folder.parent / "cache" / f"{folder.name}.sqlite"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.blake2b(os.fsencode(folder), digest_size=8).hexdigest()
    yield Path(cache, "iogauge", f"{name}.sqlite")


def _named(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    return connection


def _opened(place: Path, folder: Path) -> sqlite3.Connection | None:
    """Return an index that is whole, of this version and of this history; else None."""
    try:
        if _stored(place) != _checksum(place):
            return None
        # Nobody writes to the file: a new one takes its name.
        index = sqlite3.connect(f"{place.absolute().as_uri()}?immutable=1", uri=True)
        (version,) = index.execute("PRAGMA user_version").fetchone()
        (of,) = index.execute("SELECT folder FROM history").fetchone()
    except (OSError, sqlite3.Error, TypeError):
        return None
    if (version, of) != (_VERSION, str(folder)):
        return None
    return _named(index)


def _checksum(place: Path) -> bytes:
    """Return the checksum of an index, but for the four bytes that hold it; raises OSError."""
    with open(place, "rb") as file:
        head = bytearray(file.read(100))
        head[_CHECKSUM] = bytes(4)
        found = zlib.crc32(head)
        for part in iter(lambda: file.read(1 << 20), b""):
            found = zlib.crc32(part, found)
    return found.to_bytes(4, "big")


def _stored(place: Path) -> bytes:
    with open(place, "rb") as file:
        return file.read(100)[_CHECKSUM]


def _states(index: sqlite3.Connection) -> dict[str, State]:
    rows = index.execute("SELECT path, size, changed FROM file")
    return {path: (size, changed) for path, size, changed in rows}


def _write(
    place: Path,
    known: sqlite3.Connection | None,
    folder: Path,
    files: Mapping[str, State],
) -> None:
    """Write an index under another name, and rename it; raises OSError or sqlite3.Error."""
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".index-", dir=place.parent))
    try:
        file = scratch / "index"
        index = sqlite3.connect(f"{file.as_uri()}?vfs=unix-none", uri=True)
        with contextlib.closing(index):
            _renew(index, known, folder, files)
        checksum = _checksum(file)
        with open(file, "r+b") as whole:
            whole.seek(_CHECKSUM.start)
            whole.write(checksum)
        os.chmod(file, 0o644)
        os.replace(file, place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _renew(
    index: sqlite3.Connection,
    known: sqlite3.Connection | None,
    folder: Path,
    files: Mapping[str, State],
) -> None:
    """Fill an empty database: with what is known and what has changed since, or with all."""
    if known:
        known.backup(index)
    index.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    if not known:
        index.executescript(_SCHEMA)
        index.execute(f"PRAGMA user_version = {_VERSION}")
        index.execute("INSERT INTO history VALUES (?)", (str(folder),))
    writer = _Writer(index)
    if not writer.follow(folder, files):
        # A line that has gone may have a copy in a file that did not count: all files are read.
        for table in ("run", "damage", "file"):
            index.execute(f"DELETE FROM {table}")
        writer = _Writer(index)
        writer.follow(folder, files)
    index.executescript(_INDEXES)
    series.assign(index, sorted(writer.lines))
    index.commit()


@dataclass(slots=True)
class _Writer:
    """What fills an index from session files."""

    index: sqlite3.Connection
    #: Lines of which a record was read.
    lines: set[str] = field(default_factory=set)
    #: Ids of rows that are kept once, by table and values.
    ids: dict[tuple[str, tuple[Any, ...]], int] = field(default_factory=dict)
    #: Names of fingerprints by their content, as computing one takes long.
    names: dict[str, str] = field(default_factory=dict)
    #: Digests of the lines that are records.
    digests: set[int] = field(default_factory=set)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    record: int = 0

    def __post_init__(self) -> None:
        for table, columns in _KEPT_ONCE.items():
            for id_, *values in self.index.execute(
                f"SELECT id, {columns} FROM {table}"
            ):
                self.ids[table, tuple(values)] = id_
        for record, digest in self.index.execute("SELECT record, digest FROM run"):
            self.digests.add(digest)
            self.record = max(self.record, record)

    def follow(self, folder: Path, files: Mapping[str, State]) -> bool:
        """Read the session files that are new or have grown; return whether all that was read before is still there."""
        before = _states(self.index)
        are_there = before.keys() <= files.keys()
        for path, state in files.items():
            if are_there and before.get(path) != state:
                are_there = self.read(folder, path, state, path in before)
        self.finish()
        return are_there

    def read(self, folder: Path, path: str, state: State, was_read: bool) -> bool:
        """Add the new records of a session file; return whether those that were read before are in their places."""
        file = self._id("file", (path,))
        missing: set[tuple[int, int]] = set()
        if was_read:
            of_file = "SELECT start, digest FROM run WHERE file = ?"
            missing.update(self.index.execute(of_file, (file,)))
            self.index.execute("DELETE FROM damage WHERE file = ?", (file,))
        try:
            for line in read_lines(folder / path):
                digest = _digest(line.text)
                missing.discard((line.start, digest))
                problem = self._add(line, digest, file)
                if problem:
                    self._damaged(file, line.number, problem)
        except OSError as error:
            state = (-1, -1)  # what no file has, so that it is tried again
            self._damaged(file, 0, error.strerror or str(error))
        self.index.execute(
            "UPDATE file SET size = ?, changed = ? WHERE id = ?", (*state, file)
        )
        return not missing

    def _damaged(self, file: int | None, line: int, problem: str) -> None:
        self.index.execute("INSERT INTO damage VALUES (?, ?, ?)", (file, line, problem))

    def _add(self, line: Line, digest: int, file: int | None) -> str:
        """Add a record, if its line is no copy; return what is wrong with it."""
        record = line.entry
        if isinstance(record, Damaged):
            return record.problem
        if digest in self.digests:  # a copy
            return ""
        try:
            name, content = self._fingerprint(record)
        except (TypeError, ValueError, RecursionError) as error:
            return str(error)
        self.digests.add(digest)
        self.lines.add(record.line)
        self.record += 1
        place = (
            *(
                record.system,
                record.partition,
                record.environment,
                record.check,
                record.case,
            ),
            *(record.variant, record.tier, record.nodes),
            *(record.tasks_per_node, record.pinned, record.line),
        )
        own = self._id("series", (record.series,))
        of_record = (
            *(
                microseconds(record.time),
                self._id("place", place),
                self._id("session", (record.session, record.selection)),
                record.verdict.value,
            ),
            *(record.expected is True, bool(record.busy), record.confirms, own, own),
            *(self._id("fingerprint", (name,), content), file, line.start, digest),
        )
        metrics: Sequence[MetricRecord | None] = record.metrics or (None,)
        for position, metric in enumerate(metrics):
            self.rows.append((self.record, position, *of_record, *self._figure(metric)))
        if len(self.rows) > _ROWS:
            self.finish()
        return ""

    def _figure(self, metric: MetricRecord | None) -> tuple[Any, ...]:
        """Return the columns of a metric."""
        if metric is None:
            return (None,) * 8
        named = self._id("metric", (metric.name, metric.unit, metric.better))
        median: float | None = metric.median
        if metric.open:
            median = None
        of = metric.reference
        bounds = (of.value, of.lower, of.upper) if of else (None, None, None)
        return (
            named,
            median,
            metric.spread,
            len(metric.samples),
            metric.verdict.value,
            *bounds,
        )

    def _fingerprint(self, record: Record) -> tuple[str | None, str]:
        """Return the name and the content of a record's fingerprint."""
        if not record.fingerprint:
            return None, ""
        content = to_json(record.fingerprint).decode()
        if content not in self.names:
            self.names[content] = identity(record.fingerprint)
        return self.names[content], content

    def _id(self, table: str, values: tuple[Any, ...], content: str = "") -> int | None:
        """Return the id of values that are kept once; ``content`` is that of a fingerprint."""
        key = (table, values)
        if key not in self.ids and values != (None,):
            columns = _KEPT_ONCE[table]
            stored = values
            if content:
                columns, stored = f"{columns}, content", (*values, content)
            marks = ", ".join("?" * len(stored))
            cursor = self.index.execute(
                f"INSERT INTO {table} ({columns}) VALUES ({marks})", stored
            )
            self.ids[key] = cursor.lastrowid or 0
        return self.ids.get(key)

    def finish(self) -> None:
        """Write the rows that were read."""
        marks = ", ".join("?" * 23)
        self.index.executemany(f"INSERT INTO run VALUES ({marks})", self.rows)
        self.rows.clear()


#: Tables whose rows are kept once, and their columns.
_KEPT_ONCE = {
    "file": "path",
    "place": 'system, partition, environment, "check", "case", variant, tier, nodes, tasks_per_node, pinned, line',
    "session": "name, selection",
    "series": "name",
    "metric": "name, unit, better",
    "fingerprint": "name",
}

#: Rows that are written together.
_ROWS = 10_000


def _digest(text: bytes) -> int:
    digest = hashlib.blake2b(text.strip(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
