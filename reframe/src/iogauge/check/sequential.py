"""Base classes of sequential writes and reads without MPI: with fio, with elbencho, and on a target that is filled up.

Each process writes its own file, or its own part of a file that all share, and reads it again, on one node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import reframe.core.builtins as builtins

from iogauge.check.fio import CHECKED_BYTES, READ_BW, WRITE_BW, FioCheck
from iogauge.check.storage import StorageCheck
from iogauge.core import untrusted, words
from iogauge.core.measurement import Metric, ToolOutput, ToolOutputError
from iogauge.core.units import format_bytes, parse_bytes
from iogauge.plan.case import (
    DIR,
    REP,
    Access,
    CasePlan,
    PhasePlan,
    Printed,
    Verification,
)
from iogauge.plan.stage import FILL, SERVERS_HOSTS, SERVERS_NEXT, SERVERS_SECRET
from iogauge.tools import elbencho
from iogauge.tools.fio.options import (
    MISMATCH,
    WRITTEN_ALONE,
    FioJob,
    sequential_job,
    verification,
)


def _share(check: StorageCheck, size: str) -> int:
    """Return the bytes of each process, whole requests; raises ValueError if they do not fit.

    ``limits.case_bytes`` is for all nodes of the site's scale.
    """
    block, limits = parse_bytes(size), check.site.limits
    shares = max(check.nodes, check.site.scale.nodes) * check.tasks_per_node
    each = int(limits.case_bytes // shares // block * block)
    if each < 2 * block:
        raise ValueError(
            f"limits.case_bytes is {format_bytes(limits.case_bytes)}: less than two requests of {size} for each "
            f"of {shares} task(s). Raise it to {format_bytes(2 * block * shares)} or lower the tasks"
        )
    return each


class FioSequentialCheck(FioCheck):
    """Write with fsync, empty the page cache if it would answer, and read.

    A subclass sets ``block``, the size of a request as text with a unit, ``file_per_process`` and
    ``o_direct``. O_DIRECT needs the partition's feature ``o_direct``.
    """

    block: str
    file_per_process: bool = True
    o_direct: bool = False
    #: Directory of the files on the target, below that of the case.
    below: str = ""

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def _access(self, direction: Literal["read", "write"]) -> Access:
        # A node is the whole of what the site measures only if the site has no other.
        whole = self.site.scale.nodes == 1
        return Access(
            direction=direction,
            o_direct=self.o_direct,
            fsync=direction == "write",
            evict=direction == "read" and not self.o_direct,
            saturates="bandwidth" if whole else None,
        )

    def _phase(self, job: FioJob, checks: tuple[str, ...]) -> PhasePlan:
        way: Literal["read", "write"] = "read" if job.pattern == "read" else "write"
        rates: Mapping[str, str] = {f"{way}_bw": "bw"}
        # The warm-up alone writes and checks checksums: they would cost time in the others.
        checked = Verification(checks, MISMATCH)
        return self.fio_phase(job, rates, self._access(way), verifies=checked)

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        if self.nodes != 1:
            raise ValueError(
                f"nodes is {self.nodes}: this scenario runs fio on one node; set nodes=1"
            )
        block, each = parse_bytes(self.block), _share(self, self.block)
        write = sequential_job(
            "write",
            block_bytes=block,
            file_bytes=each,
            numjobs=self.tasks_per_node,
            direct=self.o_direct,
            shared=not self.file_per_process,
        )
        if self.below:
            write = replace(write, directory=f"{write.directory}/{self.below}")
        read = replace(write, name="read", pattern="read", fsync_at_end=False)
        return self.fio_case(
            jobs=[write, read],
            repeat=[
                self._phase(write, verification(CHECKED_BYTES, WRITTEN_ALONE)),
                self._phase(read, verification(CHECKED_BYTES)),
            ],
            held_bytes=write.bytes_total,
            files=self.tasks_per_node if self.file_per_process else 1,
            shared_file=not self.file_per_process,
            below=self.below,
        )


#: Nothing is measured.
_UNTIMED: Final = Access(direction="none")


class FillLevelCheck(FioSequentialCheck):
    """Write and read as in every sequential check, on a target that is filled up to a level before.

    A subclass sets ``fill``, the level in percent; 0 means the target as found. The files that fill it lie in the case's
    directory, and go with it.
    """

    fill: int
    o_direct = True
    #: Beside them lie the files that fill the target, at which no sample of the contents looks.
    below = "files"

    def plan(self) -> CasePlan:
        """Fill the target once, and write new files in each repetition."""
        case, most = super().plan(), self.site.limits.fill_bytes
        # The files of the repetition before go, not those that fill the target: new ones must find room again.
        again = 'rm -rf "$1" && mkdir "$1"'
        fresh = PhasePlan(
            name="fresh",
            command=["sh", "-c", again, "sh", case.directory],
            launch="once",
            parse=None,
            rates={},
            access=_UNTIMED,
        )
        case = replace(case, repeat=[fresh, *case.repeat])
        if not self.fill:
            return case
        if most is None:
            raise ValueError(
                f"sweeps.fill_levels has {self.fill}, and limits.fill_bytes is not set: filling needs the site's "
                "permission. Set it to the bytes that may be taken, or leave the level out"
            )
        words = [FILL, str(self.fill), str(most), str(case.held_bytes), f"{DIR}/{FILL}"]
        fill = PhasePlan(
            name=FILL,
            command=words,
            launch="agent",
            parse=parse_filled,
            rates={},
            access=_UNTIMED,
        )
        files = case.files + 1 + -(-most // _FILL_FILE_BYTES)
        return replace(case, prepare=[fill], fill_bytes=most, files=files)


#: Bytes of each file that fills the target, see :mod:`iogauge.job.filling`.
_FILL_FILE_BYTES: Final = 1 << 30


def parse_filled(printed: Printed) -> ToolOutput:
    """Return what the agent says of the fill, as a parameter; raises :class:`ToolOutputError`."""
    try:
        filled: Any = untrusted.parse_json(printed.result)
        level, share, taken = int(filled["level"]), float(filled["fill"]), int(filled["bytes"])
    except (ValueError, TypeError, KeyError) as error:
        raise ToolOutputError(f"{FILL}: not the fill of a target: {error}") from error
    return ToolOutput(
        "target", "", (), parameters={"filled": {"level": level, "fill": share, "bytes": taken}}
    )


class ElbenchoCheck(StorageCheck):
    """Write and read a file for each process with O_DIRECT, as FioSequential and IorPosix do.

    A subclass sets ``block``, the size of a request as text with a unit.
    """

    needs = words.ELBENCHO
    block: str

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, on all nodes of the scale."""
        return {**super().declared(), "nodes": self.site.scale.nodes}

    @builtins.run_after("setup")
    def _one_process_a_node(self) -> None:
        # elbencho starts its threads itself.
        self.num_tasks = self.nodes
        self.num_tasks_per_node = 1
        self.num_cpus_per_task = min(self.tasks_per_node, self.site.node.cores)

    def _phase(self, name: Literal["read", "write"], file_bytes: int) -> PhasePlan:
        output = f"elbencho-{name}.{REP}.json"
        served = self.nodes > 1
        # The order of the servers decides who works on which file: each node reads what another one wrote.
        hosts = SERVERS_HOSTS if name == "write" else SERVERS_NEXT
        options = elbencho.ElbenchoOptions(
            directory=DIR,
            write=name == "write",
            threads=self.tasks_per_node,
            file_bytes=file_bytes,
            block_bytes=parse_bytes(self.block),
            direct=True,
            json_file=output,
            hosts=hosts if served else "",
            secret=SERVERS_SECRET if served else "",
        )
        whole = self.nodes >= self.site.scale.nodes
        return PhasePlan(
            name=name,
            command=["elbencho", *options.arguments()],
            launch="servers" if served else "once",
            parse=lambda printed: elbencho.parse(printed.result),
            rates={f"{name}_bw": (name, "bw")},
            access=Access(direction=name, o_direct=True, saturates="bandwidth" if whole else None),
            output=output,
            data_bytes=file_bytes * self.total_tasks,
            verifies=Verification(elbencho.verification(), elbencho.MISMATCH),
        )

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        each = _share(self, self.block)
        return CasePlan(
            tool="elbencho",
            repetitions=self.repetitions,
            tasks=self.total_tasks,
            nodes=self.nodes,
            repeat=[self._phase("write", each), self._phase("read", each)],
            held_bytes=each * self.total_tasks,
            files=self.total_tasks,
        )
