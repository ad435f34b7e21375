"""mdtest: options to arguments, and its outputs (recorded and real ones) to values."""

import re
from dataclasses import replace

import pytest

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.mdtest import (
    RankPhase,
    parse_rank_csv,
    parse_table,
    with_rank_times,
)
from iogauge.tools.mpi import unlabelled
from support.project import SAMPLES

GOOD = [
    *(
        "mdtest_base.stdout",
        "mdtest_few.stdout",
        "mdtest_stone.stdout",
        "mdtest_save.stdout",
    ),
    *(
        "mdtest_easy_create.stdout",
        "mdtest_easy_stat.stdout",
        "mdtest33_stonewall.stdout",
    ),
]
EMPTY_READ = "WARNING: Read bytes is 0, thus, a read test will actually just open/close"


def sample(name):
    return (SAMPLES / name).read_text()


# --- recorded outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["sc25", "isc26"])
def test_the_headers_of_4_1_name_units(version):
    """The time is called ms/op and is seconds: 1162 files at 1067.507 ops/s took 1.0885 s."""
    text = sample(f"io500/{version}/mdtest-easy-write.txt")
    output = parse_table(text)
    assert output.version == "4.1.0+dev"
    create = output.phases[0]
    assert create.name == "create" and create.operations is not None
    assert create.seconds == pytest.approx(
        create.operations / create.rates["rate"].value
    )
    for header, other in (("ops/sec", "ms/op"), ("ms/op", "us/op")):
        with pytest.raises(
            ToolOutputError, match="expected a table of rates in ops/sec"
        ):
            parse_table(text.replace(f"(in {header})", f"(in {other})"))


@pytest.mark.parametrize(
    "label",
    [
        # mpirun of Open MPI 4.1 and 5.0, srun --label, mpiexec -l of MPICH 5.0
        *("[1,0]<stdout>:", "Fri Nov 27 02:54:19 2026<stdout>:"),
        *("[1,0]<stdout>: ", "[0]<stdout>: ", "[1,0][vm:9261]<stdout>: "),
        *(
            "[Fri Nov 27 12:20:47 2026]<stdout>: ",
            "[Fri Nov 27 12:20:47 2026][1,0]<stdout>: ",
        ),
        *(" 0: ", "[0] "),
    ],
)
def test_labels_of_a_launcher(label):
    plain = sample("mdtest_easy_create.stdout")
    labelled = "".join(f"{label}{line}\n" for line in plain.splitlines())
    output = parse_table(unlabelled(labelled))
    assert output.phases == parse_table(plain).phases
    # The agent counts what was printed, labels included.
    begins = output.parameters["begins_at"]
    assert labelled[:begins].endswith("2 tasks, 200000 files")
    assert unlabelled(plain) == plain


@pytest.mark.parametrize("label", ["[0] ", "[1,0]<stdout>:", "[1,0]<stdout>: "])
def test_a_label_in_the_middle_of_a_line(label):
    """MPICH and Open MPI label each piece that they read from a task."""
    plain = sample("mdtest_easy_create.stdout")
    pieces = [plain[at : at + 100] for at in range(0, len(plain), 100)]
    labelled = "".join(
        f"{label}{line}" for piece in pieces for line in piece.splitlines(True)
    )
    assert any(line.count(label) > 1 for line in labelled.splitlines())
    assert parse_table(unlabelled(labelled)).phases == parse_table(plain).phases


def test_a_creation_that_made_fewer_files_than_it_began_with():
    """The phase that makes files writes the stonewall's status file and reads none."""
    text = sample("mdtest_easy_create.stdout")
    whole = re.sub("(?m)^Continue stonewall hit .*$", "", text)
    with pytest.raises(
        ToolOutputError, match=r"'File creation' .* is not 200000 operations"
    ):
        parse_table(whole)


def test_words_that_mdtest_cut_off_at_a_space():
    """It prints 1,023 characters of the line. The space tells the judge that there were more words."""
    line = "Command line used: mdtest '-d' '/"
    line += "d" * (1021 - len(line)) + "' "
    assert len(line) == 1023
    text = re.sub("(?m)^Command line .*$", line, sample("mdtest_base.stdout"))
    assert parse_table(text).command == line.removeprefix("Command line used: ")


def test_one_iteration():
    output = parse_table(sample("mdtest_base.stdout"))
    assert (output.tool, output.version, output.tasks, output.nodes) == (
        "mdtest",
        "4.0.0",
        2,
        1,
    )
    assert (
        output.command
        == "/opt/view/bin/mdtest '-n' '100' '-d' '/scratch/rigs/raw/s/md'"
    )
    assert output.warnings == (EMPTY_READ,)
    assert [(phase.name, phase.rates["rate"].value) for phase in output.phases] == [
        ("dir_create", 34542.343),
        ("dir_stat", 1819654.664),
        ("dir_rename", 128462.603),
        ("dir_remove", 531.253),
        ("create", 22967.386),
        ("stat", 1063194.930),
        ("read", 812849.612),
        ("remove", 280087.078),
        ("tree_create", 55188.211),
        ("tree_remove", 132.067),
    ]
    create = output.phases[4]
    assert create.rates["rate"].unit == "ops/s"
    assert create.operations == 200
    assert create.seconds == pytest.approx(200 / 22967.386)
    assert output.phases[8].operations is None
    assert output.parameters == {
        "iterations": 1,
        "items": 200,
        "begins_at": 502,
    }


def test_phases_of_io500_in_executions_of_their_own():
    output = parse_table(sample("mdtest_easy_create.stdout"))
    assert [phase.name for phase in output.phases] == ["create", "tree_create"]
    assert output.phases[0].operations == 2 * 33659
    assert output.phases[0].seconds == pytest.approx(2 * 33659 / 61803.803)
    assert output.parameters["shift"] == 1
    (stat,) = parse_table(sample("mdtest_easy_stat.stdout")).phases
    # The number of files came from the stonewall's status file, which the output does not show.
    assert (stat.name, stat.seconds, stat.operations) == ("stat", 0.036, None)


@pytest.mark.parametrize(
    "name, message",
    [
        ("mdtest_i3.stdout", r"mdtest printed .* '\(of 1 iterations\)'"),
        (
            "mdtest_enospc.stdout",
            r"no table 'SUMMARY rate'.*complained: WARNING: task 1, partial",
        ),
        ("mdtest_ver.stdout", r"damaged row 'V-1: Entering PrintTimestamp"),
        (
            "mdtest_two_worlds.stdout",
            r"2 runs of mdtest with 1 task\(s\) each in one output",
        ),
        ("ior_i1.json", r"not mdtest output"),
    ],
)
def test_damaged_output(name, message):
    with pytest.raises(ToolOutputError, match=message):
        parse_table(sample(name))


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "22967.386      22967.386      22967.386",
            "inf inf inf",
            "damaged row 'File creation",
        ),
        ("   File stat ", "   File creation ", "damaged row"),
        ("rate: (of", "rate (in kops/sec): (of", "mdtest printed .* rates in ops/sec"),
        ("(of 1 iterations)", "", r"mdtest printed .* '\(of 1 iterations\)'"),
        ("2 tasks, 200 files", "2 tasks, 0 files", "did 0 operations"),
    ],
)
def test_damage_by_hand(old, new, message):
    text = sample("mdtest_base.stdout")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_table(text.replace(old, new, 1))


def test_seconds_are_read_under_each_name_that_a_version_gives_them():
    """Builds of 4.1 before May 2024 write ops/sec: github.com/IO500/submission-data, submission-704."""
    text = sample("io500/sc25/mdtest-easy-write.txt")
    assert "SUMMARY time (in ms/op)" in text
    assert (
        parse_table(text.replace("(in ms/op)", "(in ops/sec)")).phases
        == parse_table(text).phases
    )


def test_more_operations_than_the_details_have_digits_for():
    """github.com/IO500/submission-data, submission-663: 2592 thousand million files by 1,440 tasks."""
    phase = Phase(
        "remove",
        {"rate": Quantity(10351329269.583, "ops/s")},
        250.4,
        operations=2592 * 10**9,
    )
    output = ToolOutput("mdtest", "4.0.0", (phase,), tasks=1)
    details = RankPhase("remove", 1.03513292700e10, 2.5040262294e2, (250.4,))
    (found,) = with_rank_times(output, [details]).phases
    assert (found.operations, found.seconds) == (2592 * 10**9, 2.5040262294e2)
    with pytest.raises(ToolOutputError, match="not of the same run"):
        with_rank_times(output, [replace(details, seconds=250.41)])


def test_a_rate_that_its_time_contradicts_is_refused():
    text = sample("mdtest33_stonewall.stdout")
    row = "114231.601     114231.541     114231.571"
    damaged = text.replace(row, "342694.803     342694.623     342694.713")
    assert damaged != text
    with pytest.raises(
        ToolOutputError, match=r"'File creation' at 342694\.713 ops/s .* is not"
    ):
        parse_table(damaged)


# --- properties of the parser ---------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_is_refused(name):
    text = sample(name).rstrip()
    parse_table(text)
    for length in range(len(text)):
        with pytest.raises(ToolOutputError):
            parse_table(text[:length])


# --- rank details ---------------------------------------------------------------------------------


def test_rank_details_in_the_output():
    table = parse_table(sample("mdtest_save.stdout"))
    ranks = parse_rank_csv(sample("mdtest_ranks.csv"))
    output = with_rank_times(table, ranks)
    assert output.phases[0].rank_seconds == (0.030920982361, 0.038532972336)
    assert output.phases[0].seconds == 0.040012121201
    assert output.phases[4] == table.phases[4]
    with pytest.raises(ToolOutputError, match="not of the same run"):
        with_rank_times(parse_table(sample("mdtest_easy_create.stdout")), ranks)
    assert output.phases[0].operations == table.phases[0].operations == 200
    fewer = replace(ranks[0], seconds=ranks[0].seconds / 2)
    with pytest.raises(
        ToolOutputError, match=r"100 times create .* not of the same run"
    ):
        with_rank_times(table, [fewer, *ranks[1:]])
    with pytest.raises(ToolOutputError, match="2 ranks, but mdtest ran 4 tasks"):
        with_rank_times(replace(table, tasks=4), ranks)
    with pytest.raises(ToolOutputError, match="nothing about stat"):
        with_rank_times(table, [ranks[0]])


def test_truncated_rank_details():
    text = sample("mdtest_ranks.csv")
    for length in range(len(text)):
        with pytest.raises(ToolOutputError):
            parse_rank_csv(text[:length], tasks=2)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("\n1,", "\n2,", "rank 2 is out of order"),
        ("4.9984853089e+03", "nan", "'nan' and"),
        ("3.2340499028e+03,3.0920982361e-02", ",", "'File creation' lacks 1 ranks"),
    ],
)
def test_damaged_rank_details(old, new, message):
    text = sample("mdtest_ranks.csv")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_rank_csv(text.replace(old, new, 1))
