"""What a target is built of, and the most that it can carry."""

import pytest

from iogauge.site.topology import Topology

CLIENTS = {"nic": "100 Gbit/s"}
SERVERS = {"count": 2, "nic": "200 Gbit/s"}
DEVICES = {
    "count": 4,
    "read": "3 GB/s",
    "write": "1 GB/s",
    "read_iops": 1000,
    "write_iops": 500,
}


def topology(**parts):
    return Topology.model_validate({"source": "data sheet", **parts})


@pytest.mark.parametrize(
    "direction, nodes, value, limited_by",
    [
        ("read", 1, 12e9, "4 device(s) x 2.79 GiB/s"),
        ("write", 1, 4e9, "4 device(s) x 954 MiB/s"),
    ],
)
def test_the_smallest_part_sets_the_ceiling(direction, nodes, value, limited_by):
    found = topology(
        clients=CLIENTS, servers=SERVERS, devices=DEVICES
    ).bandwidth_ceiling(direction, nodes)
    assert (found.value, found.limited_by) == (value, limited_by)


@pytest.mark.parametrize(
    "nodes, value", [(1, 12.5e9), (3, 37.5e9), (4, 50e9), (5, 50e9)]
)
def test_clients_scale_until_the_servers_limit(nodes, value):
    found = topology(clients=CLIENTS, servers=SERVERS).bandwidth_ceiling("read", nodes)
    assert found.value == value
    assert ("client" in found.limited_by) == (nodes <= 4)
