"""A process is named by its number and its start; what a job has left working for its case is found and ended."""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from iogauge.core import processes
from support.shell import completed


@pytest.fixture
def start():
    """Starts programs with IOG_DIR set; None: without."""
    running = []

    def start(directory, *words):
        environment = {"PATH": os.environ["PATH"]} | (
            {"IOG_DIR": str(directory)} if directory else {}
        )
        running.append(subprocess.Popen(words or ("sleep", "600"), env=environment))
        while processes.started(running[-1].pid) and not Path(
            f"/proc/{running[-1].pid}/cmdline"
        ).read_bytes().startswith(b"sleep\0"):
            time.sleep(0.01)
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.wait()


def test_a_number_alone_names_nobody(start):
    pid, began = processes.identity(start(None).pid)
    assert processes.runs([pid, began])
    assert not processes.runs([pid, began - 1])
    assert processes.runs("damaged")  # that cannot be told


def test_one_that_has_ended_does_not_run(start):
    one = start(None)
    name = processes.identity(one.pid)
    one.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.runs(name)  # a zombie
    one.wait()
    assert not processes.runs(name)


def test_what_works_in_a_directory_is_ended_and_nothing_else(start, tmp_path):
    session = tmp_path / "session"
    # As fio's: in a session of its own, and stopped.
    case = start(session / "case", "setsid", "sleep", "600")
    itself = start(session)
    beside = start(tmp_path / "session2" / "case")
    above = start(tmp_path)
    none = start(None)
    assert processes.of_case(str(session)).keys() == {case.pid, itself.pid}
    said = processes.end(str(session))
    assert sorted(said) == sorted(
        f"killed sleep (process {one.pid}), which was still at work there"
        for one in (case, itself)
    )
    assert case.wait(600) == itself.wait(600) == -9
    assert [one.poll() for one in (beside, above, none)] == [None] * 3
    assert processes.end(str(session)) == []


def test_what_tidies_up_spares_those_it_descends_from(tmp_path):
    """A shell of the job's, and what may wrap its Python."""
    code = (
        f"from iogauge.core import processes; print(processes.end({str(tmp_path)!r}))"
    )
    words = ["sh", "-c", '"$0" -c "$1"; echo lives', sys.executable, code]
    environment = os.environ | {"IOG_DIR": str(tmp_path)}
    done = completed(words, env=environment)
    assert done.stdout == "[]\nlives\n", done


@pytest.mark.needs_root
def test_another_users_process_is_left_alone(tmp_path):
    words = ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "600"]
    other = subprocess.Popen(words, env=os.environ | {"IOG_DIR": str(tmp_path)})
    try:
        # Before that it is root's: first ours, then setpriv.
        while (
            not Path(f"/proc/{other.pid}/cmdline").read_bytes().startswith(b"sleep\0")
        ):
            time.sleep(0.01)
        assert processes.end(str(tmp_path)) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_keeps_the_lock_is_left_alone(tmp_path):
    environment = os.environ | {"IOG_DIR": str(tmp_path), "IOG_KEEPS": "1"}
    keeper = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        assert processes.end(str(tmp_path)) == []
        assert keeper.poll() is None
    finally:
        keeper.kill()
        keeper.wait()


@pytest.mark.parametrize(
    "main, status",
    [
        (lambda: None, 0),
        (lambda: sys.exit(3), 3),
        (lambda: 1 / 0, 1),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
    ],
)
def test_a_fork_ends_as_a_program_does(main, status):
    assert processes.Fork.printed(main, ["program"], {})[0] == status


def test_a_fork_does_nothing_of_what_its_starter_does_at_its_end(tmp_path):
    kept = tempfile.TemporaryDirectory(dir=tmp_path)
    left = atexit.register(Path(tmp_path, "left").touch)
    fork = processes.Fork(
        lambda: Path(tmp_path, Path("/proc/self/comm").read_text()).touch(), ["a/b"], {}
    )
    assert fork.wait() == 0
    atexit.unregister(left)
    assert {file.name.strip() for file in tmp_path.iterdir()} == {
        "b",
        Path(kept.name).name,
    }


# --- work that is attended ------------------------------------------------------------------------


def attended(work, monkeypatch):
    """What it answers, and how often it was said to be alive; nobody says anything to it."""
    monkeypatch.setattr(processes, "ALIVE_S", 0.05)
    signs = []
    heard, said = os.pipe()
    try:
        return processes.attended(work, heard, lambda: signs.append(1)), len(signs)
    finally:
        os.close(heard)
        os.close(said)


def failing():
    raise OSError("the target is gone")


def test_attended_work_answers(monkeypatch):
    assert attended(lambda: True, monkeypatch)[0]
    assert not attended(lambda: False, monkeypatch)[0]
    assert not attended(failing, monkeypatch)[0]
    assert not attended(
        lambda: os.kill(os.getpid(), signal.SIGKILL) is None, monkeypatch
    )[0]
    done, signs = attended(lambda: time.sleep(1.5) is None, monkeypatch)
    assert done and signs >= 2


def test_work_that_nobody_waits_for_is_ended():
    heard, said = os.pipe()
    os.write(said, b"end\n")
    assert not processes.attended(lambda: time.sleep(60) is None, heard, lambda: None)
    os.close(heard)
    os.close(said)
