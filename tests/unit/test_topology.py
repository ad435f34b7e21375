"""What a target is built of, and the most that it can carry."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from iogauge.site.extras import PartitionExtras
from iogauge.site.topology import Direction, Topology, in_all_sizes

CLIENTS = {"nic": "100 Gbit/s"}
SERVERS = {"count": 2, "nic": "200 Gbit/s"}
DEVICES = {"count": 4, "read": "3 GB/s", "write": "1 GB/s", "read_iops": 1000, "write_iops": 500}


def topology(**parts: Any) -> Topology:
    return Topology.model_validate({"source": "data sheet", **parts})


@pytest.mark.parametrize(
    ("direction", "nodes", "value", "limited_by"),
    [("read", 1, 12e9, "4 device(s) x 2.79 GiB/s"), ("write", 1, 4e9, "4 device(s) x 954 MiB/s")],
)
def test_the_smallest_part_sets_the_ceiling(
    direction: Direction, nodes: int, value: float, limited_by: str
) -> None:
    found = topology(clients=CLIENTS, servers=SERVERS, devices=DEVICES).bandwidth_ceiling(
        direction, nodes
    )
    assert found
    assert (found.value, found.limited_by) == (value, limited_by)


@pytest.mark.parametrize(("nodes", "value"), [(1, 12.5e9), (3, 37.5e9), (4, 50e9), (5, 50e9)])
def test_clients_scale_until_the_servers_limit(nodes: int, value: float) -> None:
    found = topology(clients=CLIENTS, servers=SERVERS).bandwidth_ceiling("read", nodes)
    assert found
    assert found.value == value
    assert ("client" in found.limited_by) == (nodes <= 4)


@pytest.mark.parametrize("way", ["read", "write"])
def test_an_efficiency_that_hardly_anything_can_miss_is_refused(way: str) -> None:
    topology(clients=CLIENTS, efficiency={"read": 0.7, "write": 0.7, way: 0.05})
    for share in (0, 0.049):
        with pytest.raises(ValidationError, match=r"greater than or equal to 0\.05"):
            topology(clients=CLIENTS, efficiency={"read": 0.7, "write": 0.7, way: share})


def test_a_part_of_the_servers_carries_its_part() -> None:
    topology = Topology.model_validate(
        {
            "source": "x",
            "servers": {"count": 4, "nic": "1 GB/s"},
            "devices": {"count": 8, "read": "0.4 GB/s", "read_iops": 1000.0},
        }
    )
    whole, one = topology.bandwidth_ceiling("read", 9), topology.bandwidth_ceiling("read", 9, 1)
    assert whole is not None and one is not None
    assert (whole.value, whole.limited_by) == (pytest.approx(3.2e9), "8 device(s) x 381 MiB/s")
    assert (one.value, one.limited_by) == (pytest.approx(0.8e9), "2 device(s) x 381 MiB/s")
    operations = topology.operations_ceiling("read", 1)
    assert operations is not None
    assert operations.value == pytest.approx(2000)


# --- other sizes ----------------------------------------------------------------------------------


def site(**extras: Any) -> dict[str, Any]:
    """Settings of a site with one partition of two servers, and its other sizes."""
    parts = {
        "target": {"path": "/scratch", "type": "lustre"},
        "node": {"cores": 8, "memory": "64 GiB"},
        "scale": {"nodes": 3, "tasks_per_node": 8},
        "limits": {
            "case_bytes": "10 GiB",
            "case_files": 100,
            "phase_seconds": "30 s",
            "tier": "daily",
        },
        "cases": {
            "Burst": {"nodes": 5, "case_bytes": "1 GiB"},
            "Alone": {"nodes": 1, "case_bytes": "2 GiB"},
        },
        "sweeps": {"servers": [1, 2]},
        "expect": {"lustre.servers": 2, "lustre.osts": 4, "layout.stripe_count": 1},
        "price": {"source": "made up", "currency": "EUR", "per_gb_month": 1, "capacity": "1 TB"},
        "topology": {
            "source": "data sheet",
            "servers": SERVERS,
            "devices": {**DEVICES, "count": 4},
            "targets": 4,
        },
        "sizes": {"counts": [4, 5], "checks": ["Burst"]},
        **extras,
    }
    return {"systems": [{"name": "here", "partitions": [{"name": "flash", "extras": parts}]}]}


def grown(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Extras by partition."""
    (system,) = in_all_sizes(data)["systems"]
    return {one["name"]: one["extras"] for one in system["partitions"]}


def test_each_size_is_a_partition_in_proportion() -> None:
    data = site()
    before = copy.deepcopy(data["systems"][0]["partitions"][0])
    found = grown(data)
    assert list(found) == ["flash", "flash-4", "flash-5"]
    assert data["systems"][0]["partitions"][0] == before
    five = PartitionExtras.of_partition(found["flash-5"])
    assert five.target.path == "/scratch-5"
    assert five.topology is not None
    assert five.topology.servers is not None
    assert five.topology.devices is not None
    counts = (five.topology.servers.count, five.topology.devices.count, five.topology.targets)
    assert counts == (5, 10, 10)
    assert (five.scale.nodes, five.scale.tasks_per_node) == (8, 8)  # 3 x 5 / 2, rounded up
    assert five.limits.case_bytes == 25 << 30
    assert (five.cases["Burst"].nodes, five.cases["Burst"].case_bytes) == (13, 5 << 29)
    assert (five.cases["Alone"].nodes, five.cases["Alone"].case_bytes) == (1, 2 << 30)
    assert five.sweeps.servers == (5,)  # two and a half servers are none
    assert five.expect == {"lustre.servers": 5, "lustre.osts": 10, "layout.stripe_count": 1}
    assert five.price is not None
    assert five.price.capacity == 25 * 10**11
    assert five.baseline is not None
    assert five.baseline.model_dump() == {"partition": "flash", "checks": ("Burst",)}
    assert (five.sizes, five.size_of) == (None, "flash")
    assert five.topology.source.endswith("Size 5: in proportion to 2, partition flash")


def test_sizes_are_made_once_and_a_declared_one_stays() -> None:
    data = site()
    (system,) = data["systems"]
    system["partitions"].append({"name": "flash-4", "extras": {"own": True}})
    once = grown(data)
    assert once["flash-4"] == {"own": True}
    assert grown(data) == once


def test_a_size_is_compared_with_the_same_size_of_the_baseline() -> None:
    data = site()
    (system,) = data["systems"]
    disk = copy.deepcopy(system["partitions"][0])
    disk["name"], disk["extras"]["sizes"]["counts"] = "disk", [4]
    system["partitions"][0]["extras"]["baseline"] = {"partition": "disk", "checks": ["Burst"]}
    system["partitions"].append(disk)
    found = grown(data)
    beside = {name: extras.get("baseline", {}).get("partition") for name, extras in found.items()}
    assert beside == {
        "flash": "disk",
        "disk": None,
        "flash-4": "disk-4",
        "flash-5": "flash",
        "disk-4": "disk",
    }


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"sizes": {"counts": [2], "checks": ["Burst"]}}, "counts names 2, the size of this"),
        ({"expect": {"lustre.osts": 3}}, "expect.lustre.osts is 3 at size 2, and no whole number"),
        ({"target": {"path": "/scratch", "type": "lustre", "uuid": "a"}}, "target.uuid is 'a'"),
        ({"target": {"path": "/scratch", "type": "lustre", "source": "a"}}, "target.source is 'a'"),
        ({"target": {"path": "/scratch", "type": "lustre", "lock": "/a"}}, "target.lock is '/a'"),
        ({"target": {"path": "$DW_JOB_STRIPED", "type": "dvs"}}, "space of a job has no other"),
        ({"topology": {"source": "x", "clients": CLIENTS}}, "needs topology.servers or"),
        ({"hosts": ["n[9-1]"]}, r"'n\[9-1\]' names no host: write the smaller number first"),
    ],
)
def test_sizes_that_cannot_be_are_refused(extras: dict[str, Any], message: str) -> None:
    (partition,) = site(**extras)["systems"][0]["partitions"]
    with pytest.raises(ValidationError, match=message):
        PartitionExtras.of_partition(partition["extras"])


def test_a_range_of_hosts_is_written_out() -> None:
    (partition,) = site(hosts=["login", "n[08-11]"])["systems"][0]["partitions"]
    found = PartitionExtras.of_partition(partition["extras"])
    assert found.hosts == ("login", "n08", "n09", "n10", "n11")
