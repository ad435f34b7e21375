"""A phase of IO500 by itself: what the first node counted while it ran."""

from dataclasses import replace
from pathlib import Path

import pytest

from iogauge.evidence import collect
from iogauge.evidence.model import ClockReading
from iogauge.guards.clock import phase_witnessed
from iogauge.guards.finding import Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.plan.case import Access, PhasePlan
from iogauge.plan.observations import Instant
from iogauge.plan.stage import PhaseRun
from iogauge_extras.suites import io500
from support import stage
from support.extras import extras

RUN = Path(__file__).parents[1] / "data" / "samples" / "io500" / "isc26"
MIB = 1 << 20
#: The run began at this second of the clock, 100 s after the boot of its node.
BEGAN = 1_795_383_570.0


@pytest.fixture(scope="module")
def output():
    files = {file.name: file.read_text() for file in RUN.iterdir()}
    return io500.parse(files.pop("result.txt"), files.pop("stdout.txt"), files)


def seen(output, moved, tmp_path):
    """The first phase of the recorded run; ``moved`` are written bytes by the seconds since its begin."""
    plan, left = (
        stage.plan(),
        collect.collect(stage.build(tmp_path / "stage"), stage.plan(), 0),
    )
    phase = PhasePlan(
        name="io500",
        command=[],
        launch="tasks",
        parse=None,
        rates={"bw": ("ior-easy-write", "bw")},
        access=Access(direction="write"),
    )
    total, instants = 0, [Instant(90.0, 0, 0)]
    for second, count in sorted(moved.items()):
        total += count
        instants.append(Instant(100.0 + second, 0, total))
    left = replace(
        left,
        outputs={"io500": (output,)},
        activity=tuple(instants),
        clocks=(ClockReading(BEGAN - 100, BEGAN - 100, 0),),
        runs=(PhaseRun(1, "io500", 0, 100.0, 120.0, "t"),),
    )
    plan = replace(plan, repeat=[phase], nodes=len(left.views))
    return PhaseView(CaseView(plan, left, extras(), "quick", (), {}), phase)


def bytes_of(phase):
    found = phase_witnessed(phase)
    assert found
    return found


def steps(begin, end, count):
    """Bytes in steps of a fifth of a second."""
    times = [begin + 0.2 * n for n in range(int((end - begin) / 0.2) + 1)]
    return {time: count // len(times) for time in times}


def test_a_phase_that_moved_its_bytes_while_it_ran(output, tmp_path):
    easy = next(phase for phase in output.phases if phase.name == "ior-easy-write")
    phase = seen(output, steps(0.2, 1.4, easy.bytes_moved or 0) | {5.0: 0}, tmp_path)
    assert bytes_of(phase).outcome is Outcome.OK


def test_bytes_that_moved_in_another_phase_prove_nothing(output, tmp_path):
    """Over the whole run there are enough of them."""
    easy = next(phase for phase in output.phases if phase.name == "ior-easy-write")
    later = {5.8: 0} | steps(6.0, 8.0, easy.bytes_moved or 0) | {9.0: 0}
    phase = seen(output, later, tmp_path)
    found = bytes_of(phase)
    assert found.outcome is Outcome.INVALID
    assert (
        "wrote 324 MiB, as the tool says; while the phase ran its counters moved 0 B"
        in found.saw
    )


@pytest.mark.parametrize("change", ["no counters", "another time zone", "no dates"])
def test_what_nobody_counted_by_phase_says_so(output, tmp_path, change):
    phase = seen(output, {1.0: 400 * MIB, 2.0: 0}, tmp_path)
    left, shown = phase.case.evidence, output
    if change == "no counters":
        left = replace(left, activity=())
    elif change == "no dates":
        shown = replace(output, moments=())
    else:
        left = replace(left, clocks=(ClockReading(BEGAN - 100, BEGAN - 100, -3600),))
    left = replace(left, outputs={"io500": (shown,)})
    phase = replace(phase, case=replace(phase.case, evidence=left))
    found = bytes_of(phase)
    assert found.outcome is Outcome.WARN
    assert "nobody counted 1 of 1 execution(s) by phase" in found.saw


def test_a_repetition_that_nobody_counted_has_a_remark(output, tmp_path):
    easy = next(phase for phase in output.phases if phase.name == "ior-easy-write")
    phase = seen(output, steps(0.2, 1.4, easy.bytes_moved or 0) | {5.0: 0}, tmp_path)
    left = replace(
        phase.case.evidence,
        outputs={"io500": (output, replace(output, moments=()))},
        runs=tuple(PhaseRun(n, "io500", 0, 100.0, 120.0, "t") for n in (1, 2)),
    )
    case = replace(phase.case, evidence=left)
    found = bytes_of(replace(phase, case=case))
    assert found.outcome is Outcome.WARN
    assert "nobody counted 1 of 2 execution(s) by phase" in found.saw


def test_a_tool_of_one_phase_is_not_asked(output, tmp_path):
    rest = {
        name: value for name, value in output.parameters.items() if name != "lengths"
    }
    phase = seen(replace(output, parameters=rest), {1.0: 0}, tmp_path)
    assert phase_witnessed(phase) is None


@pytest.mark.parametrize(
    ("share", "copies", "outcome"),
    [
        (1.0, 1.0, Outcome.OK),
        (0.96, 1.0, Outcome.OK),
        (0.94, 1.0, Outcome.INVALID),
        # A file system that writes everything twice.
        (2.0, 2.0, Outcome.OK),
        (1.5, 2.0, Outcome.INVALID),
    ],
)
def test_bytes_of_a_phase(output, tmp_path, share, copies, outcome):
    easy = next(phase for phase in output.phases if phase.name == "ior-easy-write")
    moved = steps(0.2, 1.4, round(share * (easy.bytes_moved or 0))) | {5.0: 0}
    phase = seen(output, moved, tmp_path)
    views = tuple(
        replace(view, below=replace(view.below, copies=(copies, copies)))
        for view in phase.case.evidence.views
    )
    left = replace(phase.case.evidence, views=views)
    case = replace(phase.case, evidence=left)
    assert bytes_of(replace(phase, case=case)).outcome is outcome


@pytest.mark.parametrize(
    ("seconds", "outcome"),
    [(1.3, Outcome.OK), (1.1, Outcome.OK), (0.7, Outcome.INVALID)],
)
def test_seconds_of_a_phase(output, tmp_path, seconds, outcome):
    """Its bytes moved for more than a second."""
    phases = [
        replace(one, seconds=seconds) if one.name == "ior-easy-write" else one
        for one in output.phases
    ]
    easy = next(phase for phase in phases if phase.name == "ior-easy-write")
    shown = replace(output, phases=tuple(phases))
    moved = steps(0.2, 1.4, easy.bytes_moved or 0) | {5.0: 0}
    assert bytes_of(seen(shown, moved, tmp_path)).outcome is outcome
