"""``iogauge history`` on what real runs and other hands left in the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rig
from e2e.test_cli import flat
from e2e.test_values import GENEROUS, RANDOM_READ
from support.records import append


@pytest.fixture(scope="module")
def measured(make_module_rig: Callable[..., Rig]) -> Rig:
    """A rig with records of two sessions of the real fio: one passed, one without a reference."""
    rig = make_module_rig()
    rig.write_references({"FioRandomRead": GENEROUS["FioRandomRead"]})
    assert rig.iogauge("run", *RANDOM_READ).rc == 0
    rig.write_references(None)
    assert rig.iogauge("run", *RANDOM_READ).rc == 0
    return rig


@pytest.mark.needs_fio
class TestMeasured:
    def test_newest_first(self, measured: Rig) -> None:
        run = measured.iogauge("history")
        assert run.rc == 0, run.out
        assert "2 of 2 record(s)" in flat(run.out)
        rows = [line for line in run.out.splitlines() if "read_iops" in line]
        assert ["UNREFERENCED" in row for row in rows] == [True, False]
        assert "PASS" in rows[1] and run.out.count("Z rig:default\n") == 2
        medians = [m["median"] for m in measured.records()[-1]["metrics"]]
        assert len(medians) == 2 and run.out.count("ops/s") >= 2

    @pytest.mark.parametrize(
        ("options", "count"),
        [
            (["--verdict", "pass"], 1),
            (["--verdict", "PASS", "--verdict", "UNREFERENCED"], 2),
            (["--verdict", "FAIL"], 0),
            (["--system", "rig"], 2),
            (["--system", "elsewhere"], 0),
            (["-n", "^FioRandom"], 2),
            (["--check", "randomread"], 0),
            (["--metric", "read_bw"], 2),
            (["--metric", "write_bw"], 0),
            (["--limit", "1"], 1),
            (["--limit", "0"], 2),
            (["--since", "1h"], 2),
            (["--until", "1h"], 0),
            (["--since", "2020-01-01", "--until", "2020-12-31"], 0),
        ],
    )
    def test_filters(self, measured: Rig, options: list[str], count: int) -> None:
        run = measured.iogauge("history", "--json", *options)
        assert (run.rc, len(run.out.splitlines())) == (0, count), run.out


def stored(rig: Rig, name: str, **change: Any) -> Path:
    """Append a record as a case leaves it."""
    file = rig.home / "history" / "rig" / f"{name}.jsonl"
    record = {
        "session": name,
        "time": "2026-01-05T01:00:00Z",
        "system": "rig",
        "partition": "default",
        "environment": "tools",
        "check": "IorPosix",
        "case": "IorPosix %files=shared",
        "verdict": "ERROR",
        "reason": "the tool failed",
        "metrics": [],
    }
    append(file, record | change)
    return file


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def test_damaged_lines(rig: Rig) -> None:
    file = stored(rig, "s")
    with open(file, "a") as lines:
        lines.write('{"schema": 9}\n')
    stored(rig, "s", time="soon")
    before = file.read_bytes()
    assert "1 of 1 record(s)" in flat(rig.iogauge("history").out)
    run = rig.iogauge("history", "--damaged")
    assert run.rc == 0
    first, second = run.out.splitlines()
    assert first.startswith(f"{file}:2: schema 9, this version reads 1")
    assert second.startswith(f"{file}:3: time is 'soon': expected UTC")
    assert file.read_bytes() == before


def test_a_line_that_is_no_record_may_have_been_a_failure(rig: Rig) -> None:
    """Neither the report nor the alarm of its session ends well."""
    stored(rig, "good", verdict="PASS", findings=[])
    file = stored(rig, "bad", verdict="FAIL", findings=[], metrics=[{"median": "x"}])
    assert rig.iogauge("report", "good").rc == rig.iogauge("alarm", "good").rc == 0
    report, alarm = rig.iogauge("report", "bad"), rig.iogauge("alarm", "bad")
    assert report.rc == alarm.rc == 1, (report.out, alarm.out)
    # A long path is broken at the end of a line.
    assert f"{file}:1:skipped" in "".join(report.out.split())
    assert "line 1 is no record" in flat(alarm.out)
