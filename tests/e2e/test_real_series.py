"""``iogauge trend`` on a hundred real runs of IOR and fio, in the middle of which the storage got slower.

The records are those that benchmarks/real_series.py left (docs/benchmarks.md, "Real noise"), whole and
unchanged. A baseline takes 20 runs, so that a series cannot be measured anew in a test's time.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig, Run
from iogauge_extras.history.states import BASELINE

FILE = ROOT / "tests" / "data" / "history" / "real_series.jsonl.gz"
#: Runs at 40 MiB/s, then at 34, then at 40 again.
HEALTHY, SLOW, AGAIN = 72, 18, 10
#: What fio lost. IOR's phases last half a second, of which the kernel's limit gives a part away.
LOST = 34 / 40 - 1
SERIES = {
    ("IorPosix", "write_bw"),
    ("IorPosix", "read_bw"),
    ("FioRandomRead", "read_iops"),
    ("FioRandomRead", "read_bw"),
}
Sessions = Sequence[list[str]]


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    """Lines of the recorded sessions, a session for each run of the suite, in their order."""
    found: dict[str, list[str]] = {}
    for line in gzip.decompress(FILE.read_bytes()).decode().splitlines():
        found.setdefault(json.loads(line)["session"], []).append(line)
    assert len(found) == HEALTHY + SLOW + AGAIN
    return [lines for _, lines in sorted(found.items())]


def name_of(session: list[str]) -> str:
    return str(json.loads(session[0])["session"])


def median(sessions: Sessions, check: str, metric: str) -> float:
    """Median over sessions of one metric of one check."""
    records = [json.loads(line) for session in sessions for line in session]
    return statistics.median(
        one["median"]
        for record in records
        if record["check"] == check
        for one in record["metrics"]
        if one["name"] == metric
    )


def write(folder: Path, sessions: Sessions) -> None:
    """The sessions' files, as the suite leaves them."""
    folder.mkdir(parents=True)
    for session in sessions:
        (folder / f"{name_of(session)}.jsonl").write_text("\n".join(session) + "\n")


def judged(rig: Rig, sessions: Sessions) -> tuple[Run, dict[tuple[str, str], dict[str, Any]]]:
    """What ``iogauge trend`` prints of a history of these sessions, and says of each series."""
    write(rig.home / "history" / "capped", sessions)
    told = rig.iogauge("trend", "--json")
    rows = json.loads(told.out)
    found = {(row["case"].split()[0], row["metric"]): row for row in rows}
    assert set(found) == SERIES and len(rows) == len(SERIES)
    shown = rig.iogauge("trend")
    assert shown.rc == told.rc
    return shown, found


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


def test_no_alarm_while_nothing_changed(rig: Rig, sessions: Sessions) -> None:
    run, found = judged(rig, sessions[:HEALTHY])
    assert run.rc == 0, run.out
    # An alarm that came and went would be "recovered".
    assert {series: row["state"] for series, row in found.items()} == dict.fromkeys(
        SERIES, "steady"
    )
    assert all(row["baseline"] == BASELINE for row in found.values())
    assert all(row["runs"] >= BASELINE + 40 for row in found.values())


def test_the_slowdown_is_found_by_name(rig: Rig, sessions: Sessions) -> None:
    run, found = judged(rig, sessions[: HEALTHY + SLOW])
    assert run.rc == 1, run.out
    names = [name_of(session) for session in sessions]
    for (check, metric), row in found.items():
        assert row["state"] == "alarm", row
        change = row["change"]
        assert abs(names.index(change["session"]) - HEALTHY) <= 2, (check, metric)
        lost = median(sessions[HEALTHY : HEALTHY + SLOW], check, metric)
        lost = lost / median(sessions[:HEALTHY], check, metric) - 1
        assert change["share"] == pytest.approx(lost, abs=0.03), (check, metric)
        if check == "FioRandomRead":
            assert change["share"] == pytest.approx(LOST, abs=0.01)
    for word in ("alarm", "IorPosix", "FioRandomRead", names[HEALTHY]):
        assert word in run.out


def test_the_end_of_the_slowdown_is_noticed(rig: Rig, sessions: Sessions) -> None:
    """Within ten runs, though a long window still holds slow ones."""
    run, found = judged(rig, sessions)
    states = {series: row["state"] for series, row in found.items()}
    assert states == dict.fromkeys(SERIES, "recovered")
    assert run.rc == 0, run.out
