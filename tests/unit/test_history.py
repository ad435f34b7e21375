"""Records are appended, never rewritten, and a damaged line costs no other."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from pathlib import Path

import pytest

from iogauge import history
from iogauge.history import Damaged


def records(file: Path) -> list[object]:
    return [r["n"] if isinstance(r, dict) else r for r in history.read(file)]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "s.jsonl"
    for number in range(3):
        history.append(file, {"n": number, "text": "ü\n\r\u2028"})
    found = list(history.read(file))
    assert found == [{"schema": 1, "n": n, "text": "ü\n\r\u2028"} for n in range(3)]
    assert file.read_bytes().count(b"\n") == 3


def test_a_record_is_on_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    history.append(tmp_path / "s", {"n": 1})
    assert synced == [(tmp_path / "s").stat().st_size]


@pytest.mark.parametrize("rest", ['{"schema":1,"n":', "{", "\0\0\0"])
def test_an_unfinished_line_costs_no_second_record(tmp_path: Path, rest: str) -> None:
    file = tmp_path / "s"
    history.append(file, {"n": 1})
    with open(file, "a") as lines:
        lines.write(rest)
    history.append(file, {"n": 2})
    first, damaged, last = records(file)
    assert (first, last) == (1, 2)
    assert isinstance(damaged, Damaged)
    assert (damaged.file, damaged.line) == (file, 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("hello", "not JSON"),
        ("[1]", "not a record"),
        ("5", "not a record"),
        ("{}", "not a record"),
        ('{"schema": 99}', "schema 99, this version reads 1"),
        ("[" * 100_000, "not JSON"),
        ('{"n": "\udcff"}', "not a record"),
    ],
)
def test_a_damaged_line_is_reported(tmp_path: Path, line: str, problem: str) -> None:
    file = tmp_path / "s"
    history.append(file, {"n": 1})
    with open(file, "a", errors="surrogateescape") as lines:
        lines.write(f"{line}\n\n")
    history.append(file, {"n": 2})
    first, damaged, last = records(file)
    assert (first, last) == (1, 2)
    assert isinstance(damaged, Damaged)
    assert (damaged.line, damaged.problem[: len(problem)]) == (2, problem)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_is_refused_and_leaves_nothing(
    tmp_path: Path, value: float
) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        history.append(tmp_path / "s", {"n": value})
    assert not (tmp_path / "s").exists()


def test_a_record_that_does_not_fit_the_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(OSError, match="file system full"):
        history.append(tmp_path / "s", {"n": 1})


def write_many(file: Path, who: int) -> None:
    for number in range(100):
        history.append(file, {"n": [who, number], "filler": "x" * 5000})


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=write_many, args=(tmp_path / "s", who)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = records(tmp_path / "s")
    assert sorted(map(json.dumps, found)) == sorted(
        json.dumps([who, number]) for who in range(3) for number in range(100)
    )
