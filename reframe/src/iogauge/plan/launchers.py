"""Options of launchers and schedulers, each in its own dialect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from iogauge.plan.stage import HOSTFILE


def host_options(launcher: str, hosts: Sequence[str]) -> list[str]:
    """Options that make a launcher start tasks on the hosts of :data:`HOSTFILE`."""
    if not hosts:
        return []
    if launcher not in ("mpirun", "mpirun-openmpi"):
        raise ValueError(
            f"launcher {launcher!r} with extras.hosts: expected mpirun or mpirun-openmpi, which take a "
            "host file"
        )
    return ["--hostfile", HOSTFILE]


def per_node_launcher(launcher: str, nodes: int, hosts: Sequence[str] = ()) -> list[str]:
    """Words that start one process on every node of the allocation, in the dialect of a ReFrame launcher.

    The process is not bound: a server of fio has children that share the node's cores. On one node the job script itself is there already, except under ALPS, whose job scripts run elsewhere.
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
    """Options that place ranks in blocks, a node after the other, or round the nodes (``cyclic``).

    In the dialect of a ReFrame launcher; nothing for one that has no such option.
    """
    if launcher == "srun":
        return [f"--distribution={'cyclic' if cyclic else 'block'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--map-by", "node" if cyclic else f"ppr:{tasks_per_node}:node"]
    return []


def reporting_variables(launcher: str) -> dict[str, str]:
    """Variables that make a launcher say on standard error which cores it bound each task to (G15).

    Those of Open MPI 4 and 5, for ``mpirun``: their option is an error to another MPI's mpirun, the variables
    mean nothing to it.
    """
    if launcher not in ("mpirun", "mpirun-openmpi"):
        return {}
    return {"OMPI_MCA_hwloc_base_report_bindings": "1", "PRTE_MCA_prte_display": "bindings"}


def binding_options(launcher: str, tasks_per_node: int, cores: int) -> list[str]:
    """Options that bind each rank to a core of its own, or to none where a node has fewer cores than ranks.

    In the dialect of a ReFrame launcher; nothing for one whose MPI library is not known by its name.
    """
    enough = tasks_per_node <= cores
    if launcher == "srun":
        return [f"--cpu-bind={'cores' if enough else 'none'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--bind-to", "core" if enough else "none"]
    return []


#: Seconds that a job gets to tidy up before its time limit: at least, and how many files it removes in one.
_TIDY_SECONDS: Final = 30
_TIDY_FILES_S: Final = 1000


def tidy_seconds(files: int, time_limit_s: float) -> int:
    """How long before its time limit a job has to be warned, to remove so many files; at most a quarter of it."""
    return int(min(_TIDY_SECONDS + files / _TIDY_FILES_S, time_limit_s / 4))


def job_options(
    scheduler: str, files: int, time_limit_s: float | None, given: Sequence[str]
) -> list[str]:
    """Options that make a scheduler warn the job script of its time limit, and not run it twice.

    In the dialect of a ReFrame scheduler, nothing for one without such options. ``given`` are options that
    the site or the user asks for; an option that is among them is left to them.
    """
    if scheduler not in ("slurm", "squeue"):
        return []
    found = []
    if time_limit_s:
        found.append(f"--signal=B:USR1@{tidy_seconds(files, time_limit_s)}")
    found.append("--no-requeue")
    stated = {re.sub(r"^--(no-)?|[= ].*", "", option.strip()) for option in given}
    return [option for option in found if re.sub(r"^--(no-)?|=.*", "", option) not in stated]
