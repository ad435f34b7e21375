"""Two logs or two records side by side."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.core.measurement import Quantity
from iogauge.records.record import Record
from iogauge_extras.compare import compare
from iogauge_extras.compare.compare import CompareError, Subject, of_record
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan import subject as darshan_subject
from iogauge_extras.darshan.subject import of_log
from support import records
from support.records import append

DATA = Path(__file__).parents[1] / "data" / "darshan"
LARGE, SMALL, OMPIO, ROMIO, LUSTRE = (
    darshan.parse((DATA / f"{name}.txt").read_text())
    for name in (
        "reduced-1m",
        "reduced-4k",
        "ompio-2-aggregators",
        "romio-3-aggregators",
        "lustre",
    )
)
MIB = 1 << 20


def subject(values: dict[str, float], unit: str = "s", **more: Any) -> Subject:
    return Subject(
        kind="record",
        name="x",
        values={name: Quantity(value, unit) for name, value in values.items()},
        facts=more.pop("facts", {}),
        **more,
    )


def row(a: Subject, b: Subject) -> compare.ComparedRow:
    (one,) = compare.compare(a, b).rows
    return one


def shown(comparison: compare.Comparison, width: int = 200) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(compare.render(comparison))
    return stream.getvalue()


# --- the ratio ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "ratio", "mark"),
    [
        (100, 100, 1.0, ""),
        (100, 110, 1.1, ""),
        (100, 110.1, 1.101, "differs"),
        (0, 0, None, ""),
        (0, 1, None, "differs"),
    ],
)
def test_a_ratio_and_whether_it_is_told(a: float, b: float, ratio: float | None, mark: str) -> None:
    found = row(subject({"v": a}), subject({"v": b}))
    assert (found.ratio, found.mark) == (pytest.approx(ratio) if ratio else ratio, mark)


@pytest.mark.parametrize(
    ("better", "b", "mark"),
    [
        ("more", 120, "better"),
        ("more", 80, "worse"),
        ("less", 80, "better"),
        ("less", 120, "worse"),
    ],
)
def test_the_direction_that_is_better(better: str, b: float, mark: str) -> None:
    sides = [subject({"v": value}, better={"v": better}) for value in (100, b)]
    assert row(*sides).mark == mark


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("b", [100.0, 500.0])
def test_a_value_that_no_verdict_stands_behind_is_neither_better_nor_alike(
    side: int, b: float
) -> None:
    sides = [subject({"v": value}, better={"v": "more"}) for value in (100.0, b)]
    sides[side] = replace(sides[side], doubts={"v": "INVALID"})
    assert row(*sides).mark == "INVALID"


def test_units_that_cannot_be_brought_together_give_no_ratio() -> None:
    found = row(subject({"v": 2}, "GiB/s"), subject({"v": 2}, "ops/s"))
    assert (found.name, found.ratio, found.mark) == ("v (GiB/s in A, ops/s in B)", None, "differs")


def test_a_value_that_one_does_not_have() -> None:
    assert row(subject({"v": 2}), subject({})) == compare.ComparedRow(
        "v", "s", 2, None, None, "differs"
    )
    assert row(subject({}), subject({"v": 2})) == compare.ComparedRow(
        "v", "s", None, 2, None, "differs"
    )


def test_only_facts_that_differ_are_told() -> None:
    a = subject({}, facts={"same": "1", "other": "x", "gone": "y"})
    b = subject({}, facts={"same": "1", "other": "z", "new": "n"})
    assert [(c.name, c.a, c.b) for c in compare.compare(a, b).changes] == [
        ("other", "x", "z"),
        ("gone", "y", ""),
        ("new", "", "n"),
    ]


_SIDES = st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e12), max_size=4)


@given(a=_SIDES, b=_SIDES)
def test_every_value_of_either_has_one_row_and_the_ratio_turns_round(
    a: dict[str, float], b: dict[str, float]
) -> None:
    there = compare.compare(subject(a), subject(b)).rows
    back = {r.name: r for r in compare.compare(subject(b), subject(a)).rows}
    assert sorted(r.name for r in there) == sorted({*a, *b})
    for one in there:
        other = back[one.name]
        if one.ratio and other.ratio and math.isfinite(one.ratio * other.ratio):
            assert one.ratio * other.ratio == pytest.approx(1)


# --- Darshan logs ---------------------------------------------------------------------------------


def values(log: darshan.DarshanLog) -> dict[str, float]:
    return {name: quantity.value for name, quantity in of_log("log", log).values.items()}


def test_the_figures_of_a_log() -> None:
    found = values(LARGE)
    assert found["run time"] == LARGE.run_seconds
    for module in ("POSIX", "MPI-IO"):
        assert found[f"{module} bytes read"] == found[f"{module} bytes written"] == 8 * MIB
        assert found[f"{module} time"] == LARGE.slowest_seconds[module]
    assert found["POSIX / MPI-IO bytes written"] == found["POSIX / MPI-IO bytes read"] == 1
    assert found["files opened"] == 1
    assert found["small accesses"] == 0
    assert 0 < found["metadata time"] < 100
    assert 0 < found["fastest rank"] <= found["slowest rank"] <= LARGE.run_seconds


def test_two_numbers_of_writers() -> None:
    comparison = compare.compare(of_log("a", OMPIO), of_log("b", ROMIO))
    rows = {r.name: r for r in comparison.rows}
    assert (rows["writers of the shared file"].a, rows["writers of the shared file"].b) == (2, 3)
    assert rows["writers of the shared file"].ratio == 1.5
    # The same command: hints came through the environment. ROMIO wrote the holes between the shares, too.
    assert [c.name for c in comparison.changes] == ["access sizes"]
    amplified = rows["POSIX / MPI-IO bytes written"]
    assert (amplified.a, amplified.mark) == (1, "differs")
    assert amplified.b == pytest.approx((2 * 18175320 + 18175312) / (16 * MIB))


def test_layout_and_file_system_are_facts() -> None:
    facts = of_log("a", LUSTRE).facts
    assert facts["layout"] == "1 x 1 MiB"
    assert facts["file system"] == "lustre on /scratch1"
    assert facts["tasks"] == "48"
    assert facts["shared file"] == ""


# --- records --------------------------------------------------------------------------------------


def metric(name: str = "write_bw", median: float = 100.0, **change: Any) -> dict[str, Any]:
    return records.metric(name, median=median, **change)


def of_case(*metrics: dict[str, Any], **change: Any) -> dict[str, Any]:
    """JSON of a record with these metrics."""
    plain = {"session": "s1", "case": "IorPosix %files=shared", "hash": "12345678", "reason": ""}
    plain |= {"target": {"path": "/t", "type": "ext4"}, "tools": ["IOR 4.0.0"], "stack": None}
    plain |= {"commands": ["ior -w", "ior -r"], "line": "a", "series": "b"}
    return records.values(**{**plain, "metrics": list(metrics), **change})


def record(*metrics: dict[str, Any], **change: Any) -> Record:
    return Record.from_json(of_case(*metrics, **change))


def test_the_medians_of_records() -> None:
    a = of_record("a", record(metric(), metric("latency", 2.0, unit="us", better="less")))
    b = of_record(
        "b", record(metric(median=50.0), metric("latency", 1.0, unit="us", better="less"))
    )
    comparison = compare.compare(a, b)
    assert [(r.name, r.ratio, r.mark) for r in comparison.rows] == [
        ("write_bw", 0.5, "worse"),
        ("latency", 0.5, "better"),
    ]
    assert comparison.changes == ()
    assert comparison.notes == ()


def test_what_changed_between_records() -> None:
    other = record(
        metric(),
        session="s2",
        time="2026-02-01T00:00:00Z",
        hash="other",
        nodes=2,
        target={"path": "/t", "type": "xfs"},
        tools=["IOR 4.0.1"],
        stack={"fingerprint": "abc"},
        commands=["ior -w", "ior -r -C"],
        verdict="FAIL",
    )
    comparison = compare.compare(of_record("a", record(metric())), of_record("b", other))
    assert [(c.name, c.a, c.b) for c in comparison.changes] == [
        ("verdict", "PASS", "FAIL"),
        ("nodes", "1", "2"),
        ("target.type", "ext4", "xfs"),
        ("tools.1", "IOR 4.0.0", "IOR 4.0.1"),
        ("commands.2", "ior -r", "ior -r -C"),
        ("stack.fingerprint", "", "abc"),
    ]


def test_a_record_that_proves_nothing_says_so() -> None:
    a = of_record("a", record(metric()))
    b = of_record("b", record(metric(median=500.0, verdict="INVALID", reason="G1: cached")))
    comparison = compare.compare(a, b)
    assert comparison.rows[0].mark == "INVALID"
    assert comparison.notes == ("B: write_bw is INVALID: G1: cached",)


@pytest.mark.parametrize("broken", [{}, {"metrics": [{}]}])
def test_what_is_no_record_is_no_subject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any]
) -> None:
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    append(tmp_path / "history" / "here" / "s1.jsonl", broken and of_case() | broken)
    with pytest.raises(CompareError, match="s1: no records, expected 1"):
        compare.read_subject("s1")


def test_a_log_and_a_record_are_not_compared() -> None:
    with pytest.raises(CompareError, match="a is a Darshan log, b a record: give two Darshan logs"):
        compare.compare(of_log("a", LARGE), of_record("b", record(metric())))


# --- finding what was named -----------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory with one session of three records, one of a single record."""
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    folder = tmp_path / "history" / "here"
    append(folder / "s1.jsonl", of_case(metric()))
    append(
        folder / "s1.jsonl", of_case(metric(), case="IorPosix %files=per-process", hash="87654321")
    )
    append(folder / "s1.jsonl", of_case(metric("rate"), case="Fio", check="Fio", hash="aaaa"))
    append(folder / "s2.jsonl", of_case(metric(median=130.0), session="s2"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("s1:12345678", "s1 IorPosix shared"),
        ("s1:IorPosix %files=shared", "s1 IorPosix shared"),
        ("s1:#2", "s1 IorPosix per-process"),
        ("{home}/history/here/s2.jsonl", "s2 IorPosix shared"),
        ("{home}/history/here/s1.jsonl:aaaa", "s1 Fio"),
    ],
)
def test_a_record_is_found(home: Path, text: str, name: str) -> None:
    assert compare.read_subject(text.format(home=home)).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1", "s1: 3 records, expected 1; name one as s1:<case or hash>(?s:.*)#3  aaaa  Fio"),
        ("s1#4", "no records of '#4'"),
        ("s3", r"s3: neither a file nor a session in .*newest: s1, s2"),
        ("mysite", r"compare sites, stacks or days, write system=NAME, .*\(docs/results.md\)"),
        ("s*", "neither a file nor a session"),
        ("{home}/none.jsonl", "none.jsonl: No such file or directory"),
    ],
)
def test_a_record_that_is_not_found_is_named(home: Path, text: str, message: str) -> None:
    with pytest.raises(CompareError, match=message):
        compare.read_subject(text.format(home=home))


def test_a_missing_parser_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOGAUGE_ROOT", str(tmp_path))
    monkeypatch.setattr(darshan_subject, "find_spec", lambda name: None)
    (tmp_path / "checks").mkdir()
    with pytest.raises(
        CompareError, match=r"darshan-parser is neither on PATH .*pip install darshan.*darshan-util"
    ):
        compare.read_subject(str(tmp_path / "x.darshan"))


# --- what is shown --------------------------------------------------------------------------------


def test_the_command(home: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app.app, ["compare", "s1:12345678", "s2", "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["rows"] == [
        {
            "name": "write_bw",
            "unit": "MiB/s",
            "a": 100.0,
            "b": 130.0,
            "ratio": 1.3,
            "mark": "better",
        }
    ]
    assert (found["kind"], found["changes"]) == ("record", [])
    done = runner.invoke(app.app, ["compare", "s1:12345678", "s2"])
    assert done.exit_code == 0
    assert "better" in done.stdout
