"""job.sh with the real agent: the job has the target's lock for as long as it, or anything it started, may load it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from e2e.rig import processes, program_of, wait_for
from iogauge.core.paths import JOB_FILES
from iogauge.node import mounts
from iogauge.plan.observations import CONTENTS, LOST, read
from iogauge.workspace import directory, lock
from support.orders import job_order
from support.shell import kill, script

pytestmark = pytest.mark.slow


class Job:
    """A job script of one case on a target that others use too."""

    def __init__(self, base, name, **change):
        self.target, self.stage = base / "target", base / name
        self.target.mkdir(exist_ok=True)
        self.stage.mkdir()
        mount = mounts.find_mount(str(self.target))
        assert mount
        self.session = directory.session_dir(str(self.target), name)
        values = {
            "target": str(self.target),
            "type": mount.type,
            "session": name,
            "host": os.uname().nodename,
            "process": None,
            "held_bytes": 1 << 10,
            "pieces": 1,
            "restore": str(base / "restore"),
            "lock_wait_s": 60,
        }
        order = job_order(str(self.target), **values | change)
        (self.stage / "case.json").write_text(json.dumps(order.to_json()))

    def start(self, body):
        agent = f"/bin/sh {JOB_FILES}/agent.sh {sys.executable} open case.json"
        (self.stage / "job").write_text(
            f"export IOG_DIR=$CASE_DIR\n. {JOB_FILES}/job.sh\niog_case() {{\n{body}\n}}\niog_open {agent}\niog_repeat 1 1 iog_case\n"
        )
        self.process = subprocess.Popen(
            ["bash", "job"],
            cwd=self.stage,
            env={"PATH": os.environ["PATH"], "CASE_DIR": f"{self.session}/case"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def end(self):
        printed, _ = self.process.communicate(timeout=600)
        return self.process.returncode, printed

    def said(self, name):
        return json.loads((self.stage / name).read_text())

    def lost(self):
        """What the agent noted of the lock at the end; None if nothing."""
        return next(iter(read(self.stage).by_host(LOST).values()), None)

    def phases(self):
        lines = (self.stage / "phases.tsv").read_text().splitlines()
        return [
            (float(line.split("\t")[3]), float(line.split("\t")[4])) for line in lines
        ]

    def await_(self, name):
        wait_for((self.stage / name).exists, 30, name)

    @property
    def keeper(self):
        (found,) = [
            p for p in processes(str(self.stage)) if program_of(p).startswith("python")
        ]
        return found

    def holder(self):
        return str(lock.standing(str(self.target)))

    def held(self):
        return lock.standing(str(self.target)) is not None


@pytest.fixture
def job(tmp_path):
    made = []

    def make(name, **change):
        made.append(Job(tmp_path, name, **change))
        return made[-1]

    yield make
    for one in made:
        kill(*processes(str(one.stage)))
        one.process.communicate()


def left(one):
    """What lies on the target beside the directories of sessions, which are the session's to remove."""
    return [
        p.name
        for p in (one.target / "iogauge").iterdir()
        if p.name != directory.user_name()
    ]


WORK = "iog_phase work sleep 0.5"


def test_a_signal_waits_for_no_command_of_the_agent(job, tmp_path, monkeypatch):
    """The agent asks a program that does not answer: it is left, and the lock is given up."""
    slow = script(
        tmp_path / "bin" / "mpirun", "#!/bin/sh\ntouch began\nexec sleep 600\n"
    )
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    one = job("one").start('iog_phase facts iog_do facts "$IOG_DIR" facts')
    one.await_("began")
    one.process.terminate()
    status, printed = one.end()
    assert status == 143, printed
    assert one.lost() == ""
    assert not one.held() and left(one) == []


#: The job's directory is removed with a pause before and after.
SLOW_REMOVAL = (
    'eval "remove_now() $(declare -f iog_remove | tail -n +2)"; '
    'iog_remove() { sleep 0.5; remove_now "$@"; touch removed; sleep 1; }'
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_all_gives_the_lock_up_after_the_removal(job, number):
    one = job("one").start(
        f"{SLOW_REMOVAL}; iog_phase work bash -c 'sleep 0.5; touch began; sleep 600'"
    )
    one.await_("began")
    os.killpg(one.process.pid, number)
    os.kill(one.keeper, number)
    one.await_("removed")
    assert one.held()
    assert one.end()[0] != 0
    assert one.lost() == ""
    assert left(one) == []


def test_a_job_of_which_nothing_is_left_is_followed_at_once(job):
    one = job("one", lock_lease_s=3600).start(
        "iog_phase work bash -c 'touch began; sleep 600'"
    )
    one.await_("began")
    kill(one.keeper, one.process.pid, *processes(str(one.stage)))
    one.end()
    assert one.held()
    next_one = job("next").start(WORK)
    status, printed = next_one.end()
    assert status == 0, printed
    assert "session one" in printed
    assert "was broken: its processes have ended" in printed
    # What the dead job has left on the target is named.
    assert f"{one.session}/case" in (next_one.stage / "neighbours.txt").read_text()
    assert left(one) == []


def test_a_tool_that_outlives_its_script_still_has_the_lock(job):
    one = job("one").start("iog_phase work bash -c 'touch began; sleep 3; touch ended'")
    one.await_("began")
    one.process.kill()
    next_one = job("next").start("[ -e ../one/ended ] && iog_phase work true")
    status, printed = next_one.end()
    assert status == 0, printed
    assert one.lost() == ""


def test_a_keeper_that_was_stopped_says_that_the_lock_was_lost(job):
    one = job("one", lock_lease_s=2).start(
        "iog_phase work bash -c 'touch began; until [ -e go ]; do sleep 0.1; done'"
    )
    one.await_("began")
    keeper = one.keeper
    os.kill(keeper, signal.SIGSTOP)
    next_one = job("next").start(
        "iog_phase work bash -c 'touch began; until [ -e go ]; do sleep 0.1; done'"
    )
    next_one.await_("began")
    os.kill(keeper, signal.SIGCONT)
    (one.stage / "go").touch()
    status, printed = one.end()
    assert status == 0, printed
    assert "lost the lock of the target, which is held now by" in one.lost()
    assert "session next" in one.lost()
    assert "session next" in next_one.holder()
    (next_one.stage / "go").touch()
    assert next_one.end()[0] == 0
    assert next_one.lost() == ""
    assert f"{one.session}/case" in (next_one.stage / "neighbours.txt").read_text()


def test_a_keeper_that_was_killed_leaves_no_word(job):
    one = job("one").start(
        "iog_phase work bash -c 'touch began; until [ -e go ]; do sleep 0.1; done'"
    )
    one.await_("began")
    os.kill(one.keeper, signal.SIGKILL)
    (one.stage / "go").touch()
    status, printed = one.end()
    assert status == 0, printed
    assert one.lost() is None


def test_waiting_has_an_end_and_nothing_was_written(job):
    one = job("one").start("iog_phase work bash -c 'touch began; sleep 600'")
    one.await_("began")
    # Another partition on the same file system, and one whose target is no directory of this node.
    other = one.target.parent / "other"
    other.mkdir()
    locks = ("/nowhere", "/proc", str(one.target), str(other))
    second = job("second", target=str(other), locks=locks, lock_wait_s=1).start(WORK)
    status, printed = second.end()
    assert status == 3, printed
    assert "waiting for user" in printed
    opened = second.said("open.json")
    assert opened["refused"] == []
    for word in ("session one", "case case", f"host {os.uname().nodename}", "since 2"):
        assert word in opened["occupied"]
    assert second.phases() == []
    assert not os.path.exists(second.session)
    assert "session one" in one.holder()


def test_space_that_was_made_for_the_job_alone_needs_no_lock(job):
    one = job("one", locks=()).start("iog_phase work bash -c 'ls -A ../target/iogauge'")
    status, printed = one.end()
    assert status == 0, printed
    assert one.said("open.json")["locked"] is False
    assert (one.stage / "work.1.out").read_text().split() == [directory.user_name()]
    assert one.lost() is None


@pytest.mark.parametrize("held_bytes", [1 << 10, 1 << 60])
def test_a_refusal_gives_the_lock_up(job, held_bytes):
    one = job("one", held_bytes=held_bytes).start(WORK)
    assert one.end()[0] == (0 if held_bytes == 1 << 10 else 3)
    assert not one.held()


@pytest.mark.parametrize(
    "before", ["", 'kill -KILL "$IOG_KEEPER_PID"'], ids=["keeper", "none"]
)
def test_a_command_of_the_agent_gets_its_words_as_they_are(job, before):
    folder = "two  words, ü and \\x"
    body = (
        f'{before or ":"}\nmkdir "$IOG_DIR/{folder}"\necho 1 >"$IOG_DIR/{folder}/a"\n'
        f'iog_phase evict iog_do evict "$IOG_DIR/{folder}" "seen by"\n'
        f'iog_sample write "$IOG_DIR/{folder}"\niog_do evict 2>said || touch failed'
    )
    one = job("one").start(body)
    status, printed = one.end()
    assert status == 0, printed
    assert "['evict']: not a command of the agent" in (one.stage / "said").read_text()
    assert (one.stage / "failed").exists()
    assert read(one.stage).by_host("seen by")[os.uname().nodename]["files"] == 1
    if not before:
        assert read(one.stage).by_host(CONTENTS)[os.uname().nodename]["files"]


def test_without_the_keeper_an_agent_empties_the_directory(job):
    body = (
        'IOG_EMPTY_SECONDS=1\niog_phase put touch "$IOG_DIR/a"\n'
        'kill -STOP "$IOG_KEEPER_PID"\niog_reset\niog_phase after ls -A "$IOG_DIR"\n'
        'kill -CONT "$IOG_KEEPER_PID" 2>/dev/null || true'
    )
    one = job("one").start(body)
    one.end()
    assert (one.stage / "after.1.out").read_text() == ""
