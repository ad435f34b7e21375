"""Small random requests of fio with several in flight: what is measured, and the curve that is derived from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rig, Run
from e2e.test_derived import derive, keep, record

pytestmark = pytest.mark.needs_fio

DEPTHS = [1, 4]
VALID = {"UNREFERENCED", "CONTAMINATED"}


def deepen(rig: Rig, depths: list[int], name: str = "queue_depths") -> None:
    """Declare the points of a sweep of a rig's site."""
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition["extras"]["sweeps"] = {name: depths}
    rig.write_settings(data)


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig]) -> Rig:
    rig = make_module_rig(tools=("fio",), tasks=1)
    deepen(rig, DEPTHS)
    return rig


@pytest.fixture(scope="module")
def measured(rig: Rig) -> Run:
    done = rig.run("-n", "^QueueDepth%", "--exec-policy=serial")
    rig.assert_clean()
    return done


def medians(record: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["median"] for metric in record["metrics"]}


def test_reads_and_writes_at_each_depth_have_operations_and_percentiles(measured: Run) -> None:
    found = {(r["parameters"]["access"], r["parameters"]["depth"]): r for r in measured.records}
    assert set(found) == {(way, depth) for way in ("read", "write") for depth in DEPTHS}
    for (way, depth), one in found.items():
        assert one["verdict"] in VALID, one["reason"]
        values = medians(one)
        assert list(values) == [f"{way}_{name}" for name in ("iops", "p50", "p99", "p999")]
        assert 0 < values[f"{way}_p50"] <= values[f"{way}_p99"] <= values[f"{way}_p999"]
        # No more than the depth is in flight: half of the requests take the median or longer.
        assert values[f"{way}_iops"] * values[f"{way}_p50"] / 1e6 / 2 <= depth
        job = measured.file(f"QueueDepth_{one['hash']}/rand{way}.fio")
        assert f"iodepth={depth}\n" in job.read_text()


def test_the_curve_names_the_plateau_and_the_knee(make_rig: Callable[..., Rig]) -> None:
    """A queue of 0.2 ms a request that carries 40,000 requests in a second is full with eight in flight."""
    rig = make_rig(tools=("fio",), tasks=1)
    deepen(rig, [1, 4, 16, 64])
    rig.write_references(
        {
            "QueueDepthCurve": {
                "read_plateau": [40_000, -0.1, None, "ops/s"],
                "read_knee": [8, -0.1, 0.1, "1"],
            }
        }
    )
    points = {1: 5_000, 4: 20_000, 16: 40_000, 64: 39_000}
    keep(
        rig,
        *(
            record("QueueDepth", {"access": "read", "depth": depth}, {"read_iops": iops})
            for depth, iops in points.items()
        ),
    )
    found = derive(rig, "-n", "^QueueDepthCurve%access=read$").record
    assert medians(found) == {"read_plateau": 40_000, "read_knee": 8}
    assert found["verdict"] == "PASS", found["reason"]
