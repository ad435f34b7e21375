"""Base classes of the scenarios that run elbencho: a large file for each process, and many small files.

elbencho starts its processes itself, on one node. On several nodes the job starts its servers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from iogauge.cases.fio import READ_BW, WRITE_BW
from iogauge.cases.mdtest import CREATE, READ, REMOVE, STAT, files_of_each
from iogauge.cases.storage import StorageCheck, share_of_bytes
from iogauge.core import words
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.core.units import parse_bytes
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan, Printed, Verification
from iogauge.plan.stage import SERVERS_HOSTS, SERVERS_NEXT, SERVERS_SECRET
from iogauge_extras.suites import elbencho


class _OnAllNodes(StorageCheck):
    """elbencho on all nodes of the scale: its servers do the work if there are several."""

    needs = words.ELBENCHO
    own_processes = 1

    def _served_by(self, hosts: str) -> dict[str, Any]:
        """Return the options of servers, in the order of a file; empty on one node, without servers."""
        return {"hosts": hosts, "secret": SERVERS_SECRET} if self.nodes > 1 else {}

    @property
    def _launch(self) -> Literal["servers", "once"]:
        return "servers" if self.nodes > 1 else "once"


class ElbenchoCheck(_OnAllNodes):
    """Write and read a file for each process with O_DIRECT, as FioSequential and IorPosix do.

    A subclass sets ``block``, the size of a request as text with a unit. With ``gpu`` the data come from and go to the
    memory of the GPUs of one node.
    """

    block: str
    gpu: elbencho.Gpu = ""

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; one node if its GPUs are meant."""
        return {**super().declared(), **({"nodes": 1} if self.gpu else {})}

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def _phase(self, name: Literal["read", "write"], file_bytes: int) -> PhasePlan:
        output = f"elbencho-{name}.{REP}.json"
        # The order of the servers decides who works on which file: each node reads what another one wrote.
        hosts = SERVERS_HOSTS if name == "write" else SERVERS_NEXT
        options = elbencho.ElbenchoOptions(
            directory=DIR,
            action=name,
            threads=self.tasks_per_node,
            file_bytes=file_bytes,
            block_bytes=parse_bytes(self.block),
            direct=True,
            gpu=self.gpu,
            json_file=output,
            **self._served_by(hosts),
        )
        whole = self.nodes >= self.site.scale.nodes
        gds = self.gpu == "gds"
        before = elbencho.STRICT if gds else ()
        return PhasePlan(
            name=name,
            command=[*before, "elbencho", *options.arguments()],
            launch=self._launch,
            parse=partial(_parse_large, gds=gds),
            rates={f"{name}_bw": (name, "bw")},
            access=Access(direction=name, o_direct=True, saturates="bandwidth" if whole else None),
            output=output,
            data_bytes=file_bytes * self.total_tasks,
            verifies=Verification(elbencho.verification(), elbencho.MISMATCH),
            in_calls=not gds,
        )

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        each = share_of_bytes(self, self.block)
        return self.case(
            "elbencho",
            [self._phase("write", each), self._phase("read", each)],
            held_bytes=each * self.total_tasks,
            files=self.total_tasks,
        )


class ElbenchoFilesCheck(_OnAllNodes):
    """Create, look up, read and remove many files, in the pattern of mdtest.

    A subclass sets ``file_bytes`` and ``own_directory``, see :class:`iogauge_extras.suites.elbencho.ElbenchoOptions`. All files are
    made: elbencho counts none that a time limit leaves out.
    """

    file_bytes: int
    own_directory: bool
    #: Divisor: the scenario uses this fraction of the case's files.
    share: int = 1

    def promise(self) -> tuple[Metric, ...]:
        """Return the rates of the phases, as of mdtest; stat needs two nodes."""
        return tuple(m for m in self.promise_all() if m is not STAT or self.nodes >= 2)

    def promise_all(self) -> tuple[Metric, ...]:
        """Return the rates at any scale."""
        return (CREATE, STAT, *((READ,) if self.file_bytes else ()), REMOVE)

    def plan(self) -> CasePlan:
        """Create the files, then stat, read and remove them; raises ValueError if the limits allow none."""
        each = files_of_each(self, self.share, self.file_bytes)
        all_files = each * self.total_tasks
        data = all_files * self.file_bytes
        shifted = self.nodes > 1

        def phase(
            action: elbencho.Action, metric: Metric, access: Access, **more: Any
        ) -> PhasePlan:
            output = f"elbencho-{action}.{REP}.json"
            options = elbencho.ElbenchoOptions(
                directory=DIR,
                action=action,
                threads=self.tasks_per_node,
                files=each,
                file_bytes=self.file_bytes,
                block_bytes=self.file_bytes,  # a file is one request
                own_directory=self.own_directory,
                json_file=output,
                # After the creation each node works on the files of another one.
                **self._served_by(SERVERS_HOSTS if action == "create" else SERVERS_NEXT),
            )
            parse = partial(_parse_files, action=action, files=all_files, tasks=self.tasks_per_node)
            return PhasePlan(
                name=action,
                command=["elbencho", *options.arguments()],
                launch=self._launch,
                parse=parse,
                rates={metric.name: (action, "rate")},
                access=access,
                output=output,
                # The tool syncs what it makes and removes; nothing is left then, unless its sync did nothing.
                syncs=options.syncs,
                **more,
            )

        metadata = Access(direction="metadata")
        moved = Access(direction="metadata", task_offset=1 if shifted else None)
        checked = Verification(elbencho.verification(), elbencho.MISMATCH)
        verifies = {"verifies": checked} if self.file_bytes else {}
        phases = [phase("create", CREATE, metadata, stored_bytes=data, **verifies)]
        if shifted:
            phases.append(phase("stat", STAT, moved))
        if self.file_bytes:
            read = Access(direction="read", task_offset=moved.task_offset, evict=not shifted)
            phases.append(phase("read", READ, read, data_bytes=data, **verifies))
        phases.append(phase("remove", REMOVE, metadata))
        return self.case(
            "elbencho",
            phases,
            held_bytes=max(data, 4096 * all_files if self.file_bytes else 0),
            files=all_files + (2 * self.total_tasks if self.own_directory else 0),
        )


def _parse_large(printed: Printed, *, gds: bool) -> ToolOutput:
    """Return one execution's phase; with GPUDirect Storage, what it does not tell."""
    output = elbencho.parse(printed.result)
    return replace(output, notes={"bw": elbencho.UNTOLD}) if gds else output


def _parse_files(
    printed: Printed, *, action: elbencho.Action, files: int, tasks: int
) -> ToolOutput:
    """Return one execution's phase; whose servers took the files in the other order is shifted by a node."""
    output = elbencho.parse_files(printed.result, action, files)
    if SERVERS_NEXT in output.command.split():
        return replace(output, parameters={"shift": tasks})
    return output
