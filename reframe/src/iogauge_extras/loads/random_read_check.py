"""Random reads over clients and servers; with Lustre's checksums and without."""

import os
from dataclasses import replace
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge.cases.fio_check import (
    OF_RANDOM_READS,
    READ_IOPS,
    FioCheck,
    checks_of,
    checksum_interval,
)
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric, Quantity
from iogauge.core.units import parse_bytes
from iogauge.node.lustre.request import Pins
from iogauge.plan.case import DIR, Access, CasePlan, Computed, PhasePlan
from iogauge.tools.fio.fio_options import FioJob, layout_job, reader_of

UNCHECKED_IOPS = Metric("read_iops_unchecked", "ops/s")
CHECKSUM_RATIO = Metric("checksum_ratio", "1")

#: Seconds of the document's runs.
_PUBLISHED_SECONDS = 10


class RandomReadCheck(FioCheck):
    """Random reads with O_DIRECT by processes of one node or all; the readers lay out the files.

    A subclass sets ``block`` (text with a unit), ``span`` and ``tasks``, the processes on each
    client. On Lustre each process has a directory of its own, pinned to one target, round robin.
    """

    valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
    variants = ("sound", "published")
    flaw = "runs of 10 s: too short to compare systems by"
    quantities = OF_RANDOM_READS
    block: str
    #: Clients that read and servers that hold the files: ``one-client``, ``one-server``, ``one-box``, ``all``.
    span: str
    tasks: int

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; the nodes follow from the span."""
        nodes = self.site.scale.nodes
        if self.span == "one-client":
            nodes = 1
        return {**super().declared(), "nodes": nodes, "tasks_per_node": self.tasks}

    def servers_used(self) -> int | None:
        """Return the number of object storage servers that hold the files, or None for all."""
        if self.span in ("one-client", "all"):
            return None
        if self.span == "one-server":
            return 1
        # The partitions of a span of boxes have them.
        assert self.site.topology and self.site.topology.servers
        return self.site.topology.servers.per_box

    def _jobs(self) -> tuple[FioJob, FioJob]:
        """Return the job that lays out the files, and the job that reads them."""
        block, limits = parse_bytes(self.block), self.site.limits
        # Each process reads as many bytes whatever the span.
        most = max(self.nodes, self.site.scale.nodes) * self.tasks_per_node
        layout = layout_job(
            file_bytes=self.share_of_file(block, most),
            numjobs=self.tasks_per_node,
            checksum_bytes=checksum_interval(block),
        )
        seconds = limits.phase_seconds
        if self.variant == "published":
            layout, seconds = replace(layout, checksum_bytes=0), _PUBLISHED_SECONDS
        if self._pins():
            layout = replace(layout, filename_format="$jobnum/$clientuid.$filenum")
        return layout, reader_of(layout, block_bytes=block, runtime_s=seconds)

    def _pins(self) -> Pins | None:
        if self.site.target.striped_by != "lustre":
            return None
        names = tuple(str(number) for number in range(self.tasks_per_node))
        return Pins(
            names=names,
            kind="directory",
            servers=self.servers_used(),
        )

    def plan(self) -> CasePlan:
        """Lay the files out once, then read."""
        layout, read = self._jobs()
        # The network limits large blocks, operations limit small ones, and few tasks reach neither limit.
        enough = self.tasks_per_node >= self.site.scale.tasks_per_node
        full: Literal["bandwidth"] | None = None
        if enough and parse_bytes(self.block) >= 128 << 10:
            full = "bandwidth"
        access = Access(direction="read", o_direct=True, saturates=full)
        phase = self.timed_phase(read, access, verifies=checks_of(layout))
        return replace(
            self.laid_out_case(layout, [read], [phase]),
            pins=self._pins(),
            sweeps_tasks=True,
            servers=self.servers_used(),
        )


class ChecksumCheck(RandomReadCheck):
    """Random reads of a client with Lustre's checksums on, then off, by turns.

    Every repetition measures both, one after the other, so that drift touches both alike. The job
    restores the original setting, whatever ends it. If the job was killed, the next job of this
    suite on that node restores it.
    """

    valid_systems = [
        f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT} +{vocabulary.CHECKSUMS}"
    ]
    span = "one-client"

    @builtins.run_after("setup")
    def _needs_root(self) -> None:
        if os.getuid() != 0 and not self.is_dry_run():
            self.skip(
                "lctl set_param needs root: run as root, or take the right lustre-checksums away"
            )

    def promise(self) -> tuple[Metric, ...]:
        """Return operations per second with and without checksums, and the ratio of the two."""
        return (READ_IOPS, UNCHECKED_IOPS, CHECKSUM_RATIO)

    def plan(self) -> CasePlan:
        """Read as in every random read, with checksums as found, and again without."""
        layout, read = self._jobs()
        unchecked = replace(read, name="unchecked")
        access, checked = Access(direction="read", o_direct=True), checks_of(layout)
        sources = (READ_IOPS.name, UNCHECKED_IOPS.name)
        repeat = [
            self.set_checksums("on"),
            self.fio_phase(read, {READ_IOPS.name: "iops"}, access, verifies=checked),
            self.set_checksums("off"),
            self.fio_phase(
                unchecked, {UNCHECKED_IOPS.name: "iops"}, access, verifies=checked
            ),
        ]
        return replace(
            self.laid_out_case(layout, [read, unchecked], repeat),
            computed={
                CHECKSUM_RATIO.name: Computed(sources=sources, compute=Quantity.over)
            },
            pins=self._pins(),
            sweeps_tasks=True,
            restores=True,
        )

    def set_checksums(self, state: Literal["on", "off"]) -> PhasePlan:
        """Return a phase that switches the checksums of this client's connections to the target."""
        words = ["checksums", state, DIR]
        return PhasePlan(name=f"checksums-{state}", command=words, launch="agent")
