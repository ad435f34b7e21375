"""background.sh: a signal may come at any moment, and no process is left behind."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from e2e.rig import processes, program_of, wait_for
from iogauge.core.paths import JOB_FILES
from support import compiler
from support.project import TESTS
from support.shell import completed, kill

LIBRARY = JOB_FILES
SUPPORT = TESTS / "support"
FIO_JOB = """[write]
rw=write
bs=64k
size=1m
numjobs=2
runtime=60
time_based=1
ioengine=psync
"""
#: Writes for a minute.
NEXT = "print('1 write --section=write')"
SWEEP = [
    "sh",
    str(LIBRARY / "rounds.sh"),
    "write.fio",
    "9",
    "--",
    sys.executable,
    "-c",
    NEXT,
]
WITNESS = ["sh", str(LIBRARY / "witness.sh"), ".", "write.1", "fio", "write.fio"]
#: Lets a case begin, and ends with the job script.
AGENT = '[ "$1" = open ] || exit 0\nmkdir -p "$IOG_DIR"\necho opened\nread -r _\n'
JOB = f"""
. {LIBRARY}/job.sh
iog_case() {{ iog_phase work sh {LIBRARY}/witness.sh . work.1 sleep 600; }}
iog_open sh ./agent open case.json
$PREPARE
iog_repeat 1 1 iog_case
"""


@pytest.fixture(scope="module")
def signalled(tmp_path_factory):
    """The library that sends a shell TERM at one of its forks, or just before it waits for a pipe."""
    compiler.demand()
    file = tmp_path_factory.mktemp("signalled") / "signalled.so"
    source = str(SUPPORT / "signalled.c")
    words = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(file), source, "-ldl"]
    completed(words, check=True)
    return str(file)


class Scripts:
    """Scripts in a directory of their own, whose processes are known by a variable."""

    def __init__(self, base):
        self.base = base
        self.number = 0
        (base / "write.fio").write_text(FIO_JOB)
        (base / "agent").write_text(AGENT)
        (base / "job").write_text(JOB)

    @property
    def token(self):
        """What the processes of the newest script have in their environment."""
        return f"{self.base}/iogauge/user/session/{self.number}-"

    def start(self, words, **environment):
        self.number += 1
        own = {"PATH": os.environ["PATH"], "IOG_DIR": self.token}
        return subprocess.Popen(
            words,
            cwd=self.base,
            env=own | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def left(self):
        """Programs of the newest script that are there."""
        return [name for pid in processes(self.token) if (name := program_of(pid))]


@pytest.fixture
def scripts(tmp_path):
    made = Scripts(tmp_path)
    yield made
    kill(*processes(str(tmp_path)))


@pytest.mark.needs_fio
@pytest.mark.parametrize("words", [SWEEP, WITNESS], ids=["sweep", "witness"])
def test_a_signal_between_the_start_and_the_next_line(scripts, signalled, words):
    process = scripts.start(words, AT_FORK="1", LD_PRELOAD=signalled)
    assert process.wait(600) == 143
    assert scripts.left() == []


def test_a_program_that_hangs_in_its_handler_is_killed_with_its_children(scripts):
    """fio 3.33 does, if TERM comes while it starts one of its jobs; these have sessions of their own."""
    compiler.demand()
    program = scripts.base / "hangs"
    words = ["gcc", "-O2", "-o", str(program), str(SUPPORT / "hangs.c")]
    completed(words, check=True)
    process = scripts.start([*WITNESS[:4], str(program)])
    wait_for(
        lambda: scripts.left().count("hangs") == 2, 30, "the program and its child"
    )
    time.sleep(0.2)
    process.terminate()
    assert process.wait(600) == 143
    wait_for(lambda: not scripts.left(), 10, "the end of all processes")


def test_a_signal_at_every_start_of_a_job(scripts, signalled):
    """From the first to the tool's; an agent that was not told to begin ends by itself."""
    number = 0
    while not (scripts.base / "work.1.out").exists():
        number += 1
        process = scripts.start(
            ["bash", "job"], AT_FORK=str(number), LD_PRELOAD=signalled, PREPARE="true"
        )
        assert process.wait(600) == 143
        wait_for(
            lambda: not scripts.left(),
            10,
            f"the end after the signal at start {number}",
        )
    assert number >= 2


@pytest.mark.parametrize(
    "opened",
    [
        "touch moment; echo words; ",
        'mkdir -p "$IOG_DIR"; touch moment; echo opened; read -r _; ',
    ],
    ids=["opens", "is asked"],
)
def test_a_signal_just_before_the_script_waits_for_its_agent(
    scripts, signalled, opened
):
    """An agent that opens a case, or runs a command, may say nothing for minutes: no job waits for its next word."""
    (scripts.base / "agent").write_text(
        f'[ "$1" = open ] || exit 0\n{opened}read -r _\n'
    )
    job = JOB.replace("iog_phase work", "iog_do facts; iog_phase work")
    (scripts.base / "job").write_text(job)
    moment = scripts.base / "moment"
    process = scripts.start(
        ["bash", "job"], AT_READ=str(moment), LD_PRELOAD=signalled, PREPARE="true"
    )
    assert process.wait(600) == 143
    assert not moment.exists()
    assert (scripts.base / "told.txt").read_text() == "TERM\n"
    wait_for(lambda: not scripts.left(), 10, "the end of all processes")


def test_no_answer_of_the_agent_is_lost(scripts, signalled):
    """The script has no core just as it has read the end of the answer: bash 5.2 forgets what it read as a limit passed."""
    answers = "touch moment; while read -r asked; do echo; echo done $asked; done"
    code = f'[ "$1" = open ] || exit 0\nmkdir -p "$IOG_DIR"; echo opened; {answers}\n'
    (scripts.base / "agent").write_text(code)
    job = JOB.replace("iog_phase work", "iog_do facts; touch heard; iog_phase work")
    (scripts.base / "job").write_text(job)
    moment = scripts.base / "moment"
    process = scripts.start(
        ["bash", "job"], LATE=str(moment), LD_PRELOAD=signalled, PREPARE="true"
    )
    wait_for((scripts.base / "heard").exists, 30, "the answer")
    assert not moment.exists()
    process.terminate()
    assert process.wait(600) == 143


def test_the_alarm_of_flux_ends_a_script_that_waits_for_its_agent(scripts):
    """bash before 5.2 has an alarm of its own for a read of limited time."""
    opened = 'mkdir -p "$IOG_DIR"; echo opened; read -r _; '
    code = f'[ "$1" = open ] || exit 0\n{opened}touch asked; read -r _\n'
    (scripts.base / "agent").write_text(code)
    (scripts.base / "job").write_text(
        JOB.replace("iog_phase work", "iog_do facts; iog_phase work")
    )
    process = scripts.start(["bash", "job"], PREPARE="true")
    wait_for((scripts.base / "asked").exists, 10, "the agent to be asked")
    time.sleep(0.3)
    process.send_signal(signal.SIGALRM)
    assert process.wait(600) == 142
    assert (scripts.base / "told.txt").read_text() == "ALRM\n"
    wait_for(lambda: not scripts.left(), 10, "the end of all processes")


@pytest.mark.parametrize("status", [0, 3])
def test_a_witness_keeps_the_status(scripts, status):
    assert (
        scripts.start([*WITNESS[:4], "sh", "-c", f"exit {status}"]).wait(600) == status
    )


def test_no_other_file_starts_a_program_in_the_background():
    """Whoever does has to remember and to end it as well, whenever a signal comes: witness.sh reads how at a signal alone."""
    able = ("background.sh", "witness.sh")
    files = [file for file in LIBRARY.rglob("*.sh") if file.name not in able]
    assert len(files) >= 3
    for file in files:
        code = re.sub(r"(^|\s)#.*", "", file.read_text())
        assert not re.search(r"[^&>]&\s*$|\$!", code, re.MULTILINE), file
