"""Guards against memory: client and server caches, write-back (G1 to G3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding
from iogauge.guards.ledger import BYTES
from iogauge.guards.rules import Rule, rule
from iogauge.guards.seen import PhaseSeen
from iogauge.node.below import loop_remedy
from iogauge.node.files import Eviction
from iogauge.node.kinds import Traits

#: Bytes by which the memory that a node tells may exceed the real one: it tells whole GiB.
MEMORY_ROUNDING: Final = 1 << 29


def _larger_memory(declared: int, seen: int) -> tuple[int, str]:
    """Return M and how to say it: the declared memory of a node in bytes, or what a node told if that is more."""
    if seen <= declared + MEMORY_ROUNDING:
        return declared, f"M = {format_bytes(declared)}"
    told = f"as a node says (node.memory: {format_bytes(declared)})"
    return seen, f"M = {format_bytes(seen)}, {told}"


def client_cache(
    *,
    nodes: int,
    task_offset: int | None,
    o_direct: bool,
    traits: Traits,
    bytes_per_node: int,
    node_memory: int,
    seen_memory: int = 0,
    memory_factor: float = 2.0,
    evictions: Sequence[Eviction] = (),
    expected_evictions: int = 0,
    data_bytes: Sequence[int] = (),
    page_caches: int | None = None,
    fetched: Sequence[int | None] = (),
) -> Finding:
    """G1: M is the larger of ``node_memory``, which the site declares, and ``seen_memory``, which a node told.

    ``task_offset`` is Q in nodes, None if readers are not shifted. ``page_caches`` is the number of page caches of the N
    nodes, None if each node has its own: containers of one kernel over one mount share one. ``data_bytes`` are the bytes
    that each repetition read: its evictions must have covered them. ``fetched`` holds the bytes that were fetched from
    storage in each repetition, None if nobody counts them.
    """
    larger, memory = _larger_memory(node_memory, seen_memory)
    demanded = _demanded(traits, bytes_per_node, memory_factor, larger * nodes)
    if traits.cache == "memory":
        return demanded.invalid(f"the target is memory, not storage{because(traits.why)}")
    if o_direct and traits.honours_o_direct:
        return demanded.ok("O_DIRECT")
    shared = page_caches is not None and page_caches < nodes
    if task_offset is not None and nodes >= 2 and task_offset % nodes != 0 and not shared:
        return demanded.ok(f"readers shifted by {task_offset % nodes} of {nodes} nodes")
    size = f"V = {format_bytes(bytes_per_node)} per node"
    if bytes_per_node >= memory_factor * larger:
        return demanded.ok(f"{size}, {memory}")
    sharing = f"{nodes} nodes share {page_caches} page cache(s)" if shared else ""
    past = _why_not_past(nodes, task_offset, o_direct, sharing) + because(traits.why)
    # A phase of files has no V: its size is their number.
    reasons = [past, *([f"{size} against {memory}"] if bytes_per_node else [])]
    if expected_evictions:
        reason = _why_not_emptied(traits, evictions, expected_evictions, data_bytes, fetched)
        if not reason:
            dropped = format_bytes(sum(eviction.resident_before for eviction in evictions))
            return demanded.ok(
                f"page cache emptied and proven empty {len(evictions)} times ({dropped} dropped)"
            )
        reasons.append(reason)
    return demanded.invalid(", ".join(reasons))


def _demanded(traits: Traits, bytes_per_node: int, factor: float, memory: int) -> Rule:
    """Return the rule with what helps against a client's cache and does not lead into the next refusal."""
    loop = loop_remedy(traits.why)
    way = "" if traits.honours_o_direct else "opaque"
    case = "loop" if loop else way if bytes_per_node else "files"
    return rule(
        "G1 client cache",
        "memory" if traits.cache == "memory" else case,
        factor=factor,
        enough=format_bytes(factor * memory),
        command=loop,
    )


def _why_not_past(nodes: int, task_offset: int | None, o_direct: bool, sharing: str) -> str:
    """Return why a read may have hit the page caches; ``sharing`` names nodes that share them."""
    if o_direct:
        return "O_DIRECT, which this file system is not known to honour"
    if nodes == 1:
        return "buffered read on the node that wrote"
    if task_offset is None:
        return "buffered read by the tasks that wrote"
    if sharing:
        return f"{sharing}: same kernel, same mount"
    return f"readers shifted by Q = {task_offset} on N = {nodes} nodes read their own data"


def _why_not_emptied(
    traits: Traits,
    evictions: Sequence[Eviction],
    expected: int,
    data_bytes: Sequence[int],
    fetched: Sequence[int | None],
) -> str:
    """Return why the page caches are not proven empty before each read; empty if they are."""
    if traits.cache == "opaque":
        return "the target has a cache that cannot be checked"
    if len(evictions) != expected:
        return f"the page cache was emptied {len(evictions)} times of {expected}"
    if held := [eviction for eviction in evictions if not eviction.proven_empty]:
        return f"the page cache was not proven empty: {held[0].describe()}"
    repetitions = len(data_bytes)
    for index, eviction in enumerate(evictions):
        read = data_bytes[index * repetitions // expected] if repetitions else 1
        if eviction.bytes < read:
            return f"the page cache was emptied of {eviction.bytes} of {read} bytes"
    for count, read in zip(fetched, data_bytes, strict=False):
        if count is not None and count < (1 - BYTES.share) * read:
            return (
                f"the page cache was emptied, but only {count} of {read} bytes were fetched "
                "from storage: another program had read the other data into the page cache. Run the case "
                "when no other program reads its files"
            )
    return ""


def client_cache_of(seen: PhaseSeen) -> Iterator[Finding]:
    plan, evidence, extras = seen.case.plan, seen.case.evidence, seen.case.extras
    if seen.access.direction == "read" or seen.access.task_offset is not None:
        yield client_cache(
            nodes=plan.nodes,
            task_offset=_seen_offset(seen),
            o_direct=seen.access.o_direct,
            traits=seen.case.traits,
            bytes_per_node=seen.bytes_per_node,
            node_memory=extras.node.memory,
            seen_memory=max(seen.case.memories, default=0),
            memory_factor=extras.limits.memory_factor,
            evictions=evidence.evictions.get(seen.phase.name, ()),
            expected_evictions=plan.repetitions * plan.nodes if seen.access.evict else 0,
            data_bytes=[
                seen.phase.data_bytes or seen.claimed_bytes(output, seen.access.direction) or 1
                for output in seen.outputs
            ],
            fetched=[seen.case.fetched(testimony) for testimony in seen.testimonies],
            page_caches=len({view.cache_id for view in evidence.views}),
        )


def _seen_offset(seen: PhaseSeen) -> int | None:
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


def write_back(
    *,
    fsync: bool,
    o_direct: bool,
    traits: Traits,
    bytes_per_node: int,
    node_memory: int,
    seen_memory: int = 0,
    memory_factor: float = 2.0,
) -> Finding:
    """G2: memories as for :func:`client_cache`."""
    larger, memory = _larger_memory(node_memory, seen_memory)
    saw = (
        ("fsync in the timed region" if fsync else "no fsync")
        + (", O_DIRECT" if o_direct else ", buffered")
        + f", V = {format_bytes(bytes_per_node)} per node"
    )
    holds = traits.cache != "memory" and (
        (fsync and not traits.unsynced)
        or (o_direct and traits.honours_o_direct)
        or bytes_per_node >= memory_factor * larger
    )
    if traits.cache == "memory":
        saw += f", the target is memory, not storage{because(traits.why)}"
    elif fsync and traits.unsynced:
        saw += f", but fsync proves nothing here{because(traits.unsynced)}"
    elif not fsync and not holds:
        saw += because(traits.why)
    return rule("G2 write-back", factor=memory_factor, memory=memory).decide(holds, saw)


def write_back_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.access.direction == "write":
        yield write_back(
            fsync=seen.access.fsync,
            o_direct=seen.access.o_direct,
            traits=seen.case.traits,
            bytes_per_node=seen.bytes_per_node,
            node_memory=seen.case.extras.node.memory,
            seen_memory=max(seen.case.memories, default=0),
            memory_factor=seen.case.extras.limits.memory_factor,
        )


def server_cache(
    *, total_bytes: int, server_memory: int | None, memory_factor: float = 2.0
) -> Finding:
    """G3: only a remark, because the site chooses whether the servers' caches belong to the measurement.

    ``total_bytes`` is the data that all tasks read in a repetition. ``server_memory`` is the memory of all servers that
    hold the files, None if it is not declared.
    """
    if server_memory is None:
        return rule("G3 server cache", "undeclared", enough="").ok(
            "memory of the servers not declared"
        )
    enough = memory_factor * server_memory
    return rule("G3 server cache", factor=memory_factor, enough=format_bytes(enough)).decide(
        total_bytes >= enough,
        f"{format_bytes(total_bytes)} in all, {format_bytes(server_memory)} of memory in the servers",
    )


def server_cache_of(seen: PhaseSeen) -> Iterator[Finding]:
    topology = seen.case.extras.topology
    servers = topology.servers if topology else None
    if seen.access.direction == "read":
        yield server_cache(
            total_bytes=max((phase.bytes_moved or 0 for phase in seen.tool_phases), default=0),
            server_memory=servers.memory * (seen.case.plan.servers or servers.count)
            if servers and servers.memory
            else None,
        )
