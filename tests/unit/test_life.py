"""The sign of life of a run: what it reads, what it says, and how it leaves the screen to others."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from iogauge.plan.stage import OPENED, RUNS, SAYS
from iogauge.session import life
from support import stage as healthy


@dataclass
class Job:
    state: str | None = "RUNNING"
    jobid: str | None = "12"
    completion_time: float | None = None
    stdout: str = "rfm_job.out"


class Running:
    """A case of two phases with a warm-up and two repetitions, of which the plan expects 60 s."""

    def __init__(self, stage):
        self.stage, self.job = stage, Job()
        plan = healthy.plan()
        self.case = life.Watched("Ior posix", stage, self.job, plan, 60.0)

    def write(self, name, text=""):
        (self.stage / name).write_text(text)

    def opened(self):
        self.write(RUNS)
        self.write(OPENED)


@pytest.fixture
def running(tmp_path):
    return Running(tmp_path)


def test_it_waits_for_the_lock(running):
    running.write(RUNS)
    assert running.case.look(0) == (False, "looks at the target")
    said = "lock: waiting for user alice, session s, 5 of at most 600 s"
    running.write("rfm_job.out", f"hello\niogauge: {said}\n")
    assert running.case.look(0) == (False, said)
    running.write(OPENED)
    assert running.case.look(0)[0]


def test_a_damaged_stage_directory_ends_nothing(running):
    running.opened()
    running.write(RUNS, "no line")
    assert running.case.look(0)[0]


def test_a_phase_asks_whoever_waits_for_it(running):
    running.opened()
    running.write(SAYS, "pull it now")
    assert running.case.look(0)[1].startswith("write: pull it now, preparation")


def test_a_line_comes_each_30_seconds(running):
    running.opened()
    lines: list[str] = []
    screen = life.Screen(lines.append)
    screen.add(running.case)
    for second in range(95):
        screen.tick(second)
    assert [line.split(", ")[2] for line in lines] == [
        "30 s of about 60 s gone\n",
        "60 s of about 60 s gone\n",
        "90 s of about 60 s gone\n",
    ]
    assert lines[0].startswith("iogauge: Ior posix: write, preparation")
    running.job.completion_time = 1.0
    screen.tick(200)
    assert len(lines) == 3


def test_what_reframe_says_of_failures_is_kept_and_all_else_shown(tmp_path):
    file = tmp_path / "details"
    shown = []
    keep = life.Filter(file)
    said = ["[ FAIL ] a", " SUMMARY OF FAILURES ".center(80, "="), "-" * 80]
    said += [
        "FAILURE INFO for a",
        "  * Reason: x",
        "-" * 80,
        "FAILURE INFO for b",
        "-" * 80,
    ]
    said += ["Log file(s) saved in x", "-" * 80, "more"]
    for text in said:
        if keep.filter(logging.makeLogRecord({"msg": text})):
            shown.append(text)
    assert shown == [said[0], *said[-3:]]
    assert file.read_text().splitlines() == said[1:-3]
