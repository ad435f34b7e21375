"""Records are appended, never rewritten; a damaged line costs no other; the index shows and changes nothing."""

import multiprocessing
import os
import random
from contextlib import closing

import pytest

from iogauge.records import index, journal, query
from iogauge.records.journal import Damaged
from iogauge.records.record import Record, decode, line_of
from support.records import RECORD as PLAIN
from support.records import append, metric


def records(file):
    """What each line has under ``n``; what is wrong with a line that is none of a record."""
    found = []
    for line in journal.read_lines(file):
        try:
            found.append(decode(line.text)["n"])
        except ValueError:
            found.append(line.entry)
    return found


# --- one file --------------------------------------------------------------------------------------


def test_a_record_is_on_disk_when_append_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    append(tmp_path / "s", {"n": 1})
    assert synced == [(tmp_path / "s").stat().st_size]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hello", "not JSON"),
        ("[1]", "not a record"),
        ('{"schema": 99}', "schema 99, this version reads 1"),
        ("[" * 100_000, "not JSON"),
        ('{"schema": 1, "n": NaN}', "not JSON: expected value"),
    ],
)
def test_a_damaged_line_is_reported(tmp_path, line, problem):
    file = tmp_path / "s"
    append(file, {"n": 1})
    with open(file, "a", errors="surrogateescape", newline="") as lines:
        lines.write(f"{line}\n\n")
    before = file.read_bytes()
    append(file, {"n": 2})
    first, damaged, last = records(file)
    assert (first, last) == (1, 2)
    assert isinstance(damaged, Damaged)
    assert (damaged.line, damaged.problem[: len(problem)]) == (2, problem)
    assert file.read_bytes().startswith(before)


def test_a_record_that_does_not_fit_the_disk_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(OSError, match="No space left on device"):
        append(tmp_path / "s", {"n": 1})


def run_at_once(*targets):
    """Run functions in processes of their own at the same time; all must end well."""
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=target, args=arguments) for target, arguments in targets
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * len(workers)


def test_a_write_that_a_kill_cut_short_is_closed_by_the_next(tmp_path):
    """Every possible length of what was written of a record."""
    whole = tmp_path / "whole"
    append(whole, {"n": 1})
    data = whole.read_bytes()
    for length in range(len(data) + 1):
        file = tmp_path / f"s{length}"
        file.write_bytes(data + data[:length])
        append(file, {"n": 2})
        good = [r for r in records(file) if not isinstance(r, Damaged)]
        assert good in ([1, 2], [1, 1, 2])
        assert good == [1, 1, 2] or length < len(data) - 1


# --- what a record says of itself --------------------------------------------------------------------

#: A record of today, but for what the maintainer of the format adds.
NOW = {
    **{
        key: value
        for key, value in PLAIN.items()
        if key not in ("line", "series", "fingerprint")
    },
    "case": "IorPosix %files=shared %size=4",
    "parameters": {"files": "shared", "size": 4},
    "metrics": [
        metric(),
        metric("read_time", "UNREFERENCED", unit="s", reference=None),
    ],
}
#: What a record of the first version had not yet.
YOUNGER = (
    "variant",
    "parameters",
    "overridden",
    "price",
    "line",
    "series",
    "fingerprint",
)


def old(record):
    return {name: value for name, value in record.items() if name not in YOUNGER}


@pytest.mark.parametrize(
    "change",
    [
        {"system": "other"},
        {"partition": "other"},
        {"environment": "other"},
        {"check": "other"},
        {"variant": "published"},
        {"tier": "quick"},
        {"nodes": 2},
        {"tasks_per_node": 4},
        {"overridden": {"tier": "daily"}},
        {"parameters": {"files": "shared", "size": 8}},
        {"parameters": {"files": "shared"}},
        {"parameters": {}},
    ],
)
def test_what_is_measured_makes_a_line(change):
    assert line_of(NOW | change) != line_of(NOW)


def test_an_old_record_goes_on_the_line_of_the_new():
    assert line_of(old(NOW)) == line_of(NOW)
    assert Record.from_json(old(NOW)).series == Record.from_json(NOW).series


# --- the index ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "history"


def moment(second):
    return f"2026-01-05T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def put(folder, name, *seconds, **change):
    """Append records of some seconds of a day to a session file."""
    file = folder / f"{name}.jsonl"
    for second in seconds:
        record = NOW | {"session": file.stem, "time": moment(second)} | change
        append(file, record)
    return file


def found(folder):
    """All rows of the history, in order."""
    columns = (
        'time, session, system, partition, environment, "check", "case", variant, tier, nodes, tasks_per_node, line, '
        "series, verdict, metric, unit, better, median, spread, samples, metric_verdict, reference, lower, upper, "
        "expected, confirms, fingerprint"
    )
    with closing(query.connect(folder)) as history:
        everything = query.Condition("1")
        rows = query.rows(
            history, columns, everything, "ORDER BY time, session, metric"
        )
    return [tuple(row) for row in rows]


def damaged(folder):
    """The lines that are no records."""
    with closing(query.connect(folder)) as history:
        return query.damaged(folder, history)


@pytest.fixture
def reads(monkeypatch):
    """Session files that are read, by name."""
    names = []

    def read(file):
        names.append(file.name)
        return journal.read_lines(file)

    monkeypatch.setattr(index, "read_lines", read)
    yield names


def test_only_what_has_changed_is_read_again(folder, reads):
    put(folder, "rig/a", 1)
    put(folder, "rig/b", 2, fingerprint={"kernel": "6.1"})
    first = found(folder)
    assert sorted(reads) == ["a.jsonl", "b.jsonl"]
    reads.clear()
    assert found(folder) == first
    assert damaged(folder) == reads == []
    put(folder, "rig/b", 3)
    put(folder, "other/c", 4)
    second = found(folder)
    assert sorted(reads) == ["b.jsonl", "c.jsonl"]
    file_of(folder).unlink()
    assert found(folder) == second


def file_of(folder):
    return folder.parent / "cache" / "history.sqlite"


def damage(file):
    """Another value in a row, which SQLite does not notice."""
    file.write_bytes(file.read_bytes().replace(b"PASS", b"FAIL", 1))


def older(file):
    """An index of another version, whose checksum is right."""
    data = bytearray(file.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")
    file.write_bytes(data)
    data[68:72] = index._checksum(file)
    file.write_bytes(data)


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(b"no database" * 100),
        damage,
        older,
    ],
)
def test_an_index_that_is_gone_damaged_or_of_another_version_is_made_anew(
    folder, reads, harm
):
    put(folder, "rig/a", 1, fingerprint={"kernel": "6.1"})
    first = found(folder)
    reads.clear()
    harm(file_of(folder))
    assert found(folder) == first
    assert found(folder) == first
    assert reads == ["a.jsonl"], "the index was not mended"


@pytest.mark.parametrize("kept", ["for the user", "nowhere"])
def test_a_home_without_the_right_to_write_is_read(folder, tmp_path, reads, kept):
    put(folder, "rig/a", 1)
    (tmp_path / "cache").write_text("no folder")
    if kept == "nowhere":
        (tmp_path / "user").write_text("no folder")
    assert len(found(folder)) == len(found(folder)) == 2
    assert len(reads) == (2 if kept == "nowhere" else 1)


def test_copied_and_merged_lines_count_once(folder):
    first = put(folder, "rig/a", 1, 2)
    second = put(folder, "rig/b", 3)
    before = found(folder)
    second.write_bytes(second.read_bytes() + first.read_bytes())
    assert found(folder) == before
    first.rename(folder / "rig" / "moved.jsonl")
    assert found(folder) == before
    second.unlink()
    assert len(found(folder)) == 4


def test_a_session_file_that_cannot_be_read_is_reported_until_it_can(
    folder, monkeypatch
):
    put(folder, "rig/a", 1)
    bad = put(folder, "rig/b", 2)

    def refuse(file):
        if file.name == bad.name:
            raise PermissionError(13, "Permission denied")
        return journal.read_lines(file)

    with monkeypatch.context() as patch:
        patch.setattr(index, "read_lines", refuse)
        for _ in range(2):
            assert [row[1] for row in found(folder)] == ["a", "a"]
            assert damaged(folder) == [Damaged(bad, 0, "Permission denied")]
    assert [row[1] for row in found(folder)] == ["a", "a", "b", "b"]
    assert damaged(folder) == []


def append_and_read(folder, who):
    for second in range(8):
        put(folder, f"rig/{who}", second)
        assert len(found(folder)) >= 2 * (second + 1)


def test_sessions_at_once_lose_nothing(folder):
    run_at_once(*((append_and_read, (folder, who)) for who in "abc"))
    assert len(found(folder)) == 2 * 3 * 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_whatever_happened_the_index_says_what_the_files_say(folder, seed):
    chance = random.Random(seed)
    for _ in range(12):
        name = chance.choice(["x/a", "x/b", "y/a"])
        file = folder / f"{name}.jsonl"
        what = chance.choice(["append", "append", "append", "damage", "remove", "copy"])
        if what == "append" or not file.exists():
            put(folder, name, chance.randrange(99))
        elif what == "damage":
            with open(file, "a") as lines:
                lines.write("junk\n")
        elif what == "copy":
            whole = file.read_bytes()
            (folder / "x" / "b.jsonl").write_bytes(whole)
        else:
            file.unlink()
        kept = found(folder)
        file_of(folder).unlink(missing_ok=True)
        assert found(folder) == kept
