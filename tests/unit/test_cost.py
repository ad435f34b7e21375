"""What a case costs before it runs, and what that rests on."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from iogauge.cases.ior_check import IorCheck
from iogauge.core.measurement import Reference
from iogauge.core.units import duration
from iogauge.plan import bounds
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.plan.stage import Footprint, PlannedCase
from iogauge.report import plan_table
from support.extras import extras
from support.orders import job_order

GB = 1e9
WRITE = PhasePlan(
    name="write",
    command=["ior"],
    launch="tasks",
    parse=None,
    rates={"write_bw": ("write", "bw")},
    access=Access(direction="write", saturates="bandwidth"),
    data_bytes=1 << 30,
)
SMALL = replace(WRITE, access=Access(direction="write"))
READ = replace(
    WRITE,
    name="read",
    rates={"read_bw": ("read", "bw")},
    access=Access(direction="read"),
)
PLAN = CasePlan(
    tool="ior",
    repetitions=3,
    tasks=8,
    nodes=4,
    repeat=[WRITE, READ],
    held_bytes=1,
    files=1,
)
TOPOLOGY = {"source": "offer", "servers": {"count": 2, "nic": "5 GB/s"}}
EFFICIENCY = {"efficiency": {"read": "80 %", "write": "70 %"}}


def site(**topology):
    given = {"topology": topology} if topology else {}
    limits = {"tier": "daily"}
    target = {"type": "lustre", "source": None}
    return extras(target=target, scale={"nodes": 4}, limits=limits, **given)


@pytest.mark.parametrize(
    "phase, topology, bytes_s, source",
    [
        (WRITE, {}, 4 * 200 * 2**20, "assumed: 200 MiB/s a node"),
        (WRITE, TOPOLOGY | EFFICIENCY, 7 * GB, "70% of the ceiling"),
        # Small transfers reach no ceiling, and nothing is faster than it.
        (SMALL, TOPOLOGY, 4 * 200 * 2**20, "assumed: 200 MiB/s a node"),
        (
            replace(READ, access=Access(direction="read", saturates="bandwidth")),
            TOPOLOGY | EFFICIENCY,
            8 * GB,
            "80% of the ceiling",
        ),
    ],
)
def test_a_speed_rests_on_what_the_site_declares(phase, topology, bytes_s, source):
    found = bounds.speed(phase, PLAN, site(**topology), {})
    assert (found.bytes_s, found.source) == (pytest.approx(bytes_s), source)


def test_a_reference_knows_best_if_it_is_a_bandwidth():
    known_site = site(**TOPOLOGY)
    known = {"write_bw": Reference(500, -0.1, None, "MiB/s", "run 1")}
    found = bounds.speed(WRITE, PLAN, known_site, known)
    assert (found.bytes_s, found.source) == (500 * 2**20, "references")
    other = {"write_bw": Reference(500, -0.1, None, "ops/s", "run 1")}
    assert bounds.speed(WRITE, PLAN, known_site, other).source == "ceiling"
    assert bounds.speed(READ, PLAN, known_site, known).source != "references"


# --- what people read -----------------------------------------------------------------------------


def case(number, check="IorPosix", **change):
    values = {
        "order": job_order("/s", held_bytes=1 << 30, files=8),
        "name": f"{check} %n={number}",
        "check": check,
        "partition": "s:p",
        "cost": Footprint(
            written_bytes=4 << 30, read_bytes=4 << 30, nodes=4, seconds=450.0
        ),
        "rests_on": ("ceiling",),
    }
    return PlannedCase(**values | change)


def shown(cases, width=200):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(plan_table.table(cases), soft_wrap=True)
    return capture.get()


def test_two_cases_of_one_name_are_two_rows():
    assert shown([case(1), case(1, partition="s:q")]).count("IorPosix 1") == 2


def test_a_case_that_its_time_limit_would_end_is_named():
    def timed(number, limit):
        one = case(number)
        return replace(one, order=replace(one.order, time_limit_s=limit))

    slow = case(1).cost.seconds
    (text,) = plan_table.over_time(
        [timed(1, slow - 1), timed(2, slow - 1), timed(3, slow), timed(4, 0)]
    )
    assert text.startswith(
        f"over the time limit: s:p: 2 case(s) need more than time_limit {duration(slow - 1)}"
    )
    assert "IorPosix 1" in text and text.endswith("or lower limits.case_bytes")


# --- phases of a set time, and a target that several cases share ----------------------------------

TIMED = replace(READ, data_bytes=None)


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, {}),
        ({"repeat": [WRITE, TIMED]}, {"read": 4.0}),
        ({"repeat": [TIMED], "warm_up": False}, {"read": 3.0}),
        (
            {
                "prepare": [replace(WRITE, data_bytes=None)],
                "repeat": [replace(TIMED, access=Access(direction="metadata"))],
            },
            {"write": 1.0},
        ),
    ],
)
def test_how_long_phases_of_a_set_time_move_what_they_can(change, expected):
    assert replace(PLAN, **change).footprint(lambda _: 1.0, 1.0).timed == expected


@pytest.mark.parametrize(
    "sweeps, tasks, full",
    [
        (True, 1, None),
        (True, 2, "bandwidth"),
        (True, 4, "bandwidth"),
        (False, 1, "bandwidth"),
    ],
)
def test_a_sweep_claims_saturation_from_the_sites_number_of_tasks_on(
    sweeps, tasks, full
):
    check = SimpleNamespace(
        transfer=1 << 20,
        times={},
        o_direct=True,
        sweeps_tasks=sweeps,
        tasks_per_node=tasks,
        site=site(),
    )
    assert IorCheck._access(check, "write").saturates == full
