"""Guards against memory: client and server caches, write-back (G1 to G3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.agreement import BYTES
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
from iogauge.guards.views import CaseView, PhaseView
from iogauge.node.files import Eviction
from iogauge.node.layers import loop_remedy

#: Bytes by which the memory that a node tells may exceed the real one: it tells whole GiB.
MEMORY_ROUNDING: Final = 1 << 29
#: Share of a sample's blocks that may be in the page cache after direct transfers.
_LEFT: Final = 0.1


def _larger_memory(case: CaseView) -> tuple[int, str]:
    """Return M and how to say it: the declared memory of a node in bytes, or what a node told if that is more."""
    declared, seen = case.extras.node.memory, max(case.memories, default=0)
    if seen <= declared + MEMORY_ROUNDING:
        return declared, f"M = {format_bytes(declared)}"
    told = f"as a node says (node.memory: {format_bytes(declared)})"
    return seen, f"M = {format_bytes(seen)}, {told}"


def client_cache(seen: PhaseView) -> Finding | None:
    """Return G1 for reads, and for what is read by other tasks than those that wrote."""
    access, case = seen.access, seen.case
    if access.direction != "read" and access.task_offset is None:
        return None
    nodes, traits, offset = case.plan.nodes, case.traits, _seen_offset(seen)
    larger, memory = _larger_memory(case)
    loop = loop_remedy(traits.why)
    way = "" if traits.honours_o_direct else "opaque"
    factor = case.extras.limits.memory_factor
    # What helps, and does not lead into the next refusal. A phase of files has no V: its size is their number.
    helps = "loop" if loop else way if seen.bytes_per_node else "files"
    demanded = rule(
        "G1 client cache",
        "memory" if traits.cache == "memory" else helps,
        factor=factor,
        enough=format_bytes(factor * larger * nodes),
        command=loop,
    )
    if traits.cache == "memory":
        return demanded.invalid(
            f"the target is memory, not storage{because(traits.why)}"
        )
    if access.o_direct and traits.honours_o_direct:
        if left := _left_in_memory(seen):
            return rule("G1 client cache", "direct").invalid(left)
        return demanded.ok("O_DIRECT")
    # Each node has a page cache, but containers of one kernel over one mount share one.
    page_caches = len({view.cache_id for view in case.evidence.views})
    shared = page_caches < nodes
    if offset is not None and nodes >= 2 and offset % nodes != 0 and not shared:
        return demanded.ok(f"readers shifted by {offset % nodes} of {nodes} nodes")
    size = f"V = {format_bytes(seen.bytes_per_node)} per node"
    if seen.bytes_per_node >= factor * larger:
        return demanded.ok(f"{size}, {memory}")
    sharing = f"{nodes} nodes share {page_caches} page cache(s)" if shared else ""
    past = _why_not_past(nodes, offset, access.o_direct, sharing) + because(traits.why)
    reasons = [past, *([f"{size} against {memory}"] if seen.bytes_per_node else [])]
    if access.evict:
        evictions = case.evidence.evictions.get(seen.phase.name, ())
        reason = _why_not_emptied(seen, evictions)
        if not reason:
            dropped = format_bytes(
                sum(eviction.resident_before for eviction in evictions)
            )
            return demanded.ok(
                f"page cache emptied and proven empty {len(evictions)} times ({dropped} dropped)"
            )
        reasons.append(reason)
    return demanded.invalid(", ".join(reasons))


def _why_not_past(
    nodes: int, offset: float | None, o_direct: bool, sharing: str
) -> str:
    """Return why a read may have hit the page caches; ``sharing`` names nodes that share them."""
    if o_direct:
        return "O_DIRECT, which this file system is not known to honour"
    if nodes == 1:
        return "buffered read on the node that wrote"
    if offset is None:
        return "buffered read by the tasks that wrote"
    if sharing:
        return f"{sharing}: same kernel, same mount"
    return f"readers shifted by Q = {offset} on N = {nodes} nodes read their own data"


def _why_not_emptied(seen: PhaseView, evictions: Sequence[Eviction]) -> str:
    """Return why the page caches are not proven empty before each read; empty if they are."""
    plan = seen.case.plan
    expected = plan.repetitions * plan.nodes
    if seen.case.traits.cache == "opaque":
        return "the target has a cache that cannot be checked"
    if len(evictions) != expected:
        return f"the page cache was emptied {len(evictions)} times of {expected}"
    if held := [eviction for eviction in evictions if not eviction.proven_empty]:
        return f"the page cache was not proven empty: {held[0].describe()}"
    # Each repetition reads its own bytes: its evictions must have covered them.
    way = seen.access.direction
    claimed = [
        seen.phase.data_bytes or one.claimed(way) or 1 for one in seen.executions
    ]
    for index, eviction in enumerate(evictions):
        read = claimed[index * len(claimed) // expected] if claimed else 1
        if eviction.bytes < read:
            return f"the page cache was emptied of {eviction.bytes} of {read} bytes"
    for one, read in zip(seen.executions, claimed, strict=True):
        count = one.fetched
        if count is not None and count < (1 - BYTES.share) * read:
            share = f"only {count} of {read} bytes were" if read > 1 else "no byte was"
            return (
                f"the page cache was emptied, but {share} fetched from storage: another program had read the others into "
                "the page cache, or the file system stores less than was written (compressed, or with its metadata)"
            )
    return ""


def _seen_offset(seen: PhaseView) -> float | None:
    """Return the shift of readers in nodes, or None if a tool's output does not confirm it.

    IOR reports ``reorderTasks`` and ``taskPerNodeOffset``; each node must have as many tasks.
    mdtest prints "Shifting ranks by N", N in ranks.
    """
    planned, per_node = seen.access.task_offset, seen.case.tasks_per_node
    for told in (output.parameters for output in seen.outputs if planned is not None):
        ranks = told.get("shift")
        if told.get("reorderTasks") and told.get("clients per node") == per_node:
            shift = told.get("taskPerNodeOffset")
        else:
            shift = ranks / per_node if isinstance(ranks, int) else None
        if shift != planned:
            return None
    return planned


def _left_in_memory(seen: PhaseView) -> str:
    """Return which blocks a phase of direct transfers left in the page cache; empty if none, or if it is not known.

    What was there before a read tells nothing.
    """
    case, way, there = seen.case, seen.access.direction, set[tuple[str, int]]()
    direct = all(
        p.access.o_direct for p in case.plan.repeat if p.access.direction == way
    )
    if not (direct and case.kind.past_pages and case.traits.honours_o_direct):
        return ""
    for sample in case.evidence.samples:
        cached = {
            (block.file, block.offset)
            for block in sample.blocks
            if block.kind == "cached"
        }
        if sample.after == way and sample.repetition > 0:
            left = sorted(cached - there)
            if len(left) > _LEFT * len(sample.blocks):
                return (
                    f"O_DIRECT, but the page cache held {len(left)} of {len(sample.blocks)} block(s) after the {way}, "
                    f"repetition {sample.repetition}: {left[0][0]} at {left[0][1]}"
                )
        if sample.after == "write" and way == "read":
            there = cached
    return ""


def write_back(seen: PhaseView) -> Finding | None:
    if seen.access.direction != "write":
        return None
    fsync, o_direct, traits = seen.access.fsync, seen.access.o_direct, seen.case.traits
    factor = seen.case.extras.limits.memory_factor
    larger, memory = _larger_memory(seen.case)
    saw = (
        ("fsync in the timed region" if fsync else "no fsync")
        + (", O_DIRECT" if o_direct else ", buffered")
        + f", V = {format_bytes(seen.bytes_per_node)} per node"
    )
    holds = traits.cache != "memory" and (
        (fsync and not traits.unsynced)
        or (o_direct and traits.honours_o_direct)
        or seen.bytes_per_node >= factor * larger
    )
    if traits.cache == "memory":
        saw += f", the target is memory, not storage{because(traits.why)}"
    elif fsync and traits.unsynced:
        saw += f", but fsync proves nothing here{because(traits.unsynced)}"
    elif not fsync and not holds:
        saw += because(traits.why)
    left = _left_in_memory(seen) if o_direct and holds else ""
    case = "direct" if left else "place" if fsync else ""
    demanded = rule("G2 write-back", case, factor=factor, memory=memory)
    return demanded.decide(holds and not left, left or saw)


def server_cache(seen: PhaseView) -> Finding | None:
    """Return G3: only a remark, because the site chooses whether the servers' caches belong to the measurement."""
    if seen.access.direction != "read":
        return None
    topology = seen.case.extras.topology
    servers = topology.servers if topology else None
    if servers is None or not servers.memory:
        demanded = rule("G3 server cache", "undeclared", enough="")
        return demanded.ok("memory of the servers not declared")
    total = max((phase.bytes_moved or 0 for phase in seen.tool_phases), default=0)
    memory = servers.memory * (seen.case.plan.servers or servers.count)
    return rule("G3 server cache", enough=format_bytes(2 * memory)).decide(
        total >= 2 * memory,
        f"{format_bytes(total)} in all, {format_bytes(memory)} of memory in the servers",
    )
