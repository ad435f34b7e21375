"""Counters of a node: read from what Lustre 2.17 and the kernel printed, compared between two looks."""

from dataclasses import replace

import pytest

from iogauge.evidence import task_counters
from iogauge.node import activity as node_counters
from iogauge.node.activity import Load

# --- parsers --------------------------------------------------------------------------------------


#: As ptlrpc/import.c of Lustre prints them, in the form of /dev/kmsg.
LOG = """\
6,100,5000,-;eth0: link up
 SUBSYSTEM=net
4,101,6000,-;Lustre: lustre-OST0002-osc-ffff8881: Connection to lustre-OST0002 (at 10.0.0.1@tcp) was lost; in progress operations using this service will wait for recovery to complete
3,102,7000,c;LustreError: 167-0: lustre-OST0002-osc-ffff8881: This client was evicted by lustre-OST0002; in progress operations using this service will fail.
4,103,8000,-;Lustre: home-OST0000-osc-ffff8882: Connection to home-OST0000 (at 10.0.0.2@tcp) was lost; in progress operations using this service will wait
4,104,8000,-;Lustre: lustre-OST0001-osc-MDT0000: Connection to lustre-OST0001 (at 10.0.0.1@tcp) was lost; in progress operations using this service will wait
4,105,9000,-;Lustre: lustre-OST0002-osc-ffff8881: Connection restored to lustre-OST0002 (at 10.0.0.1@tcp)
"""


def test_lost_connections_stand_in_the_log():
    end, found = node_counters.parse_log(LOG, "lustre")
    assert end == 105
    assert found == (
        (101, "lustre-OST0002 lost lustre-OST0002"),
        (102, "lustre-OST0002 evicted by lustre-OST0002"),
    )
    assert [number for number, _ in node_counters.parse_log(LOG, "*")[1]] == [
        101,
        102,
        103,
    ]
    assert "10.0.0" not in str(found)
    assert node_counters.parse_log("", "lustre") == (None, ())


# --- between two looks ----------------------------------------------------------------------------

FIRST = Load(
    host="n1",
    load1=0.0,
    log_end=10,
    complaints=((9, "a evicted by b"),),
)


@pytest.mark.parametrize(
    "change, troubles, watched",
    [
        ({}, (), True),
        ({"complaints": (*FIRST.complaints, (11, "a lost b"))}, ("a lost b",), True),
        ({"log_end": None}, (), False),
    ],
)
def test_what_became_of_the_connections(change, troubles, watched):
    (became,) = task_counters.changes([FIRST], [replace(FIRST, **change)])
    assert (became.host, became.troubles) == ("n1", troubles)
    assert became.watched is watched


# --- the machine ----------------------------------------------------------------------------------


def test_the_kernels_log_is_read_for_lustre_alone(tmp_path, monkeypatch):
    mount = node_counters.find_mount(str(tmp_path))
    monkeypatch.setattr(node_counters, "kernel_log", lambda: LOG)
    assert node_counters.look(str(tmp_path)).log_end is None
    on_lustre = replace(mount, type="lustre", source="10.0.2.15@tcp:/lustre")
    monkeypatch.setattr(node_counters, "find_mount", lambda _: on_lustre)
    seen = node_counters.look(str(tmp_path / "not" / "there"))
    assert (seen.log_end, len(seen.complaints)) == (105, 2)
