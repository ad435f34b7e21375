"""Counters of a node: read from what Lustre 2.17 and the kernel printed, compared between two looks."""

import os
from dataclasses import replace

import pytest

from iogauge.evidence import task_counters
from iogauge.evidence.task_counters import NodeActivity
from iogauge.node import host as node_counters
from iogauge.node.host import Load
from iogauge.node.lustre.client import read_parameters
from support.lustre.kernel import kernel
from support.lustre.recorded import parse_parameters, sessions

LOAD = sessions("load.txt")
PARAMS = sessions("params.txt")
STATE = LOAD["lctl get_param osc.*.state"].stdout
IMPORT = PARAMS["lctl get_param osc.*.import | head -116"].stdout


def lustre(*texts):
    fields = node_counters._connections(parse_parameters("\n".join(texts)))
    return Load(host="n1", cache_id="k:1", time=1795223500.0, load1=0.0, **fields)


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


def test_only_the_clients_own_connections_are_looked_at():
    seen = lustre(STATE, IMPORT)
    assert seen.states == {f"lustre-OST000{i}": "FULL" for i in range(4)}
    assert len(seen.history) == 8
    assert seen.timeouts == 0
    assert lustre(LOAD["lctl get_param mdc.*.state"].stdout).states == {
        "lustre-MDT0000": "FULL",
        "lustre-MDT0001": "FULL",
    }


# --- between two looks ----------------------------------------------------------------------------

FIRST = Load(
    host="n1",
    cache_id="k:1",
    time=1000.5,
    load1=0.0,
    states={"a": "FULL"},
    history=((900, "a", "FULL"), (901, "a", "DISCONN")),
    timeouts=1,
    log_end=10,
    complaints=((9, "a evicted by b"),),
)


def later(**change):
    return task_counters.change(FIRST, replace(FIRST, time=1010.5, **change))


def test_what_was_there_before_is_not_held_against_a_run():
    assert later() == NodeActivity(
        host="n1",
        cache_id="k:1",
        seconds=10.0,
        watched=("the state of the connections", "the kernel's log"),
    )


@pytest.mark.parametrize(
    ("change", "troubles"),
    [
        ({"states": {"a": "EVICTED"}}, ("a is EVICTED",)),
        ({"states": {"a": "DISCONN", "b": "IDLE"}}, ("a is DISCONN",)),
        (
            {"history": (*FIRST.history, (1005, "a", "REPLAY"))},
            ("a went through REPLAY",),
        ),
        (
            {"history": (*FIRST.history, (1000, "a", "EVICTED"))},
            ("a went through EVICTED",),
        ),
        ({"history": (*FIRST.history, (1005, "a", "IDLE"))}, ()),
        ({"timeouts": 0}, ()),
        ({"timeouts": None, "states": {}}, ()),
        ({"log_end": None, "complaints": ((11, "a lost b"),)}, ()),
    ],
)
def test_what_became_of_the_connections(change, troubles):
    assert later(**change).troubles == troubles


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", [0, 1000])
def test_connections_are_read_from_the_kernels_files_by_root_alone(
    tmp_path, monkeypatch, uid
):
    mount = node_counters.find_mount(str(tmp_path))
    assert mount
    source = "10.0.2.15@tcp:/lustre"
    monkeypatch.setattr(
        node_counters,
        "find_mount",
        lambda _: replace(mount, type="lustre", source=source),
    )
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no lctl
    shown = parse_parameters("\n".join((STATE, IMPORT)))
    root = kernel(tmp_path, shown)
    monkeypatch.setattr(
        node_counters,
        "read_parameters",
        lambda fsname, wanted: read_parameters(fsname, wanted, root),
    )
    seen = node_counters.look(str(tmp_path / "not" / "there"))
    if uid:
        assert seen.states == {}
        return
    assert seen.states == {f"lustre-OST000{i}": "FULL" for i in range(4)}
    assert len(seen.history) == 8
