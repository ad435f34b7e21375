"""Whatever ends a run, nothing of ours stays on the target; what a hard end leaves, ``clean`` removes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from e2e.rig import Rig, processes, program_of, wait_for
from e2e.test_values import METADATA

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]

#: Tools and launchers; ReFrame, the job script and the agent are Python and bash.
PROGRAMS = ("fio", "ior", "mdtest", "mpirun", "orted", "prterun")


def tools_of(rig: Rig) -> list[int]:
    """Tool processes that a rig's run has started and that are still there."""
    return [pid for pid in processes(str(rig.base)) if program_of(pid) in PROGRAMS]


@pytest.fixture
def running(make_rig: Callable[..., Rig]) -> tuple[Rig, list[str]]:
    """A rig, and the command of a case whose first phase takes many seconds."""
    rig = make_rig(limits={"phase_seconds": "60 s", "case_bytes": "64 MiB"})
    return rig, ["-n", "FioRandomRead%block=4"]


def start_and_wait(rig: Rig, arguments: list[str]) -> subprocess.Popen[str]:
    process = rig.start(["reframe", "-c", "checks/", "-r", *arguments])
    # In the middle of a phase: the tool runs, and data is on the target.
    wait_for(lambda: tools_of(rig), 40, "the tool")
    wait_for(
        lambda: any(
            p.is_file() and p.stat().st_size > 0
            for p in rig.leftovers()
            if p.name != ".iogauge-session"
        ),
        40,
        "data on the target",
    )
    return process


@pytest.mark.quick
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal(running: tuple[Rig, list[str]], number: signal.Signals) -> None:
    rig, arguments = running
    process = start_and_wait(rig, arguments)
    os.kill(process.pid, number)
    run = rig.finish(process, timeout=60)
    assert run.rc != 0, run.out
    run.shows_no_pass()
    reason = f"run: {number.name} told the session to end, before the case was decided"
    assert run.record["reason"] == reason
    wait_for(lambda: not tools_of(rig), 10, "the tools to end")
    wait_for(lambda: not processes(str(rig.base)), 10, "the job to end")
    rig.assert_clean()


def test_kill_leaves_and_clean_removes(running: tuple[Rig, list[str]]) -> None:
    rig, arguments = running
    process = start_and_wait(rig, arguments)
    # The session first, then whatever it had started: nobody is left to tidy up.
    rig.kill(process.pid)
    process.communicate(timeout=100)
    left = [path for path in rig.leftovers() if path.is_file()]
    assert any(path.name == ".iogauge-session" for path in left), left

    dry = rig.iogauge("clean", "--dry-run")
    assert dry.rc == 0 and "would remove" in dry.out
    assert [path for path in rig.leftovers() if path.is_file()] == left

    first = rig.iogauge("clean")
    assert first.rc == 0 and "removed: " in first.out, first.out
    rig.assert_clean()
    second = rig.iogauge("clean")
    assert second.rc == 0 and "nothing to remove" in second.out


def test_job_alone_stops_its_tool_and_tidies_up(running: tuple[Rig, list[str]]) -> None:
    """As under a batch system: the session is gone, and only the job script is told to end."""
    rig, arguments = running
    process = start_and_wait(rig, arguments)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=100)
    scripts = [p for p in processes("rfm_job.sh") if p in processes(str(rig.base))]
    os.kill(min(scripts), signal.SIGTERM)
    wait_for(lambda: not processes(str(rig.base)), 20, "job and tools to end")
    # The session's own directory and marker are the session's to remove, or the janitor's.
    assert [p.name for p in rig.leftovers() if not p.is_dir()] == [".iogauge-session"]
    assert rig.iogauge("clean").rc == 0
    rig.assert_clean()


def test_a_living_session_is_kept(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(limits={"phase_seconds": "60 s"})
    process = start_and_wait(rig, ["-n", "FioRandomRead%block=4"])
    try:
        kept = rig.iogauge("clean")
        assert kept.rc == 0 and "kept: " in kept.out, kept.out
        assert rig.leftovers()
    finally:
        os.kill(process.pid, signal.SIGTERM)
        rig.finish(process, timeout=60)
    rig.assert_clean()


def test_what_is_not_provably_ours_is_not_touched(make_rig: Callable[..., Rig]) -> None:
    """No marker: refused. Links below a session are removed, and not followed."""
    rig = make_rig()
    session = rig.target / "iogauge" / "somebody" / "20260101T000000-host-1"
    outside = rig.target / "outside"
    for folder in (session, outside):
        folder.mkdir(parents=True)
        (folder / "data").write_text("precious")
    (session / "link").symlink_to(outside)
    words = ("clean", str(session), "--target", str(rig.target))
    refused = rig.iogauge(*words)
    assert refused.rc == 1 and "no marker" in " ".join(refused.out.split()), refused.out
    assert (session / "data").read_text() == "precious"
    (session / ".iogauge-session").write_text("{}")
    done = rig.iogauge(*words)
    assert done.rc == 0 and "removed: " in done.out, done.out
    assert not session.exists()
    assert (outside / "data").read_text() == "precious"


def test_what_lay_there_before_stays(make_rig: Callable[..., Rig]) -> None:
    """A target with files of its own, and another user's session, is as it was."""
    rig = make_rig(limits={"case_files": 100})
    other = rig.target / "iogauge" / "somebody" / "session"
    other.mkdir(parents=True)
    (other / "data").write_text("theirs")
    (rig.target / "data").write_text("mine")
    before = sorted(rig.target.rglob("*"))
    rig.run(*METADATA)
    assert sorted(rig.target.rglob("*")) == before
