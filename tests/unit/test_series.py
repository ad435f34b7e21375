"""The series of an execution: from the looks of the first node to minutes, dips and levels."""

import pytest

from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.guards import figures
from iogauge.guards.finding import Outcome
from iogauge.plan.observations import (
    MOVED,
    Instant,
    NodeObservations,
    Observation,
)
from iogauge.plan.stage import PhaseRun
from iogauge_extras.loads.bandwidth_series import (
    SERIES,
    Dip,
    Series,
    series_of_instants,
    with_series,
)
from support.whole import data

MIB = 1 << 20
RUN = PhaseRun(1, "write", 0, 100.0, 100_000.0, "t")


def looks(rates):
    """What the agent writes of a write with these MiB/s in each second; it looks on for two seconds."""

    begin = 103.07

    def written(when):
        done = when - begin
        whole = [max(0.0, min(1.0, done - second)) for second in range(len(rates))]
        return int(
            MIB * sum(rate * part for rate, part in zip(rates, whole, strict=True))
        )

    times = [90 + n / 5 for n in range(int(5 * (begin - 90 + len(rates) + 2)))]
    return [Instant(round(when, 2), 7 * MIB, 5 * MIB + written(when)) for when in times]


def noted(instants):
    return NodeObservations(
        {"n1": [Observation(i.time, MOVED, [i.read, i.written]) for i in instants]}
    )


def series(rates):
    found = series_of_instants(looks(rates), "write", RUN, float(len(rates)))
    assert found is not None
    return found


def output(seconds, mib_s=100.0):
    phase = Phase("write", {"bw": Quantity(mib_s, "MiB/s")}, seconds)
    return ToolOutput("fio", "3.33", (phase,))


def test_a_steady_write_is_as_long_as_the_tool_says():
    found = series([100.0] * 300)
    assert len(found.rates) == 300
    assert found.mean == pytest.approx(100 * MIB, rel=0.01)
    assert max(found.windows) == pytest.approx(min(found.windows), rel=0.01)
    assert found.dips == []


def test_a_stall_is_a_dip_of_its_length_and_depth():
    """Twelve seconds of a five-minute write at a tenth, and three at a third."""
    rates = [100.0] * 300
    rates[100:112], rates[200:203] = [10.0] * 12, [33.0] * 3
    longest, other = series(rates).dips
    assert (longest.begin_s, longest.seconds) == (
        pytest.approx(100, abs=1),
        pytest.approx(12, abs=1),
    )
    assert (other.begin_s, other.seconds) == (
        pytest.approx(200, abs=1),
        pytest.approx(3, abs=1),
    )
    assert longest.lowest == pytest.approx(0.1, abs=0.01)


def test_the_worst_minute_and_the_best_are_the_tools_bandwidth_times_their_share():
    rates = [100.0] * 240 + [200.0] * 60
    seen = with_series(
        output(300.0, 60.0), noted(looks(rates)), RUN, "write, repetition 1"
    )
    (phase,) = seen.phases
    assert phase.rates["best_minute"].value == pytest.approx(60 * 200 / 120, rel=0.01)
    assert phase.rates["worst_minute"].value == pytest.approx(60 * 100 / 120, rel=0.01)
    assert phase.rates["dip"] == Quantity(1.0, "s")
    assert isinstance(seen.parameters[SERIES], Series)


@pytest.mark.parametrize(
    ("instants", "seconds"),
    [
        ([], 300.0),
        (looks([100.0] * 5), 1.0),
        ([Instant(t, 0, 5) for t in range(90, 400)], 300.0),
    ],
    ids=["nobody counts", "too short", "nothing moved"],
)
def test_without_a_count_there_is_no_series(instants, seconds):
    with pytest.raises(
        ToolOutputError, match="write, repetition 2: no counter under the target's"
    ):
        with_series(output(seconds), noted(instants), RUN, "write, repetition 2")


def g17(*series):
    whole = data()
    for at, one in enumerate(series):
        whole = whole.output("read", at, parameters={SERIES: one})
    found = figures.steadiness(whole.phase("read"))
    assert found
    return found


def test_g17_names_dips():
    assert figures.steadiness(data().phase("read")) is None
    steady = Series(1.0, (100.0 * MIB,) * 60)
    assert g17(steady, steady).outcome is Outcome.OK
    rates = (300.0 * MIB,) * 40 + (100.0 * MIB,) * 60 + (20.0 * MIB,) * 5
    found = g17(steady, Series(1.0, rates))
    assert found.outcome is Outcome.WARN
    assert found.saw == (
        "repetition 2: 1 dip(s), the longest of 5.00 s after 100 s, down to 20% of the median"
    )
    assert Series(1.0, rates).dips == [Dip(100.0, 5.0, pytest.approx(0.2))]
