"""Guards against memory: client and server caches, write-back (G1 to G3)."""

from collections.abc import Sequence

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.agreement import BYTES
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView, whole
from iogauge.node.files import Eviction

#: Bytes by which the memory that a node reports may exceed the real one: it reports whole GiB.
MEMORY_ROUNDING = 1 << 29
#: Share of a sample's blocks that may be in the page cache after direct transfers.
_MOST_LEFT = 0.1
#: Times the memory of a node that it must move if only size defeats its cache, and times the memory of the servers that all
#: tasks read together.
_CLIENTS_MEMORY = _SERVERS_MEMORY = 2

_MEMORY = "the target is memory, not storage"
_DROPPED = "Look for a wrapper of the tool or a library that drops O_DIRECT, and for other programs that read these files"
_NO_PAGES = "O_DIRECT, which leaves no pages in the page cache"

CLIENT_CACHE = Guard(
    name="G1 client cache",
    must="a read is O_DIRECT, or of another node's data, or of at least 2 x M, or from page caches that were proven empty",
    remedy="Use two nodes or more (three for the reads of mdtest)",
    against="a: an IOR of 64 MiB reads what it wrote, at the speed of memory",
    seen_on="ext4, XFS, btrfs, GlusterFS, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    more=f"O_DIRECT counts on a file system that honours it, if it leaves at most {_MOST_LEFT:.0%} of the sample in the page "
    "cache. Another node counts if the tool reports that readers are shifted to it. Nodes that share a kernel and a mount "
    f"do not count as two. If a counter shows what came from storage, it is {1 - BYTES.share:.0%} of the data.",
)


def _enough(case: CaseView) -> tuple[float, str]:
    """Return the bytes on a node that no page cache holds, by M, and how to say M: the declared memory of a node, or what a
    node reports if that is more.
    """
    declared, found = case.extras.node.memory, max(case.memories, default=0)
    says = f"M = {format_bytes(declared)}"
    if found > declared + MEMORY_ROUNDING:
        says = f"M = {format_bytes(found)}, as a node says (node.memory: {format_bytes(declared)})"
        declared = found
    return _CLIENTS_MEMORY * declared, says


def client_cache(phase: PhaseView) -> Finding | None:
    """Return G1 for reads, and for what is read by other tasks than those that wrote."""
    access, case = phase.access, phase.case
    if access.direction != "read" and access.task_offset is None:
        return None
    nodes, kind, offset = case.plan.nodes, case.kind, _confirmed_offset(phase)
    enough, says_memory = _enough(case)
    guard = CLIENT_CACHE.saying(
        "O_DIRECT that the file system honours, or readers on another node (N >= 2, Q mod N != 0), or "
        f"V >= {_CLIENTS_MEMORY} M, or a page cache proven empty before each read"
    )
    if phase.bytes_per_node:
        remedy = CLIENT_CACHE.remedy
        if kind.honours_o_direct:
            remedy += ", the O_DIRECT variant,"
        size = format_bytes(enough * nodes)
        guard = guard.saying(remedy=f"{remedy} or raise limits.case_bytes to {size}")
    if kind.cache == "memory":
        guard = guard.saying(remedy="Choose a directory on storage")
        return guard.invalid(f"{_MEMORY}{because(kind.why)}")
    if access.o_direct and kind.honours_o_direct:
        return _past_the_cache(phase, guard, "O_DIRECT")
    # Each node has a page cache, but containers of one kernel over one mount share one.
    page_caches = len({view.cache_id for view in case.evidence.views})
    apart = nodes > 1 and page_caches >= nodes
    if apart and offset is not None and offset % nodes:
        return guard.ok(f"readers shifted by {offset % nodes} of {nodes} nodes")
    size = f"V = {format_bytes(phase.bytes_per_node)} per node"
    if phase.bytes_per_node >= enough:
        return guard.ok(f"{size}, {says_memory}")
    how = f"buffered read, shifted by {offset or 0} of {nodes} node(s), which have {page_caches} page cache(s)"
    if access.o_direct:
        how = "O_DIRECT, which this file system is not known to honour"
    saw = how + because(kind.why)
    if phase.bytes_per_node:
        saw += f", {size} against {says_memory}"
    if not access.evict:
        return guard.invalid(saw)
    evictions = case.evidence.evictions.get(phase.plan.name, ())
    reason = _why_not_emptied(phase, evictions)
    if reason:
        return guard.invalid(f"{saw}, {reason}")
    came = _came_from_storage(phase)
    return guard.ok(f"page cache proven empty {len(evictions)} times, then {came}")


def _came_from_storage(phase: PhaseView) -> str:
    """Return in words what the executions of a phase fetched from storage."""
    fetched = whole([execution.fetched for execution in phase.executions])
    if fetched is None:
        return "no counter tells what came from storage"
    return f"{format_bytes(fetched)} came from storage"


def _why_not_emptied(phase: PhaseView, evictions: Sequence[Eviction]) -> str:
    """Return why the page caches are not proven empty before each read; empty if they are."""
    case = phase.case
    expected = case.plan.repetitions * case.plan.nodes
    if case.kind.cache == "opaque":
        return "the target has a cache that cannot be checked"
    if len(evictions) != expected:
        return f"the page cache was emptied {len(evictions)} times of {expected}"
    for eviction in evictions:
        if not eviction.proven_empty:
            return f"the page cache was not proven empty: {eviction.describe()}"
    # Each repetition reads its own bytes: its evictions must have covered them.
    direction, planned = phase.access.direction, phase.plan.data_bytes
    reads = [planned or run.reported(direction) or 1 for run in phase.executions]
    for index, eviction in enumerate(evictions):
        if not reads:
            break
        read = reads[index * len(reads) // expected]
        if eviction.bytes < read:
            return f"the page cache was emptied of {eviction.bytes} of {read} bytes"
    for execution, read in zip(phase.executions, reads, strict=True):
        count = execution.fetched
        if count is None or count >= (1 - BYTES.share) * read:
            continue
        cause = (
            "another program had read the others into the page cache, or the file system stores less than was written "
            "(compressed, or with its metadata)"
        )
        if case.mounted_with("fsc"):
            cause = "the node's disk answered (mount option fsc, FS-Cache): mount the target without it"
        return f"the page cache was emptied, but only {count} of {read} bytes were fetched from storage: {cause}"
    return ""


def _confirmed_offset(phase: PhaseView) -> float | None:
    """Return the shift of readers in nodes, or None if a tool's output does not confirm it.

    IOR reports ``reorderTasks`` and ``taskPerNodeOffset``; each node must have as many tasks.
    mdtest prints "Shifting ranks by N", N in ranks.
    """
    planned, per_node = phase.access.task_offset, phase.case.tasks_per_node
    if planned is None:
        return None
    for output in phase.outputs:
        parameters = output.parameters
        shift = parameters.get("shift")
        if parameters.get("reorderTasks"):
            shift = None
            if parameters.get("clients per node") == per_node:
                shift = parameters.get("taskPerNodeOffset")
        elif isinstance(shift, int):
            shift /= per_node
        if shift != planned:
            return None
    return planned * phase.access.shifts


def _past_the_cache(phase: PhaseView, guard: Guard, saw: str) -> Finding:
    """Return a guard's answer to direct transfers, which must leave no pages in the page cache."""
    left = _left_in_memory(phase)
    if left:
        return guard.saying(_NO_PAGES, _DROPPED).invalid(left)
    return guard.ok(saw)


def _left_in_memory(phase: PhaseView) -> str:
    """Return which blocks a phase of direct transfers left in the page cache; empty if none, or if it is not known.

    What was there before a read proves nothing.
    """
    case, way = phase.case, phase.access.direction
    if not (case.kind.past_pages and case.kind.honours_o_direct):
        return ""
    for planned in case.plan.repeat:
        if planned.access.direction == way and not planned.access.o_direct:
            return ""
    there = set[tuple[str, int]]()
    for sample in case.evidence.samples:
        blocks = [block for block in sample.blocks if block.kind == "cached"]
        cached = {(block.file, block.offset) for block in blocks}
        left = cached - there
        many = len(left) > _MOST_LEFT * len(sample.blocks)
        if sample.after == way and sample.repetition > 0 and many:
            return (
                f"O_DIRECT, but the page cache held {len(left)} of {len(sample.blocks)} block(s) after the {way}, "
                f"repetition {sample.repetition}: {min(left)[0]}"
            )
        if sample.after == "write" and way == "read":
            there = cached
    return ""


WRITE_BACK = Guard(
    name="G2 write-back",
    must="a write ends with fsync inside the timing, or is O_DIRECT, or each node writes at least 2 x M",
    remedy="Let the tool fsync at the end of the write (IOR -e, fio end_fsync=1)",
    against="a: IOR without -e reports 5 GiB/s on a disk of 60 MiB/s",
    seen_on="ext4, XFS, overlay, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    but="or a remark",
    more='An fsync on FUSE ends in a program, and need not reach the storage: you get the remark "no second witness", or INVALID with '
    "`limits.witness: required`.",
)


def write_back(phase: PhaseView) -> Finding | None:
    """Return G2 for writes."""
    if phase.access.direction != "write":
        return None
    case, access, kind = phase.case, phase.access, phase.case.kind
    enough, says_memory = _enough(case)
    synced = "fsync in the timed region" if access.fsync else "no fsync"
    way = "O_DIRECT" if access.o_direct else "buffered"
    saw = f"{synced}, {way}, V = {format_bytes(phase.bytes_per_node)} per node"
    guard = WRITE_BACK.saying(
        "fsync, or O_DIRECT that is honoured, or "
        f"V >= {_CLIENTS_MEMORY} M ({says_memory})"
    )
    elsewhere = guard.saying(
        remedy="Choose a directory on storage. In a container, /sys must show its devices"
    )
    if kind.cache == "memory":
        return elsewhere.invalid(f"{saw}, {_MEMORY}{because(kind.why)}")
    if access.o_direct and kind.honours_o_direct:
        return _past_the_cache(phase, guard, saw)
    if phase.bytes_per_node >= enough:
        return guard.ok(saw)
    if not access.fsync:
        return guard.invalid(saw + because(kind.why))
    if kind.unsynced:
        why = because(kind.unsynced)
        return elsewhere.invalid(
            f"{saw}, but an fsync need not reach the storage here{why}"
        )
    if not kind.syncs:
        saw += f", and nothing shows that an fsync on {case.extras.target.type} reaches storage"
        return elsewhere.unwitnessed(saw, case.witness_required)
    return guard.ok(saw)


SERVER_CACHE = Guard(
    name="G3 server cache",
    must=f"all tasks together read at least {_SERVERS_MEMORY} x the memory of the servers, if that is declared",
    remedy="The servers may have answered from memory. Raise limits.case_bytes, or treat the figure as the speed of the servers' "
    "caches",
    against="a: an NFS server answers a read of 64 MiB from its page cache",
    seen_on="NFS",
    otherwise=Outcome.WARN,
    limit="`topology.servers.memory`",
)


def server_cache(phase: PhaseView) -> Finding | None:
    """Return G3: only a remark, because the site chooses whether the servers' caches belong to the measurement."""
    if phase.access.direction != "read":
        return None
    topology = phase.case.extras.topology
    servers = topology.servers if topology else None
    if servers is None or not servers.memory:
        return SERVER_CACHE.ok("memory of the servers not declared")
    total = max((read.bytes_moved or 0 for read in phase.tool_phases), default=0)
    memory = servers.memory * (phase.case.plan.servers or servers.count)
    return SERVER_CACHE.decide(
        total >= _SERVERS_MEMORY * memory,
        f"{format_bytes(total)} in all, {format_bytes(memory)} of memory in the servers",
    )
