"""What ReFrame's host writes for a job: its files, its script, its launcher.

It takes a plan, a partition's extras and ReFrame's job, and knows no check.
"""

import contextlib
import json
import math
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import reframe.core.runtime as runtime

from iogauge.core import commands, paths, processes
from iogauge.plan import script
from iogauge.plan.case import CasePlan
from iogauge.plan.stage import FOOTPRINT, HOSTFILE, ORDER, PINS, JobOrder, PlannedCase
from iogauge.session.current import is_gate
from iogauge.site.extras import PartitionExtras
from iogauge.workspace.directory import session_dir

#: Room requested of a resource manager, over the bytes of a case: file systems keep some for
#: themselves.
_CAPACITY_FACTOR: Final = 1.25
#: Seconds for an answer of the scheduler.
_ASKED: Final = 30


@dataclass(frozen=True, slots=True)
class JobFiles:
    """What is written for a case's job."""

    #: ReFrame's job, with its time limit.
    job: Any
    plan: CasePlan
    extras: PartitionExtras
    #: Tasks on a node.
    per_node: int
    #: Directories that may have the target's lock.
    locks: tuple[str, ...]
    #: Tasks are bound to cores; a document's command stays as printed.
    bind: bool = True

    @property
    def launcher(self) -> str:
        """Return the launcher's name."""
        return str(self.job.launcher.registered_name)

    @property
    def _binding(self) -> list[str]:
        if not self.bind:
            return []
        cores = self.extras.node.cores
        return script.binding_options(self.launcher, self.per_node, cores)

    def order(self, session: str, case: str) -> JobOrder:
        """Return the order for the job's agent."""
        plan, extras = self.plan, self.extras
        target, limits = extras.target, extras.limits
        pid, start = processes.identity(os.getpid())
        targets: int | None = None
        if extras.topology:
            targets = extras.topology.targets
        return JobOrder(
            target=target.path,
            type=target.type,
            source=target.source,
            uuid=target.uuid,
            striping=target.striped_by,
            targets=targets,
            restore=str(paths.state_dir() / "restore"),
            session=session,
            host=socket.gethostname(),
            process=(pid, start),
            case=case,
            locks=self.locks,
            # The job's time includes the waiting: half of it is left for the case.
            lock_wait_s=min(limits.lock_wait, self.job.time_limit / 2),
            lock_lease_s=limits.lock_lease,
            held_bytes=plan.held_bytes,
            files=plan.most_files,
            pieces=plan.pieces,
            pins=plan.pins,
            layout=plan.layout,
            shared_bytes=plan.shared_bytes,
            max_fill=limits.max_fill,
            max_of_free=limits.max_of_free,
            time_limit_s=self.job.time_limit,
            expect=dict(extras.expect),
            gate=is_gate() and not target.of_job,
        )

    def launch(self, stage: Path) -> script.Launch:
        """Return the words that start processes in the job; write the host file if the site names
        hosts.

        Raises ValueError for a launcher that cannot do it.
        """
        plan, launcher, name = self.plan, self.job.launcher, self.launcher
        hosts = self.extras.hosts[: plan.nodes]
        if hosts:
            if len(hosts) < plan.nodes:
                raise ValueError(
                    f"extras.hosts names {len(hosts)} host(s), the case needs {plan.nodes}: name more"
                )
            text = "".join(f"{host} slots={self.per_node}\n" for host in hosts)
            (stage / HOSTFILE).write_text(text, encoding="utf-8")
            launcher.options += script.host_options(name, hosts)
        if plan.nodes > 1:
            # Readers are shifted by whole nodes, so tasks must fill one node after the other.
            launcher.options += script.placing_options(name, self.per_node, plan.cyclic)
        launcher.options += self._binding
        return script.Launch(
            run_tasks=launcher.run_command(self.job),
            each_node=script.per_node_launcher(name, plan.nodes, hosts),
            agent=["/bin/sh", str(paths.JOB_FILES / "agent.sh"), sys.executable],
            witness=str(paths.JOB_FILES / "witness.sh"),
            restore=str(paths.state_dir() / "restore"),
            interface=self.extras.interface,
        )

    def resources(self, partition: Any) -> dict[str, dict[str, str]]:
        """Return the room for the case that is requested of the site's resource managers; ValueError if there is none."""
        capacity = f"{math.ceil(_CAPACITY_FACTOR * self.plan.held_bytes / 2**30)}GiB"
        requests = {}
        buffers = []
        for name in self.extras.resources:
            requests[name] = {"capacity": capacity}
            for option in partition.get_resource(name, capacity=capacity):
                if option.startswith(("#DW", "#BB", "--bb")):
                    buffers.append(option)
        if buffers and partition.scheduler.registered_name in ("slurm", "squeue"):
            configuration = ""
            with contextlib.suppress(OSError):
                configuration = commands.output(
                    "scontrol", "show", "config", seconds=_ASKED
                )
            if re.search(r"BurstBufferType\s*=\s*\(null\)", configuration):
                raise ValueError(
                    f"this Slurm has no burst buffers, so it passes over {buffers[0]!r}"
                )
        return requests

    def lines(
        self, starts: script.Launch, order: JobOrder, environments: Sequence[Any]
    ) -> tuple[list[str], str, list[str]]:
        """Return the lines before the executable, the executable, and its options.

        ``environments`` are what ReFrame loads before. Adds to the job the options with which its scheduler warns of the
        time limit.
        """
        job, plan = self.job, self.plan
        given = [*job.sched_access, *job.options, *job.cli_options]
        options = script.job_options(
            job.scheduler.registered_name, plan.most_files, job.time_limit, given
        )
        job.options += options
        lines = [*_has_modules(environments)]
        if self.extras.hosts:
            handed = script.shell_word(";".join(_handed(environments)))
            lines.append(f"export OMPI_MCA_mca_base_env_list={handed}")
        if any(phase.launch == "tasks" for phase in plan.phases):
            for name, value in script.reporting_variables(self.launcher).items():
                lines.append(f"export {name}={value}")
        directory = os.path.join(session_dir(order.target, order.session), order.case)
        lines.append(f"export IOG_DIR={_directory_word(directory)}")
        lines.append(_source("job.sh"))
        for option in options:
            _, at, seconds = option.partition("@")
            if at:
                lines.append(f"IOG_WARNED={seconds}")
        if any(phase.on_servers for phase in plan.phases):
            lines.append(_source("servers.sh"))
        lines += script.job_functions(
            plan, starts, notes_layouts=order.striping == "lustre"
        )
        lines.append(f"iog_open {script.shell_command([*starts.agent, 'open', ORDER])}")
        lines.append("iog_prepare")
        counts = [str(plan.first_repetition), str(plan.repetitions)]
        return lines, "iog_repeat", [*counts, "iog_case"]


def _source(name: str) -> str:
    """Return the line that reads a shell file of the library."""
    return f". {script.shell_word(str(paths.JOB_FILES / name))}"


def _handed(environments: Sequence[Any]) -> list[str]:
    """Return the variables for daemons that mpirun starts on hosts by itself: they have another environment."""
    names = {"PATH": None}
    for environment in environments:
        for name in environment.env_vars:
            if not name.startswith(("OMPI_", "PRTE_")):
                names[name] = None
    return [*names]


def write_inputs(stage: Path, planned: PlannedCase, plan: CasePlan) -> None:
    """Write the files that the job reads, and the footprint, after removing all older files.

    With ``--dont-restage`` files of an earlier run are left there, and they are no evidence. Raises
    OSError.
    """
    for stale in stage.iterdir():
        if stale.is_symlink() or not stale.is_dir():
            stale.unlink()
    files = {
        ORDER: json.dumps(planned.order.to_json(), indent=2),
        FOOTPRINT: json.dumps(planned.to_json()),
        **plan.inputs,
    }
    if plan.pins is not None:
        files[PINS] = json.dumps(plan.pins.to_json())
    for name, text in files.items():
        (stage / name).write_text(text, encoding="utf-8")


def _has_modules(environments: Sequence[Any]) -> Iterator[str]:
    """Yield a line for each module that the site declares: it ends a job in which the module is not loaded."""
    system = runtime.runtime().modules_system
    if system.name not in ("envmod", "lmod"):
        return
    for environment in environments:
        for module in environment.modules_detailed:
            if module["collection"]:
                continue
            for name in system.resolve_module(module["name"]):
                end = script.shell_word(
                    f"iogauge: the job has not loaded the module {name}, which the site declares"
                )
                yield f"module is-loaded {script.shell_word(name)} || {{ echo {end} >&2; exit 1; }}"


def _directory_word(directory: str) -> str:
    """Return the case's directory as a shell word; a leading variable must be set in the job."""
    variable, slash, rest = directory.partition("/")
    if not variable:
        return script.shell_word(directory)
    word = f'"${{{variable[1:]}:?is not set in this job}}"'
    return f"{word}{slash}{script.shell_word(rest)}"
