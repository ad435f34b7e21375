"""Darshan's log, as its own parser prints it (``tests/data/darshan``: recorded, lines left out)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge_extras.darshan import log as darshan
from support.project import DATA

DATA = DATA / "darshan"
OMPIO = (DATA / "ompio-2-aggregators.txt").read_text()
ROMIO = (DATA / "romio-3-aggregators.txt").read_text()
REDUCED = (DATA / "reduced-1m.txt").read_text()
LUSTRE = (DATA / "lustre.txt").read_text()
FILE = "/scratch/iogauge/data"


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
    assert cut > OMPIO.rindex("\nPOSIX\t")


def test_a_parser_that_complains_and_ends_well_has_read_a_damaged_log():
    complaint = "Error: failed to parse POSIX module record."
    with pytest.raises(ToolOutputError, match="cut off or damaged"):
        darshan.as_output(OMPIO, complaint, "data")
