"""md-workbench: recorded outputs of two versions to latencies."""

import re
from pathlib import Path

import pytest

from iogauge.core.measurement import Quantity, ToolOutputError
from iogauge_extras.suites import md_workbench

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


def sample(version):
    return (SAMPLES / f"mdworkbench_{version}.stdout").read_text()


@pytest.mark.parametrize(
    ("version", "named", "tasks", "objects", "rate"),
    [("40", "4.0.0", None, 1472, 1219.7), ("41", "4.1.0+dev", 4, 5736, 5089.0)],
)
def test_a_run_of_each_version(version, named, tasks, objects, rate):
    output = md_workbench.parse(sample(version))
    assert (output.tool, output.version, output.tasks) == ("md-workbench", named, tasks)
    assert [phase.name for phase in output.phases] == [
        "precreate",
        "benchmark",
        "cleanup",
    ]
    timed = output.phases[1]
    assert (timed.operations, timed.rates["rate"]) == (
        4 * objects,
        Quantity(rate, "ops/s"),
    )
    assert timed.seconds == pytest.approx(objects / rate)
    assert output.parameters == {"shift": 2}
    assert output.command.startswith("md-workbench -D=2 -I=3000 -P=3000")
    assert [moment.name for moment in output.moments] == ["start", "end"]
    assert output.moments[1].seconds - output.moments[0].seconds in (20, 26)


def test_latencies_are_in_microseconds_by_operation_and_quantile():
    rates = md_workbench.parse(sample("40")).phases[1].rates
    assert rates["stat_p50"].value == pytest.approx(1.9073)
    assert rates["delete_p99"].value == pytest.approx(19046)
    assert rates["create_max"].value == pytest.approx(21260)
    assert rates["read_p50"].unit == "us"
    # A time of nothing is none that was measured.
    assert "stat_min" not in md_workbench.parse(sample("41")).phases[1].rates


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        (r"(?m)^cleanup.*\n", "", "found precreate, benchmark"),
        (r"(?m)^Total runtime.*\n", "", "0 ends of a run"),
        (r"\(0 errs\)", "(3 errs!!!)", "3 operations failed"),
        (r"(?m) stat\(.*?\)", "", "no latencies of stat"),
        (r"rate:1219.7 obj/s", "rate:0.0 obj/s", "a rate above 0"),
        (r"rate:1219.7 obj/s", "rate:1259.7 obj/s", "its longest task took 1.21 s"),
        (r"(?s).*", "", "printed nothing"),
    ],
)
def test_what_is_no_whole_run_is_refused(pattern, text, said):
    damaged = re.sub(pattern, text, sample("40"))
    with pytest.raises(ToolOutputError, match=re.escape(said)):
        md_workbench.parse(damaged)
