"""Options of launchers and schedulers, each in its own dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from iogauge.plan.stage import HOSTFILE


def host_options(launcher: str, hosts: Sequence[str]) -> list[str]:
    """Return options that make a launcher start tasks on the hosts of :data:`HOSTFILE`."""
    if not hosts:
        return []
    if launcher not in ("mpirun", "mpirun-openmpi"):
        raise ValueError(
            f"launcher {launcher!r} with extras.hosts: expected mpirun or mpirun-openmpi, which take a "
            "host file"
        )
    return ["--hostfile", HOSTFILE]


def per_node_launcher(launcher: str, nodes: int, hosts: Sequence[str] = ()) -> list[str]:
    """Return words that start one process on every node, in the dialect of a ReFrame launcher.

    The process is not bound: the children of a fio server share the node's cores. On one node the
    job script runs there already, except under ALPS, whose job scripts run elsewhere.
    """
    if launcher == "alps":
        return ["aprun", "-n", str(nodes), "-N", "1"]
    if nodes == 1:
        return []
    if launcher == "srun":
        count = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
        return ["srun", *count, "--cpu-bind=none"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        where = host_options(launcher, hosts)
        mapping = ["--map-by", "ppr:1:node", "--bind-to", "none"]
        return ["mpirun", "-np", str(nodes), *where, *mapping]
    if launcher in ("mpiexec", "mpirun-intelmpi"):
        return [launcher.removesuffix("-intelmpi"), "-n", str(nodes), "-ppn", "1"]
    raise ValueError(
        f"launcher {launcher!r} cannot start one process a node on {nodes} nodes: expected srun, "
        "mpirun, mpirun-openmpi, mpiexec, mpirun-intelmpi or alps"
    )


def placing_options(launcher: str, tasks_per_node: int, cyclic: bool = False) -> list[str]:
    """Return options that place ranks node after node, or round the nodes (``cyclic``).

    They are in the dialect of a ReFrame launcher; empty for a launcher without such an option.
    """
    if launcher == "srun":
        return [f"--distribution={'cyclic' if cyclic else 'block'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--map-by", "node" if cyclic else f"ppr:{tasks_per_node}:node"]
    return []


def reporting_variables(launcher: str) -> dict[str, str]:
    """Return variables that make a launcher report each task's cores on standard error (G15).

    They are those of Open MPI 4 and 5, for ``mpirun``. Another MPI's mpirun rejects Open MPI's
    option, but ignores the variables.
    """
    if launcher not in ("mpirun", "mpirun-openmpi"):
        return {}
    return {"OMPI_MCA_hwloc_base_report_bindings": "1", "PRTE_MCA_prte_display": "bindings"}


def binding_options(launcher: str, tasks_per_node: int, cores: int) -> list[str]:
    """Return options that bind each rank to its own core, or to no core if a node has too few.

    They are in the dialect of a ReFrame launcher; empty if its name does not tell the MPI library.
    """
    enough = tasks_per_node <= cores
    if launcher == "srun":
        return [f"--cpu-bind={'cores' if enough else 'none'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--bind-to", "core" if enough else "none"]
    return []


#: Least seconds for a job's cleanup before its time limit, and files that it removes in a second.
_TIDY_SECONDS: Final = 30
_TIDY_FILES_S: Final = 1000


def tidy_seconds(files: int, time_limit_s: float) -> int:
    """Return how many seconds before its limit to warn a job; at most a quarter of the limit."""
    return int(min(_TIDY_SECONDS + files / _TIDY_FILES_S, time_limit_s / 4))


def job_options(
    scheduler: str, files: int, time_limit_s: float | None, given: Sequence[str]
) -> list[str]:
    """Return options that make a scheduler warn a job of its time limit, and not run it twice.

    They are in the dialect of a ReFrame scheduler; empty for a scheduler without such options.
    ``given`` are options of the site or the user: these take precedence.
    """
    if scheduler not in ("slurm", "squeue"):
        return []
    options = []
    if time_limit_s:
        options.append(f"--signal=B:USR1@{tidy_seconds(files, time_limit_s)}")
    options.append("--no-requeue")
    stated = {re.sub(r"^--(no-)?|[= ].*", "", option.strip()) for option in given}
    return [option for option in options if re.sub(r"^--(no-)?|=.*", "", option) not in stated]
