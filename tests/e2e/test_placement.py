"""G15 with the real mpirun: which cores it bound the tasks to reaches the record, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import ROOT, Rig
from e2e.test_hosts import open_mpi
from iogauge.core.yamlfile import load
from iogauge.node.host import usable_cores
from iogauge.plan.script import binding_options, placing_options

pytestmark = pytest.mark.needs_ior

ONE_CASE = r"IorPosix%files=per-process%order=sequential%cache=direct$"
#: Any number of tasks, each bound to one core (Open MPI 4 and 5).
TO_CORES = {
    "OMPI_MCA_hwloc_base_binding_policy": "core:overload-allowed",
    "PRTE_MCA_hwloc_default_binding_policy": "core:overload-allowed",
}


@pytest.fixture(scope="module", autouse=True)
def _binds() -> None:
    """Skips where the mpirun on PATH is not Open MPI's, or cannot bind."""
    if not open_mpi():
        pytest.skip("no mpirun of Open MPI on PATH")
    if usable_cores() < 2:
        pytest.skip("one core only")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ["mpirun", "--report-bindings", "--bind-to", "core", "-np", "2", "true"]
    done = subprocess.run(
        words, env=os.environ | allowed, capture_output=True, text=True, check=False, timeout=60
    )
    # The launcher's own words decide: a parser that reads nothing of them must not skip its tests.
    if done.returncode != 0 or " bound to " not in done.stderr:
        pytest.skip(f"mpirun binds nothing here: {done.stderr.strip()[:300]}")


def placement(record: dict[str, Any]) -> dict[str, Any]:
    """The record's finding of G15 about its tasks; another is about the nodes."""
    found: dict[str, Any]
    found, _ = (finding for finding in record["findings"] if finding["guard"] == "G15")
    return found


def measured(rig: Rig, *words: str, **environment: str) -> dict[str, Any]:
    """Record of one real case of IOR."""
    record = rig.run(*words, **environment).record
    assert record["metrics"], record["reason"]
    return record


def test_tasks_with_a_core_each(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(tools=("ior",), tasks=2)
    record = measured(rig, "-n", ONE_CASE, **TO_CORES)
    assert "2 task(s) bound, at most 1 to a core" in placement(record)["saw"]
    assert "a core of its own" not in placement(record)["remedy"]
    assert not any("report" in command or "MCA" in command for command in record["commands"])


def test_more_tasks_than_cores(make_rig: Callable[..., Rig]) -> None:
    """They are bound to none, whatever the launcher's own settings are."""
    cores = usable_cores()
    rig = make_rig(tools=("ior",), tasks=cores + 1)
    found = placement(measured(rig, "-n", ONE_CASE, **TO_CORES))
    assert found["outcome"] == "warn"
    assert f"{cores + 1} task(s) on {cores} core(s)" in found["saw"]
    assert "bound" not in found["saw"]
    assert "ower scale.tasks_per_node" in found["remedy"]


@pytest.mark.skipif(os.getuid() != 0, reason="no other /sys without root")
def test_a_machine_with_two_threads_a_core(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    """The site ``local`` asks for a task a core, not for one a thread, which Open MPI refuses to bind."""
    threads = sorted(os.sched_getaffinity(0))[:2]
    tree = tmp_path / "cpu"
    tree.mkdir()
    for name in ("online", "possible", "present"):
        shutil.copy(f"/sys/devices/system/cpu/{name}", tree)
    for cpu in threads:
        topology = tree / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        for name in ("core_cpus_list", "thread_siblings_list"):
            (topology / name).write_text(",".join(map(str, threads)) + "\n")
    rig = make_rig(tools=("ior",))
    run = rig.finish(
        rig.start(
            [
                *("unshare", "--mount", "taskset", "--cpu-list", ",".join(map(str, threads))),
                *("sh", "-c", 'mount --bind "$0" /sys/devices/system/cpu && exec "$@"', str(tree)),
                *("reframe", "-c", "checks/", "-r", "--keep-stage-files", "-n", ONE_CASE),
                *("-S", "repetitions=1"),
            ],
            RFM_CONFIG_PATH=str(ROOT / "site-configs"),
            IOGAUGE_TARGET=str(rig.target),
            HWLOC_COMPONENTS="synthetic",
            HWLOC_SYNTHETIC="package:1 numa:1 core:1 pu:2",
            HWLOC_THISSYSTEM="1",
        )
    )
    assert run.record["system"] == "local"
    assert run.record["metrics"], run.out
    assert run.record["tasks_per_node"] == 1
    assert re.search("mpirun -np 1 .*--bind-to core .*ior", run.file("rfm_job.sh").read_text())
    found = placement(run.record)
    assert "1 task(s) on 1 core(s)" in found["saw"]


@pytest.mark.parametrize(
    ("site", "node"),
    [
        ("azure-managed-lustre", "package:1 numa:1 core:24 pu:2"),  # D48s_v3: 48 vCPU
        ("oracle-oci", "package:1 numa:1 core:24 pu:2"),  # VM.Standard2.24: 24 OCPU
        ("azure-cyclecloud", "package:2 numa:1 core:22 pu:1"),  # HC44rs
    ],
)
def test_mpirun_takes_the_tasks_of_a_published_site(site: str, node: str) -> None:
    """Its options are those of the job scripts, and the node has the threads of the document.

    Tasks of cores that this machine lacks cannot start; mpirun has mapped them by then.
    """
    (system,) = load(ROOT / "site-configs" / site / "settings.yaml")["systems"]
    for partition in system["partitions"]:
        extras = partition["extras"]
        tasks, cores = extras["scale"]["tasks_per_node"], extras["node"]["cores"]
        options = placing_options(partition["launcher"], tasks)
        options += binding_options(partition["launcher"], tasks, cores)
        done = subprocess.run(
            ["mpirun", "-np", str(tasks), "-host", f"localhost:{tasks}", *options, "sleep", "1"],
            env=os.environ
            | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            | {"HWLOC_COMPONENTS": "synthetic", "HWLOC_SYNTHETIC": node}
            | {"HWLOC_THISSYSTEM": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        refused = done.returncode and "hwloc_set_cpubind returned" not in done.stderr
        assert not refused, f"{partition['name']}: {' '.join(options)}: {done.stderr}"
