"""The history as columns, and the cache that makes a million records quick to load.

The cache is a folder of parts and an index. A part is a parquet file with the rows of some session files,
sorted by time, and another with the fingerprints that these rows name. Both are named after the hash of
their content, which is checked whenever they are read. The index says which files, at which size and time
of change, a part was made from. A session file that has changed since is read again, the others are not. A
cache that is damaged, of another version, or of another history is made anew; it may be deleted at any
time. New files are written beside the old ones and renamed, so that readers and writers need no lock: of
two writers at once one does its work in vain.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import marshal
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.core import untrusted
from iogauge.core.paths import LIBRARY
from iogauge.evidence.fingerprint import identity
from iogauge.records.columns import (
    COLUMNS,
    ORDER,
    ORIGIN,
    PRINTS,
    STORED,
    as_object,
    rows_of,
    to_frame,
)
from iogauge.records.journal import Damaged, read_numbered

#: Grows when the same session file makes other rows.
_VERSION: Final = 4
_FORM: Final = hashlib.sha256(f"{_VERSION} {STORED}".encode()).hexdigest()[:12]

_INDEX: Final = "index.json"
_PART_BYTES: Final = 4 << 30

#: Session files are read in batches of so many bytes; several batches each in a process of its own.
_BATCH_BYTES: Final = 192 * 2**20

#: Rows that are turned into columns at a time.
_CHUNK_ROWS: Final = 50_000

#: A part is merged into a new one that has at least half its rows, up to so many.
_MERGED_ROWS: Final = 250_000

#: Seconds for which a file that the index does not name is left alone: another process may be writing it.
_GRACE_S: Final = 3600

# Parts.
#: Size and time of change (ns) of a session file.
_State = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A session file as it was when it was read, and its lines that are no records."""

    state: _State
    damaged: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Names of a part's two files, its number of rows, and what it was made from, by path below the history."""

    rows: str
    fingerprints: str
    count: int
    sources: Mapping[str, _Source]


@dataclass(slots=True, kw_only=True)
class _Store:
    """The parts of a history: files in the cache, and content that is not written yet."""

    place: Path
    #: Session files as they are, by path below the history.
    found: dict[str, _State]
    parts: list[_Part] = field(default_factory=list)
    fresh: dict[str, bytes] = field(default_factory=dict)

    def get(self, name: str) -> bytes:
        """Content of a file; raises OSError where it is not there or is damaged."""
        if name in self.fresh:
            return self.fresh[name]
        data = untrusted.read_bytes(self.place / name, _PART_BYTES)
        if _name(data) != name:
            raise OSError(f"{self.place / name}: damaged")
        return data

    def fits(self, part: _Part) -> bool:
        """Whether a part's files hold the columns that they must; raises OSError as :meth:`get`."""
        for name, kinds in ((part.rows, STORED), (part.fingerprints, PRINTS)):
            try:
                if dict(pl.read_parquet_schema(io.BytesIO(self.get(name)))) != kinds:
                    return False
            except pl.exceptions.PolarsError:
                return False
        return True

    def put(self, frame: pl.DataFrame) -> str:
        """Keep a table; returns the name of its file."""
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd", compression_level=1, statistics=False)
        name = _name(buffer.getvalue())
        self.fresh[name] = buffer.getvalue()
        return name

    def add(self, batch: _Batch, merge: bool) -> None:
        """Add what was read as a part; with ``merge`` those that are not much larger go into it."""
        self.found |= {path: one.state for path, one in batch.sources.items()}
        rows, prints, sources = batch.rows, batch.prints, dict(batch.sources)
        for part in sorted(self.parts, key=lambda part: part.count) if merge else ():
            if part.count > 2 * rows.height or part.count + rows.height > _MERGED_ROWS:
                break
            self.parts.remove(part)
            rows = pl.concat([self.rows(part, list(STORED)), rows])
            prints = pl.concat([self.prints(part), prints])
            sources |= {path: part.sources[path] for path in self.current(part)}
        self.parts.append(
            _Part(
                rows=self.put(rows.sort(ORDER)),
                fingerprints=self.put(prints.unique("id", keep="any", maintain_order=True)),
                count=rows.height,
                sources=sources,
            )
        )

    def current(self, part: _Part) -> list[str]:
        """Session files of a part that have not changed since."""
        found = self.found
        return [path for path, one in part.sources.items() if found.get(path) == one.state]

    def rows(self, part: _Part, columns: Sequence[str]) -> pl.DataFrame:
        """Rows of a part, without those of files that have changed since; ``source`` is among the columns."""
        frame = pl.read_parquet(io.BytesIO(self.get(part.rows)), columns=list(columns))
        changed = part.sources.keys() - self.current(part)
        if not changed:
            return frame
        gone = [source_id(path) for path in changed]
        return frame.filter(~pl.col("source").is_in(gone))

    def prints(self, part: _Part) -> pl.DataFrame:
        """Fingerprints of a part: id and JSON text."""
        return pl.read_parquet(io.BytesIO(self.get(part.fingerprints)))


def _name(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest() + ".parquet"


def source_id(path: str) -> int:
    """A number that stands for a session file, by its path below the history."""
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


# The index.
_PART_NAME: Final = re.compile(r"[0-9a-f]{32}\.parquet")


def _index(place: Path, folder: Path) -> list[_Part]:
    """Parts that the cache names; none where it is missing, damaged, of another version or history."""
    try:
        index = json.loads(untrusted.read_bytes(place / _INDEX))
        if (index["form"], index["folder"]) != (_FORM, str(folder)):
            return []
        return [
            _Part(
                rows=_checked_name(part["rows"]),
                fingerprints=_checked_name(part["fingerprints"]),
                count=int(part["count"]),
                sources={
                    path: _Source(
                        state=(int(size), int(mtime_ns)),
                        damaged=[(int(line), str(problem)) for line, problem in _damaged],
                    )
                    for path, (size, mtime_ns, _damaged) in part["sources"].items()
                },
            )
            for part in index["parts"]
        ]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _checked_name(name: str) -> str:
    if not _PART_NAME.fullmatch(name):
        raise ValueError(f"{name}: not the name of a part")
    return name


def _save(store: _Store, folder: Path) -> None:
    """Write the new parts, then the index that names them; drop what it does not name. Raises OSError."""
    store.place.mkdir(parents=True, exist_ok=True)
    named = {name for part in store.parts for name in (part.rows, part.fingerprints)}
    for name in named & store.fresh.keys():
        _write(store.place / name, store.fresh[name])
    parts = [
        {
            "rows": part.rows,
            "fingerprints": part.fingerprints,
            "count": part.count,
            "sources": {path: [*one.state, one.damaged] for path, one in part.sources.items()},
        }
        for part in store.parts
    ]
    index = {"form": _FORM, "folder": str(folder), "parts": parts}
    _write(store.place / _INDEX, json.dumps(index).encode())
    for file in store.place.iterdir():
        ours = _PART_NAME.match(file.name) or file.name.startswith(f"{_INDEX}.")
        if ours and file.name not in named and file.stat().st_mtime < time.time() - _GRACE_S:
            file.unlink(missing_ok=True)


def _write(file: Path, data: bytes) -> None:
    fd, temporary = tempfile.mkstemp(dir=file.parent, prefix=f"{file.name}.")
    try:
        with open(fd, "wb") as out:
            out.write(data)
            os.fchmod(fd, 0o644)  # as readable as the records
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


# Session files to parts.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What some session files hold: rows; fingerprints as id and JSON text; the files."""

    rows: pl.DataFrame
    prints: pl.DataFrame
    sources: Mapping[str, _Source]


def _parse(folder: Path, paths: Iterable[str]) -> _Batch:
    """Read session files, given by their paths below the history."""
    frames: list[pl.DataFrame] = []
    rows: list[tuple[Any, ...]] = []
    ids: dict[bytes, str] = {}
    prints: dict[str, str] = {}
    sources: dict[str, _Source] = {}
    for path in paths:
        source, _damaged = source_id(path), []
        try:
            stat = (
                folder / path
            ).stat()  # before it is read: what is appended meanwhile changes it
            state = (stat.st_size, stat.st_mtime_ns)
            for number, record in read_numbered(folder / path):
                if isinstance(record, Damaged):
                    _damaged.append((number, record.problem))
                    continue
                try:
                    name = _fingerprint(record.get("fingerprint"), ids, prints)
                    rows += rows_of(record, name, source, number)
                except (ValueError, RecursionError) as error:
                    _damaged.append((number, str(error)))
                if len(rows) >= _CHUNK_ROWS:
                    frames.append(to_frame(rows))
                    rows = []
        except OSError as error:
            state = (-1, time.time_ns())  # what no file has, so that it is tried again
            _damaged.append((0, error.strerror or str(error)))
        sources[path] = _Source(state=state, damaged=_damaged)
    frames.append(to_frame(rows))
    contents = {"id": list(prints), "content": list(prints.values())}
    return _Batch(
        rows=pl.concat(frames), prints=pl.DataFrame(contents, schema=PRINTS), sources=sources
    )


def _fingerprint(value: object, ids: dict[bytes, str], prints: dict[str, str]) -> str | None:
    """Id of a record's fingerprint; ``prints`` keeps its content, ``ids`` saves hashing the same again."""
    fingerprint = as_object(value, "fingerprint")
    if not fingerprint:
        return None
    key = marshal.dumps(dict(fingerprint), 2)
    if key not in ids:
        ids[key] = identity(fingerprint)
        prints[ids[key]] = json.dumps(fingerprint)
    return ids[key]


def _work() -> None:
    """What a process of :func:`_parse_elsewhere` does."""
    pickle.dump(_parse(*pickle.load(sys.stdin.buffer)), sys.stdout.buffer)


def _parse_elsewhere(folder: Path, paths: Sequence[str]) -> _Batch:
    """As :func:`_parse`, in a process of its own; raises OSError where that ends badly."""
    library = str(LIBRARY.parent)
    python_path = os.pathsep.join(p for p in (library, os.environ.get("PYTHONPATH", "")) if p)
    done = subprocess.run(
        [sys.executable, "-c", "from iogauge.records.query import _work; _work()"],
        input=pickle.dumps((folder, paths)),
        cwd=library,
        env=os.environ | {"PYTHONPATH": python_path, "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()[-500:]
        raise OSError(f"{folder}: {len(paths)} file(s) were not read: {words}")
    batch: _Batch = pickle.loads(done.stdout)
    return batch


def _batches(paths: Iterable[str], found: Mapping[str, _State]) -> list[list[str]]:
    """Files in the order of their names, which begin with the time, in batches of about the same size."""
    batches: list[list[str]] = []
    room = 0
    for path in sorted(paths, key=lambda path: (path.rpartition("/")[2], path)):
        if room <= 0:
            batches.append([])
            room = _BATCH_BYTES
        batches[-1].append(path)
        room -= found[path][0]
    return batches


def _parse_all(folder: Path, batches: Sequence[Sequence[str]]) -> Iterator[_Batch]:
    """Read batches in their order, several on all cores."""
    if len(batches) < 2:
        yield from (_parse(folder, paths) for paths in batches)
        return
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(lambda paths: _parse_elsewhere(folder, paths), batches)


def _session_files(folder: Path) -> dict[str, _State]:
    """Session files below a folder."""
    found = {}
    for path in folder.rglob("*.jsonl"):
        try:
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            continue
        except OSError:  # reading it says what is wrong
            state = (0, 0)
        found[path.relative_to(folder).as_posix()] = state
    return found


def _refresh(folder: Path, cache: Path | None) -> _Store:
    """Parts that say what the session files say now; the cache is brought up to date where that is allowed."""
    folder = folder.resolve()
    place = cache or folder.parent / "cache" / folder.name
    known = _index(place, folder)
    store = _Store(place=place, found=_session_files(folder))
    for part in known:
        with contextlib.suppress(OSError):
            if store.current(part) and store.fits(part):
                store.parts.append(part)
    read = {path for part in store.parts for path in store.current(part)}
    batches = _batches(store.found.keys() - read, store.found)
    for batch in _parse_all(folder, batches):
        store.add(batch, merge=len(batches) == 1)
    if batches or len(store.parts) < len(known):
        with contextlib.suppress(OSError):
            _save(store, folder)
    return store


def load(
    folder: Path, cache: Path | None = None, *, columns: Collection[str] | None = None
) -> pl.DataFrame:
    """All metrics of all records below a folder, one row a metric, in the order of time.

    A record without metrics has one row without. The columns are those of docs/history.md; ``columns``
    names those that are wanted, which saves time and memory, and may also name ``source``, ``number`` and
    ``position``. Damaged lines are left out: :func:`damaged` lists them. ``cache`` is where the columnar form is
    kept from one call to the next, else the history's name below ``cache`` beside it; without the right to write
    there nothing is kept. Raises ValueError for a column that does not exist.
    """
    wanted = list(COLUMNS if columns is None else columns)
    unknown = [name for name in wanted if name not in COLUMNS and name not in ORIGIN]
    if unknown:
        raise ValueError(f"no column {', '.join(unknown)}: expected some of {', '.join(COLUMNS)}")
    store = _refresh(folder, cache)
    stored = [name for name in STORED if name in wanted or name in ORDER]
    frame = _merged([store.rows(part, stored) for part in store.parts])
    if frame is None:
        frame = to_frame([])
    if "record" in wanted:
        running = (pl.col("position") == 0).cum_sum().cast(pl.Int64) - 1
        frame = frame.with_columns(record=running)
    return frame.select(wanted)


def _merged(frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """Frames, each in order, as one in order; only what overlaps in time is sorted."""
    done: list[pl.DataFrame] = []
    for frame in sorted((f for f in frames if f.height), key=lambda f: f["time"][0]):
        if done and frame["time"][0] <= done[-1]["time"][-1]:
            last = done.pop()
            cut = last["time"].search_sorted(frame["time"][0], "left")
            done += [last[:cut]] if cut else []
            frame = pl.concat([last[cut:], frame]).sort(ORDER)
        done.append(frame)
    return pl.concat(done) if done else None


def fingerprints(
    folder: Path, ids: Collection[str] | None = None, cache: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Content of the fingerprints with these ids (all: None), by id; ids that no record has are left out."""
    store = _refresh(folder, cache)
    wanted = None if ids is None else set(ids)
    found: dict[str, dict[str, Any]] = {}
    for part in store.parts:
        for name, content in store.prints(part).iter_rows():
            if wanted is None or name in wanted:
                found[name] = json.loads(content)
    return found


def damaged(folder: Path, cache: Path | None = None) -> list[Damaged]:
    """Lines below a folder that are no records, or whose values have not the form that they must have."""
    store = _refresh(folder, cache)
    found = [
        Damaged(folder / path, line, problem)
        for part in store.parts
        for path in store.current(part)
        for line, problem in part.sources[path].damaged
    ]
    return sorted(found, key=lambda one: (one.file, one.line))


def records(folder: Path, rows: pl.DataFrame) -> dict[tuple[int, int], dict[str, Any]]:
    """The records at the ``source`` and ``number`` of some rows, by these two.

    A record whose file has gone meanwhile is left out. Raises OSError for a file that cannot be read.
    """
    asked: dict[int, set[int]] = {}
    for source, number in rows.select("source", "number").iter_rows():
        asked.setdefault(source, set()).add(number)
    found = {}
    for path in _session_files(folder):
        numbers = asked.get(source := source_id(path))
        if numbers:
            for number, record in read_numbered(folder / path):
                if number in numbers and isinstance(record, dict):
                    found[source, number] = record
    return found
