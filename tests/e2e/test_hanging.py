"""Storage that stops answering: nothing waits for it longer than it must, and what is left is removed later."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig, processes, wait_for
from e2e.test_leaves_nothing import tools_of
from support.hanging import Hanging, Unavailable, mounted

#: ReFrame's start and end, agent and job, on a busy machine.
MARGIN_S = 45
PATIENCE_S = 30


@pytest.fixture
def mount(storage: Path) -> Iterator[Hanging]:
    folder = storage / f"hanging{time.monotonic_ns()}"
    folder.mkdir()
    try:
        with mounted(folder) as found:
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def rig(mount: Hanging, make_rig: Callable[..., Rig]) -> Rig:
    (mount.point / "target").mkdir()
    rig = make_rig(
        target=mount.point / "target",
        limits={"phase_seconds": "60 s", "case_bytes": "8 MiB"},
        # Then reads are O_DIRECT, which a daemon may be believed to honour.
        declared={"honours_o_direct": True},
    )
    rig.time_limit = "25s"
    rig.write_settings()
    return rig


RANDOM_READ = ("-n", "FioRandomRead%block=4KiB")


@pytest.mark.needs_fio
@pytest.mark.slow
def test_a_run_ends_with_an_error_and_the_janitor_removes_what_is_left(
    rig: Rig, mount: Hanging
) -> None:
    process = rig.start(["reframe", "-c", "checks/", "-r", *RANDOM_READ])
    wait_for(lambda: tools_of(rig), 40, "the tool")
    began = time.monotonic()
    time.sleep(1)
    mount.hang()
    run = rig.finish(process, timeout=25 + PATIENCE_S + MARGIN_S)
    took = time.monotonic() - began
    assert took >= 20, run.out  # the time limit ended it, nothing else
    run.never_passed(f"{rig.target} does not answer since {PATIENCE_S} s")
    assert run.record["verdict"] == "ERROR"
    assert re.search(r"TIMEOUT, time limit 25 s", run.record["reason"]), run.record["reason"]
    assert f"{rig.target} does not answer" in run.record["reason"]

    # The commands that look at the target do not hang either, and say what it is.
    for words in (["clean"], ["plan", *RANDOM_READ]):
        began = time.monotonic()
        done = rig.iogauge(*words, timeout=PATIENCE_S + MARGIN_S)
        assert done.rc == 1 and "does not answer since" in " ".join(done.out.split()), done.out
        assert time.monotonic() - began >= PATIENCE_S - 1

    mount.wake()
    wait_for(lambda: not processes(str(rig.base)), 20, "the processes that waited to end")
    assert any(p.is_file() for p in rig.leftovers())
    done = rig.iogauge("clean")
    assert done.rc == 0 and "removed: " in done.out, done.out
    rig.assert_clean()


@pytest.mark.slow
def test_doctor_and_bench_say_it_and_end(rig: Rig, mount: Hanging) -> None:
    mount.hang()
    for words in (["doctor"], ["bench"]):
        done = rig.iogauge(*words, timeout=120, IOGAUGE_TARGET=str(rig.target))
        assert done.rc == 1, done.out
        assert "does not answer since 30 s" in " ".join(done.out.split()), done.out
    mount.wake()


@pytest.mark.needs_fio
@pytest.mark.slow
def test_a_case_that_finds_the_target_hanging_is_stopped_like_any_other(
    rig: Rig, mount: Hanging
) -> None:
    mount.hang()
    process = rig.start(["reframe", "-c", "checks/", "-r", *RANDOM_READ])
    try:
        wait_for(lambda: list((rig.home / "reframe").rglob("case.json")), 40, "the job")
        time.sleep(3)
        os.kill(process.pid, signal.SIGTERM)
        run = rig.finish(process, timeout=PATIENCE_S + MARGIN_S)
    finally:
        mount.wake()
    run.never_passed("does not answer")
    assert {record["verdict"] for record in run.records} <= {"ERROR"}
    rig.assert_clean()
