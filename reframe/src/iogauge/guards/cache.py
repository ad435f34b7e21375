"""Guards against memory: client caches, write-back, servers' caches, compression (G1 to G3, G14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome, finding_of
from iogauge.node.mounts import Traits
from iogauge.node.pagecache import Eviction


def client_cache(
    *,
    nodes: int,
    task_offset: int | None,
    o_direct: bool,
    traits: Traits,
    bytes_per_node: int,
    node_memory: int,
    memory_factor: float = 2.0,
    evictions: Sequence[Eviction] = (),
    expected_evictions: int = 0,
    data_bytes: int = 1,
    page_caches: int | None = None,
    fetched: Sequence[int | None] = (),
) -> Finding:
    """G1: a read must not be served from the client's own cache.

    Cleared by any of: O_DIRECT where the file system honours it; readers on another node than the writers
    (N >= 2 and Q mod N != 0); V >= 2 M; a page cache that was emptied and proven empty on every node
    before every repetition, on file systems that keep data nowhere else on the client.
    ``task_offset`` is Q in nodes, None where readers are not shifted; ``data_bytes`` is what each emptying
    must have covered; ``fetched`` what the tasks fetched from storage in each repetition, as their kernel
    counts it (None: it does not), at least 95 % of the data; ``page_caches`` is how many page caches the N nodes have (None: as many as nodes):
    containers of one kernel over one mount share theirs.
    """
    demands = (
        "O_DIRECT that the file system honours, or readers on another node (N >= 2, Q mod N != 0), or "
        f"V >= {memory_factor:g} M, or a page cache proven empty before each read"
    )
    remedy = (
        "Use two nodes or more, the O_DIRECT variant, or raise limits.case_bytes to "
        f"{format_bytes(memory_factor * node_memory * nodes)}"
    )
    if traits.cache == "memory":
        return Finding("G1", Outcome.INVALID, "the target is memory, not storage", demands, remedy)
    if o_direct and traits.honours_o_direct:
        return Finding("G1", Outcome.OK, "O_DIRECT", demands)
    shared = page_caches is not None and page_caches < nodes
    if task_offset is not None and nodes >= 2 and task_offset % nodes != 0 and not shared:
        saw = f"readers shifted by {task_offset % nodes} of {nodes} nodes"
        return Finding("G1", Outcome.OK, saw, demands)
    if bytes_per_node >= memory_factor * node_memory:
        saw = f"V = {format_bytes(bytes_per_node)} per node, M = {format_bytes(node_memory)}"
        return Finding("G1", Outcome.OK, saw, demands)
    reasons = []
    if o_direct:
        reasons.append("O_DIRECT, which this file system is not known to honour")
    elif nodes == 1:
        reasons.append("buffered read on the node that wrote")
    elif task_offset is None:
        reasons.append("buffered read by the tasks that wrote")
    elif shared:
        reasons.append(f"{nodes} nodes share {page_caches} page cache(s): same kernel, same mount")
    else:
        reasons.append(
            f"readers shifted by Q = {task_offset} on N = {nodes} nodes read their own data"
        )
    reasons.append(
        f"V = {format_bytes(bytes_per_node)} per node against M = {format_bytes(node_memory)}"
    )
    if expected_evictions:
        held = [e for e in evictions if not e.proven_empty]
        if traits.cache == "opaque":
            reasons.append("the client caches outside the page cache, where nothing can be proven")
        elif len(evictions) != expected_evictions:
            reasons.append(
                f"the page cache was emptied {len(evictions)} times of {expected_evictions}"
            )
        elif held:
            reasons.append(f"the page cache was not proven empty: {held[0].describe()}")
        elif short := [e.bytes for e in evictions if e.bytes < data_bytes]:
            reasons.append(f"the page cache was emptied of {short[0]} of {data_bytes} bytes")
        elif traits.accounts_reads and (
            few := [f for f in fetched if f is not None and f < 0.95 * data_bytes]
        ):
            reasons.append(
                f"the page cache was emptied, but the tasks fetched {few[0]} of {data_bytes} bytes "
                "from storage: somebody else had read them meanwhile"
            )
        else:
            dropped = sum(e.resident_before for e in evictions)
            saw = (
                f"page cache emptied and proven empty {len(evictions)} times "
                f"({format_bytes(dropped)} dropped)"
            )
            return Finding("G1", Outcome.OK, saw, demands)
    return Finding("G1", Outcome.INVALID, ", ".join(reasons), demands, remedy)


def write_back(
    *,
    fsync: bool,
    o_direct: bool,
    traits: Traits,
    bytes_per_node: int,
    node_memory: int,
    memory_factor: float = 2.0,
) -> Finding:
    """G2: a write must not end in the client's memory: fsync inside the timing, O_DIRECT, or V >= 2 M."""
    saw = (
        ("fsync in the timed region" if fsync else "no fsync")
        + (", O_DIRECT" if o_direct else ", buffered")
        + f", V = {format_bytes(bytes_per_node)} per node"
    )
    holds = traits.cache != "memory" and (
        fsync
        or (o_direct and traits.honours_o_direct)
        or bytes_per_node >= memory_factor * node_memory
    )
    if traits.cache == "memory":
        saw += ", the target is memory, not storage"
    return finding_of(
        "G2",
        holds,
        saw,
        f"fsync, or O_DIRECT that is honoured, or V >= {memory_factor:g} M "
        f"(M = {format_bytes(node_memory)})",
        "Let the tool fsync at the end of the write (IOR -e, fio end_fsync=1)",
    )


def server_cache(
    *, total_bytes: int, server_memory: int | None, memory_factor: float = 2.0
) -> Finding:
    """G3: more data than the servers can keep in memory: total >= 2 x the memory of all servers.

    Only remarked upon: whether the servers' caches belong to what is measured is the site's choice.
    ``total_bytes`` is what all tasks read in a repetition, ``server_memory`` that of all servers that hold
    the files, None where it is not declared.
    """
    if server_memory is None:
        return Finding(
            "G3", Outcome.OK, "memory of the servers not declared", "topology.servers.memory"
        )
    return finding_of(
        "G3",
        total_bytes >= memory_factor * server_memory,
        f"{format_bytes(total_bytes)} in all, {format_bytes(server_memory)} of memory in the servers",
        f"total >= {memory_factor:g} x memory of the servers",
        "The servers may have answered from memory: raise limits.case_bytes to "
        f"{format_bytes(memory_factor * server_memory)} or read the figure as one of their caches",
        Outcome.WARN,
    )


def data_entropy(
    *, compressing: str, tool: str, parameters: Sequence[Mapping[str, object]]
) -> Finding:
    """G18: data that can be compressed or found twice must not be written where that is done.

    ``compressing`` says what does it (``zfs``, ``btrfs compress=zstd``, as the site declares), empty: nothing
    that is known. ``parameters`` are what the tool says that it ran with, a mapping for each output. IOR:
    only ``-l random`` (the default repeats one block, its "incompressible" data shrink 136-fold, IOR 4.0.0).
    fio: ``refill_buffers``, and nothing that makes buffers alike.
    """
    if not compressing:
        return Finding(
            "G18", Outcome.OK, "nothing that compresses is known of the target", "random data"
        )

    def objection(given: Mapping[str, object]) -> str | None:
        if tool == "ior":
            kind = given.get("data_type", "of unknown kind")
            return None if kind == "random" else f"data {kind}"
        if tool != "fio":
            return f"data of {tool}, which are not known to be random"
        for option in ("buffer_compress_percentage", "dedupe_percentage"):
            if str(given.get(option, "0")) != "0":
                return f"{option}={given[option]}"
        for option in ("zero_buffers", "buffer_pattern", "verify_pattern"):
            if option in given and str(given[option]) != "0":
                return option
        refilled = str(given.get("refill_buffers", "0")) != "0"
        return None if refilled else "buffers that are written again and again (no refill_buffers)"

    wrong = [said for given in parameters if (said := objection(given)) is not None]
    return finding_of(
        "G18",
        bool(parameters) and not wrong,
        f"{wrong[0] if wrong else 'random data' if parameters else 'no output'} on {compressing}",
        "data that cannot be compressed or found twice",
        "Write random data (IOR -l random; fio refill_buffers=1 with buffer_compress_percentage=0 and "
        "dedupe_percentage=0)",
    )
