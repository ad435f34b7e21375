"""Storage that stops answering: nothing waits for it longer than it must, and what is left is removed later."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig, processes, wait_for
from e2e.test_leaves_nothing import tools_of
from iogauge.workspace import lock
from support.hanging import Frozen, Hanging, Unavailable, mounted

#: ReFrame's start and end, agent and job, on a busy machine.
MARGIN_S = 45
#: Seconds for which a target may be silent, and how a site says so.
ANSWER_S = 5
SILENCE = {"IOGAUGE_SILENCE_S": str(ANSWER_S)}


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
        # What waits for the target are children that ReFrame forks: here they are a cold command's.
        cold=True,
        # Then reads are O_DIRECT, which a daemon may be believed to honour.
        declared={"honours_o_direct": True},
    )
    rig.time_limit = "15s"
    rig.write_settings()
    return rig


RANDOM_READ = ("-n", "FioRandomRead%block=4KiB")


@pytest.mark.needs_fio
@pytest.mark.slow
def test_a_run_ends_with_an_error_and_the_janitor_removes_what_is_left(
    rig: Rig, mount: Hanging
) -> None:
    process = rig.start(["reframe", "-c", "checks/", "-r", *RANDOM_READ], **SILENCE)
    wait_for(lambda: tools_of(rig), 40, "the tool")
    time.sleep(1)
    mount.hang()
    run = rig.finish(process, timeout=15 + ANSWER_S + MARGIN_S)
    run.never_passed(f"{rig.target} has not answered for {ANSWER_S} s")
    assert run.record["verdict"] == "ERROR"
    # The time limit ended it, nothing else.
    assert re.search(r"TIMEOUT, time limit 15 s", run.record["reason"]), run.record["reason"]
    assert f"{rig.target} has not answered" in run.record["reason"]

    # The commands that look at the target do not hang either, and say what it is.
    for words in (["clean"], ["plan", *RANDOM_READ]):
        began = time.monotonic()
        done = rig.iogauge(*words, timeout=ANSWER_S + MARGIN_S, **SILENCE)
        told = " ".join(done.out.split())
        assert done.rc == 1 and f"{rig.target} has not answered for" in told, done.out
        assert "watching the lock" not in told
        assert time.monotonic() - began >= ANSWER_S - 1

    mount.wake()
    wait_for(lambda: not processes(str(rig.base)), 20, "the processes that waited to end")
    assert any(p.is_file() for p in rig.leftovers())
    done = rig.iogauge("clean")
    assert done.rc == 0 and "removed: " in done.out, done.out
    rig.assert_clean()


@pytest.mark.needs_loop
@pytest.mark.slow
def test_a_lock_is_not_watched_for_ever_on_a_target_that_stops_answering(
    make_rig: Callable[..., Rig], small_fs: Callable[..., Path]
) -> None:
    """It answers when it is looked at, and hangs when it is written to: when the lock is broken."""
    rig = make_rig(target=small_fs("ext4", 64 << 20), limits={"lock_lease": "2 s"})
    said = {"host": "elsewhere", "lease_s": 2}
    assert lock.Lock(str(rig.target), json.dumps(said).encode() + b"\n").claim()
    frozen = Frozen(rig.target)
    frozen.hang()
    try:
        words = ["clean", "--target", str(rig.target)]
        done = rig.iogauge(*words, timeout=ANSWER_S + MARGIN_S, **SILENCE)
    finally:
        frozen.wake()
    told = " ".join(done.out.split())
    assert done.rc == 1 and "watching the lock" in told, done.out
    assert f"{rig.target} has not answered for" in told, done.out
    # What had been begun is ended by the kernel when it goes on, though who began it was killed.
    done = rig.iogauge("clean", "--target", str(rig.target))
    assert done.rc == 0, done.out
    rig.assert_clean()


@pytest.mark.slow
def test_doctor_and_bench_say_it_and_end(rig: Rig, mount: Hanging) -> None:
    """Doctor waits for the time that holds if a site says nothing."""
    mount.hang()
    for words, said, seconds in (["doctor"], {}, 30), (["bench"], SILENCE, ANSWER_S):
        done = rig.iogauge(*words, timeout=120, IOGAUGE_TARGET=str(rig.target), **said)
        assert done.rc == 1, done.out
        assert f"has not answered for {seconds} s" in " ".join(done.out.split()), done.out
    mount.wake()
