"""Guards that compare what a tool moved and made with the kernel's counts: bytes (G8), files (G9)."""

import math

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
_INODE_BYTES = 64
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED = 4
#: Bytes that an operation on metadata may write in trees, whatever the type: that of the servers is unknown.
_METADATA_OF_TREES = KINDS["btrfs"].journal

_BYTES = Guard(
    name="G8 witness",
    must=f"the kernel counted as many bytes as the tool reports, within {BYTES.share:.0%}",
    remedy="The data did not travel between the tool and the storage. Look for a cache, a preloaded library, or another tool of "
    "this name",
    against="a: a launcher dropped the record of a task, and 174 MiB/s were reported on a disk of 60",
    seen_on="ext4, XFS, btrfs, GlusterFS, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    limit="`limits.witness`",
    demands=f"the kernel counts what the tool reports, within {BYTES.share:.0%}",
    more="It counts the bytes of the tasks, and their calls of read(2) and write(2): as many as the tool's operations, if it "
    "uses POSIX one by one. It also counts the bytes of everything under the mount: down to the disks, or in the client of "
    "the network file system. On a file system that counts, a missing count is INVALID. If nothing under the mount counts, "
    "the networks and disks of the nodes can contradict the tool, but they serve other programs too: you get a remark.",
)
_DID = {"read": "read", "write": "wrote"}
_ALONE = "Only the tool itself reports this figure. docs/believed.md lists the witnesses that can confirm it"


def bytes_witnessed(phase: PhaseView) -> Finding | None:
    """Return G8 for phases that report bytes."""
    case, way = phase.case, phase.access.direction
    source, required = case.source, case.witness_required
    reports = any(run.reported(way) for run in phase.executions)
    if not (phase.moves_data and reports):
        return None
    figures = [_moved_by(run, way) for run in phase.executions]
    unseen = "nothing under the mount counts bytes that this user may read"
    if source:
        unseen = f"{source} could not be read{because(_why_unread(phase))}"
    guard = _BYTES.saying("a witness of the bytes beside the tool", _ALONE)
    return settle(
        _BYTES,
        figures,
        fine=f"{source}: as many bytes as the tool reports",
        unseen=guard.unwitnessed(unseen, required),
        lost=lost_of(_BYTES, phase.complete, phase.nodes_lost, case.lines_required),
    )


def _why_unread(phase: PhaseView) -> str:
    """Return why the counters under the mount could not be read; empty if nothing is known."""
    evidence = phase.case.evidence
    if evidence.uncounted:
        return evidence.uncounted
    if any(view.on_lustre for view in evidence.views):
        return "can you run lctl here? Before Lustre 2.17 only root can read it"
    return ""


def _at_most(saw: str, count: float, *, exact: bool = False) -> Bounds:
    """Return the bound of a source that counted so many bytes, and missed none."""
    saw = f"{saw} {format_bytes(max(0, round(count)))}"
    return Bounds(saw, most=BYTES.most(count), exact=exact)


def _beside(phase: PhaseView, direction: str) -> int:
    """Return the bytes that whole pages, reading ahead and metadata may add to an execution of a phase."""
    end = READ_AHEAD if direction == "read" else PAGE
    operations = beside = 0
    for part in phase.tool_phases:
        operations = max(operations, part.operations or 0)
    for output in phase.outputs:
        if not output.totals:
            continue
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        every = sum(part.operations or 0 for part in output.phases)
        operations = max(operations, every)
        if direction != "read":
            end = _METADATA_OF_TREES
        beside = max(beside, output.extra_bytes.get(direction, 0))
    if phase.access.o_direct:
        return beside
    return beside + operations * 2 * end * phase.plan.samples


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
    alone = list(filter(None, carried))
    own = [name for name in alone if max(shares[name]) <= 1 + BYTES.share]
    return own or alone or carried


def _moved_by(execution: Execution, way: str) -> list[ReportedFigure]:
    """Return the figures of an execution with the bounds of all that counted; if counts are lost, those from below."""
    output, counts, case = execution.output, execution.counts, execution.case
    reported = execution.reported(way)
    if reported is None or not counts.witnesses:
        return []
    bounds, calls = list[Bounds](), list[ReportedFigure]()
    if execution.speaks_of_tasks and execution.synchronous:
        asked, source = counts.asked.way(way), "its tasks asked the kernel for"
        bounds.append(_at_most(source, asked))
        # MPI-IO merges what tasks transfer, and reads what others send.
        if not output.totals and output.parameters.get("api") in (None, "POSIX"):
            # Who reads the data twice finds them in a cache. Tasks also read libraries.
            slack = BYTES_BESIDE.slack * counts.expected
            if way == "read" and asked > (1 + BYTES.share) * reported + slack:
                saw = f"{source} {format_bytes(asked)}"
                bounds.append(Bounds(saw, least=reported + 1))
            calls = _called(execution, way)
    if execution.speaks_of_tasks and case.kind.accounts:
        bounds += _moved_for_tasks(execution, way, reported)
    bounds += _under_the_mount(execution, way)
    says = f"the tool {_DID[way]} {format_bytes(reported)}, as it says"
    figures = [ReportedFigure(says, reported, bounds), *calls]
    if counts.complete:
        return figures
    return [figure.of_a_part for figure in figures]


def _called(execution: Execution, way: str) -> list[ReportedFigure]:
    """Return how often an execution read or wrote, with the calls of the kernel; nothing if that is unknown."""
    parts = execution.output.named(way)
    operations = whole([part.operations for part in parts])
    if not operations or not execution.counts.calls.read:
        return []
    calls = execution.counts.calls.way(way)
    saw = f"its tasks called the kernel {calls} times for that"
    bound = Bounds(saw, most=BYTES.most(calls))
    says = f"the tool {_DID[way]} {operations} times, as it says"
    return [ReportedFigure(says, operations, [bound])]


def _moved_for_tasks(execution: Execution, way: str, reported: int) -> list[Bounds]:
    """Return the bounds of the bytes that the kernel moved for the tasks."""
    case, counts = execution.case, execution.counts
    moved, beside = counts.moved.way(way), _beside(execution.phase, way)
    data = moved
    if way == "read":
        if not execution.phase.access.o_direct:
            # If memory is short, pages that were read ahead are dropped and fetched again.
            beside = max(beside, reported // _DROPPED)
        counted = counts.counted(case.counters)
        if counted:
            # Tasks also read programs, which need not lie on the target.
            data = min(moved, counted.read)
    saw = "the kernel moved for its tasks"
    least = BYTES_BESIDE.least(data - beside)
    fewest = Bounds(f"{saw} {format_bytes(data)}", least)
    return [_at_most(saw, moved, exact=bool(case.source)), fewest]


def _under_the_mount(execution: Execution, way: str) -> list[Bounds]:
    """Return the bounds of the counters under the mount, or of the ways out of the nodes, and of the disks at the bottom."""
    case, counts, bounds = execution.case, execution.counts, list[Bounds]()
    counted = counts.counted(case.counters)
    if counted:
        fewest = case.copies[0] if way == "write" else 1.0
        moved = counted.way(way) / fewest
        bounds.append(_at_most(f"{case.source} moved", moved, exact=bool(case.source)))
    elif _carriers(case):
        passed = counts.passed(case.ways)
        # A mirror reads a part from each of its disks.
        through = sum(passed.get(name, Reading()).way(way) for name in _carriers(case))
        bounds.append(_at_most("the networks and disks of the nodes moved", through))
    least = counts.counted(case.disks)
    if least:
        under = f"a device below {case.source or 'the mount'} moved"
        bounds.append(_at_most(under, least.way(way)))
    return bounds


_STORAGE = Guard(
    name="G9 storage",
    must="the target of metadata is storage, not memory, and a sync reaches it",
    remedy="Choose another target",
    against="a: fuse-overlayfs of a rootless container, with its upper directory on tmpfs",
    seen_on="tmpfs, ext4, overlay, FUSE, Lustre 2.17",
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
    case, kind = phase.case, phase.case.kind
    if kind.cache == "memory":
        return _STORAGE.invalid(f"the target is memory, not storage{because(kind.why)}")
    if kind.unsynced:
        return _STORAGE.invalid(
            f"an fsync need not reach the storage here{because(kind.unsynced)}"
        )
    names = {part.name for part in phase.tool_phases}
    unseen = None
    if names & {"create", "remove"} and not (case.counters and kind.syncs):
        guard = _STORAGE.saying(
            "a witness of the files beside the tool",
            "The files may lie in the memory of a program. docs/believed.md lists the witnesses that can confirm this figure",
        )
        saw = "files were made or removed, and nothing under the mount counts"
        unseen = guard.unwitnessed(saw, case.witness_required)
    figures = [_files_made(execution) for execution in phase.executions]
    return settle(_STORAGE, [figures], fine="the target is storage", unseen=unseen)


def _files_made(execution: Execution) -> ReportedFigure:
    """Return how many files an execution made, and how many of them were found."""
    parts = execution.output.named("create")
    files = sum(part.operations or 0 for part in parts)
    found, bounds = execution.found_after, list[Bounds]()
    if found is not None and found < MOST_FOUND:
        saw = f"the case's directory holds {found}, not counting links: the files lay elsewhere"
        bounds.append(Bounds(saw, most=found))
    # Clients of a network count data alone. Without a sync, new inodes may wait in memory for half a minute.
    counted = execution.counts.counted(execution.case.counters)
    synced = execution.phase.plan.syncs and not execution.case.on_network
    if counted and synced and files >= LEAST_FILES:
        saw = f"the target's devices wrote {format_bytes(counted.written)}: the files lay elsewhere"
        bounds.append(Bounds(saw, most=counted.written / _INODE_BYTES))
    return ReportedFigure(f"{files} file(s) were made", files, bounds)
