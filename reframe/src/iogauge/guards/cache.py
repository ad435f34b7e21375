"""Guards against memory: client and server caches, write-back, compression (G1 to G3, G18). Guards of the contents: what was
written is there, and stays (G8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.node.below import loop_remedy
from iogauge.node.files import GONE, Block, Eviction, Held, Sample
from iogauge.node.kinds import Traits
from iogauge.node.probes import UNCOUNTED

#: Bytes by which the memory that a node tells may exceed the real one: it tells whole GiB.
MEMORY_ROUNDING: Final = 1 << 29


def _larger_memory(declared: int, seen: int) -> int:
    """Return M: the declared memory of a node in bytes, or what a node told if that is more."""
    return seen if seen > declared + MEMORY_ROUNDING else declared


def _say_memory(declared: int, seen: int) -> str:
    larger = _larger_memory(declared, seen)
    told = f", as a node says (node.memory: {format_bytes(declared)})" if larger != declared else ""
    return f"M = {format_bytes(larger)}{told}"


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
    """G1: a read is O_DIRECT, or of another node's data, or of at least 2 x M, or from page caches that
    were proven empty. O_DIRECT counts on a file system that honours it. Another
    node counts if the tool reports that readers are shifted to it. Nodes that share a kernel and a
    mount do not count as two. If a counter shows what came from storage, it is 95 % of the
    data.

    M is the larger of ``node_memory``, which the site declares, and ``seen_memory``, which a node
    told. ``task_offset`` is Q in nodes, None if readers are not shifted. ``page_caches`` is the
    number of page caches of the N nodes, None if each node has its own. Containers of one kernel
    over one mount share a page cache. ``data_bytes`` are the bytes that each repetition read: its evictions must
    have covered them. ``fetched`` holds the bytes that were fetched from storage in each repetition, None if nobody
    counts them.
    """
    needed = _larger_memory(node_memory, seen_memory)
    rule = Rule(
        "G1",
        "O_DIRECT that the file system honours, or readers on another node (N >= 2, Q mod N != 0), or "
        f"V >= {memory_factor:g} M, or a page cache proven empty before each read",
        _remedy(traits, bytes_per_node, format_bytes(memory_factor * needed * nodes)),
    )
    if traits.cache == "memory":
        return rule.invalid(f"the target is memory, not storage{because(traits.why)}")
    if o_direct and traits.honours_o_direct:
        return rule.ok("O_DIRECT")
    shared = page_caches is not None and page_caches < nodes
    if task_offset is not None and nodes >= 2 and task_offset % nodes != 0 and not shared:
        return rule.ok(f"readers shifted by {task_offset % nodes} of {nodes} nodes")
    size = f"V = {format_bytes(bytes_per_node)} per node"
    memory = _say_memory(node_memory, seen_memory)
    if bytes_per_node >= memory_factor * needed:
        return rule.ok(f"{size}, {memory}")
    sharing = f"{nodes} nodes share {page_caches} page cache(s)" if shared else ""
    past = _why_not_past(nodes, task_offset, o_direct, sharing) + because(traits.why)
    # A phase of files has no V: its size is their number.
    reasons = [past, *([f"{size} against {memory}"] if bytes_per_node else [])]
    if expected_evictions:
        reason = _why_not_emptied(traits, evictions, expected_evictions, data_bytes, fetched)
        if not reason:
            dropped = format_bytes(sum(eviction.resident_before for eviction in evictions))
            times = len(evictions)
            return rule.ok(f"page cache emptied and proven empty {times} times ({dropped} dropped)")
        reasons.append(reason)
    return rule.invalid(", ".join(reasons))


def _remedy(traits: Traits, bytes_per_node: int, enough: str) -> str:
    """Return what helps against a client's cache and does not lead into the next refusal."""
    if traits.cache == "memory":
        return "Choose a directory on storage"
    if loop := loop_remedy(traits.why):
        return loop
    ways = ["Use two nodes or more"]
    # A phase without bytes of its own has the size of limits.case_files.
    if bytes_per_node and traits.honours_o_direct:
        ways.append("the O_DIRECT variant")
    if bytes_per_node:
        ways.append(f"raise limits.case_bytes to {enough}")
    return ", or ".join([", ".join(ways[:-1]), ways[-1]] if ways[1:] else ways)


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
        if count is not None and count < 0.95 * read:
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
    if planned is None:
        return None
    for output in seen.outputs:
        parameters = output.parameters
        if output.tool == "ior":
            even = parameters.get("clients per node") == per_node
            shift = (
                parameters.get("taskPerNodeOffset")
                if parameters.get("reorderTasks") and even
                else None
            )
        else:
            ranks = parameters.get("shift")
            shift = ranks // per_node if isinstance(ranks, int) and ranks % per_node == 0 else None
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
    """G2: a write ends with fsync inside the timing, or is O_DIRECT, or each node writes at least 2 x M.

    M is the larger of ``node_memory``, which the site declares, and ``seen_memory``, which a node
    told.
    """
    saw = (
        ("fsync in the timed region" if fsync else "no fsync")
        + (", O_DIRECT" if o_direct else ", buffered")
        + f", V = {format_bytes(bytes_per_node)} per node"
    )
    holds = traits.cache != "memory" and (
        (fsync and not traits.unsynced)
        or (o_direct and traits.honours_o_direct)
        or bytes_per_node >= memory_factor * _larger_memory(node_memory, seen_memory)
    )
    if traits.cache == "memory":
        saw += f", the target is memory, not storage{because(traits.why)}"
    elif fsync and traits.unsynced:
        saw += f", but fsync proves nothing here{because(traits.unsynced)}"
    elif not fsync and not holds:
        saw += because(traits.why)
    return Rule(
        "G2",
        f"fsync, or O_DIRECT that is honoured, or V >= {memory_factor:g} M "
        f"({_say_memory(node_memory, seen_memory)})",
        "Let the tool fsync at the end of the write (IOR -e, fio end_fsync=1)",
    ).decide(holds, saw)


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
    """G3: all tasks together read at least 2 x the memory of the servers, if that is declared.

    The outcome is only a remark: the site chooses whether the servers' caches belong to the
    measurement. ``total_bytes`` is the data that all tasks read in a repetition. ``server_memory``
    is the memory of all servers that hold the files, None if it is not declared.
    """
    if server_memory is None:
        return Rule("G3", "topology.servers.memory").ok("memory of the servers not declared")
    return Rule(
        "G3",
        f"total >= {memory_factor:g} x memory of the servers",
        "The servers may have answered from memory. Raise limits.case_bytes to "
        f"{format_bytes(memory_factor * server_memory)}, or treat the figure as the speed of the servers' caches",
    ).decide(
        total_bytes >= memory_factor * server_memory,
        f"{format_bytes(total_bytes)} in all, {format_bytes(server_memory)} of memory in the servers",
        Outcome.WARN,
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


def data_entropy(
    *, compressing: str, tool: str, parameters: Sequence[Mapping[str, object]]
) -> Finding:
    """G18: the data must be random if the target compresses. It does if (1) a node sees it, (2) a
    block of the sample (G8) was stored compressed, or (3) the site declares it. A node sees the compression
    of zfs and dm-vdo, and of btrfs and f2fs by mount option, property or ``chattr +c``. IOR needs
    ``-l random``; fio needs ``refill_buffers=1``, ``buffer_compress_percentage=0``,
    ``dedupe_percentage=0``.

    Such targets shrink data that can be compressed or deduplicated. ``compressing`` names what
    shrinks them, empty if nothing is known. ``parameters`` holds the options that the tool reports,
    one mapping for each output. IOR's default repeats one block; its "incompressible" data shrink
    136-fold (IOR 4.0.0).
    """
    if not compressing:
        return Rule("G18", "random data").ok("nothing that compresses is known of the target")

    def objection(given: Mapping[str, object]) -> str | None:
        if tool in ("ior", "io500"):
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

    wrong = [reason for given in parameters if (reason := objection(given)) is not None]
    return Rule(
        "G18",
        "data that cannot be compressed or found twice",
        "Write random data (IOR -l random; fio refill_buffers=1 with buffer_compress_percentage=0 and "
        "dedupe_percentage=0)",
    ).decide(
        bool(parameters) and not wrong,
        f"{wrong[0] if wrong else 'random data' if parameters else 'no output'} on {compressing}",
    )


def data_entropy_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.moves_data and any("bw" in phase.rates for phase in seen.tool_phases):
        yield data_entropy(
            compressing=_compressing(seen.case),
            tool=seen.tool,
            parameters=[output.parameters for output in seen.outputs],
        )


def _compressing(seen: CaseSeen) -> str:
    """Return what shrinks the data, as seen in a sample or by a node, or as the site declares; empty if
    unknown.
    """
    declared = seen.extras.target.compresses
    found = [
        f"a target that stored {block.place} compressed"
        for sample in seen.evidence.samples
        for block in sample.blocks
        if block.kind == "compressed"
    ]
    found += [view.below.compresses for view in seen.evidence.views if view.below.compresses]
    if found:
        denied = ", though the site declares target.compresses: false"
        return f"{found[0]}{denied if declared is False else ''}"
    return "a target that compresses, as its site declares" if declared else ""


#: Types of file systems whose st_blocks is what a file takes, as soon as it is written back.
_COUNTED: Final = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", "lustre"))
#: A smaller file may lie in its inode.
_LEAST_BYTES: Final = 64 << 10
_STORED: Final = 0.95
_EMPTY: Final = 0.1


def verification(*, tool: str, complaint: str, warm_up: bool = True) -> Finding:
    """G8: in the warm-up, which is not judged, the tool finds the data that it wrote. IOR checks
    with ``-R``, or with ``-W`` if nothing is read; fio checks with ``verify=crc32c``. Endurance
    checks the files that it lays out.
    """
    when = "in the warm-up" if warm_up else "when it laid out the files"
    saw = f"{tool} checked its data {when}"
    return Rule(
        "G8",
        "the data that were written",
        "Look for other programs that write these files, for a wrapper of the tool, and for errors of the storage",
    ).decide(not complaint, f"{saw}: {complaint}" if complaint else saw)


def verification_of(seen: CaseSeen) -> Iterator[Finding]:
    checks = {phase.name: phase.verifies for phase in seen.plan.phases if phase.verifies}
    complaints = [
        f"{name}: {warning}"
        for name, check in checks.items()
        for output in seen.evidence.cold.get(name, seen.evidence.outputs[name])
        for warning in output.warnings
        if re.search(check.complaint, warning)
    ]
    if checks:
        said, warmed = next(iter(complaints), ""), seen.plan.warm_up
        yield verification(tool=seen.plan.tool, complaint=said, warm_up=warmed)


def unchanged(*, pairs: Sequence[tuple[Sample, Sample]], reads: int) -> Finding:
    """G8: a sample of 32 blocks of 4 KiB is the same after the last read of a repetition as after
    the last write. The first node reads it with O_DIRECT. If the storage does not answer in two
    seconds, you get a remark.

    ``pairs`` holds the samples after the write and after the read, ``reads`` counts the repetitions
    that read.
    """
    rule = Rule(
        "G8",
        "the same contents after the read as after the write",
        "Look for other programs that write these files, and for a wrapper of the tool",
    )
    problems = [sample.problem for pair in pairs for sample in pair if sample.problem]
    compared = 0
    buffered = any(not sample.direct for pair in pairs for sample in pair)
    for written, read in pairs:
        before = {(block.file, block.offset): block.digest for block in written.blocks}
        for block in read.blocks:
            compared += 1
            if before.get((block.file, block.offset)) != block.digest:
                change = "the file is gone" if block.digest == GONE else "the block is another"
                return rule.invalid(
                    f"contents changed between write and read, repetition {read.repetition}: "
                    f"{block.place}: {change}"
                )
    way = "after POSIX_FADV_DONTNEED, without O_DIRECT" if buffered else "with O_DIRECT"
    saw = f"{compared} block(s) of {len(pairs)} repetition(s) read again {way}"
    if len(pairs) < reads:
        return rule.invalid(f"{saw}, {reads - len(pairs)} repetition(s) without a sample")
    if problems:
        return rule.warn(f"{saw}, {problems[0]}")
    return rule.decide(compared > 0, saw)


def unchanged_of(seen: CaseSeen) -> Iterator[Finding]:
    plan = seen.plan
    if not plan.sampled or not any(phase.access.direction == "read" for phase in plan.repeat):
        return
    yield unchanged(pairs=_pairs(seen.evidence.samples), reads=plan.repetitions)


def _pairs(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """Return samples after judged reads, each with the one after its write."""
    written: Mapping[int, Sample] = {s.repetition: s for s in samples if s.after == "write"}
    found = []
    for sample in samples:
        before = written.get(sample.repetition) or written.get(0)
        if sample.after == "read" and sample.repetition > 0 and before is not None:
            found.append((before, sample))
    return found


def stored(
    *, type: str, blocks: Sequence[Block], files: Sequence[Held], problem: str = ""
) -> Finding:
    """G8: files have the blocks that they claim. After the write st_blocks x 512 is at least 0.95 x
    the size of each file of 64 KiB or more in the sample. This holds on ext2 to ext4, xfs, btrfs,
    overlay, lustre. At most a tenth of the sample is zeros. The file's map shows no block of
    the sample in a hole or preallocated (FIEMAP, not on lustre).
    """
    rule = Rule(
        "G8",
        f"at least {_STORED:.0%} of a file's size in blocks, at most {_EMPTY:.0%} zeros, no hole",
        "A read of a hole does not reach the device. Look for a program that made or shrank these files",
    )
    if problem:
        return rule.warn(problem)
    for block in blocks:
        if block.kind in ("hole", "unwritten"):
            return rule.invalid(f"{block.place}: {block.kind}")
    for held in files:
        if type in _COUNTED and held.size >= _LEAST_BYTES and held.stored < _STORED * held.size:
            return rule.invalid(
                f"{held.file}: {format_bytes(held.stored)} on storage for {format_bytes(held.size)}: "
                "holes, or compression"
            )
    empty = [block for block in blocks if block.empty]
    saw = f"{len(blocks)} block(s) of {len(files)} file(s)"
    if len(empty) > _EMPTY * len(blocks):
        return rule.invalid(f"{len(empty)} of {saw} are zeros: {empty[0].place}")
    if len(blocks) > 1 and len({block.digest for block in blocks}) == 1:
        saw += ", all of them equal"
    return rule.decide(bool(blocks), saw)


def stored_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield the first sample that is not believed, or the last one."""
    if not seen.plan.sampled:
        return
    findings = [
        stored(
            type=seen.extras.target.type,
            blocks=sample.blocks,
            files=sample.files,
            problem=sample.problem,
        )
        for sample in seen.evidence.samples
        if sample.after == "write"
    ] or [stored(type=seen.extras.target.type, blocks=(), files=())]
    yield next((f for f in findings if f.outcome is Outcome.INVALID), findings[-1])


def counted(*, uncounted: bool) -> Finding:
    """G8: IOR counts how many bytes MPI-IO moved in each transfer. An IOR that does not count them,
    such as 4.0.0, gives a remark: it reports a read beyond the end of a file as if all requested
    bytes had been read.
    """
    return Rule(
        "G8",
        "an IOR that counts what MPI-IO moved",
        "Install the stack 2026.2, whose IOR has upstream's correction: ci/build-stack",
    ).decide(
        not uncounted,
        "this IOR does not ask MPI-IO how many bytes it moved" if uncounted else "IOR counts",
        Outcome.WARN,
    )


def counted_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G8 for MPI-IO, if any node has an IOR that does not count."""
    uses = any("MPIIO" in phase.command for phase in seen.plan.repeat)
    if uses and any(facts.get(UNCOUNTED) for facts in seen.evidence.nodes):
        yield counted(uncounted=True)
