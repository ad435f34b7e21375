"""Guards against memory: client and server caches, write-back (G1 to G3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.agreement import BYTES
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.node.files import Eviction
from iogauge.node.layers import loop_remedy

#: Bytes by which the memory that a node reports may exceed the real one: it reports whole GiB.
MEMORY_ROUNDING: Final = 1 << 29
#: Share of a sample's blocks that may be in the page cache after direct transfers.
_MOST_LEFT: Final = 0.1
#: Times the memory of the servers that all tasks read together.
_SERVERS_MEMORY: Final = 2

_MEMORY: Final = "the target is memory, not storage"
_DROPPED: Final = "Look for a wrapper of the tool or a library that drops O_DIRECT, and for other programs that read these files"
_NO_PAGES: Final = "O_DIRECT, which leaves no pages in the page cache"

CLIENT_CACHE: Final = Guard(
    "G1 client cache",
    "a read is O_DIRECT, or of another node's data, or of at least 2 x M, or from page caches that were proven empty",
    "Use two nodes or more",
    "a: an IOR of 64 MiB reads what it wrote, at the speed of memory",
    "ext4, XFS, btrfs, GlusterFS, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    limit="`limits.memory_factor` 2",
    more=f"O_DIRECT counts on a file system that honours it, if it leaves at most {_MOST_LEFT:.0%} of the sample in the page "
    "cache. Another node counts if the tool reports that readers are shifted to it. Nodes that share a kernel and a mount "
    f"do not count as two. If a counter shows what came from storage, it is {1 - BYTES.share:.0%} of the data.",
)


def _larger_memory(case: CaseView) -> tuple[int, str]:
    """Return M and how to say it: the declared memory of a node in bytes, or what a node reports if that is more."""
    declared, found = case.extras.node.memory, max(case.memories, default=0)
    if found <= declared + MEMORY_ROUNDING:
        return declared, f"M = {format_bytes(declared)}"
    reported = f"as a node says (node.memory: {format_bytes(declared)})"
    return found, f"M = {format_bytes(found)}, {reported}"


def client_cache(phase: PhaseView) -> Finding | None:
    """Return G1 for reads, and for what is read by other tasks than those that wrote."""
    access, case = phase.access, phase.case
    if access.direction != "read" and access.task_offset is None:
        return None
    nodes, traits, offset = case.plan.nodes, case.traits, _confirmed_offset(phase)
    factor = case.extras.limits.memory_factor
    memory, says_memory = _larger_memory(case)
    guard = CLIENT_CACHE.saying(
        "O_DIRECT that the file system honours, or readers on another node (N >= 2, Q mod N != 0), or "
        f"V >= {factor:g} M, or a page cache proven empty before each read",
        _way_out(phase, factor * memory * nodes),
    )
    if traits.cache == "memory":
        guard = guard.saying(remedy="Choose a directory on storage")
        return guard.invalid(f"{_MEMORY}{because(traits.why)}")
    if access.o_direct and traits.honours_o_direct:
        left = _left_in_memory(phase)
        if left:
            return CLIENT_CACHE.saying(_NO_PAGES, _DROPPED).invalid(left)
        return guard.ok("O_DIRECT")
    # Each node has a page cache, but containers of one kernel over one mount share one.
    page_caches = len({view.cache_id for view in case.evidence.views})
    shared = page_caches < nodes
    if offset is not None and nodes >= 2 and offset % nodes != 0 and not shared:
        return guard.ok(f"readers shifted by {offset % nodes} of {nodes} nodes")
    size = f"V = {format_bytes(phase.bytes_per_node)} per node"
    if phase.bytes_per_node >= factor * memory:
        return guard.ok(f"{size}, {says_memory}")
    reasons = [_how_read(phase, offset, page_caches) + because(traits.why)]
    if phase.bytes_per_node:
        reasons.append(f"{size} against {says_memory}")
    if not access.evict:
        return guard.invalid(", ".join(reasons))
    evictions = case.evidence.evictions.get(phase.phase.name, ())
    reason = _why_not_emptied(phase, evictions)
    if reason:
        return guard.invalid(", ".join([*reasons, reason]))
    dropped = format_bytes(sum(eviction.resident_before for eviction in evictions))
    return guard.ok(
        f"page cache emptied and proven empty {len(evictions)} times ({dropped} dropped)"
    )


def _how_read(phase: PhaseView, offset: float | None, page_caches: int) -> str:
    """Return why a read may have hit the page caches, of which the nodes have so many."""
    nodes = phase.case.plan.nodes
    if phase.access.o_direct:
        return "O_DIRECT, which this file system is not known to honour"
    if nodes == 1:
        return "buffered read on the node that wrote"
    if offset is None:
        return "buffered read by the tasks that wrote"
    if page_caches < nodes:
        return (
            f"{nodes} nodes share {page_caches} page cache(s): same kernel, same mount"
        )
    return f"readers shifted by Q = {offset} on N = {nodes} nodes read their own data"


def _way_out(phase: PhaseView, enough: float) -> str:
    """Return what helps, and does not lead into the next refusal. A phase of files has no V: its size is their number."""
    traits = phase.case.traits
    loop = loop_remedy(traits.why)
    if loop or not phase.bytes_per_node:
        return loop or CLIENT_CACHE.remedy
    direct = ", the O_DIRECT variant," if traits.honours_o_direct else ""
    raised = f"raise limits.case_bytes to {format_bytes(enough)}"
    return f"{CLIENT_CACHE.remedy}{direct} or {raised}"


def _why_not_emptied(phase: PhaseView, evictions: Sequence[Eviction]) -> str:
    """Return why the page caches are not proven empty before each read; empty if they are."""
    case = phase.case
    expected = case.plan.repetitions * case.plan.nodes
    if case.traits.cache == "opaque":
        return "the target has a cache that cannot be checked"
    if len(evictions) != expected:
        return f"the page cache was emptied {len(evictions)} times of {expected}"
    for eviction in evictions:
        if not eviction.proven_empty:
            return f"the page cache was not proven empty: {eviction.describe()}"
    # Each repetition reads its own bytes: its evictions must have covered them.
    direction, planned = phase.access.direction, phase.phase.data_bytes
    reads = [planned or run.reported(direction) or 1 for run in phase.executions]
    for index, eviction in enumerate(evictions):
        read = reads[index * len(reads) // expected] if reads else 1
        if eviction.bytes < read:
            return f"the page cache was emptied of {eviction.bytes} of {read} bytes"
    for execution, read in zip(phase.executions, reads, strict=True):
        count = execution.fetched
        if count is None or count >= (1 - BYTES.share) * read:
            continue
        share = f"only {count} of {read} bytes were" if read > 1 else "no byte was"
        cause = (
            "another program had read the others into the page cache, or the file system stores less than was written "
            "(compressed, or with its metadata)"
        )
        if case.mounted_with("fsc"):
            cause = "the node's disk answered (mount option fsc, FS-Cache): mount the target without it"
        return f"the page cache was emptied, but {share} fetched from storage: {cause}"
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
        ranks = parameters.get("shift")
        shift: object = None
        if isinstance(ranks, int):
            shift = ranks / per_node
        evenly = parameters.get("clients per node") == per_node
        if evenly and parameters.get("reorderTasks"):
            shift = parameters.get("taskPerNodeOffset")
        if shift != planned:
            return None
    return planned


def _left_in_memory(phase: PhaseView) -> str:
    """Return which blocks a phase of direct transfers left in the page cache; empty if none, or if it is not known.

    What was there before a read proves nothing.
    """
    case, way = phase.case, phase.access.direction
    if not (case.kind.past_pages and case.traits.honours_o_direct):
        return ""
    for planned in case.plan.repeat:
        if planned.access.direction == way and not planned.access.o_direct:
            return ""
    there = set[tuple[str, int]]()
    for sample in case.evidence.samples:
        cached = {
            (block.file, block.offset)
            for block in sample.blocks
            if block.kind == "cached"
        }
        if sample.after == way and sample.repetition > 0:
            left = sorted(cached - there)
            if len(left) > _MOST_LEFT * len(sample.blocks):
                return (
                    f"O_DIRECT, but the page cache held {len(left)} of {len(sample.blocks)} block(s) after the {way}, "
                    f"repetition {sample.repetition}: {left[0][0]} at {left[0][1]}"
                )
        if sample.after == "write" and way == "read":
            there = cached
    return ""


WRITE_BACK: Final = Guard(
    "G2 write-back",
    "a write ends with fsync inside the timing, or is O_DIRECT, or each node writes at least 2 x M",
    "Let the tool fsync at the end of the write (IOR -e, fio end_fsync=1)",
    "a: IOR without -e reports 5 GiB/s on a disk of 60 MiB/s",
    "ext4, XFS, overlay, NFS, LVM, md, dm-crypt, f2fs, Lustre 2.17",
    but="or a remark",
    limit="`limits.memory_factor` 2",
    more='An fsync on FUSE ends in a program and proves nothing: you get the remark "no second witness", or INVALID with '
    "`limits.witness: required`.",
)


def write_back(phase: PhaseView) -> Finding | None:
    """Return G2 for writes."""
    if phase.access.direction != "write":
        return None
    case, access, traits = phase.case, phase.access, phase.case.traits
    factor = case.extras.limits.memory_factor
    memory, says_memory = _larger_memory(case)
    synced = "fsync in the timed region" if access.fsync else "no fsync"
    way = "O_DIRECT" if access.o_direct else "buffered"
    saw = f"{synced}, {way}, V = {format_bytes(phase.bytes_per_node)} per node"
    guard = WRITE_BACK.saying(
        f"fsync, or O_DIRECT that is honoured, or V >= {factor:g} M ({says_memory})"
    )
    elsewhere = guard.saying(
        remedy="Choose a directory on storage. In a container, /sys must show its devices"
    )
    if traits.cache == "memory":
        return elsewhere.invalid(f"{saw}, {_MEMORY}{because(traits.why)}")
    if access.o_direct and traits.honours_o_direct:
        left = _left_in_memory(phase)
        if left:
            return WRITE_BACK.saying(_NO_PAGES, _DROPPED).invalid(left)
        return guard.ok(saw)
    if phase.bytes_per_node >= factor * memory:
        return guard.ok(saw)
    if not access.fsync:
        return guard.invalid(saw + because(traits.why))
    if traits.unsynced:
        why = because(traits.unsynced)
        return elsewhere.invalid(f"{saw}, but fsync proves nothing here{why}")
    if not case.kind.syncs:
        saw += f", and fsync on {case.extras.target.type} ends in a program: nothing shows that it reaches storage"
        return elsewhere.unwitnessed(saw, case.witness_required)
    return guard.ok(saw)


SERVER_CACHE: Final = Guard(
    "G3 server cache",
    f"all tasks together read at least {_SERVERS_MEMORY} x the memory of the servers, if that is declared",
    "The servers may have answered from memory. Raise limits.case_bytes, or treat the figure as the speed of the servers' "
    "caches",
    "a: an NFS server answers a read of 64 MiB from its page cache",
    "NFS",
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
        guard = SERVER_CACHE.saying("topology.servers.memory")
        return guard.ok("memory of the servers not declared")
    total = max((read.bytes_moved or 0 for read in phase.tool_phases), default=0)
    memory = servers.memory * (phase.case.plan.servers or servers.count)
    enough = _SERVERS_MEMORY * memory
    guard = SERVER_CACHE.saying(
        f"total >= {_SERVERS_MEMORY} x memory of the servers",
        SERVER_CACHE.remedy.replace(
            "case_bytes", f"case_bytes to {format_bytes(enough)}"
        ),
    )
    return guard.decide(
        total >= enough,
        f"{format_bytes(total)} in all, {format_bytes(memory)} of memory in the servers",
    )
