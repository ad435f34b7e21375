"""Darshan's log, as its own parser prints it (``tests/data/darshan``: recorded, lines left out)."""

from __future__ import annotations

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
from iogauge_extras.darshan.subject import of_log

DATA = Path(__file__).parents[1] / "data" / "darshan"
OMPIO = (DATA / "ompio-2-aggregators.txt").read_text()
ROMIO = (DATA / "romio-3-aggregators.txt").read_text()
REDUCED = (DATA / "reduced-1m.txt").read_text()
LUSTRE = (DATA / "lustre.txt").read_text()
FILE = "/scratch/iogauge/data"
MIB = 1 << 20


def test_the_job_is_read() -> None:
    log = darshan.parse(OMPIO)
    assert log.command == "ior -a MPIIO -c -w -e -t 1m -b 4m -o /scratch/iogauge/data"
    assert (log.tasks, log.format_version, log.library_version) == (4, "3.41", "3.5.0")
    assert log.run_seconds == 0.0335
    assert log.modules == {"POSIX": True, "MPI-IO": True, "STDIO": True, "HEATMAP": True}
    assert log.slowest_seconds == {}


def test_the_layout_is_read_and_its_words_are_not() -> None:
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
def test_the_writers_are_counted(text: str, count: int, file: str) -> None:
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
        (OMPIO + OMPIO.replace(FILE, "/other/data").replace("\t27", "\t99"), "data", "2 files"),
    ],
)
def test_writers_that_cannot_be_counted(text: str, file: str, message: str | None) -> None:
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
        (re.sub(r"POSIX\t3\t\S+\tPOSIX_OPENS\t.*\n", "", OMPIO), "POSIX counters of rank 3"),
    ],
)
def test_text_that_cannot_be_trusted_is_refused(text: str, message: str) -> None:
    with pytest.raises(ToolOutputError, match=message):
        darshan.parse(text)


def test_what_the_parser_prints_of_an_incomplete_module_is_refused() -> None:
    # Without --show-incomplete it ends behind the title.
    text = OMPIO[: OMPIO.index("#<module>")]
    with pytest.raises(ToolOutputError, match="--show-incomplete shows what there is"):
        darshan.parse(text)


@given(cut=st.integers(0, len(OMPIO) - 1))
def test_a_text_that_is_cut_off_never_gives_another_number(cut: int) -> None:
    try:
        output = darshan.as_output(OMPIO[:cut], "data")
    except ToolOutputError:
        return
    assert output.phases[0].rates["writers"].value == 2
    assert cut > OMPIO.index("# HEATMAP module data")


@given(text=st.text() | st.text(alphabet="#\t\n POSIX01-"))
def test_any_text_is_refused_or_read(text: str) -> None:
    with pytest.raises(ToolOutputError):
        darshan.parse(text)


@pytest.mark.slow
def test_the_records_of_many_ranks_are_all_kept() -> None:
    body = OMPIO[OMPIO.index("POSIX\t0\t") : OMPIO.index("POSIX\t1\t")]
    more = "".join(body.replace("POSIX\t0\t", f"POSIX\t{rank}\t") for rank in range(4, 2000))
    log = darshan.parse(OMPIO.replace(body, body + more))
    assert len(log.of("POSIX")) == 2000
    assert darshan.writers(log, "data") == 2 + 1996


def test_words_for_the_ranks() -> None:
    assert run_words("/opt/d/lib/libdarshan.so", "darshan.$IOG_REP.log") == [
        "env",
        "LD_PRELOAD=/opt/d/lib/libdarshan.so",
        "DARSHAN_LOGFILE=darshan.$IOG_REP.log",
        "DARSHAN_DISABLE_SHARED_REDUCTION=1",
    ]


# --- profiles ---------------------------------------------------------------------------------------


def test_what_stands_out_in_a_profile_is_said() -> None:
    log = darshan.parse(LUSTRE)
    one = profile.Profile.of("lustre", log)
    assert [row.stripes for row in profile.files(log)] == [1, 1]
    assert set(profile.targets(log)) == {7, 4}
    (slowest, seconds), *_ = profile.ranks(log).items()
    assert sum(seconds.values()) == pytest.approx(one.value("slowest rank"))
    posix = [r for r in log.records if r.module == "POSIX"]
    slow = [
        replace(r, counters={**r.counters, "F_WRITE_TIME": 900.0 if r.rank == slowest else 1.0})
        for r in posix
    ]
    other = next(r for r in slow if r.rank != slowest)
    third = replace(other, rank=9, file="/scratch1/third")
    layout = next(r for r in log.of("LUSTRE"))
    third_layout = replace(
        layout, file=third.file, counters={**layout.counters, "COMP1_OST_ID_0": 2}
    )
    made = replace(log, records=(*slow, third, *log.of("LUSTRE"), third_layout))
    said = " ".join(profile.told(profile.Profile.of("made", made)))
    assert f"Rank {slowest} spends" in said
    slow = f"OST {next(iter(profile.targets(made)))}"
    assert f"A byte on {slow} takes" in said


def test_files_that_moved_nothing_are_no_yardstick() -> None:
    log = darshan.parse(LUSTRE)
    idle = [
        replace(r, counters=dict.fromkeys(r.counters, 0))
        if r.module == "POSIX" and r.file != slow
        else r
        for r in log.records
        for slow in [profile.files(log)[0].file]
    ]
    assert len(profile.targets(replace(log, records=tuple(idle)))) <= 1


def test_a_parser_that_forgets_layouts_is_refused_by_name() -> None:
    old = re.sub(
        r"LUSTRE_(NUM_\w+|COMP1_\w+)\t", lambda m: f"LUSTRE_{m[1].removeprefix('COMP1_')}\t", LUSTRE
    )
    with pytest.raises(ToolOutputError, match=r"darshan-parser is older than 3\.4\.6"):
        darshan.parse(re.sub("(?m)^LUSTRE\t.*NUM_COMPONENTS.*\n", "", old))


# --- two logs ---------------------------------------------------------------------------------------


def figures(values: dict[str, float], facts: dict[str, str] | None = None) -> Figures:
    return Figures(
        name="x", values={n: Quantity(v, "s") for n, v in values.items()}, facts=facts or {}
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
def test_a_ratio_and_whether_it_is_told(a: float, b: float, ratio: float | None, mark: str) -> None:
    (found,) = logs.compare(figures({"v": a}), figures({"v": b})).rows
    assert (found.ratio, found.mark) == (pytest.approx(ratio) if ratio else ratio, mark)


def test_a_value_that_one_does_not_have() -> None:
    (there,) = logs.compare(figures({"v": 2}), figures({})).rows
    (back,) = logs.compare(figures({}), figures({"v": 2})).rows
    assert there == logs.FigureRow("v", "s", 2, None, None, "differs")
    assert back == logs.FigureRow("v", "s", None, 2, None, "differs")


def test_only_facts_that_differ_are_told() -> None:
    a = figures({}, facts={"same": "1", "other": "x", "gone": "y"})
    b = figures({}, facts={"same": "1", "other": "z", "new": "n"})
    assert [(c.name, c.a, c.b) for c in logs.compare(a, b).changes] == [
        ("other", "x", "z"),
        ("gone", "y", ""),
        ("new", "", "n"),
    ]


def values(log: darshan.DarshanLog) -> dict[str, float]:
    return {name: quantity.value for name, quantity in of_log("log", log).values.items()}


def test_the_figures_of_a_log() -> None:
    log = darshan.parse(REDUCED)
    found = values(log)
    assert found["run time"] == log.run_seconds
    for module in ("POSIX", "MPI-IO"):
        assert found[f"{module} bytes read"] == found[f"{module} bytes written"] == 8 * MIB
        assert found[f"{module} time"] == log.slowest_seconds[module]
    assert found["POSIX / MPI-IO bytes written"] == found["POSIX / MPI-IO bytes read"] == 1
    assert found["files opened"] == 1
    assert found["small accesses"] == 0
    assert 0 < found["metadata time"] < 100
    assert 0 < found["fastest rank"] <= found["slowest rank"] <= log.run_seconds


def test_two_numbers_of_writers() -> None:
    comparison = logs.compare(of_log("a", darshan.parse(OMPIO)), of_log("b", darshan.parse(ROMIO)))
    rows = {r.name: r for r in comparison.rows}
    assert (rows["writers of the shared file"].a, rows["writers of the shared file"].b) == (2, 3)
    assert rows["writers of the shared file"].ratio == 1.5
    # The same command: hints came through the environment. ROMIO wrote the holes between the shares, too.
    assert [c.name for c in comparison.changes] == ["access sizes"]
    amplified = rows["POSIX / MPI-IO bytes written"]
    assert (amplified.a, amplified.mark) == (1, "differs")
    assert amplified.b == pytest.approx((2 * 18175320 + 18175312) / (16 * MIB))


def test_layout_and_file_system_are_facts() -> None:
    facts = of_log("a", darshan.parse(LUSTRE)).facts
    assert facts["layout"] == "1 x 1 MiB"
    assert facts["file system"] == "lustre on /scratch1"
    assert facts["tasks"] == "48"
    assert facts["shared file"] == ""


def test_a_missing_parser_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_log_and_a_record_are_not_compared(words: list[str]) -> None:
    done = CliRunner().invoke(app.app, ["compare", "a.darshan", *words])
    assert done.exit_code == 2 and "give two Darshan logs" in done.output
