"""G15 with the real mpirun: which cores it bound the tasks to reaches the record, and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rig
from e2e.test_hosts import open_mpi
from iogauge.node.host import usable_cores

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
