"""Base classes of the scenarios that run elbencho: a large file for each process, both ways at once, and many small files.

elbencho starts its processes itself, on one node. On several nodes the job starts its servers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from iogauge.cases.fio import READ_BW, READ_IOPS, WRITE_BW
from iogauge.cases.mdtest import CREATE, READ, REMOVE, STAT, files_of_each
from iogauge.cases.storage import StorageCheck, share_of_bytes
from iogauge.core import words
from iogauge.core.measurement import Metric, Quantity, ToolOutput
from iogauge.core.units import parse_bytes
from iogauge.plan.case import (
    DIR,
    REP,
    Access,
    CasePlan,
    Computed,
    PhasePlan,
    Printed,
    Verification,
)
from iogauge.plan.stage import SERVERS_HOSTS, SERVERS_NEXT
from iogauge_extras.suites import elbencho

#: What moves the bytes of whole files, and what does so without a check of data.
_OF_BYTES = ("write", "read", "mix")
_UNCHECKED = ("stat", "remove", "mix")


class _OnAllNodes(StorageCheck):
    """elbencho on all nodes of the scale: its servers do the work if there are several."""

    needs = words.ELBENCHO
    own_processes = 1

    def _phase(
        self,
        action: elbencho.Action,
        access: Access,
        rates: dict[str, str],
        **options: Any,
    ) -> PhasePlan:
        """Return an execution; after the first, each node works on the files of another one.

        ``rates`` maps a metric to elbencho's quantity. Of a mix they are those of the reads.
        """
        output = f"elbencho-{action}.{REP}.json"
        if self.nodes > 1:
            # The order of the servers decides who works on which file.
            writes = action in ("write", "create")
            options["hosts"] = SERVERS_HOSTS if writes else SERVERS_NEXT
        words = elbencho.ElbenchoOptions(
            directory=DIR,
            action=action,
            threads=self.tasks_per_node,
            json_file=output,
            **options,
        )
        data = words.files * words.file_bytes * self.total_tasks
        checked = Verification(elbencho.verification(), elbencho.MISMATCH)
        return PhasePlan(
            name=action,
            command=["elbencho", *words.arguments()],
            launch="servers" if self.nodes > 1 else "once",
            parse=lambda printed: elbencho.parse(printed.result, action),
            rates={
                metric: ("read" if action == "mix" else action, rate)
                for metric, rate in rates.items()
            },
            access=access,
            output=output,
            data_bytes=data * (words.reads or 100) // 100
            if action in _OF_BYTES
            else None,
            stored_bytes=data if action == "create" else 0,
            # The tool syncs what it makes and removes; nothing is left then, unless its sync did nothing.
            syncs=words.syncs,
            verifies=checked if words.file_bytes and action not in _UNCHECKED else None,
        )


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

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        each = share_of_bytes(self, self.block)
        sizes = {"file_bytes": each, "block_bytes": parse_bytes(self.block)}
        more: dict[str, Any] = {**sizes, "direct": True, "gpu": self.gpu}
        whole = self.nodes >= self.site.scale.nodes
        write = Access(
            direction="write", o_direct=True, saturates="bandwidth" if whole else None
        )
        read = replace(write, direction="read")
        phases = [
            self._phase("write", write, {WRITE_BW.name: "bw"}, **more),
            self._phase("read", read, {READ_BW.name: "bw"}, **more),
        ]
        return self.case(
            "elbencho",
            [_strict(phase) for phase in phases] if self.gpu == "gds" else phases,
            held_bytes=each * self.total_tasks,
            files=self.total_tasks,
        )


class ElbenchoMixedCheck(_OnAllNodes):
    """Read the files of the next node alone, then read and write them at once, with O_DIRECT.

    A subclass sets ``block`` (text with a unit) and ``reads``, their share of the blocks in percent.
    """

    block: str
    reads: int

    def promise(self) -> tuple[Metric, ...]:
        """Return both bandwidths and operations, and the reads' over those alone, as of fio."""
        ratio = replace(READ_IOPS, name="read_iops_ratio", unit="1")
        return (
            READ_BW,
            WRITE_BW,
            replace(READ_IOPS, name="write_iops"),
            READ_IOPS,
            ratio,
        )

    def plan(self) -> CasePlan:
        """Write the files once; then read alone, and read and write; raises ValueError if the limits allow none."""
        block = parse_bytes(self.block)
        # elbencho mixes exactly as asked in each hundred blocks.
        each = share_of_bytes(self, f"{100 * block} B")
        more: dict[str, Any] = {
            "file_bytes": each,
            "block_bytes": block,
            "direct": True,
        }
        write = Access(direction="write", o_direct=True)
        read = replace(write, direction="read")
        rates = {READ_BW.name: "bw", READ_IOPS.name: "iops"}
        mixed = self._phase("mix", read, rates, reads=self.reads, **more)
        written = {"write_bw": ("write", "bw"), "write_iops": ("write", "iops")}
        rest = each * self.total_tasks - (mixed.data_bytes or 0)
        beside = mixed.also("beside", written, write, data_bytes=rest)
        return self.case(
            "elbencho",
            [
                self._phase("read", read, {"read_iops_alone": "iops"}, **more),
                mixed,
                beside,
            ],
            prepare=[self._phase("write", write, {}, **more)],
            held_bytes=each * self.total_tasks,
            files=self.total_tasks,
            computed={
                "read_iops_ratio": Computed(
                    sources=(READ_IOPS.name, "read_iops_alone"), compute=Quantity.over
                )
            },
        )


def _strict(phase: PhasePlan) -> PhasePlan:
    """Return an execution with GPUDirect Storage, which may not fall back, and a note of what it does not tell."""

    def parse(printed: Printed) -> ToolOutput:
        assert phase.parse
        return replace(phase.parse(printed), notes={"bw": elbencho.UNTOLD})

    return replace(
        phase, command=[*elbencho.STRICT, *phase.command], parse=parse, in_calls=False
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
        """Return the rates of the phases, as of mdtest; the plan has a stat on two nodes or more."""
        return (CREATE, STAT, *((READ,) if self.file_bytes else ()), REMOVE)

    def plan(self) -> CasePlan:
        """Create the files, then stat, read and remove them; raises ValueError if the limits allow none."""
        each = files_of_each(self, self.share, self.file_bytes)
        all_files, several = each * self.total_tasks, self.nodes > 1
        offset = 1 if several else None
        metadata, shifted = (
            Access(direction="metadata", task_offset=at) for at in (None, offset)
        )
        read = Access(direction="read", task_offset=offset, evict=not several)
        planned: tuple[tuple[Metric, elbencho.Action, Access], ...] = (
            (CREATE, "create", metadata),
            (STAT, "stat", shifted),
            (READ, "read", read),
            (REMOVE, "remove", metadata),
        )
        # A file is one request.
        sizes = {
            "file_bytes": self.file_bytes,
            "block_bytes": self.file_bytes,
            "files": each,
        }
        more: dict[str, Any] = {**sizes, "own_directory": self.own_directory}
        parse = partial(_parse_files, files=all_files, tasks=self.tasks_per_node)
        return self.case(
            "elbencho",
            [
                replace(
                    self._phase(action, access, {metric.name: "rate"}, **more),
                    parse=partial(parse, action=action),
                )
                for metric, action, access in planned
                if metric in self.promise() and (metric is not STAT or several)
            ],
            held_bytes=max(self.file_bytes, 4096 if self.file_bytes else 0) * all_files,
            files=all_files + (2 * self.total_tasks if self.own_directory else 0),
        )


def _parse_files(
    printed: Printed, *, action: elbencho.Action, files: int, tasks: int
) -> ToolOutput:
    """Return one execution's phase; whose servers took the files in the other order is shifted by a node."""
    output = elbencho.parse(printed.result, action, files)
    if SERVERS_NEXT in output.command.split():
        return replace(output, parameters={"shift": tasks})
    return output
