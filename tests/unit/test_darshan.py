"""Darshan's log, as its own parser prints it (``tests/data/darshan``: recorded, lines left out)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge.tools.darshan import run_words
from iogauge_extras.darshan import log as darshan
from iogauge_extras.darshan import profile

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


@pytest.mark.parametrize(
    ("library", "log", "message"),
    [
        ("libdarshan.so", "x", "library is 'libdarshan.so': expected the absolute path"),
        ("/a b/libdarshan.so", "x", "library is"),
        ("/a:/libdarshan.so", "x", "library is"),
        ("/a/libdarshan.so", "a b", "log is 'a b'"),
        ("/a/libdarshan.so", "", "log is ''"),
    ],
)
def test_paths_that_would_be_split_are_refused(library: str, log: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_words(library, log)


# --- profiles ---------------------------------------------------------------------------------------


def test_the_heat_map_is_read() -> None:
    heat = darshan.heat(darshan.parse(HEAT), "POSIX")
    assert heat is not None
    assert heat.bin_seconds == 0.1
    assert heat.written == {0: (0, 4096), 1: (8192, 0)}
    assert heat.read[1] == (1, 2)
    assert darshan.heat(darshan.parse(HEAT), "STDIO") is None


#: The head of a log, and its heat map, as darshan-parser prints them.
HEAT = (
    OMPIO.partition("# POSIX module data")[0]
    .replace("POSIX module: ", "APMPI module: ")
    .replace("MPI-IO module: ", "APXC module: ")
    .replace("STDIO module: ", "BG/Q module: ")
    + "# HEATMAP module data\n#<module>\n"
    + "".join(
        f"HEATMAP\t{rank}\t7\tHEATMAP_{name}\t{value}\theatmap:POSIX\tUNKNOWN\tUNKNOWN\n"
        for rank, bins in ((0, (0, 0, 0, 4096)), (1, (1, 2, 8192, 0)))
        for name, value in zip(
            ("F_BIN_WIDTH_SECONDS", "READ_BIN_0", "READ_BIN_1", "WRITE_BIN_0", "WRITE_BIN_1"),
            ("0.100000", *bins),
            strict=True,
        )
    )
)


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
    assert f"{slow} take" in said
    figure = profile.target_times("t", made)
    assert figure.count('class="bar') == len(profile.targets(made))
    assert (
        figure.index(f">{slow}<") < figure.index('class="bar slow"') < figure.index('class="bar"')
    )
