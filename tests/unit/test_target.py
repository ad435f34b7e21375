"""What a partition's extras say."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from iogauge.target import PartitionExtras

GOOD: dict[str, Any] = {
    "target": {"path": "/scratch", "type": "ext4"},
    "node": {"cores": 4, "memory": "16 GiB"},
    "scale": {"tasks_per_node": 2},
    "limits": {"case_bytes": "1 GiB", "case_files": 100, "phase_seconds": "2 s", "tier": "quick"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place = data
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


def test_defaults() -> None:
    extras = PartitionExtras.of_partition(GOOD)
    limits = extras.limits
    assert (extras.scale.nodes, limits.repetitions, limits.max_fill, limits.keep_free) == (
        1,
        3,
        0.85,
        0.1,
    )
    assert (limits.max_spread, limits.memory_factor, extras.topology) == (0.1, 2.0, None)
    assert (extras.node.memory, limits.case_bytes) == (16 << 30, 1 << 30)


def test_what_reframe_adds_is_no_mistake() -> None:
    PartitionExtras.of_partition({**GOOD, "scheduler": "local", "launcher": "mpirun"})


@pytest.mark.parametrize("path", [f"{part}.x" for part in GOOD] + ["x"])
def test_an_unknown_key_is_refused_at_every_level(path: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        PartitionExtras.of_partition(changed(path, 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("target", None),
        ("target.path", "scratch"),
        ("target.path", "/scratch/../etc"),
        ("target.type", ""),
        ("target.cache", "none"),
        ("target.honours_o_direct", "perhaps"),
        ("node.cores", 0),
        ("node.cores", "4"),
        ("node.memory", "0 B"),
        ("node.memory", 16),
        ("node.memory", "16 GB/s"),
        ("scale.tasks_per_node", None),
        ("scale.tasks_per_node", -1),
        ("scale.nodes", 0),
        ("limits.case_files", 0),
        ("limits.phase_seconds", "0 s"),
        ("limits.phase_seconds", 2),
        ("limits.repetitions", 0),
        ("limits.tier", "slow"),
        ("limits.max_fill", "101 %"),
        ("limits.keep_free", -0.1),
        ("limits.max_spread", "5"),
        ("limits.memory_factor", 0.5),
        ("limits.memory_factor", float("nan")),
        ("limits.memory_factor", True),
    ],
)
def test_a_mistake_is_refused_at_its_place(path: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        PartitionExtras.of_partition(changed(path, value))
    assert [".".join(map(str, e["loc"])) for e in refusal.value.errors()] == [path]


def test_the_smallest_case_is_one_mebibyte() -> None:
    extras = PartitionExtras.of_partition(changed("limits.case_bytes", "1 MiB"))
    assert extras.limits.case_bytes == 1 << 20
    with pytest.raises(ValidationError, match="case_bytes is 1024 KiB: needs at least 1 MiB"):
        PartitionExtras.of_partition(changed("limits.case_bytes", "1048575 B"))


def test_several_mistakes_are_all_named() -> None:
    data = changed("target.path", "scratch")
    data["node"]["cores"] = 0
    data["limits"]["tier"] = "slow"
    with pytest.raises(ValidationError) as refusal:
        PartitionExtras.of_partition(data)
    assert refusal.value.error_count() == 3
