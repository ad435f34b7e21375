"""Two sessions on one target: one case at a time, whoever dies, stops or waits too long; and what the verdict says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from e2e.rig import Rig, Run, processes, program_of, wait_for
from e2e.test_values import RANDOM_READ
from iogauge.workspace import lock

pytestmark = pytest.mark.needs_fio

LONG = ["-n", "FioRandomRead%block=4"]


def intervals(run: Run) -> list[tuple[float, float]]:
    """From the beginning of the first phase to the end of the last, for each case."""
    found = []
    for file in run.stage.rglob("phases.tsv"):
        times = [float(t) for line in file.read_text().splitlines() for t in line.split("\t")[3:5]]
        found.append((min(times), max(times)))
    return found


def start(rig: Rig, *words: str, **environment: str) -> subprocess.Popen[str]:
    return rig.start(["reframe", "-c", "checks/", "-r", *words], **environment)


@pytest.fixture
def pair(make_rig: Callable[..., Rig]) -> tuple[Rig, Rig]:
    """Two sites whose target is the same directory."""
    first = make_rig(limits={"lock_lease": "3 s"})
    return first, make_rig(target=first.target, limits={"lock_lease": "3 s", "lock_wait": "1 s"})


def hold(rig: Rig) -> subprocess.Popen[str]:
    """A session in the midst of a phase."""
    process = start(rig, *LONG, "-S", "repetitions=1")
    wait_for(lambda: [p for p in processes(str(rig.base)) if program_of(p) == "fio"], 60, "fio")
    return process


def keeper_of(rig: Rig) -> int:
    """The process that keeps the lock of a rig's target."""
    holder = lock.standing(str(rig.target))
    assert holder is not None
    return int(holder.details["processes"][0][0])


@pytest.mark.slow
def test_two_sessions_at_once_measure_one_after_the_other(make_rig: Callable[..., Rig]) -> None:
    first = make_rig()
    second = make_rig(target=first.target)
    running = [start(rig, *RANDOM_READ) for rig in (first, second)]
    runs = [rig.finish(process) for rig, process in zip((first, second), running, strict=True)]
    for run in runs:
        assert {record["verdict"] for record in run.records} <= {"UNREFERENCED", "UNSTABLE"}, (
            run.out
        )
        said = {f["saw"] for f in run.record["findings"] if f["guard"] == "G19"}
        assert "the lock of the target was held throughout" in said
        # No more than half of the job's ten minutes, whatever limits.lock_wait says.
        assert json.loads(run.file("case.json").read_text())["lock_wait_s"] == 300
    (one,), (other,) = map(intervals, runs)
    assert one[1] <= other[0] or other[1] <= one[0]
    first.assert_clean()


@pytest.mark.slow
def test_who_waits_too_long_is_contaminated_and_names_the_holder(pair: tuple[Rig, Rig]) -> None:
    first, second = pair
    first.limits["phase_seconds"] = "60 s"
    first.write_settings()
    holding = hold(first)
    try:
        run = second.run(*RANDOM_READ)
        record = run.record
        assert record["verdict"] == "CONTAMINATED", run.out
        assert record["metrics"] == []
        assert run.rc == 0
        run.shows_no_pass()
        assert "CONTAMINATED" in run.out
        for word in ("FioRandomRead", os.uname().nodename, "limits.lock_wait", "iogauge clean"):
            assert word in record["reason"], record["reason"]
        held = second.iogauge("doctor", IOGAUGE_TARGET=str(first.target)).out.replace("\n", " ")
        assert "locked by user" in held
        kept = second.iogauge("clean", "--target", str(first.target))
        assert kept.rc == 0
        assert "kept: the lock of user" in kept.out
        assert "it is in use" in kept.out
    finally:
        os.kill(holding.pid, signal.SIGTERM)
        first.finish(holding, timeout=60)
    first.assert_clean()


@pytest.mark.slow
def test_the_janitor_breaks_the_lock_of_the_dead(pair: tuple[Rig, Rig]) -> None:
    first, second = pair
    first.limits["phase_seconds"] = "60 s"
    first.write_settings()
    process = hold(first)
    # First what keeps the lock: it would give it up when it sees that the rest is gone.
    first.kill(keeper_of(first), process.pid)
    process.communicate(timeout=100)
    told = second.iogauge("doctor", IOGAUGE_TARGET=str(first.target)).out.replace("\n", " ")
    assert "whose processes have ended" in told
    dry = first.iogauge("clean", "--dry-run")
    assert "would remove: the lock of user" in dry.out
    assert lock.standing(str(first.target)) is not None
    done = first.iogauge("clean")
    assert done.rc == 0
    assert "removed: the lock of user" in done.out, done.out
    first.assert_clean()
