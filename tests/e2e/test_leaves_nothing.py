"""Whatever ends a run, nothing of ours stays on the target; what a hard end leaves, ``clean`` removes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rig, processes, program_of, wait_for
from e2e.test_never_pass import IOR
from e2e.test_values import METADATA

#: Tools and launchers; ReFrame, the job script and the agent are Python and bash.
PROGRAMS = ("fio", "ior", "mdtest", "mpirun", "orted", "prterun")


def tools_of(rig: Rig) -> list[int]:
    """Tool processes that a rig's run has started and that are still there."""
    return [pid for pid in processes(str(rig.base)) if program_of(pid) in PROGRAMS]


#: Tools of a running case: what a signal to the session ends, and what a signal to its job ends.
_OF_SESSION = [
    "fio",
]
_OF_JOB = [
    "ior",
]


@pytest.fixture
def running(request: pytest.FixtureRequest, make_rig: Callable[..., Rig]) -> tuple[Rig, list[str]]:
    """A rig, and the command of a case whose first phase takes many seconds."""
    if request.param == "fio":
        if shutil.which("fio") is None:
            pytest.skip("not on PATH: fio")
        rig = make_rig(limits={"phase_seconds": "60 s", "case_bytes": "64 MiB"})
        return rig, ["-n", "FioRandomRead%block=4"]
    if shutil.which("ior") is None or shutil.which("mpirun") is None:
        pytest.skip("not on PATH: ior, mpirun")
    rig = make_rig(tools=("ior",), limits={"case_bytes": "4 GiB"})
    return rig, [*IOR, "-S", "transfer_bytes=4096"]


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


@pytest.mark.slow
@pytest.mark.parametrize("running", _OF_SESSION, indirect=True)
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.quick),
    ],
)
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


@pytest.mark.slow
@pytest.mark.parametrize("running", _OF_SESSION, indirect=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("running", _OF_JOB, indirect=True)
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


@pytest.mark.needs_fio
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


class TestCleanRefuses:
    """What is not provably ours is not touched."""

    @pytest.fixture
    def rig(self, make_rig: Callable[..., Rig]) -> Rig:
        return make_rig()

    def refused(self, rig: Rig, path: Path, *why: str) -> None:
        run = rig.iogauge("clean", str(path), "--target", str(rig.target))
        assert run.rc == 1, run.out
        assert "refused" in run.out
        for word in why:
            assert word in run.out.replace("\n", " "), run.out

    def session(self, rig: Rig, marker: bool = True) -> Path:
        session = rig.target / "iogauge" / "somebody" / "20260101T000000-host-1"
        session.mkdir(parents=True)
        (session / "data").write_text("precious")
        if marker:
            (session / ".iogauge-session").write_text("{}")
        return session

    def test_no_marker(self, rig: Rig) -> None:
        session = self.session(rig, marker=False)
        self.refused(rig, session, "no marker")
        assert (session / "data").read_text() == "precious"

    def test_links_below_are_not_followed(self, rig: Rig) -> None:
        session = self.session(rig)
        outside = rig.target / "outside"
        outside.mkdir()
        (outside / "data").write_text("precious")
        (session / "link").symlink_to(outside)
        run = rig.iogauge("clean", str(session), "--target", str(rig.target))
        assert run.rc == 0 and "removed: " in run.out, run.out
        assert not session.exists()
        assert (outside / "data").read_text() == "precious"


@pytest.mark.needs_fio
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
