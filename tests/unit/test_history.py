"""Records are appended, never rewritten; a damaged line costs no other; the index shows and changes nothing."""

import json
import multiprocessing
import os
import random
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.records import index, journal, query
from iogauge.records.journal import Damaged
from iogauge.records.record import keys_of, line_of, series_of
from support.records import RECORD as PLAIN
from support.records import append, metric


def records(file):
    return [r["n"] if isinstance(r, dict) else r for r in journal.read(file)]


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


def write_many(file, who):
    for number in range(100):
        append(file, {"n": [who, number], "filler": "x" * 5000})


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


def test_processes_that_append_at_once_lose_nothing(tmp_path):
    run_at_once(*((write_many, (tmp_path / "s", who)) for who in range(3)))
    found = records(tmp_path / "s")
    assert sorted(map(json.dumps, found)) == sorted(
        json.dumps([who, number]) for who in range(3) for number in range(100)
    )


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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=20,
)
RECORD = st.dictionaries(
    st.text().filter(lambda key: key != "schema"), JSON, max_size=8
)


@given(record=RECORD)
def test_any_record_comes_back_as_it_was(tmp_path, record):
    file = tmp_path / "s"
    file.unlink(missing_ok=True)
    append(file, record)
    append(file, record)
    assert list(journal.read(file)) == [{"schema": 1, **record}] * 2


@given(data=st.data())
def test_damage_to_any_byte_costs_the_damaged_lines_only(tmp_path, data):
    file = tmp_path / "s"
    file.unlink(missing_ok=True)
    count = data.draw(st.integers(1, 6))
    for number in range(count):
        append(file, {"n": number, "text": data.draw(st.text(max_size=5))})
    whole = file.read_bytes()
    content = bytearray(whole)
    hit = set()
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        line = whole.count(b"\n", 0, place)
        # The end of a line is part of it, and of the next, which is then no line of its own.
        hit |= {line, line + 1} if whole[place] == 10 else {line}
        new = data.draw(st.integers(0, 255).filter(lambda byte: byte != 10))
        content[place] = new
    file.write_bytes(content)
    good = [r for r in journal.read(file) if isinstance(r, dict)]
    kept = [r["n"] for r in good if "n" in r]
    lost = set(range(count)) - {n for n in kept if isinstance(n, int)}
    assert len(lost) <= len(hit)
    untouched = [n for n in range(count) if n not in hit]
    # In the order in which they were written; a damaged number may look like any.
    position = iter(kept)
    assert all(n in position for n in untouched)


@given(junk=st.binary(max_size=200))
def test_any_bytes_between_two_records_cost_neither(tmp_path, junk):
    file = tmp_path / "s"
    file.unlink(missing_ok=True)
    append(file, {"n": "first"})
    with open(file, "ab") as out:
        out.write(junk)
    append(file, {"n": "last"})
    found = [r.get("n") for r in journal.read(file) if isinstance(r, dict)]
    assert (found[0], found[-1]) == ("first", "last")


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
    assert keys_of(old(NOW)) == keys_of(NOW)


def test_without_keys_tools_and_stack_make_the_series():
    line, series = keys_of(NOW)
    assert line == line_of(NOW)
    for change in (
        {"tools": ["ior 4.1.0"]},
        {"stack": {"fingerprint": "0"}},
        {"stack": None},
    ):
        changed = keys_of(NOW | change)
        assert changed[0] == line and changed[1] != series
    subset = {"tools": NOW["tools"], "stack": "92718f76de22"}
    assert series == series_of(line, subset)
    assert series_of(line, {"a": 1, "b": 2}) == series_of(line, {"b": 2, "a": 1})


@given(
    record=st.dictionaries(st.sampled_from([*NOW, "line", "series"]), JSON, max_size=6)
)
def test_any_record_has_keys_and_the_same_after_it_was_written(record):
    keys = keys_of(record)
    assert all(isinstance(key, str) and key for key in keys)
    assert keys_of(json.loads(json.dumps(record))) == keys
    assert keys_of(dict(reversed(record.items()))) == keys


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
    columns = ", ".join(f'"{name}"' for name in query.COLUMNS if name != "record")
    with closing(query.connect(folder)) as history:
        everything = query.Condition("1")
        rows = query.rows(
            history, columns, everything, "ORDER BY time, session, metric"
        )
    return [tuple(row) for row in rows]


BAD = [
    ({"time": None}, "time is None"),
    ({"time": "yesterday"}, "time is 'yesterday'"),
    ({"nodes": "4"}, "nodes is '4': expected a whole number"),
    ({"metrics": [{}]}, "the key metrics[0].name is missing"),
    ({"metrics": [metric(median=1e308)]}, "metrics[0].median is 1e+308"),
    ({"parameters": None}, "parameters is None"),
    ({"reason": None}, "reason is None"),
]


@pytest.mark.parametrize(("change", "problem"), BAD)
def test_a_record_with_values_of_another_form_is_reported(folder, change, problem):
    file = put(folder, "rig/s", 1)
    append(file, NOW | change)
    put(folder, "rig/s", 2)
    before = file.read_bytes()
    for _ in ("from the file", "from the index"):
        assert len(found(folder)) == 4
        (line,) = query.damaged(folder)
        assert (line.file, line.line) == (file, 2)
        assert line.problem.startswith(problem)
    assert file.read_bytes() == before


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
    assert query.damaged(folder) == reads == []
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


def test_an_index_of_another_history_is_not_used(folder, tmp_path):
    put(folder, "rig/a", 1)
    found(folder)
    other = tmp_path / "copied" / "history"
    put(other, "rig/b", 2)
    file_of(other).parent.mkdir()
    file_of(other).write_bytes(file_of(folder).read_bytes())
    assert {row[1] for row in found(other)} == {"b"}


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
            assert query.damaged(folder) == [Damaged(bad, 0, "Permission denied")]
    assert [row[1] for row in found(folder)] == ["a", "a", "b", "b"]
    assert query.damaged(folder) == []


def append_and_read(folder, who):
    for second in range(20):
        put(folder, f"rig/{who}", second)
        assert len(found(folder)) >= 2 * (second + 1)


def test_sessions_at_once_lose_nothing(folder):
    run_at_once(*((append_and_read, (folder, who)) for who in "abc"))
    assert len(found(folder)) == 2 * 3 * 20


def test_fingerprints_by_id(folder):
    first, second = (
        {"kernel": "6.1", "mem.bytes": 2**40, "smt": True},
        {"kernel": "6.2"},
    )
    put(folder, "rig/a", 1, 2, fingerprint=first)
    put(folder, "rig/a", 3)
    put(folder, "rig/b", 4, fingerprint=second)
    with closing(query.connect(folder)) as history:
        everything = query.Condition("position = 0")
        rows = query.rows(history, "fingerprint", everything, "ORDER BY time")
        ids = [row["fingerprint"] for row in rows]
        assert ids[0] == ids[1] and ids[2] is None and ids[3] not in (None, ids[0])
        assert query.fingerprints(history) == {ids[0]: first, ids[3]: second}
        some = query.fingerprints(history, [ids[3], "0" * 12])
        assert some == {ids[3]: second}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
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
