"""job.sh in a real bash: fates are written down, and nothing stays behind, whatever ends the job."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.rig import wait_for
from iogauge.core.paths import JOB_FILES

JOB_SH = JOB_FILES / "job.sh"
AGENT_WORDS = f"/bin/sh {JOB_FILES}/agent.sh {sys.executable}"
AGENT = 'mkdir -p "$CASE_DIR" && touch "${CASE_DIR%/*}/.iogauge-session"'


class Job:
    """A job script in its own stage directory, with a case directory on a target."""

    def __init__(self, base, name="case"):
        self.stage = base / "stage"
        self.stage.mkdir()
        self.directory = base / "target" / "iogauge" / "user" / "session" / name
        self.bystander = self.directory.parent / "bystander"
        self.variables: dict[str, str] = {}

    def start(self, body, agent=AGENT, repeat="1 1"):
        # Removing is the real agent's.
        (self.stage / "agent").write_text(
            f'[ "$1" = open ] || exec {AGENT_WORDS} "$@"\n{agent}'
        )
        script = (
            f"export IOG_DIR=$CASE_DIR\n. {JOB_SH}\niog_case() {{\n{body}\n}}\n"
            f"iog_open bash ./agent open case.json\niog_repeat {repeat} iog_case\n"
        )
        (self.stage / "job").write_text(script)
        return subprocess.Popen(
            ["bash", "job"],
            cwd=self.stage,
            env={
                "PATH": os.environ["PATH"],
                "CASE_DIR": str(self.directory),
                "PYTHONHOME": "/set/by/a/module",
                **self.variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, body, agent=AGENT, repeat="1 1"):
        process = self.start(body, agent, repeat)
        printed, _ = process.communicate(timeout=600)
        return process.returncode, printed

    def phases(self):
        lines = (self.stage / "phases.tsv").read_text().splitlines()
        return [line.split("\t") for line in lines]

    def text(self, name):
        return (self.stage / name).read_text()

    def await_file(self, path):
        wait_for(lambda: path.exists() and path.read_text(), 10, str(path))


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def gone(pid):
    with contextlib.suppress(FileNotFoundError):
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        )
    return True


@pytest.mark.parametrize("code", [2, 255])
def test_a_phase_that_fails_ends_the_job_with_its_status(job, code):
    status, printed = job.run(
        f"iog_phase bad bash -c 'echo no space >&2; exit {code}'; iog_phase next true",
        repeat="1 3",
    )
    assert status == code
    assert [line[:3] for line in job.phases()] == [["1", "bad", str(code)]]
    assert f"phase bad, repetition 1: exit status {code}" in printed
    assert "no space" in printed
    assert not job.directory.exists()


def test_functions_of_the_caller_take_no_builtins_place(job, tmp_path, monkeypatch):
    """Seen: a "read" in BASH_ENV that slowed the seconds since boot down. What is no builtin, such as "module", stays."""
    slow = (
        'read() { builtin read "$@"; local s=$?; started=1.00 ended=1.00; return $s; }'
    )
    (tmp_path / "env").write_text(
        f"{slow}\nwait() {{ :; }}\nmodule() {{ echo loaded; }}\n"
    )
    monkeypatch.setattr(job, "variables", {"BASH_ENV": str(tmp_path / "env")})
    status, printed = job.run("iog_phase nap sleep 0.3; module")
    assert status == 0 and "loaded" in printed
    ((_, _, _, started, ended, _),) = job.phases()
    assert float(started) > 1 and float(ended) - float(started) > 0.2


def test_a_tool_that_is_killed_ends_the_job_as_killed(job):
    status, _ = job.run("iog_phase bad bash -c 'kill -KILL $$'")
    assert (status, job.phases()[0][2]) == (137, "137")
    assert not job.directory.exists()


@pytest.mark.parametrize("name", ["a b", "$HOME", "-rf", "new\nline"])
def test_a_name_that_the_shell_could_misread(tmp_path, name):
    job = Job(tmp_path, name)
    agent = (
        AGENT.replace("mkdir -p", "mkdir -p --")
        + ' && mkdir "${CASE_DIR%/*}/bystander"'
    )
    status, printed = job.run('iog_reset; iog_phase p touch "$IOG_DIR/x"', agent=agent)
    assert status == 0, printed
    assert sorted(os.listdir(job.directory.parent)) == [".iogauge-session", "bystander"]


@pytest.mark.parametrize(
    "agent",
    [
        'mkdir -p "$CASE_DIR"',
        'mkdir -p "$CASE_DIR" && mkdir "${CASE_DIR%/*}/.iogauge-session"',
        'mkdir -p "$CASE_DIR" && touch "$CASE_DIR/.iogauge-session"',
    ],
)
def test_a_directory_without_our_marker_beside_it_stays(job, agent):
    job.run("iog_phase p true", agent=agent)
    assert job.directory.is_dir()


def test_a_link_in_place_of_the_directory_is_not_followed(job, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").touch()
    job.run(
        "iog_phase p true",
        agent=AGENT + f' && rmdir "$CASE_DIR" && ln -s "{precious}" "$CASE_DIR"',
    )
    assert (precious / "data").exists()
    assert job.directory.is_symlink()


def test_a_directory_outside_iogauge_stays(tmp_path):
    job = Job(tmp_path)
    job.directory = tmp_path / "target" / "a" / "b" / "c" / "d"
    job.run("iog_phase p true")
    assert job.directory.is_dir()


def test_without_python_nothing_is_removed_and_that_is_said(job):
    """The marker is there, so that the janitor can."""
    status, printed = job.run("echo 'exit 127' >agent; iog_phase p true")
    assert status == 0
    assert f"left behind: {job.directory}" in printed
    assert sorted(os.listdir(job.directory.parent)) == [".iogauge-session", "case"]


def test_reset_empties_the_directory_and_keeps_it(job):
    status, printed = job.run(
        'iog_reset; iog_phase p bash -c \'ls -A "$0" && mkdir "$0/d" && touch "$0/d/x" "$0/.y"\' "$IOG_DIR"',
        repeat="1 2",
    )
    assert status == 0, printed
    assert [job.text(f"p.{n}.out") for n in (1, 2)] == ["", ""]


SIGNALS = [
    ("TERM", 143),
    ("INT", 130),
    ("USR1", 138),
]


@pytest.mark.parametrize("name, status", SIGNALS)
def test_a_signal_stops_the_tool_and_removes_the_directory(job, name, status):
    process = job.start(
        'iog_phase p bash -c \'echo data >"$0/data"; echo $$ >pid; exec sleep 600\' "$IOG_DIR"'
    )
    job.await_file(job.stage / "pid")
    process.send_signal(signal.Signals[f"SIG{name}"])
    assert process.wait(600) == status
    assert not job.directory.exists()
    assert gone(int(job.text("pid")))
    assert job.text("told.txt") == f"{name}\n"


def test_a_tool_that_ignores_the_signal_is_killed(job):
    process = job.start(
        "iog_phase p bash -c 'trap \"\" TERM INT; echo $$ >pid; while :; do sleep 0.05; done'"
    )
    job.await_file(job.stage / "pid")
    process.terminate()
    assert process.wait(600) == 143
    assert gone(int(job.text("pid")))
    assert not job.directory.exists()


def test_a_tool_is_told_before_it_is_killed(job):
    """srun ends what it has started elsewhere only if it is told."""
    process = job.start(
        "iog_phase p bash -c 'trap \"echo told >heard; exit\" TERM; echo $$ >pid; while :; do sleep 0.05; done'"
    )
    job.await_file(job.stage / "pid")
    process.terminate()
    assert process.wait(600) == 143
    assert job.text("heard") == "told\n"


def test_a_job_ends_after_the_lock_was_given_up(job):
    """What the agent writes of it then must be there when the case is judged."""
    keeper = "\necho opened; read -r; sleep 1; touch given-up"
    process = job.start("iog_phase p true", agent=AGENT + keeper)
    assert process.wait(600) == 0
    assert (job.stage / "given-up").exists()


def test_a_second_signal_does_not_stop_the_removal(job):
    process = job.start(
        'iog_phase p bash -c \'trap "echo told >heard" TERM; trap "" INT; echo $$ >pid; while :; do sleep 0.05; done\''
    )
    job.await_file(job.stage / "pid")
    process.terminate()
    # Of signals that wait bash takes the lowest number first: the first one must have arrived.
    job.await_file(job.stage / "heard")
    for _ in range(5):
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    assert process.wait(600) == 143
    assert not job.directory.exists()
