"""Who speaks in a job's output, and what is named as the cause: real messages of tests/data/messages.txt."""

import re
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import ToolOutputError
from iogauge.evidence import collect, speakers
from iogauge.evidence.complaints import telling_line
from iogauge.plan.stage import PhaseRun, complaints_file
from iogauge.tools.mpi import unlabelled
from support import stage
from support.project import DATA

RUN = PhaseRun(1, "write", 1, 0.0, 1.0, "t")


@dataclass
class Message:
    name: str
    fields: dict[str, str]
    text: str


def messages():
    blocks = re.split(r"(?m)^# ", (DATA / "messages.txt").read_text())
    for block in blocks[1:]:
        head, _, text = block.partition("\n\n")
        name, *lines = head.split("\n")
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        if fields:
            yield Message(name, fields, text.rstrip("\n") + "\n")


CAUSES = [message for message in messages() if "cause" in message.fields]
HARMLESS = [message for message in messages() if "harmless" in message.fields]


def name_of(message):
    return message.name


def reason(folder, text, status=1):
    (folder / complaints_file("write", 1)).write_text(text)
    return telling_line(folder, replace(RUN, status=status))


@pytest.mark.parametrize("message", CAUSES, ids=name_of)
def test_the_cause_and_the_advice_are_named(tmp_path, message):
    found = reason(tmp_path, message.text, int(message.fields["status"]))
    assert message.fields["cause"] in found
    assert message.fields.get("advice", "") in found
    assert len(found) <= 700


@pytest.mark.parametrize("message", HARMLESS, ids=name_of)
def test_what_healthy_runs_print_is_no_cause(message):
    assert speakers.cause([unlabelled(message.text)]) is speakers.NOTHING


@given(
    message=st.sampled_from(CAUSES),
    harmless=st.lists(st.sampled_from(HARMLESS), min_size=1, max_size=4),
    before=st.integers(0, 4),
)
def test_harmless_lines_beside_a_cause_change_nothing(message, harmless, before):
    alone = speakers.cause([unlabelled(message.text)])
    parts = [block.text for block in harmless]
    parts.insert(min(before, len(parts)), message.text)
    together = speakers.cause([unlabelled("".join(parts))])
    assert (together.text, together.advice) == (alone.text, alone.advice)


@pytest.mark.parametrize(
    "printed, status, told",
    [
        (
            "/d/iogauge/job/witness.sh: 63: mdtest: not found",
            127,
            "mdtest: not found. Put it on PATH",
        ),
        (
            '/d/iogauge/job/background.sh: line 26: 17966 Killed                  "$@"',
            137,
            "Killed",
        ),
    ],
)
def test_a_shell_of_the_suite_says_what_it_started(tmp_path, printed, status, told):
    assert reason(tmp_path, printed, status).startswith(told)


def test_labels_come_off_line_by_line(tmp_path):
    """srun and mpiexec label what tasks print; their own lines have none."""
    for label in ("0: ", "[1] ", "nid000012.chn 0: ", "[1,0]<stderr>:"):
        text = f"Loading ior/4.0.0\n{label}ERROR: no room\nsrun: error: n7: task 0: Exited with exit code 1\n"
        assert reason(tmp_path, text) == "ERROR: no room"


#: What IOR 4.0.0 printed when an OST of a real Lustre 2.17 evicted the client under its reads, and the launcher beside it.
EVICTED = """\
Writing output to ior-read.1.json
WARNING: read(18, 0x7f0130cfd000, 1048576) failed Input/output error
ERROR: cannot read from file, (ior.c:1666)
"""
ABORTED = """\
[lustre:07145] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]
[lustre:07145] [[2929,0],0] ORTE_ERROR_LOG: Out of resource in file ../../../orte/util/show_help.c at line 507
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
with errorcode -1.
"""


def test_an_eviction_under_a_read_is_thought_of(tmp_path):
    (tmp_path / "write.1.out").write_text(EVICTED)
    (tmp_path / "write.1.err").write_text(ABORTED)
    found = telling_line(tmp_path, RUN, on_lustre=True)
    assert found.startswith(
        "WARNING: read(18, 0x7f0130cfd000, 1048576) failed Input/output error; on Lustre this"
    )
    assert "an eviction" in found and "lctl get_param" in found
    assert "eviction" not in telling_line(tmp_path, RUN)


#: How each program began, two and three of them as worlds of one task: all were built with Open MPI, and mpiexec was MPICH's.
ALONE = (
    "mdtest-4.0.0 was launched with 1 total task(s) on 1 node(s)",
    "---- WRF-IO write benchmark ----",
    "IO500 version io500-sc25_v1 (standard)",
    "IOR-4.0.0: MPI Coordinated Test of Parallel I/O",
)


@pytest.mark.parametrize("first", ALONE)
@pytest.mark.parametrize("status", [0, 1])
def test_worlds_of_one_task_are_named_whether_they_collide_or_not(
    tmp_path, first, status
):
    plan, left = stage.plan(), stage.build(tmp_path / "stage")
    for worlds in (1, 2, 3):
        said = (
            f"{first}\n" * worlds
            + "ERROR: 0: Error while creating the dset: t/w/0_1\n" * status
        )
        (left / "write.1.out").write_text(said)
        if status:
            found = telling_line(left, PhaseRun(1, "write", status, 1.0, 2.0, "t"))
        else:
            try:
                collect.collect(left, plan, 0)
                found = ""
            except ToolOutputError as error:
                found = str(error)
        named = f"{worlds} runs in one output, expected 1: this is what happens when the launcher"
        assert (named in found) == (worlds > 1)
