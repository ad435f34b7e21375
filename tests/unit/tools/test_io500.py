"""IO500: options to an ini file, and recorded runs of two versions to values."""

import re

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge_extras.suites import io500
from iogauge_extras.suites.io500 import BANDWIDTHS, RATES
from support.project import SAMPLES

RUNS = SAMPLES / "io500"


def files_of(run):
    return {file.name: file.read_text() for file in (RUNS / run).iterdir()}


def parsed(files):
    rest = {name: text for name, text in files.items() if name != "stdout.txt"}
    return io500.parse(files["result.txt"], files["stdout.txt"], rest)


@pytest.mark.parametrize(
    "run, version", [("sc25", "io500-sc25"), ("isc26", "io500-isc26_v2-26")]
)
def test_a_run_of_each_version(run, version):
    files = files_of(run)
    output = parsed(files)
    assert output.version.startswith(version)
    assert (output.tool, output.tasks, output.nodes) == ("io500", 2, 1)
    assert sorted(phase.name for phase in output.phases) == sorted(
        (*BANDWIDTHS, *RATES)
    )
    printed = dict(
        re.findall(r"^\[RESULT\] +(\S+) +(\S+) ", files["stdout.txt"], re.MULTILINE)
    )
    for phase in output.phases:
        (rate,) = phase.rates.values()
        assert rate.value == float(printed[phase.name])
        assert rate.unit == ("GiB/s" if phase.name in BANDWIDTHS else "kops/s")
        assert 0 < phase.seconds < 10
    assert all(re.search(io500.TOO_SHORT, warning) for warning in output.warnings), (
        output.warnings
    )
    assert len(output.warnings) == 2
    assert "shift" not in output.parameters  # there is no other node
    assert output.parameters["data_type"] == "timestamp"


def test_what_versions_and_builds_print_otherwise():
    """Seen in github.com/IO500/submission-data: submission-697, submission-657, and results of 2020 and 2021."""
    files = files_of("isc26")
    known = re.sub(r"(?m)^(version +=).*$", r"\1 ", files["result.txt"])
    assert parsed(files | {"result.txt": known}).version == "unknown"
    verbose = re.sub(
        r"(?m)^(write +)(\d\S*)", r"\1\2 0\n\1\2", files["ior-easy-write.txt"]
    )
    assert verbose != files["ior-easy-write.txt"]
    assert (
        parsed(files | {"ior-easy-write.txt": verbose}).phases == parsed(files).phases
    )
    for old in (r"\[run\]\nprocs .*\n", r"procs .*\n"):
        result = re.sub(old, "", files["result.txt"], count=1)
        with pytest.raises(ToolOutputError, match="IO500 of ISC22 or newer is needed"):
            parsed(files | {"result.txt": result})


def test_a_run_as_long_as_the_list_demands():
    """Of 51 minutes, from two hosts on GlusterFS: nothing is wrong with it."""
    files = files_of("full")
    output = parsed(files)
    assert (output.version, output.tasks, output.nodes) == ("io500-sc25_v1", 2, 2)
    assert output.warnings == ()
    printed = dict(
        re.findall(r"^\[RESULT\] +(\S+) +(\S+) ", files["stdout.txt"], re.MULTILINE)
    )
    assert {p.name: rate.value for p in output.phases for rate in p.rates.values()} == {
        name: float(value) for name, value in printed.items()
    }
    writes = [phase.seconds for phase in output.phases if phase.name.endswith("-write")]
    assert len(writes) == 4 and all(300 < seconds < 360 for seconds in writes)


def test_bytes_seconds_and_operations():
    output = parsed(files_of("isc26"))
    phases = {phase.name: phase for phase in output.phases}
    easy, hard = phases["ior-easy-write"], phases["ior-hard-write"]
    assert (easy.bytes_moved, easy.transfer_bytes, easy.operations) == (
        339738624,
        2 << 20,
        162,
    )
    assert easy.seconds == pytest.approx(1.28744, rel=1e-4)
    assert (hard.bytes_moved, hard.transfer_bytes) == (457105792, 47008)
    small = phases["mdtest-hard-write"]
    assert (small.operations, small.bytes_moved) == (1702, 1702 * 3901)
    assert output.totals == dict.fromkeys(
        ("read", "write"), 339738624 + 457105792 + 1702 * 3901
    )
    assert output.extra_bytes == {"read": 1391034368, "write": 0}
    assert phases["find"].operations == 2659


def test_the_planned_bytes_are_those_of_a_run_that_wrote_all():
    """IOR prints how many bytes it moved only if they are not those that were asked for."""
    files = files_of("limits")
    assert "actual aggregate bytes" not in files["ior-easy-write.txt"]
    assert parsed(files).phases[0].bytes_moved == 2 * 67108864


def without(files, phase):
    """A phase that crashed, or that was switched off: the tool leaves it out of the means in silence."""
    files["result.txt"] = re.sub(
        rf"(?s)(\[{phase}\].*?)score           = \S+\n",
        r"\1",
        files["result.txt"],
        count=1,
    )


def scaled(files, key, factor):
    files["result.txt"] = re.sub(
        rf"(?m)^({key} +=) (\S+)",
        lambda m: f"{m[1]} {float(m[2]) * factor:.6f}",
        files["result.txt"],
        count=1,
    )


@pytest.mark.parametrize(
    "damage, said",
    [
        (
            lambda f: without(f, "mdtest-hard-stat"),
            "11 of 12 phases have a score, mdtest-hard-stat",
        ),
        (lambda f: scaled(f, "SCORE", 1.001), "SCORE is 3.723332 in result.txt"),
        (lambda f: scaled(f, "BW", 0.999), "BW is"),
        (lambda f: scaled(f, "MD", 1.001), "MD is"),
        (lambda f: scaled(f, "score", 1.1), "BW is"),
        (
            lambda f: f.update({"stdout.txt": "IO500 version x\n"}),
            "killed before its end",
        ),
        (lambda f: f.update({"result.txt": " "}), "failed before its first phase"),
        (lambda f: f.pop("ior-hard-read.txt"), "ior-hard-read.txt is missing"),
        (
            lambda f: f.update({"mdtest-easy-stat.csv": f["mdtest-easy-delete.csv"]}),
            "no rate",
        ),
        (
            lambda f: f.update({"mdtest-easy-write.csv": f["mdtest-hard-write.csv"]}),
            "mdtest-easy-write: the score is",
        ),
        (
            lambda f: f.update({"ior-easy-read.txt": f["ior-hard-read.txt"]}),
            "IOR printed",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(damage, said):
    files = files_of("isc26")
    damage(files)
    with pytest.raises(ToolOutputError, match=r"^io500: ") as error:
        parsed(files)
    assert said in str(error.value)


def test_a_find_that_misses_files_is_told():
    files = files_of("isc26")
    files["result.txt"] = files["result.txt"].replace(
        "total-files     = 2659", "total-files     = 2655"
    )
    assert "find looked at 2655 files, mdtest made 2656" in parsed(files).warnings


def test_the_ini_file():
    text = io500.ini(
        {"debug": {"stonewall-time": 300}, "global": {"timestamp-datadir": "FALSE"}}
    )
    assert text == (
        "[debug]\nstonewall-time = 300\n\n[global]\ntimestamp-datadir = FALSE\n"
    )
