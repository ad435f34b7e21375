"""Which reads of mdtest claim bytes, so that a cache behind them is found."""

from types import SimpleNamespace

import pytest

from iogauge.cases.mdtest_check import MdtestCheck, reading
from iogauge.core.measurement import Phase, ToolOutput
from iogauge.plan.case import Access, PhasePlan
from support.extras import extras

DATA = 3901 * 40


@pytest.mark.parametrize(
    "target, claims",
    [
        ({"type": "ext4"}, True),
        ({"type": "btrfs", "compresses": True}, False),
        # The answer to open(2) may hold the data.
        ({"type": "lustre"}, False),
    ],
)
def test_reads_of_small_files_claim_bytes(target, claims, monkeypatch):
    output = ToolOutput("mdtest", "4.0.0", (Phase("read", {}, 1.0, operations=40),))
    monkeypatch.setattr("iogauge.cases.mdtest_check._parse", lambda printed: output)
    read = PhasePlan(
        name="read",
        command=["mdtest"],
        launch="tasks",
        parse=lambda printed: output,
        rates={},
        access=Access(direction="read"),
    )
    site = extras(target={"path": "/scratch", **target})
    check = SimpleNamespace(site=site, file_bytes=3901)
    counted = MdtestCheck._counted(check, read)
    assert counted.parse is not None
    (phase,) = counted.parse(SimpleNamespace()).phases
    assert phase.bytes_moved == (DATA if claims else None)


@pytest.mark.parametrize(("nodes", "shifted"), [(1, 0), (2, 0), (3, 2), (4, 2)])
def test_files_are_read_on_another_node_or_from_an_emptied_page_cache(nodes, shifted):
    """mdtest shifts its tasks by a node before the stat, and once more before the read."""
    access = reading(nodes)
    assert (access.task_offset or 0) * access.shifts == shifted
    assert access.evict == (shifted % nodes == 0)
