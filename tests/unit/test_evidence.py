"""What a job left is read in full, or it is an error: no damage goes unnoticed."""

import re
from dataclasses import replace

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge.evidence import collect as evidence_collect
from iogauge.evidence import complaints
from iogauge.evidence.model import rates_of
from iogauge.plan.case import Verification
from iogauge.plan.stage import PhaseRun
from support import stage as healthy

PLAN = healthy.plan()


@pytest.fixture
def stage(tmp_path):
    return healthy.build(tmp_path / "stage")


def collect(stage, plan=PLAN, status=0):
    return evidence_collect.collect(stage, plan, status)


def test_a_case_without_a_warm_up_has_no_figure_of_one(stage):
    plan = replace(PLAN, warm_up=False)
    for name in ("write", "read"):
        file = stage / "phases.tsv"
        file.write_text(without(name, 0)(file.read_text()))
    assert rates_of(plan, collect(stage, plan).cold) == {}


def without(name, rep):
    return lambda text: re.sub(rf"^{rep}\t{name}\t.*\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("rep", range(healthy.REPETITIONS + 1))
@pytest.mark.parametrize("name", ["write", "read"])
def test_a_phase_that_never_ran_is_named(stage, name, rep):
    file = stage / "phases.tsv"
    file.write_text(without(name, rep)(file.read_text()))
    with pytest.raises(
        ToolOutputError,
        match=f"phase {name}, repetition {rep} never finished, the job's killed by SIGTERM",
    ):
        collect(stage, status=143)


def test_a_mount_over_the_directory_of_a_failed_case_is_named(stage):
    """What the agent said of a bind mount in mid-run; the tool only missed its files."""
    hidden = "another file system is mounted at /m/iogauge/root/s/c: not removed"
    (stage / "rfm_job.err").write_text(f"iogauge: remove: {hidden}\n")
    file = stage / "phases.tsv"
    file.write_text(without("write", 2)(file.read_text()))
    with pytest.raises(ToolOutputError, match=f"never finished, .*, {hidden}"):
        collect(stage, status=1)


@pytest.mark.parametrize(
    "told, status, state, text",
    [
        ("USR1", 138, "FAILED", "time limit, told to end by SIGUSR1"),
        ("USR1", None, None, "never finished, the scheduler warned of the time limit"),
        (
            "TERM",
            143,
            "CANCELLED",
            "told to end by SIGTERM, the scheduler says CANCELLED",
        ),
        (None, 0, "TIMEOUT", "the job's exit status 0, the scheduler says TIMEOUT"),
        (None, 0, "COMPLETED", "never finished, the job's exit status 0$"),
    ],
)
def test_who_ended_a_job_is_named(stage, told, status, state, text):
    file = stage / "phases.tsv"
    file.write_text(without("read", 1)(file.read_text()))
    if told:
        (stage / "told.txt").write_text(f"{told}\n")
    with pytest.raises(ToolOutputError, match=text):
        evidence_collect.collect(stage, PLAN, status, None, state)


def test_a_phase_that_failed_on_a_node_that_is_gone_says_so(stage):
    file = stage / "phases.tsv"
    file.write_text(
        re.sub(r"^1\tread\t0", "1\tread\t1", file.read_text(), flags=re.MULTILINE)
    )
    with pytest.raises(
        ToolOutputError, match=r"repetition 1: exit status 1: .*NODE_FAIL"
    ):
        evidence_collect.collect(stage, PLAN, 1, None, "NODE_FAIL")


def test_a_job_that_the_scheduler_ended_after_its_last_phase_is_not_believed(stage):
    with pytest.raises(
        ToolOutputError, match=r"all phases finished, but .*says TIMEOUT"
    ):
        evidence_collect.collect(stage, PLAN, 0, None, "TIMEOUT")


@pytest.mark.parametrize(
    "status, text",
    [(1, "exit status 1"), (137, r"killed by SIGKILL \(exit status 137\)")],
)
@pytest.mark.parametrize("name", ["write", "evict-read", "read"])
def test_a_phase_that_failed_is_named_with_the_tools_own_words(
    stage, name, status, text
):
    file = stage / "phases.tsv"
    file.write_text(file.read_text().replace(f"1\t{name}\t0", f"1\t{name}\t{status}"))
    (stage / f"{name}.1.err").write_text(
        "starting\nERROR: no space left\n---\nmpirun: aborted\n"
    )
    with pytest.raises(
        ToolOutputError,
        match=f"ior: phase {name}, repetition 1: {text}: ERROR: no space left",
    ):
        collect(stage)


#: A real Lustre 2.17 with a full OST: what IOR 4.0.0 prints on Open MPI 4.1.4, whose MPI-IO goes on after the refused write.
REFUSED = "mca_fbtl_posix_pwritev: error in (p)write(v):No space left on device"


@pytest.mark.parametrize(
    "more, why", [("", ""), (f"{REFUSED}\n{REFUSED}\n", f"; also: {REFUSED}")]
)
def test_wrong_data_of_a_refused_write_are_told_with_the_refusal(stage, more, why):
    wrong = "WARNING: Incorrect data on write (32 errors found)."
    (stage / "write.0.out").write_text(f"Writing output to ior-write.0.json\n{wrong}\n")
    (stage / "write.0.err").write_text(more)
    write, *others = PLAN.phases
    checked = replace(write, verifies=Verification(("-R",), "Incorrect data"))
    plan = replace(PLAN, repeat=(checked, *others))
    runs = {(0, "write"): PhaseRun(0, "write", 64, 1.0, 2.0, "write.0.t")}
    assert complaints.mismatch(stage, plan, runs) == f"write: {wrong}{why}"


def test_a_phase_that_ran_twice_is_an_error(stage):
    with open(stage / "phases.tsv", "a") as file:
        file.write("1\twrite\t0\t1\t2\tt\n")
    with pytest.raises(
        ToolOutputError, match=r"phases.tsv: write, repetition 1: appears twice"
    ):
        collect(stage)


@pytest.mark.parametrize(
    "text, lost",
    [
        ('""', ""),
        ('"bob has it"', "bob has it"),
        (None, "was killed"),
        ("{}", "was killed"),
    ],
)
def test_a_lock_that_was_lost_or_is_not_proven(stage, text, lost):
    file = stage / "seen.n1.jsonl"
    lines = file.read_text().replace('[4.5, "lost", ""]\n', "")
    file.write_text(lines + (f'[4.5, "lost", {text}]\n' if text else ""))
    found = collect(stage).lost
    assert lost in found
    assert bool(found) == bool(lost)


# --- several nodes --------------------------------------------------------------------------------


@pytest.fixture
def wide(tmp_path):
    return healthy.build(tmp_path / "wide", nodes=2)


def test_a_node_without_an_answer_is_an_error(wide, monkeypatch):
    monkeypatch.setattr(evidence_collect, "ANSWER_S", 0.5)
    (wide / "seen.n2.jsonl").unlink()
    with pytest.raises(
        ToolOutputError, match=r"1 node.* looked at the target, 2 expected"
    ):
        collect(wide, healthy.plan(nodes=2))


# --- what belongs to others -----------------------------------------------------------------------


def test_what_another_session_left_is_no_evidence(stage):
    assert evidence_collect.collect(stage, healthy.plan(), 0, ("s", "c")).runs
    with pytest.raises(
        ToolOutputError, match=r"holds the case \('s', 'c'\), expected \('t', 'c'\)"
    ):
        evidence_collect.collect(stage, healthy.plan(), 0, ("t", "c"))


def test_a_scheduler_that_tells_no_status_is_no_error(stage):
    assert collect(stage, status=None).outputs
