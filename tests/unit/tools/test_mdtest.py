"""mdtest: options to arguments, and its outputs (recorded and real ones) to values."""

import re

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge.tools.mdtest import parse, parse_rank_csv
from iogauge.tools.mpi import unlabelled
from support.mdtest import ranks_of
from support.project import SAMPLES

GOOD = [
    "mdtest_base.stdout",
    "mdtest_few.stdout",
    "mdtest_stone.stdout",
    "mdtest_save.stdout",
    "mdtest_easy_create.stdout",
    "mdtest_easy_stat.stdout",
    "mdtest33_stonewall.stdout",
]
EMPTY_READ = "WARNING: Read bytes is 0, thus, a read test will actually just open/close"


def sample(name):
    return (SAMPLES / name).read_text()


def read(text, done=None):
    """The values of an output, whose tasks took as long as its table says."""
    return parse(text, ranks_of(text, done))


# --- recorded outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["sc25", "isc26"])
def test_the_headers_of_4_1_name_units(version):
    text = sample(f"io500/{version}/mdtest-easy-write.txt")
    output = parse(text, sample(f"io500/{version}/mdtest-easy-write.csv"))
    assert output.version == "4.1.0+dev"
    (create,) = output.phases
    assert create.seconds == pytest.approx(
        create.operations / create.rates["rate"].value, rel=0.01
    )
    with pytest.raises(ToolOutputError, match="one table of rates in ops/sec"):
        read(text.replace("(in ops/sec)", "(in ms/op)"))


@pytest.mark.parametrize(
    "label",
    [
        # mpirun of Open MPI 4.1 and 5.0, srun --label, mpiexec -l of MPICH 5.0
        "[1,0]<stdout>:",
        "Fri Nov 27 02:54:19 2026<stdout>:",
        "[1,0]<stdout>: ",
        "[0]<stdout>: ",
        "[1,0][vm:9261]<stdout>: ",
        "[Fri Nov 27 12:20:47 2026]<stdout>: ",
        "[Fri Nov 27 12:20:47 2026][1,0]<stdout>: ",
        " 0: ",
        "[0] ",
    ],
)
def test_labels_of_a_launcher(label):
    plain = sample("mdtest_easy_create.stdout")
    labelled = "".join(f"{label}{line}\n" for line in plain.splitlines())
    output = parse(unlabelled(labelled), ranks_of(plain))
    assert output.phases == read(plain).phases
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
    assert parse(unlabelled(labelled), ranks_of(plain)).phases == read(plain).phases


def test_a_creation_that_made_fewer_files_than_it_began_with():
    """The phase that makes files writes the stonewall's status file and reads none."""
    text = sample("mdtest_easy_create.stdout")
    whole = re.sub("(?m)^Continue stonewall hit .*$", "", text)
    with pytest.raises(
        ToolOutputError, match="67318 times create, and it began with 200000"
    ):
        read(whole, 67318)


def test_words_that_mdtest_cut_off_at_a_space():
    """It prints 1,023 characters of the line. The space tells the judge that there were more words."""
    line = "Command line used: mdtest '-d' '/"
    line += "d" * (1021 - len(line)) + "' "
    assert len(line) == 1023
    text = re.sub("(?m)^Command line .*$", line, sample("mdtest_base.stdout"))
    assert read(text).command == line.removeprefix("Command line used: ")


def test_one_iteration():
    output = read(sample("mdtest_base.stdout"))
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
    ]
    create = output.phases[4]
    assert create.rates["rate"].unit == "ops/s"
    assert create.operations == 200
    assert create.seconds == pytest.approx(200 / 22967.386)
    trees_s = pytest.approx(0.00759, rel=1e-3)
    expected = {"items": 200, "begins_at": 502, "trees_s": trees_s}
    assert output.parameters == expected


def test_phases_of_io500_in_executions_of_their_own():
    output = read(sample("mdtest_easy_create.stdout"))
    assert [phase.name for phase in output.phases] == ["create"]
    assert output.phases[0].operations == 2 * 33659
    assert output.parameters["shift"] == 1
    # The number of files came from the stonewall's status file, which the output does not show.
    (stat,) = read(sample("mdtest_easy_stat.stdout"), 67318).phases
    assert (stat.name, stat.operations) == ("stat", 67318)


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
    ranks = sample("mdtest_ranks.csv")
    with pytest.raises(ToolOutputError, match=message):
        parse(sample(name), ranks)


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
        (
            "2 tasks, 200 files",
            "2 tasks, 0 files",
            "200 times dir_create, and it began with 0",
        ),
    ],
)
def test_damage_by_hand(old, new, message):
    text = sample("mdtest_base.stdout")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse(text.replace(old, new, 1), ranks_of(text))


def test_more_operations_than_the_details_have_digits_for():
    """github.com/IO500/submission-data, submission-663: 2592 thousand million files by 1,440 tasks."""
    text = sample("mdtest_easy_stat.stdout")
    text = re.sub(r"(?<=2 tasks, )\d+", str(2592 * 10**9), text)
    text = re.sub(
        r"(?m)(?<=^   File stat ).*", "  10351329269.583" * 3 + " 0.000", text
    )
    rounded = ranks_of(text, 250.40262294 * 1.03513292700e10)
    (found,) = parse(text, rounded).phases
    assert found.operations == 2592 * 10**9 != round(10351329269.583 * found.seconds)


# --- properties of the parser ---------------------------------------------------------------------


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_is_refused(name):
    text = sample(name).rstrip()
    ranks = ranks_of(text, 67318 if "stat" in name else None)
    parse(text, ranks)
    for length in range(len(text)):
        with pytest.raises(ToolOutputError):
            parse(text[:length], ranks)


# --- rank details ---------------------------------------------------------------------------------


def test_rank_details_in_the_output():
    text, ranks = sample("mdtest_save.stdout"), sample("mdtest_ranks.csv")
    create = parse(text, ranks).phases[0]
    assert create.rank_seconds == (0.030920982361, 0.038532972336)
    assert (create.seconds, create.operations) == (0.040012121201, 200)
    for old, new, message in (
        ("4.0012121201e-02", "2.0012121201e-02", "100 times create, and it began"),
        ("4.9984853089e+03", "5.1084853089e+03", "not of the same run"),
        ("rate-File stat,time-File stat,", "", "expected a row 'all'"),
    ):
        with pytest.raises(ToolOutputError, match=message):
            parse(text, ranks.replace(old, new))
    with pytest.raises(ToolOutputError, match=r"3 rows, expected .* of 4 ranks"):
        parse_rank_csv(ranks, 4)
    with pytest.raises(ToolOutputError, match="not of the same run"):
        parse(sample("mdtest_easy_create.stdout"), ranks)


def test_truncated_rank_details():
    text = sample("mdtest_ranks.csv")
    for length in range(len(text)):
        with pytest.raises(ToolOutputError):
            parse_rank_csv(text[:length], tasks=2)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("\n1,", "\n2,", "expected a row 'all' and whole ones of 2 ranks"),
        ("4.9984853089e+03", "nan", "File creation is 'nan'"),
        ("3.2340499028e+03,3.0920982361e-02", ",", "File creation is '.nothing.'"),
    ],
)
def test_damaged_rank_details(old, new, message):
    text = sample("mdtest_ranks.csv")
    assert old in text
    with pytest.raises(ToolOutputError, match=message):
        parse_rank_csv(text.replace(old, new, 1), 2)
