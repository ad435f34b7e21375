"""Records are appended, never rewritten; a damaged line costs no other; the cache shows and changes nothing."""

import json
import multiprocessing
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from iogauge.records import journal
from iogauge.records import query as records_query
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
        ('{"schema": 1, "n": NaN}', "not JSON: NaN is no number"),
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


# --- all files as one table --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
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
def test_a_record_with_values_that_make_no_row_is_reported(folder, change, problem):
    file = put(folder, "rig/s", 1)
    append(file, NOW | change)
    put(folder, "rig/s", 2)
    before = file.read_bytes()
    for _ in ("from the file", "from the cache"):
        assert records_query.load(folder)["record"].n_unique() == 2
        (found,) = records_query.damaged(folder)
        assert (found.file, found.line) == (file, 2)
        assert found.problem.startswith(problem)
    assert file.read_bytes() == before


@given(
    change=st.dictionaries(
        st.sampled_from([*NOW, "line", "series", "fingerprint"]), JSON, max_size=4
    )
)
def test_any_record_makes_rows_or_is_reported(tmp_path, change):
    append(tmp_path / "s.jsonl", NOW | change)
    frames, sources = records_query._parse(tmp_path, ["s.jsonl"])
    (tmp_path / "s.jsonl").unlink()
    assert any(frame.height for frame in frames) != bool(sources["s.jsonl"].damaged)


# --- the cache ---------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch):
    """Session files that are read, by name."""
    found = []

    def numbered(file):
        found.append(file.name)
        return journal.read_numbered(file)

    monkeypatch.setattr(records_query, "read_numbered", numbered)
    yield found


def uncached(folder):
    """What is found without any cache."""
    empty = folder.parent / "no" / str(time.monotonic_ns())
    return records_query.load(folder, empty)


def test_only_what_has_changed_is_read_again(folder, reads):
    put(folder, "rig/a", 1)
    put(folder, "rig/b", 2)
    first = records_query.load(folder)
    assert reads == ["a.jsonl", "b.jsonl"]
    reads.clear()
    assert_frame_equal(records_query.load(folder), first)
    records_query.damaged(folder)
    records_query.fingerprints(folder)
    assert reads == []
    put(folder, "rig/b", 3)
    put(folder, "other/c", 4)
    second = records_query.load(folder)
    assert sorted(reads) == ["b.jsonl", "c.jsonl"]
    assert_frame_equal(second, uncached(folder))


def cache_of(folder):
    return folder.parent / "cache" / "history"


def damage(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def forge(file, change, table=None):
    """Write a file of the cache whose digest is right."""
    _, head, rows = file.read_bytes().split(b"\n", 2)
    head, rows = change(head.decode()).encode(), rows if table is None else table
    file.write_bytes(b"\n".join((records_query._digest(head, rows), head, rows)))


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        damage,
        lambda file: forge(
            file, lambda head: head.replace('"folder": "', '"folder": "/other')
        ),
        lambda file: forge(file, lambda head: head, b"no parquet"),
    ],
)
def test_a_month_of_the_cache_that_is_damaged_or_foreign_is_made_anew(
    folder, reads, harm
):
    january, february = "20260105T000000-a", "20260205T000000-b"
    put(folder, f"rig/{january}", 1, fingerprint={"kernel": "6.1"})
    put(folder, f"rig/{february}", 2, fingerprint={"kernel": "6.2"})
    first = records_query.load(folder)
    reads.clear()
    harm(cache_of(folder) / "2026-01.cache")
    assert_frame_equal(records_query.load(folder), first)
    assert reads == [f"{january}.jsonl"]
    assert len(records_query.fingerprints(folder)) == 2
    assert reads == [f"{january}.jsonl"], "the cache was not mended"


@pytest.mark.parametrize("kind", ["a file", "no right to write"])
def test_where_no_cache_can_be_kept_all_is_read(folder, kind, monkeypatch):
    put(folder, "rig/a", 1)
    cache = folder.parent / "cache"
    if kind == "a file":
        cache.write_text("")
    elif kind == "a link to nothing":
        cache.symlink_to("/nonexistent/place")
    else:

        def refuse(*_, **__):
            raise PermissionError("not here")

        monkeypatch.setattr(records_query, "replace_file", refuse)
    assert records_query.load(folder).height == records_query.load(folder).height == 2


def test_a_session_file_that_cannot_be_read_is_reported_until_it_can(
    folder, monkeypatch
):
    put(folder, "rig/a", 1)
    bad = put(folder, "rig/b", 2)

    def refuse(file):
        if file.name == bad.name:
            raise PermissionError(13, "Permission denied")
        return journal.read_numbered(file)

    with monkeypatch.context() as patch:
        patch.setattr(records_query, "read_numbered", refuse)
        for _ in range(2):
            assert records_query.load(folder)["session"].to_list() == ["a", "a"]
            assert records_query.damaged(folder) == [
                Damaged(bad, 0, "Permission denied")
            ]
    assert records_query.load(folder)["session"].to_list() == ["a", "a", "b", "b"]
    assert records_query.damaged(folder) == []


def test_fingerprints_by_id(folder):
    first, second = (
        {"kernel": "6.1", "mem.bytes": 2**40, "smt": True},
        {"kernel": "6.2"},
    )
    put(folder, "rig/a", 1, 2, fingerprint=first)
    put(folder, "rig/a", 3)
    put(folder, "rig/b", 4, fingerprint=second)
    ids = records_query.load(folder)["fingerprint"].gather_every(2).to_list()
    assert ids[0] == ids[1] and ids[2] is None and ids[3] not in (None, ids[0])
    assert records_query.fingerprints(folder) == {ids[0]: first, ids[3]: second}
    assert records_query.fingerprints(folder, [ids[3], "0" * 12]) == {ids[3]: second}


@pytest.mark.slow
@given(data=st.data())
def test_whatever_happened_the_cache_says_what_the_files_say(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("h") / "history"
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 4))):
            file = folder / f"{data.draw(st.sampled_from(['x/a', 'x/b', 'y/a']))}.jsonl"
            what = data.draw(
                st.sampled_from(["append", "append", "append", "damage", "remove"])
            )
            if what == "append":
                put(
                    folder,
                    str(file.relative_to(folder))[:-6],
                    data.draw(st.integers(0, 99)),
                )
            elif file.exists() and what == "damage":
                with open(file, "a") as lines:
                    lines.write("junk\n")
            elif file.exists():
                file.unlink()
        assert_frame_equal(records_query.load(folder), uncached(folder))
