"""Darshan's log, as its own parser prints it (``tests/data/darshan``: recorded, lines left out)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge.tools.darshan import run_words
from iogauge_extras.compare import logs
from iogauge_extras.compare.logs import Figures
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan.figures import of_log
from support.shell import script

DATA = Path(__file__).parents[1] / "data" / "darshan"
OMPIO = (DATA / "ompio-2-aggregators.txt").read_text()
ROMIO = (DATA / "romio-3-aggregators.txt").read_text()
REDUCED = (DATA / "reduced-1m.txt").read_text()
LUSTRE = (DATA / "lustre.txt").read_text()
FILE = "/scratch/iogauge/data"
MIB, GIB = 1 << 20, 1 << 30


def test_the_layout_is_read_and_its_words_are_not():
    log = darshan.parse(LUSTRE)
    assert (log.tasks, log.library_version) == (48, "3.1.3")
    (first, _) = log.of("LUSTRE")
    assert first.counters == {
        "NUM_COMPONENTS": 1,
        "NUM_STRIPES": 1,
        "COMP1_STRIPE_SIZE": MIB,
        "COMP1_STRIPE_COUNT": 1,
        "COMP1_EXT_START": 0,
        "COMP1_EXT_END": -1,
        "COMP1_MIRROR_ID": -1,
        "COMP1_OST_ID_0": 7,
    }


@pytest.mark.parametrize(("text", "count"), [(OMPIO, 2), (ROMIO, 3)])
@pytest.mark.parametrize("file", ["data", "iogauge/data", "/data", FILE])
def test_the_writers_are_counted(text, count, file):
    assert darshan.writers(darshan.parse(text), file) == count
    output = darshan.as_output(text, "", file)
    (phase,) = output.phases
    assert (phase.name, phase.rates) == ("writers", {"writers": Quantity(count, "1")})
    assert (output.tool, output.version, output.tasks) == ("darshan", "3.5.0", 4)


@pytest.mark.parametrize(
    ("text", "file", "message"),
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
    ("text", "message"),
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
    assert cut > OMPIO.index("# HEATMAP module data")


def test_words_for_the_ranks():
    assert run_words("/opt/d/lib/libdarshan.so", "darshan.$IOG_REP.log") == [
        "env",
        "LD_PRELOAD=/opt/d/lib/libdarshan.so",
        "DARSHAN_LOGFILE=darshan.$IOG_REP.log",
        "DARSHAN_DISABLE_SHARED_REDUCTION=1",
    ]


# --- one log -----------------------------------------------------------------------------------------


def test_what_was_not_read_is_said():
    log = replace(
        darshan.parse(LUSTRE), modules={"DAOS": True, "H5F": True, "DXT_POSIX": True}
    )
    empty = replace(log, records=())
    notes = of_log("x", empty).notes
    assert "not read, though the log has it: DAOS" in notes
    assert "not read, though the log has it: H5F" in notes
    lost = replace(
        log, modules={"POSIX": True, "LUSTRE": True}, records=tuple(log.of("POSIX"))
    )
    assert (
        "module LUSTRE is in the log, but darshan-parser printed nothing"
        in " ".join(of_log("x", lost).notes)
    )


def test_the_layout_in_the_words_of_an_older_parser_is_read():
    old = re.sub(
        r"LUSTRE_COMP1_(\w+)\t",
        lambda m: f"LUSTRE_{m[1].replace('STRIPE_COUNT', 'STRIPE_WIDTH')}\t",
        LUSTRE,
    )
    old = re.sub("(?m)^LUSTRE\t.*(NUM_|EXT_|MIRROR).*\n", "", old)
    new, read = darshan.parse(LUSTRE), darshan.parse(old)
    assert of_log("x", read) == of_log("x", new)


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


@pytest.mark.parametrize("version", ["3.3.1", "3.4.0", "3.4.4", "3.4.7"])
def test_what_versions_of_the_parser_print_otherwise_changes_no_figure(version):
    """Seen by reading 103 public logs with each: its own sums, and its name of a module that it does not know."""
    text = re.sub("(?m)^# agg_(time|perf)_by_slowest.*\n", "", REDUCED)
    text = (
        text.replace("# HEATMAP module:", "# (null) module:")
        if version == "3.3.1"
        else text
    )
    new, read = (of_log("x", darshan.parse(one)) for one in (REDUCED, text))
    assert read.values == new.values
    assert ("a module that is newer than darshan-parser" in str(read.notes)) == (
        "(null)" in text
    )


@pytest.mark.parametrize("module", ["DFS", "H5D", "PNETCDF_VAR"])
def test_the_layers_above_and_beside_posix_have_figures(module):
    log = darshan.parse(
        REDUCED.replace("MPI-IO", module).replace("MPIIO_", f"{module}_")
    )
    found, old = values(log), values(darshan.parse(REDUCED))
    for what in ("time", "bytes read", "bytes written"):
        assert found[f"{module} {what}"] == old[f"MPI-IO {what}"] > 0


@pytest.mark.parametrize("name", [path.stem for path in sorted(DATA.glob("*.txt"))])
def test_every_view_of_a_log_says_what_the_others_say(tmp_path, monkeypatch, name):
    text = (DATA / f"{name}.txt").read_text()
    text += "# *WARNING*: The STDIO module contains incomplete data!\n"
    log = tmp_path / "a.darshan"
    log.write_text(text)
    parser(tmp_path, monkeypatch, 'for last; do :; done\nexec cat "$last"')
    notes = of_log("x", darshan.parse(text)).notes
    assert any("STDIO is incomplete" in note for note in notes)
    views = [
        [str(log)],
        [str(log), "--json"],
        [str(log)] * 2,
        [str(log)] * 2 + ["--json"],
    ]
    for arguments in views:
        done = CliRunner().invoke(app.app, ["compare", *arguments])
        shown = " ".join(done.output.split())
        assert done.exit_code == 0
        assert [note for note in notes if note not in shown] == []


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


def test_a_module_that_is_newer_than_the_parser_is_named():
    text = OMPIO.replace("# HEATMAP module:", "# <UNKNOWN> module (id 21):")
    assert "<UNKNOWN> module (id 21)" in str(of_log("x", darshan.parse(text)).notes)


# --- two logs ---------------------------------------------------------------------------------------


def figures(values, facts=None):
    return Figures(
        name="x",
        values={n: Quantity(v, "s") for n, v in values.items()},
        facts=facts or {},
    )


@pytest.mark.parametrize(
    ("a", "b", "ratio", "mark"),
    [
        (100, 100, 1.0, ""),
        (100, 110, 1.1, ""),
        (100, 110.1, 1.101, "differs"),
        (0, 0, None, ""),
        (0, 1, None, "differs"),
    ],
)
def test_a_ratio_and_whether_it_is_told(a, b, ratio, mark):
    (found,) = logs.compare(figures({"v": a}), figures({"v": b})).rows
    assert (found.ratio, found.mark) == (pytest.approx(ratio) if ratio else ratio, mark)


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
    assert (
        found["POSIX / MPI-IO bytes written"] == found["POSIX / MPI-IO bytes read"] == 1
    )
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


@pytest.mark.parametrize("words", [["s1"], ["b.darshan", "--html", "x.html"]])
def test_a_log_and_a_record_are_not_compared(words):
    done = CliRunner().invoke(app.app, ["compare", "a.darshan", *words])
    assert done.exit_code == 2 and "give two Darshan logs" in done.output
