"""Guards that compare what a tool moved and made with the kernel's counts: bytes (G8), files (G9)."""

from __future__ import annotations

import math
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.agreement import (
    BYTES,
    BYTES_BESIDE,
    Bounds,
    ReportedFigure,
    lost_of,
    settle,
)
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import (
    LEAST_FILES,
    PAGE,
    READ_AHEAD,
    CaseView,
    Execution,
    PhaseView,
    whole,
)
from iogauge.node.counters import Reading
from iogauge.node.kinds import KINDS
from iogauge.plan.observations import MOST_FOUND

#: What a new file takes at least on any file system: an inode of ext4 has 128 bytes or more.
_INODE_BYTES: Final = 64
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4
#: Bytes that an operation on metadata may write in trees, whatever the type: that of the servers is unknown.
_METADATA_OF_TREES: Final = KINDS["btrfs"].journal

_BYTES: Final = Guard(
    "G8 witness",
    f"the kernel counted as many bytes as the tool reports, within {BYTES.share:.0%}",
    "The data did not travel between the tool and the storage. Look for a cache, a preloaded library, or another tool of "
    "this name",
    "a: a launcher dropped the record of a task, and 174 MiB/s were reported on a disk of 60",
    "ext4, XFS, btrfs, GlusterFS, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    limit="`limits.witness`",
    demands=f"the kernel counts what the tool reports, within {BYTES.share:.0%}",
    more="It counts the bytes of the tasks, and their calls of read(2) and write(2): as many as the tool's operations, if it "
    "uses POSIX one by one. It also counts the bytes of everything under the mount: down to the disks, or in the client of "
    "the network file system. On a file system that counts, a missing count is INVALID. If nothing under the mount counts, "
    "the networks and disks of the nodes can contradict the tool, but they serve other programs too: you get a remark.",
)
_ALONE: Final = "Only the tool itself reports this figure. docs/believed.md lists the witnesses that can confirm it"


def bytes_witnessed(phase: PhaseView) -> Finding | None:
    """Return G8 for phases that report bytes."""
    case, direction = phase.case, phase.access.direction
    source, required = case.source, case.witness_required
    executions = []
    if phase.phase.witnessed and direction == "elsewhere":
        source = "block devices" if phase.phase.of_devices else ""
        required = case.witness_asked
        for execution in phase.executions:
            executions.append(_past_the_target(execution, source))
    else:
        if not phase.moves_data:
            beside = any(
                out.disturber and out.totals.get("write") for out in phase.outputs
            )
            direction = "write" if beside else "none"
        reports = [execution.reported(direction) for execution in phase.executions]
        if direction == "none" or reports.count(None) == len(reports):
            return None
        for execution in phase.executions:
            executions.append(_moved_by(execution, direction))
    figures = [figure for execution in executions for figure in execution]
    exact = [bound.most for figure in figures for bound in figure.bounds if bound.exact]
    least = min(exact, default=0.0) * (1 - BYTES.share)
    unseen = "nothing under the mount counts bytes that this user may read"
    if source:
        unseen = f"{source} could not be read{because(_why_unread(phase))}"
    guard = _BYTES.saying("a witness of the bytes beside the tool", _ALONE)
    return settle(
        _BYTES,
        executions,
        fine=f"{source}: {format_bytes(least)} or more in each execution",
        unseen=guard.unwitnessed(unseen, required),
        lost=lost_of(_BYTES, phase.complete, phase.nodes_lost, case.lines_required),
    )


def _why_unread(phase: PhaseView) -> str:
    """Return why the counters under the mount could not be read; empty if nothing is known."""
    if phase.case.evidence.uncounted:
        return phase.case.evidence.uncounted
    if any(view.on_lustre for view in phase.case.evidence.views):
        return "before Lustre 2.17 only root can read it: run as root, or update the client"
    return ""


def _at_most(
    source: str, count: int | None, of_each: float = 1.0, *, exact: bool = False
) -> list[Bounds]:
    """Return the bound of a source that counted ``of_each`` bytes for each byte of the tool at least, and missed none;
    none if it did not count.
    """
    if count is None:
        return []
    saw = f"{source} {format_bytes(max(0, count))}"
    return [BYTES.most(saw, count / of_each, exact=exact)]


def _of_tasks(
    count: int, beside: int, source: str, there: int | None = None
) -> list[Bounds]:
    """Return the bounds of the kernel, which moved ``count`` bytes for the tasks, up to ``beside`` of them beside their data.

    Tasks also read programs. No more than ``there`` can have come from the target, if that is known.
    """
    moved = "the kernel moved for its tasks"
    data = count if there is None else min(count, there)
    fewest = BYTES_BESIDE.least(f"{moved} {format_bytes(data)}", data - beside)
    return [*_at_most(moved, count, exact=bool(source)), fewest]


def _beside(phase: PhaseView, direction: str) -> int:
    """Return the bytes that whole pages, reading ahead and metadata may add to an execution of a phase."""
    end = READ_AHEAD if direction == "read" else PAGE
    operations = max((part.operations or 0 for part in phase.tool_phases), default=0)
    beside = 0
    for output in phase.outputs:
        if not output.totals:
            continue
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        every = sum(part.operations or 0 for part in output.phases)
        operations = max(operations, every)
        if direction != "read":
            end = _METADATA_OF_TREES
        beside = max(beside, output.beside.get(direction, 0))
        if output.disturber:
            made = output.disturber.phase.operations or 0
            beside = max(beside, made * _METADATA_OF_TREES)
    if phase.access.o_direct:
        return beside
    return beside + operations * 2 * end * phase.phase.samples


def _carriers(case: CaseView) -> list[str]:
    """Return the networks and disks of the nodes that carried all that a case wrote; empty if none did: RDMA may count nothing.

    If some of them carried hardly more, only those count: the others serve other programs too, or carry copies. All of
    them together ("") count if none carried it alone.
    """
    shares: dict[str, list[float]] = {}
    for phase in case.plan.phases:
        if phase.access.direction != "write" or not phase.witnessed:
            continue
        for execution in PhaseView(case, phase).executions:
            wrote = execution.reported("write") or math.inf
            for name, moved in execution.counts.passed(case.ways).items():
                shares.setdefault(name, []).append(moved.written / wrote)
    carried = [name for name, of in shares.items() if min(of) >= 1 - BYTES.share]
    single = [name for name in carried if name]
    own = [name for name in single if max(shares[name]) <= 1 + BYTES.share]
    return own or single or carried


def _past_the_target(execution: Execution, source: str) -> list[ReportedFigure]:
    """Return the figure of reads past the file system: the kernel counts those of devices, not of memory. The disks below
    the devices count as well: a loop device answers itself what its file does not hold.
    """
    counts, evidence = execution.counts, execution.case.evidence
    reported = sum(phase.bytes_moved or 0 for phase in execution.output.phases)
    says = f"the tool read {format_bytes(reported)}, as it says"
    if not (counts.complete and counts.speaks_of_tasks):
        return []
    bounds = _of_tasks(counts.moved.read, 0, source) if source else []
    if evidence.first and evidence.disks:
        moved = counts.counted({evidence.first.host: evidence.disks})
        under = f"a device below {source or 'the mount'} moved"
        bounds += _at_most(under, moved.read if moved else None)
    return [ReportedFigure(says, reported, bounds)]


def _moved_by(execution: Execution, way: str) -> list[ReportedFigure]:
    """Return the figures of an execution with the bounds of all that counted; if counts are lost, those from below."""
    phase, output, counts = execution.view, execution.output, execution.counts
    case, source, reported = phase.case, phase.case.source, execution.reported(way)
    if reported is None or not counts.witnesses:
        return []
    tool = f"the tool {'read' if way == 'read' else 'wrote'}"
    bounds = list[Bounds]()
    # MPI-IO merges what tasks transfer, and reads what others send.
    posix = not output.totals and output.parameters.get("api") in (None, "POSIX")
    asks = counts.speaks_of_tasks and execution.synchronous
    if asks:
        asked, source_of = counts.asked.way(way), "its tasks asked the kernel for"
        bounds += _at_most(source_of, asked)
        # Who reads the data twice finds them in a cache. Tasks also read libraries.
        slack = BYTES_BESIDE.slack * counts.expected
        twice = asked > round((1 + BYTES.share) * reported + slack)
        if posix and way == "read" and twice:
            bounds.append(
                Bounds(f"{source_of} {format_bytes(asked)}", least=reported + 1)
            )
    counted = counts.counted(case.counters)
    if counts.speaks_of_tasks and case.traits.accounts:
        beside = _beside(phase, way)
        if way == "read" and not phase.access.o_direct:
            # If memory is short, pages that were read ahead are dropped and fetched again.
            beside = max(beside, reported // _DROPPED)
        there = counted.read if counted and way == "read" else None
        bounds += _of_tasks(counts.moved.way(way), beside, source, there)
    if counted:
        fewest = case.copies[0] if way == "write" else 1.0
        exact = bool(source)
        bounds += _at_most(f"{source} moved", counted.way(way), fewest, exact=exact)
    carriers = _carriers(case)
    if carriers and not counted:
        passed = counts.passed(case.ways)
        # A mirror reads a part from each of its disks.
        through = sum(passed.get(name, Reading()).way(way) for name in carriers)
        bounds += _at_most("the networks and disks of the nodes moved", through)
    least = counts.counted(case.disks)
    if least is not None:
        under = f"a device below {source or 'the mount'} moved"
        bounds += _at_most(under, least.way(way))
    says = f"{tool} {format_bytes(reported)}, as it says"
    figures = [ReportedFigure(says, reported, bounds)]
    parts = [part.operations for part in output.phases if part.name == way]
    operations = whole(parts)
    if operations and counts.calls.read > 0 and posix and asks:
        calls = counts.calls.way(way)
        saw = f"its tasks called the kernel {calls} times for that"
        says = f"{tool} {operations} times, as it says"
        figures.append(ReportedFigure(says, operations, [BYTES.most(saw, calls)]))
    return figures if counts.complete else [figure.of_a_part for figure in figures]


_STORAGE: Final = Guard(
    "G9 storage",
    "the target of metadata is storage, not memory, and a sync reaches it",
    "Choose another target",
    "a: fuse-overlayfs of a rootless container, with its upper directory on tmpfs",
    "tmpfs, ext4, overlay, FUSE, Lustre 2.17",
    but="or a remark",
    limit="`target.cache`, `limits.witness`",
    demands="a file system with storage behind it",
    more=f"After files were made, and before the next phase, the first node finds them in the case's directory: {MOST_FOUND} "
    "at least, if there are so many. Links do not count. While files are made, the target's devices write at least "
    f"{_INODE_BYTES} bytes for each. If nothing under the mount counts, or a sync ends in a program "
    "(FUSE), you get a remark: the files may lie in memory.",
)


def storage(phase: PhaseView) -> Finding | None:
    """Return G9 for metadata: the target is storage, and the files of each execution are there."""
    if phase.access.direction != "metadata":
        return None
    case, traits = phase.case, phase.case.traits
    if traits.cache == "memory":
        return _STORAGE.invalid(
            f"the target is memory, not storage{because(traits.why)}"
        )
    if traits.unsynced:
        return _STORAGE.invalid(f"fsync proves nothing here{because(traits.unsynced)}")
    figures, most = [], 0
    for execution in phase.executions:
        if not execution.keeps_files:
            continue
        for part in execution.output.phases:
            if part.name in ("create", "remove"):
                most = max(most, part.operations or 0)
        figures.append(_files_made(execution))
    unseen = None
    if most and not (case.counters and case.kind.syncs):
        guard = _STORAGE.saying(
            "a witness of the files beside the tool",
            "The files may lie in the memory of a program. docs/believed.md lists the witnesses that can confirm this figure",
        )
        saw = f"{most} file(s) were made or removed, and nothing under the mount counts"
        unseen = guard.unwitnessed(saw, case.witness_required)
    return settle(_STORAGE, [figures], fine="the target is storage", unseen=unseen)


def _files_made(execution: Execution) -> ReportedFigure:
    """Return how many files an execution made, and how many of them were found."""
    parts = [part for part in execution.output.phases if part.name == "create"]
    files = sum(part.operations or 0 for part in parts)
    found, bounds = execution.found_after, list[Bounds]()
    if found is not None and found < MOST_FOUND:
        saw = f"the case's directory holds {found}, not counting links: the files lay elsewhere"
        bounds.append(Bounds(saw, most=found))
    # Clients of a network count data alone. Without a sync, new inodes may wait in memory for half a minute.
    counted = execution.counts.counted(execution.case.counters)
    synced = execution.view.phase.syncs and not execution.case.on_network
    if counted and synced and files >= LEAST_FILES:
        saw = f"the target's devices wrote {format_bytes(counted.written)}: the files lay elsewhere"
        bounds.append(Bounds(saw, most=counted.written / _INODE_BYTES))
    return ReportedFigure(f"{files} file(s) were made", files, bounds)
