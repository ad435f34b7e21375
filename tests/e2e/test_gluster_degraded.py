"""A volume of GlusterFS with one of its bricks out: the same cases as on the whole volume, and compared with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rig, Run
from e2e.test_derived import derive, keep
from e2e.test_hosts import open_mpi
from e2e.test_several_hosts import run_on
from support import gluster
from support import hosts as support
from support.hosts import Hosts

pytestmark = [pytest.mark.needs_ior, pytest.mark.slow]
_BY_NIGHT = pytest.mark.nightly(
    "e2e/test_degraded.py::test_both_are_believed",
    "e2e/test_degraded.py::test_the_degraded_is_compared_with_the_healthy",
    "e2e/test_gluster.py::test_a_healthy_volume_is_not_refused",
)

CHECKS = "^(IorPosix%files=per-process%order=sequential|MdtestHard)"
#: Two copies of each file, or pieces on three bricks of which any two are enough.
KINDS = [
    pytest.param((2, "replica 2"), id="replica"),
    pytest.param((3, "disperse 3 redundancy 1"), id="disperse"),
]


@pytest.fixture(scope="module", params=KINDS)
def runs(
    request: pytest.FixtureRequest, storage: Path, make_module_rig: Callable[..., Rig]
) -> Iterator[tuple[Rig, Run, Run]]:
    """A run on the partition of the whole volume; and one on the other partition after a brick has ended."""
    for reason in (support.why_not(), gluster.why_not()):
        if reason is not None:
            pytest.skip(reason)
    if not open_mpi():
        pytest.skip("no mpirun of Open MPI on PATH")
    number, kind = request.param
    with (
        Hosts(number, storage) as hosts,
        gluster.volume(hosts, storage / "degraded-gluster", *kind.split()) as point,
    ):
        assert hosts.run("n1", ["mkdir", str(point / "t")]).returncode == 0
        rig = make_module_rig(
            target=point / "t",
            tools=("ior", "mdtest"),
            declared={
                "type": gluster.TYPE,
                "source": gluster.source(hosts),
                "honours_o_direct": True,
            },
            limits={"case_files": 400},
        )
        settings = rig.settings()
        (whole,) = settings["systems"][0]["partitions"]
        whole["name"] = "healthy"
        whole["extras"] |= {
            "scale": {"nodes": 2, "tasks_per_node": 1},
            "hosts": hosts.names[:2],
            "interface": "eth0",
        }
        degraded: dict[str, Any] = copy.deepcopy(whole)
        degraded["name"] = "degraded"
        degraded["extras"]["baseline"] = {"partition": "healthy", "checks": ["IorPosix"]}
        settings["systems"][0]["partitions"].append(degraded)
        rig.write_settings(settings)
        healthy = run_on(hosts, rig, "-n", CHECKS, "--system=rig:healthy")
        gluster.end_brick(hosts, hosts.names[-1])
        part = run_on(hosts, rig, "-n", CHECKS, "--system=rig:degraded")
        rig.assert_clean()
        yield rig, healthy, part


def of(run: Run, partition: str) -> list[dict[str, Any]]:
    return [one for one in run.records if one["partition"] == partition]


@_BY_NIGHT
def test_both_are_believed(runs: tuple[Rig, Run, Run]) -> None:
    _, whole, part = runs
    for run, partition in ((whole, "healthy"), (part, "degraded")):
        found = of(run, partition)
        assert len(found) == 3, run.out
        for one in found:
            assert one["verdict"] == "UNREFERENCED", f"{partition}: {one['case']}: {one['reason']}"


@_BY_NIGHT
def test_each_has_a_series(runs: tuple[Rig, Run, Run]) -> None:
    _, whole, part = runs
    series = [
        {one["series"] for one in of(run, name)}
        for run, name in zip((whole, part), ("healthy", "degraded"), strict=True)
    ]
    assert series[0].isdisjoint(series[1])


@_BY_NIGHT
def test_the_degraded_is_compared_with_the_whole(runs: tuple[Rig, Run, Run]) -> None:
    made, whole, part = runs
    keep(made, *of(whole, "healthy"), *of(part, "degraded"))
    done = derive(made, "-n", "^AgainstBaseline", "--system=rig:degraded")
    best = [
        {
            name: max(
                metric["median"]
                for one in of(run, partition)
                if one["check"] == "IorPosix"
                for metric in one["metrics"]
                if metric["name"] == name
            )
            for name in ("write_bw", "read_bw")
        }
        for run, partition in ((whole, "healthy"), (part, "degraded"))
    ]
    found = {metric["name"]: metric["median"] for metric in done.record["metrics"]}
    for name, value in best[1].items():
        assert found[f"{name}_ratio"] == pytest.approx(value / best[0][name]), done.out
