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
from iogauge_extras.darshan import profile
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
    output = darshan.as_output(text, file)
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
        assert darshan.as_output(text, file).phases[0].rates["writers"].value == 2
        return
    with pytest.raises(ToolOutputError, match=message):
        darshan.as_output(text, file)


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
        output = darshan.as_output(OMPIO[:cut], "data")
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


# --- profiles ---------------------------------------------------------------------------------------


def made_of(files, run_s=100):
    """Return a log of 16 ranks: by file, its target and its counters."""
    log = darshan.parse(LUSTRE)
    posix, layout = log.of("POSIX")[0], log.of("LUSTRE")[0]
    records = [
        replace(one, file=file, rank=rank, counters=counters)
        for rank, (file, (target, own)) in enumerate(files.items())
        for one, counters in (
            (posix, {"OPENS": 1, **own}),
            (layout, {**layout.counters, "COMP1_OST_ID_0": target}),
        )
    ]
    return replace(log, tasks=16, run_seconds=run_s, records=tuple(records))


def told(log):
    return profile.told(log, of_log("made", log))


def wrote(bytes_, seconds, calls=1024, meta=0):
    return {
        "BYTES_WRITTEN": bytes_,
        "WRITES": calls,
        "F_WRITE_TIME": seconds,
        "F_META_TIME": meta,
    }


@pytest.mark.parametrize(
    ("files", "slow"),
    [
        # One of six takes 77 s for what the others do in 2 s.
        ({f"p{n}": (n, wrote(GIB, 77 if n == 4 else 2)) for n in range(6)}, [4]),
        # Idle tables are no yardstick for output, nor is their time in open the target's.
        (
            {"a": (0, wrote(24 * GIB, 60)), "b": (1, wrote(24 * GIB, 61))}
            | {f"t{n}": (n, wrote(2048, 1e-6, 1)) for n in range(2, 8)},
            [],
        ),
        (
            {f"t{n}": (n, wrote(2048, 1e-6, 1, 77 if n == 4 else 0)) for n in range(6)},
            [],
        ),
        # Small transfers take longer a byte than large ones, on any target.
        (
            {f"p{n}": (n, wrote(GIB, 2)) for n in range(5)}
            | {"q": (5, wrote(GIB, 77, calls=262144))},
            [],
        ),
        # Idle, and slow to open: its few bytes are no yardstick either.
        (
            {f"p{n}": (n, wrote(GIB, 2)) for n in range(4)}
            | {"q": (4, wrote(4096, 3, 1))},
            [],
        ),
        # Two targets are none to compare with; of three, one may be named.
        ({f"p{n}": (n, wrote(GIB, 77 if n == 1 else 2)) for n in range(2)}, []),
        ({f"p{n}": (n, wrote(GIB, 77 if n == 1 else 2)) for n in range(3)}, [1]),
        # More bytes take more time.
        (
            {
                f"p{n}": (n, wrote((1 + 9 * (n == 2)) * GIB, 2 + 18 * (n == 2)))
                for n in range(6)
            },
            [],
        ),
        # Slow, but by less than a second, or than a twentieth of the run.
        ({f"p{n}": (n, wrote(GIB, 0.8 if n == 4 else 0.2)) for n in range(6)}, []),
        ({f"p{n}": (n, wrote(GIB, 5 if n == 4 else 1)) for n in range(6)}, []),
    ],
)
def test_a_target_is_accused_by_what_its_own_bytes_cost(files, slow):
    said = [text for text in told(made_of(files)) if text.startswith("A byte on")]
    assert len(said) == len(slow)
    assert all(f"OST {n} takes" in text for n, text in zip(slow, said, strict=True))


def test_one_stripe_of_a_large_shared_file_and_waiting_in_mpi_io_are_told():
    shared = made_of({"/scratch/a": (1, wrote(8 * GIB, 300))})
    posix, layout = shared.records
    counters = {**posix.counters, "F_SLOWEST_RANK_TIME": 20.0}
    all_ranks = replace(posix, rank=darshan.ALL_RANKS, counters=counters)
    mpi = replace(all_ranks, module="MPI-IO", counters={"F_SLOWEST_RANK_TIME": 90.0})
    log = replace(shared, records=(all_ranks, layout, mpi))
    said = " ".join(told(log))
    assert "share /scratch/a, which lies on one storage target" in said
    assert "90.00 s in MPI-IO, and 20.00 s of it in POSIX" in said


def test_what_was_not_read_is_said():
    log = replace(
        darshan.parse(LUSTRE), modules={"DAOS": True, "H5F": True, "DXT_POSIX": True}
    )
    empty = replace(log, records=())
    notes = of_log("x", empty).notes
    assert "not read, though the log has it: DAOS, H5F" in notes
    assert profile.verdict(empty, of_log("x", empty)) == ["nothing was read."]
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
    assert profile.files(read) == profile.files(new)
    assert profile.targets(read) == profile.targets(new)


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
@pytest.mark.parametrize("change", ["", "incomplete", "stands out"])
def test_every_view_of_a_log_says_what_the_others_say(
    tmp_path, monkeypatch, name, change
):
    text = (DATA / f"{name}.txt").read_text()
    if change == "incomplete":
        text += "# *WARNING*: The STDIO module contains incomplete data!\n"
    if change == "stands out":
        text = re.sub(
            r"(_F_(?:META|SLOWEST_RANK)_TIME\t)\S+",
            r"\g<1>77.0",
            re.sub("(run time: ).*", r"\g<1>99", text),
        )
    log = tmp_path / "a.darshan"
    log.write_text(text)
    parser(tmp_path, monkeypatch, 'for last; do :; done\nexec cat "$last"')
    found = darshan.parse(text)
    said = [*told(found), *of_log("x", found).notes]
    assert (change == "stands out") <= bool(told(found))
    assert (change == "incomplete") == any("is incomplete" in one for one in said)
    views = [
        [str(log)],
        [str(log), "--json"],
        [str(log)] * 2,
        [str(log)] * 2 + ["--json"],
    ]
    for words in views:
        done = CliRunner().invoke(app.app, ["compare", *words])
        shown = " ".join(done.output.split())
        assert done.exit_code == 0 and [one for one in said if one not in shown] == []


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
    assert 0 < found["fastest rank"] <= found["slowest rank"] <= log.run_seconds


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
