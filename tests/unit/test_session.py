"""One run of ReFrame: its name, its places, and what it cleans up."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iogauge.core import paths
from iogauge.core.paths import LIBRARY
from iogauge.session import current
from iogauge.workspace import directory
from support.shell import completed

SOURCE = LIBRARY.parent


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("value", ["state", "~/state"])
def test_a_relative_place_is_refused(monkeypatch, value):
    monkeypatch.setenv("IOGAUGE_HOME", value)
    with pytest.raises(
        SystemExit, match=r"IOGAUGE_HOME is .*: expected an absolute path"
    ):
        paths.state_dir()


@pytest.mark.parametrize(
    "value, gate", [("1", True), ("YES", True), ("", False), ("0", False)]
)
def test_gate(monkeypatch, value, gate):
    monkeypatch.setenv("IOGAUGE_GATE", value)
    assert current.is_gate() is gate


def test_a_name_is_a_directory_name_and_ends_in_the_process(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "n-1.x/y é")
    name = current.new_session_name()
    assert name.endswith(f"-n-1-x-y-{os.getpid()}")
    assert name.rpartition("-")[2] == str(os.getpid())
    assert "/" not in name


def test_targets_that_are_none_are_left_out(home):
    home.mkdir()
    (home / "targets.txt").write_bytes(b"/a\0b\n\n../..\n-x\n/\x1b[2J\n/c\n")
    assert current.known_targets() == ["/c"]


def test_a_session_removes_its_own_directories_only(tmp_path):
    run = current.Session("mine")
    run.track(str(tmp_path))
    mine = Path(directory.create(str(tmp_path), "mine", "case"))
    other = Path(directory.create(str(tmp_path), "other", "case"))
    run.clean()
    assert not mine.parent.exists()
    assert other.exists()


def test_what_nobody_reads_keeps_no_directory_and_no_record(tmp_path):
    """As with a pipeline whose runner has gone, or `iogauge run | head`: the session still removes and decides."""
    case = Path(directory.create(str(tmp_path), "mine", "case"))
    code = (
        "import sys; from iogauge.session import current; run = current.Session('mine', {sys.argv[1]}); "
        "run.undecided['a', 'b', 'c', 'd'] = lambda why: (current.say('undecided'), open(sys.argv[2], 'w')); "
        "print('unread'); run.clean()"
    )
    source, pipe = os.pipe()
    os.close(source)
    words = [sys.executable, "-E", "-c", code, str(tmp_path), str(tmp_path / "decided")]
    subprocess.run(words, stdout=pipe, stderr=pipe, check=False)
    os.close(pipe)
    assert not case.parent.exists()
    assert (tmp_path / "decided").exists()


def test_what_cannot_be_removed_is_said_with_the_command(tmp_path, capsys):
    run = current.Session("mine", {str(tmp_path)})
    case = Path(directory.create(str(tmp_path), "mine", "case"))
    (case.parent / directory.MARKER).unlink()
    run.clean()
    assert (
        f"left behind, remove it with: iogauge clean --target {tmp_path}"
        in capsys.readouterr().err
    )
    assert case.exists()


@pytest.mark.parametrize(
    "gate, words, decided, status",
    [
        ("1", ["-r"], 0, 1),
        ("1", ["-rv"], 0, 1),
        ("1", ["-r"], 1, 0),
        ("1", ["-l"], 0, 2),
        ("", ["-r"], 0, 0),
    ],
)
def test_a_gate_that_decides_nothing_fails(tmp_path, gate, words, decided, status):
    script = (
        "from iogauge.session.current import current\n"
        "from iogauge.session.current import guard_gate\n"
        "from iogauge.workspace import directory\n"
        "guard_gate()\n"
        f"current().track({str(tmp_path)!r})\n"
        f"directory.create({str(tmp_path)!r}, current().name, 'case')\n"
        f"current().passed = {decided}\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "IOGAUGE_GATE": gate}
    done = completed([sys.executable, "-c", script, *words], env=environment)
    assert done.returncode == status, done.stderr
    said = {
        0: "nothing proven: no case was measured",
        1: "FAILED: this run",
        2: "a gate measures",
    }
    assert decided or said[status] in done.stderr
    assert ("no case was measured" in done.stderr) is not (decided or "-l" in words)
    assert not (tmp_path / "iogauge").exists()


def test_a_gate_takes_no_modules_from_elsewhere(tmp_path):
    """One of them may change the judge, as sitecustomize, or in the place of a module of Python."""
    script = (
        "from iogauge.session.current import guard_gate; guard_gate(); print('judged')"
    )
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{tmp_path}"}
    for gate, status in (("1", 2), ("", 0)):
        environment["IOGAUGE_GATE"] = gate
        done = completed([sys.executable, "-c", script, "-r"], env=environment)
        assert done.returncode == status, done.stderr
        assert (f"PYTHONPATH names {tmp_path}: modules" in done.stderr) is (status == 2)


def test_what_is_a_week_old_is_removed(home, tmp_path):
    """Stages of sessions, and ReFrame's logs; a link is none."""
    stages, logs = home / "reframe/stage", home / "logs"
    (stages / "old").mkdir(parents=True)
    (stages / "new").mkdir()
    (stages / "link").symlink_to("old")
    logs.mkdir()
    for name in ("old.log", "new.log", "old.txt"):
        (logs / name).touch()
    for file, days in (
        (stages / "old", 8),
        (logs / "old.log", 8),
        (logs / "old.txt", 8),
    ):
        os.utime(file, (time.time() - days * 86400,) * 2)
    said: list[str] = []
    for dry_run in (True, False):
        current.Janitor(dry_run, False, said.append).clean_targets([], str(tmp_path))
        kept = sorted(path.name for path in [*stages.iterdir(), *logs.iterdir()])
        old = ["old", "old.log"] * dry_run
        assert kept == sorted(["link", "new", "new.log", "old.txt", *old])
    gone = [stages / "old", logs / "old.log"]
    would = [f"would remove: {path} (a week old)" for path in gone]
    assert said == [*would, *(f"removed: {path} (a week old)" for path in gone)]


def test_the_stage_of_a_session_that_runs_is_not_old(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    current.Session("mine").track(str(tmp_path / "target"))
    stage = tmp_path / "reframe" / "stage" / "mine"
    whose = stage / ".iogauge-session"

    def old(days, **change):
        whose.write_text(json.dumps(json.loads(whose.read_text()) | change))
        os.utime(stage, (time.time() - days * 86400,) * 2)
        return current.old_stages() == [stage]

    assert not old(100)
    assert old(8, process=[os.getpid(), 1])
    assert not old(8, host="elsewhere")  # its jobs may wait
    assert old(29)


def test_a_caller_may_name_the_session(monkeypatch):
    monkeypatch.setattr(current, "_current", None)
    monkeypatch.setenv("IOGAUGE_SESSION", "given")
    assert current.current().name == "given"
    assert current.current() is current.current()
