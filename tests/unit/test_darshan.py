"""Darshan's log, as its own parser prints it (``tests/data/darshan``: recorded, lines left out)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan.log_figures import of_log
from support.project import DATA
from support.shell import script

DATA = DATA / "darshan"
OMPIO = (DATA / "ompio-2-aggregators.txt").read_text()
ROMIO = (DATA / "romio-3-aggregators.txt").read_text()
REDUCED = (DATA / "reduced-1m.txt").read_text()
LUSTRE = (DATA / "lustre.txt").read_text()
FILE = "/scratch/iogauge/data"
MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize("text, count", [(OMPIO, 2), (ROMIO, 3)])
@pytest.mark.parametrize("file", ["data", "iogauge/data", "/data", FILE])
def test_the_writers_are_counted(text, count, file):
    assert darshan.writers(darshan.parse(text), file) == count
    output = darshan.as_output(text, "", file)
    (phase,) = output.phases
    assert (phase.name, phase.rates) == ("writers", {"writers": Quantity(count, "1")})
    assert (output.tool, output.version, output.tasks) == ("darshan", "3.5.0", 4)


@pytest.mark.parametrize(
    "text, file, message",
    [
        (REDUCED, "data", "set DARSHAN_DISABLE_SHARED_REDUCTION=1 for the ranks"),
        (LUSTRE, "", "files named ''"),
        (OMPIO.replace("POSIX\t3\t", "POSIX\t-1\t"), FILE, None),
        (
            OMPIO + OMPIO.replace(FILE, "/other/data").replace("\t27", "\t99"),
            "data",
            "2 files",
        ),
    ],
)
def test_writers_that_cannot_be_counted(text, file, message):
    if message is None:  # a summed-up record without bytes hides no writer
        assert darshan.as_output(text, "", file).phases[0].rates["writers"].value == 2
        return
    with pytest.raises(ToolOutputError, match=message):
        darshan.as_output(text, "", file)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "not what darshan-parser prints: no 'darshan log version'"),
        (OMPIO.replace("# nprocs: 4\n", ""), "no 'nprocs' in the header"),
        (OMPIO.replace("# run time: 0.0335", "# run time: nan"), "run time is 'nan'"),
        (OMPIO.replace("POSIX_OPENS\t", "POSIX_OPENS\t" + "9" * 400), "POSIX_OPENS is"),
        (
            re.sub(r"POSIX\t3\t\S+\tPOSIX_OPENS\t.*\n", "", OMPIO),
            "POSIX counters of rank 3",
        ),
    ],
)
def test_text_that_cannot_be_trusted_is_refused(text, message):
    with pytest.raises(ToolOutputError, match=message):
        darshan.parse(text)


@given(cut=st.integers(0, len(OMPIO) - 1))
def test_a_text_that_is_cut_off_never_gives_another_number(cut):
    try:
        output = darshan.as_output(OMPIO[:cut], "", "data")
    except ToolOutputError:
        return
    assert output.phases[0].rates["writers"].value == 2
    assert cut > OMPIO.rindex("\nSTDIO\t")


# --- one log -----------------------------------------------------------------------------------------


def parser(folder, monkeypatch, lines):
    """Put a darshan-parser first on PATH."""
    script(folder / "darshan-parser", f"#!/bin/sh\n{lines}\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    "said",
    [
        # 3.2.1 and before, 3.3.1 and 3.4.0 with a log of 3.5, 3.4.4 with a log of DAOS, any with a damaged log.
        "darshan-parser: unrecognized option '--show-incomplete'",
        "Error: incompatible darshan file.\nError: expected version 3.21, but got 3.41",
        "darshan-logutils.c:689: darshan_log_get_filtered_namehash: Assertion `buf_len == 0' failed.",
        "Error: invalid log file (failed to read version).",
    ],
)
def test_a_parser_that_is_too_old_is_named_with_what_would_do(
    tmp_path, monkeypatch, said
):
    parser(tmp_path, monkeypatch, f'cat >&2 <<"E"\n{said}\nE\nexit 1')
    done = CliRunner().invoke(app.app, ["compare", "x.darshan"])
    told = " ".join(done.output.split())
    assert done.exit_code == 2 and said.split("\n")[0].rstrip(".") in told
    assert (
        "must be 3.3 or newer, and as new as the log (spack install darshan-util)"
        in told
    )


def test_a_parser_that_complains_and_ends_well_has_read_a_damaged_log(
    tmp_path, monkeypatch
):
    complaint = "Error: failed to parse POSIX module record."
    parser(tmp_path, monkeypatch, f'cat "{DATA}/lustre.txt"\necho "{complaint}" >&2')
    done = CliRunner().invoke(app.app, ["compare", "x.darshan"])
    assert done.exit_code == 2
    assert "is cut off or damaged" in done.output
    with pytest.raises(ToolOutputError, match="cut off or damaged"):
        darshan.as_output(OMPIO, complaint, "data")


# --- two logs ---------------------------------------------------------------------------------------


def values(log):
    return {
        name: quantity.value for name, quantity in of_log("log", log).values.items()
    }


def test_the_figures_of_a_log():
    log = darshan.parse(REDUCED)
    found = values(log)
    assert found["run time"] == log.run_seconds
    for module in ("POSIX", "MPI-IO"):
        assert (
            found[f"{module} bytes read"] == found[f"{module} bytes written"] == 8 * MIB
        )
        told = re.search(
            rf"# {module} module data\n(?s:.*?)# agg_time_by_slowest: (\S+)", REDUCED
        )
        assert 0.9 * float(told[1]) < found[f"{module} time"] <= float(told[1])
    assert found["files opened"] == 1
    assert found["small accesses"] == 0
    assert 0 < found["metadata time"] < 100


def test_a_missing_parser_is_named_with_what_brings_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("IOGAUGE_ROOT", str(tmp_path))
    (tmp_path / "checks").mkdir()
    log = str(tmp_path / "x.darshan")
    done = CliRunner().invoke(app.app, ["compare", log, log])
    assert done.exit_code == 2
    assert re.search(
        r"darshan-parser is neither on PATH .*ci/build-stack.*darshan-util", done.output
    )


def test_a_log_and_a_record_are_not_compared():
    done = CliRunner().invoke(app.app, ["compare", "a.darshan", "s1"])
    assert done.exit_code == 2 and "give two Darshan logs" in done.output
