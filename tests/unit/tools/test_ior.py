"""IOR: options to arguments, and its outputs (recorded and real ones) to values."""

from dataclasses import replace

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge.tools.ior.ior_options import parse_help
from iogauge.tools.ior.ior_output import parse_json, with_rank_times
from support.project import SAMPLES

GOOD = [
    "ior_i1.json",
    "ior_i3.json",
    "ior_stone_wear.json",
    "ior_stone_i2.json",
    "ior_i2.json",
    "ior_mpirun_4x2.json",
    "ior_wonly.json",
    "ior_verify.json",
    "ior_corrupt.json",
    "ior_random_data.json",
]


def sample(name):
    return (SAMPLES / name).read_text()


# --- recorded outputs -----------------------------------------------------------------------------


def test_one_repetition():
    output = parse_json(sample("ior_i1.json"))
    assert (output.tool, output.version, output.tasks, output.nodes) == (
        "ior",
        "4.0.0",
        2,
        1,
    )
    assert output.command.endswith("-O summaryFormat=JSON -O summaryFile=ior_i1.json")
    write, read = output.phases
    assert (write.name, read.name) == ("write", "read")
    assert {k: (q.value, q.unit) for k, q in write.rates.items()} == {
        "bw": (1335.1278, "MiB/s"),
        "iops": (5479.1692, "ops/s"),
    }
    assert (write.seconds, write.bytes_moved, write.operations) == (
        0.0015,
        2 * 2**20,
        8,
    )
    assert write.transfer_bytes == 262144
    assert output.warnings == ()
    assert output.parameters["filePerProc"] == 1
    assert output.parameters["taskPerNodeOffset"] == 1
    assert output.parameters["clients per node"] == 2


def test_bytes_that_only_the_summary_tells():
    """A stonewall moves more than the plan, as the summary says of the first repetition only."""
    output = parse_json(sample("ior_stone_wear.json"), sample("ior_stone_wear.stdout"))
    (phase,) = output.phases
    assert phase.bytes_moved == 826802176 == 1577 * 2 * 262144
    assert phase.operations == 2 * 1577
    assert "WARNING: Using actual aggregate bytes moved = 826802176" in output.warnings
    moved = [
        phase.bytes_moved for phase in parse_json(sample("ior_stone_i2.json")).phases
    ]
    assert moved == [867172352, 867172352, None, None]


def test_corrupt_data_is_a_warning_of_the_log():
    output = parse_json(sample("ior_corrupt.json"), sample("ior_corrupt.stdout"))
    assert output.warnings == ("WARNING: Incorrect data on read (1 errors found).",)


@pytest.mark.parametrize(
    "name, message",
    [
        ("ior_v1.json", r"4\.0\.0 writes invalid JSON when -v is given; drop -v"),
        (
            "ior_enospc.json",
            r"cut off \(2201 characters, last line '\"Results\": \['\)",
        ),
        ("ior_nodir.stdout", r"no IOR JSON .*begins: .*ERROR: open64"),
        (
            "ior_odirect_ramfs.stdout",
            r"no IOR JSON .*begins: IOR-4\.0\.0: MPI Coordinated",
        ),
        ("ior_tiny.json", r"0\.0751 MiB/s for 0\.0002 s does not give the 0\.0 MiB"),
        ("ior_maxtime.json", r"not valid JSON"),
    ],
)
def test_damaged_output(name, message):
    with pytest.raises(ToolOutputError, match=message):
        parse_json(sample(name))


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            '"bwMiB": 1335.1278',
            '"bwMiB": 0.0000',
            r"'bwMiB' is 0, expected a number above 0",
        ),
        (
            '"totalTime": 0.0015',
            '"totalTime": 0.0000',
            r"\(write\): 'totalTime' is 0\.0000 s: .*short",
        ),
        ('"bwMiB": 1335.1278', '"bwMiB": nan', r"not valid JSON"),
        ('"bwMiB": 1335.1278', '"bwMiB": NaN', r"the number NaN"),
        ('"bwMiB": 1335.1278', '"bwMiB": 1435.1278', r"does not give the 2\.0 MiB"),
        ('"iops": 5479.1692', '"iops": 5589.1692', r"wrRdTime\) is not 8 transfers"),
        ('"repetitions": 1,', '"repetitions": 2,', r"holds 2 phases .*expected 4"),
        ('"readFile": 1', '"readfile": 1', r"key 'readFile' is missing"),
        ('"numTasks": 2', '"numTasks": 4', r"numTasks is 4, but Options say 2"),
        ('"xsizeMiB": 2.0000', '"xsizeMiB": 4.0000', r"does not give the 4\.0 MiB"),
    ],
)
def test_damage_by_hand(old, new, message):
    text = sample("ior_i1.json")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_json(text.replace(old, new, 1))


def test_two_runs_in_one_file():
    with pytest.raises(ToolOutputError, match=r"several IOR JSON documents$"):
        parse_json(sample("ior_i1.json") * 2)


@pytest.mark.parametrize(
    "write",
    [lambda t: t + t, lambda t: t[:3000] + t[2990:], lambda t: "\0" * 64 + t[64:]],
)
def test_worlds_of_one_task_write_over_each_others_summary(write):
    """Each was left by IOR of Open MPI that MPICH's mpiexec had started; which one is chance."""
    text = sample("ior_i1.json").replace('"tasks": 2', '"tasks": 1')
    with pytest.raises(
        ToolOutputError, match=r"several tasks were to run: .* the matching mpirun"
    ):
        parse_json(write(text))


# --- properties of the parser ---------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_is_refused(name):
    text = sample(name)
    parse_json(text)
    end = text.rindex("}")
    for length in range(0, end + 1, 7):
        with pytest.raises(ToolOutputError):
            parse_json(text[:length])
    with pytest.raises(ToolOutputError):
        parse_json(text[:end])


# --- rank details and help ------------------------------------------------------------------------


RANKS = sample("ior_i2.ranks.csv")


def test_rank_times():
    output = with_rank_times(parse_json(sample("ior_i2.json")), RANKS)
    assert [phase.name for phase in output.phases] == ["write", "read", "write", "read"]
    assert output.phases[0].rank_seconds == (3.0338764191e-03, 3.0329227448e-03)


def test_worlds_of_one_task_that_wrote_one_summary():
    """Under the launcher of another MPI: the last summary is left, and the rank details of all."""
    alone = parse_json(sample("ior_wonly.json"))
    alone = replace(alone, tasks=1, phases=alone.phases[:1])
    header, first = RANKS.splitlines()[:2]
    rows = f"{header}\n{first}\n{first}\n"
    with pytest.raises(ToolOutputError, match=r"2 rows, .* use the matching mpirun"):
        with_rank_times(alone, rows)
    with pytest.raises(ToolOutputError, match=r"of another run$"):
        with_rank_times(replace(alone, tasks=2), rows)


def test_truncated_rank_times():
    output = parse_json(sample("ior_i2.json"))
    for length in range(len(RANKS)):
        with pytest.raises(ToolOutputError):
            with_rank_times(output, RANKS[:length])


@pytest.mark.parametrize(
    "text, message",
    [
        (RANKS.replace("access,", "a,", 1), "8 rows, expected 2 in order"),
        (RANKS.replace("write,1,", "write,2,", 1), "8 rows, expected 2 in order"),
        (RANKS.replace("3.0338764191e-03", "nan", 1), "a row is damaged: 'write,0,nan"),
    ],
)
def test_damaged_rank_times(text, message):
    with pytest.raises(ToolOutputError, match=message):
        with_rank_times(parse_json(sample("ior_i2.json")), text)


def test_help():
    built = parse_help(sample("ior_help.txt"))
    assert built == {"POSIX", "DUMMY", "MPIIO", "MMAP"}
    with pytest.raises(ToolOutputError, match="not the help text of IOR"):
        parse_help("ior: command not found")
