"""The suite on GlusterFS: real bricks on two hosts, whose clients are programs (FUSE)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import GENEROUS, Rig, Run
from e2e.test_several_hosts import of_shared_files, offered, run_on
from support import gluster
from support import hosts as support
from support.hosts import Hosts

pytestmark = [pytest.mark.needs_ior, pytest.mark.needs_fio, pytest.mark.slow, pytest.mark.nightly]

CHECKS = "^(IorPosix%files=per-process%order=sequential|MdLatency|Checkpoint%.*files=shared)"


@pytest.fixture(scope="module")
def site(storage: Path, make_module_rig: Callable[..., Rig]) -> Iterator[tuple[Hosts, Rig]]:
    """Two hosts, and a site on a volume that has a brick on each."""
    for reason in (support.why_not(), gluster.why_not()):
        if reason is not None:
            pytest.skip(reason)
    with Hosts(2, storage) as hosts, gluster.volume(hosts, storage / "gluster") as point:
        assert hosts.run("n1", ["mkdir", str(point / "t")]).returncode == 0
        rig = make_module_rig(
            target=point / "t",
            # A read through PnetCDF needs a cache that can be emptied.
            tools=("fio", "md-workbench", "mdtest", *({*offered()} - {"ior-ncmpi"})),
            declared={
                "type": gluster.TYPE,
                "source": gluster.source(hosts),
                "honours_o_direct": True,
            },
            limits={"case_files": 2000},
        )
        settings = rig.settings()
        settings["systems"][0]["partitions"][0]["extras"] |= {
            "scale": {"nodes": 2, "tasks_per_node": 1},
            "hosts": hosts.names,
            "interface": "eth0",
            "cases": {
                "MdLatency": {"case_files": 200, "repetitions": 1},
            },
            "checkpoints": {"small": {"state": "66 MiB", "save": "10 min", "restart": "10 min"}},
        }
        rig.write_settings(settings)
        rig.write_references(GENEROUS)
        yield hosts, rig


@pytest.fixture(scope="module")
def run(site: tuple[Hosts, Rig]) -> Run:
    """IOR, fio and mdtest from two hosts."""
    return run_on(*site, "-n", CHECKS, "--keep-stage-files")


def test_a_healthy_volume_is_not_refused(run):
    assert sorted((r["check"], r["verdict"]) for r in run.records) == [
        ("Checkpoint", "PASS"),
        ("IorPosix", "PASS"),
        ("IorPosix", "PASS"),
        ("MdLatency", "UNREFERENCED"),
    ], run.out


def test_no_check_at_all_is_refused(site):
    found = run_on(*site, timeout=3000)
    wrong = [
        f"{one['case']}: {one['reason']}"
        for one in found.records
        if one["verdict"] in ("INVALID", "ERROR")
    ]
    assert len(found.records) > 30 and not wrong, "\n".join(wrong)


def test_a_shared_file_is_read_by_the_host_that_did_not_write_it(site):
    """Each host is a client with a cache of its own."""
    done = run_on(*site, "-n", "^SharedFile")
    found = of_shared_files(done)
    assert "MPIIO" in found, done.out
    for metrics in found.values():
        verdicts = {metric["verdict"] for metric in metrics.values()}
        assert verdicts <= {"UNREFERENCED", "UNSTABLE"}, [r["reason"] for r in done.records]
