"""WRF-IO: a recorded report of PnetCDF 1.14.1's benchmark as values."""

import re

import pytest

from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge_extras.suites.wrf import parse
from support.project import SAMPLES

REPORT = (SAMPLES / "wrf_io_1.14.1.txt").read_text()
HEADER = "/opt/wrf_header.txt"


def test_a_recorded_write():
    output = parse(f"a line of the launcher's\n{REPORT}", HEADER)
    (phase,) = output.phases
    assert (phase.name, phase.bytes_moved, output.tasks) == ("write", 34382628, 2)
    assert phase.rates["bw"].value * phase.seconds == pytest.approx(32.79, abs=0.01)
    assert 0 < phase.rates["define"].value < phase.seconds
    words = f"wrf_io -i {HEADER} -n 1 -y 100 -x 100 -w /scratch/wrfout.1.nc"
    assert (output.command, output.parameters["variables"]) == (words, 202)


def test_a_form_of_later_releases():
    later = REPORT.replace("2D :  ", "2D:   ").replace(
        "define metadata time", "define  metadata  time"
    )
    assert parse(later, HEADER) == parse(REPORT, HEADER)


@pytest.mark.parametrize(
    "damage, reason",
    [
        (lambda text: "", "0 reports, expected 1: it printed nothing"),
        (
            lambda text: "Error in cdl_hdr_open at 697: fail to open file x",
            "0 reports.*cdl_hdr_open",
        ),
        (lambda text: text * 2, "2 reports, expected 1: "),
        (
            lambda text: text[: text.index("Write bandwidth")],
            "'Write bandwidth' is 'missing'",
        ),
        (
            lambda text: re.sub(r"(Total write amount: +)3", r"\g<1>9", text),
            "the report is damaged",
        ),
        (
            lambda text: re.sub(r"(open-to-close time: +)\S+", r"\1nan", text),
            "is 'nan sec'",
        ),
    ],
    ids=["nothing", "an error", "two worlds", "cut", "another amount", "no number"],
)
def test_what_is_no_report_is_an_error(damage, reason):
    assert callable(damage)
    with pytest.raises(ToolOutputError, match=reason):
        parse(damage(REPORT), HEADER)


def test_seconds_of_a_write():
    rates = parse(REPORT, HEADER).phases[0].rates
    told = re.search(r"define metadata time: +(\S+) sec", REPORT)
    assert rates["define"] == Quantity(float(told[1]), "s")
