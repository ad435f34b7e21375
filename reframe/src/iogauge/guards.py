"""Guards: may a measurement be believed?

One function a rule, numbered as in docs/guards.md. Each takes plain values and returns a
:class:`Finding`: what was seen, what is demanded (with the formula), and what to do about it. No guard
reads a file or knows ReFrame; no guard compares with a reference.

Notation: N nodes, T tasks per node, V bytes per node and phase, M memory per node, Q task offset.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from iogauge.filesystem import Quota, Space, Traits, View
from iogauge.load import Change
from iogauge.lustre import FileLayout, Layout, StorageTarget
from iogauge.measurement import Stonewall
from iogauge.pagecache import Eviction
from iogauge.units import format_bytes, format_seconds, format_value

if TYPE_CHECKING:  # pydantic takes half of the time in which an agent starts
    from iogauge.target import Tier


class Outcome(Enum):
    """What a guard decides: believe, believe with a remark, or do not believe."""

    OK = "ok"
    WARN = "warn"
    INVALID = "invalid"
    UNSTABLE = "unstable"
    CONTAMINATED = "contaminated"


@dataclass(frozen=True, slots=True)
class Finding:
    """One guard's answer. ``metric`` is the metric that it speaks of; None: the whole case."""

    guard: str
    outcome: Outcome
    saw: str
    demands: str
    remedy: str = ""
    metric: str | None = None

    def __str__(self) -> str:
        text = f"{self.guard}: {self.saw}; demanded: {self.demands}"
        return f"{text}. {self.remedy}" if self.remedy and self.outcome is not Outcome.OK else text


def _finding(
    guard: str,
    holds: bool,
    saw: str,
    demands: str,
    remedy: str,
    otherwise: Outcome = Outcome.INVALID,
) -> Finding:
    return Finding(guard, Outcome.OK if holds else otherwise, saw, demands, remedy)


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
    return _finding(
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
    return _finding(
        "G3",
        total_bytes >= memory_factor * server_memory,
        f"{format_bytes(total_bytes)} in all, {format_bytes(server_memory)} of memory in the servers",
        f"total >= {memory_factor:g} x memory of the servers",
        "The servers may have answered from memory: raise limits.case_bytes to "
        f"{format_bytes(memory_factor * server_memory)} or read the figure as one of their caches",
        Outcome.WARN,
    )


def storage(*, traits: Traits) -> Finding:
    """G9, for metadata: a target in memory has no storage to measure."""
    return _finding(
        "G9",
        traits.cache != "memory",
        "the target is memory, not storage"
        if traits.cache == "memory"
        else "the target is storage",
        "a file system with storage behind it",
        "Choose another target",
    )


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed, below
#: the second it is remarked upon.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}


def duration(*, seconds: Sequence[float], tier: Tier) -> Finding:
    """G4: a phase must last long enough; the shortest repetition counts."""
    least, wanted = MIN_SECONDS[tier]
    shortest = min(seconds)
    outcome = (
        Outcome.INVALID if shortest < least else Outcome.WARN if shortest < wanted else Outcome.OK
    )
    factor = (least if shortest < least else wanted) / shortest if shortest > 0 else float("inf")
    return Finding(
        "G4",
        outcome,
        f"the shortest repetition lasted {format_seconds(shortest)}",
        f"{least:g} s in tier {tier}"
        + (f", {wanted:g} s to compare systems" if wanted > least else ""),
        f"Raise limits.case_bytes, limits.case_files or limits.phase_seconds {factor:.3g}-fold",
    )


def tail(
    *,
    rank_seconds: Sequence[Sequence[float]],
    stonewalls: Sequence[tuple[Stonewall, float, int]] = (),
    max_imbalance: float = 0.3,
    min_wear_out: float = 0.7,
    min_pairs: float = 0.5,
) -> Finding | None:
    """G5: the tasks must finish together. A straggler is reported, it does not make the figure invalid.

    Per-task times: (max - min) / mean <= 0.3. Stonewalled: bandwidth of the whole phase over bandwidth up
    to the stonewall >= 0.7, and fewest over most pairs >= 0.5. ``stonewalls`` holds (stonewall,
    bandwidth of the phase in MiB/s, tasks). None where the tool reported neither.
    """
    worst = 0.0
    for times in rank_seconds:
        if len(times) > 1 and statistics.fmean(times) > 0:
            worst = max(worst, (max(times) - min(times)) / statistics.fmean(times))
    seen = [f"(max - min) / mean of task times = {worst:.2f}"] if any(rank_seconds) else []
    holds = worst <= max_imbalance
    for wall, phase_mib_s, tasks in stonewalls:
        if wall.mean_task_mib_s:
            ratio = phase_mib_s / (wall.mean_task_mib_s * tasks)
            holds = holds and ratio >= min_wear_out
            seen.append(f"wear-out ratio {ratio:.2f}")
        if wall.min_pairs is not None and wall.max_pairs:
            ratio = wall.min_pairs / wall.max_pairs
            holds = holds and ratio >= min_pairs
            seen.append(f"fewest over most transfers {ratio:.2f}")
    if not seen:
        return None
    return _finding(
        "G5",
        holds,
        ", ".join(seen),
        f"imbalance <= {max_imbalance:g}, wear-out ratio >= {min_wear_out:g}, "
        f"fewest over most >= {min_pairs:g}",
        "Look for a slow node, link or storage target",
        Outcome.WARN,
    )


def ceiling(
    *, value: float, limit: float | None, limited_by: str, unit: str, saturating: bool = True
) -> Finding:
    """G6: nothing is faster than its parts: B <= 1.02 x ceiling.

    Below half of it is remarked upon, where the scenario drives the target to that limit.
    """
    if limit is None:
        return Finding("G6", Outcome.OK, "no ceiling declared", "topology in the site's settings")
    share = value / limit
    saw = f"{format_value(value)} {unit} is {share:.0%} of the ceiling ({limited_by})"
    demands = f"at most 102 % of {format_value(limit)} {unit}"
    if share > 1.02:
        remedy = "The data came from a cache, or the topology in the settings is wrong"
        return Finding("G6", Outcome.INVALID, saw, demands, remedy)
    if saturating and share < 0.5:
        remedy = "Less than half of what the topology can carry: look for the bottleneck"
        return Finding("G6", Outcome.WARN, saw, demands, remedy)
    return Finding("G6", Outcome.OK, saw, demands)


def unit_sanity(
    *, operations_s: float, transfer_bytes: int, bytes_s: float, tolerance: float = 0.01
) -> Finding:
    """G7: operations/s times transfer size must be the bandwidth, within 1 %."""
    off = abs(operations_s * transfer_bytes - bytes_s) / bytes_s
    return _finding(
        "G7",
        off <= tolerance,
        f"{format_value(operations_s)} ops/s x {format_bytes(transfer_bytes)} differs from "
        f"{format_bytes(bytes_s)}/s by {off:.2%}",
        f"|iops x transfer - bandwidth| / bandwidth <= {tolerance:.0%}",
        "The tool's output mixes units or phases: keep it and report it",
    )


def bytes_moved(
    *, expected: int | None, reported: Sequence[int | None], warnings: Sequence[str] = ()
) -> Finding:
    """G8: the tool must have moved N x T x b x s bytes in every repetition, without a warning."""
    wrong = [r for r in reported if expected is not None and r != expected]
    saw = (
        f"{wrong[0] if wrong[0] is not None else 'an unknown number of'} bytes moved"
        if wrong
        else "bytes moved as asked"
    )
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    return _finding(
        "G8",
        not wrong and not warnings,
        saw,
        (f"{expected} bytes (N x T x b x s) and " if expected is not None else "") + "no warning",
        "Read the tool's output in the stage directory",
    )


def identity(*, declared_type: str, declared_source: str | None, views: Sequence[View]) -> Finding:
    """G9: every node must see the declared file system at the target's path."""
    demands = f"type {declared_type}" + (f" from {declared_source}" if declared_source else "")
    for view in views:
        mount = view.mount
        if (
            mount is None
            or mount.type != declared_type
            or (declared_source is not None and mount.source != declared_source)
        ):
            seen = f"{mount.type} from {mount.source} at {mount.point}" if mount else "no mount"
            return Finding(
                "G9",
                Outcome.INVALID,
                f"{view.host} sees {seen} for {view.path}",
                demands,
                "Mount the target there, or correct target.path, target.type and target.source",
            )
    seen = f"{len(views)} node(s) see {demands}"
    if not views:
        return Finding("G9", Outcome.INVALID, "no node reported its mounts", demands, "Run again")
    return Finding("G9", Outcome.OK, seen, demands)


def room(*, space: Space, need_bytes: int, max_fill: float, keep_free: float) -> Finding:
    """G13: need x 1.2 must be free, the fill afterwards at most ``max_fill``, ``keep_free`` must remain."""
    after = space.bytes_free - need_bytes
    fill_after = 1 - after / space.bytes_total if space.bytes_total else 1.0
    holds = (
        space.bytes_free >= 1.2 * need_bytes
        and fill_after <= max_fill
        and after >= keep_free * space.bytes_total
    )
    lowest = max(1.2 * need_bytes, need_bytes + keep_free * space.bytes_total)
    lowest = max(lowest, need_bytes + (1 - max_fill) * space.bytes_total)
    return _finding(
        "G13",
        holds,
        f"{format_bytes(space.bytes_free)} free of {format_bytes(space.bytes_total)}, "
        f"{max(0.0, fill_after):.0%} full with the {format_bytes(need_bytes)} of this case",
        f"{format_bytes(lowest)} free (1.2 x need, at most {max_fill:.0%} full, {keep_free:.0%} kept free)",
        "Free space on the target, or lower limits.case_bytes",
    )


def share_of_free(*, space: Space, need_bytes: int, max_of_free: float) -> Finding:
    """G13: one case takes at most ``max_of_free`` of what is free."""
    limit = max_of_free * space.bytes_free
    return _finding(
        "G13",
        need_bytes <= limit,
        f"{format_bytes(need_bytes)} of this case are {_share(need_bytes, space.bytes_free)} of the "
        f"{format_bytes(space.bytes_free)} that are free",
        f"at most {format_bytes(limit)} ({max_of_free:.3g} x what is free)",
        "Lower limits.case_bytes, or declare how much this target can bear (limits.max_of_free)",
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "more than all"


def _unlike(request: Layout, file: FileLayout, active: int) -> str | None:
    """How a file's layout differs from the one asked for; None: it does not."""

    def count_differs(wanted: int, got: int, pool: str | None) -> bool:
        if wanted != -1:
            return got != wanted
        # How many targets a pool has is not known here.
        return not 1 <= got <= active if pool else got != active

    if request.pool is not None and file.pool != request.pool:
        return f"is in pool {file.pool or 'none'}"
    if len(file.components) != len(request.components):
        return f"has {len(file.components)} components"
    for number, (want, got) in enumerate(
        zip(request.components, file.components, strict=True), start=1
    ):
        if got.end_bytes != want.end_bytes:
            return f"has component {number} up to {got.end_bytes}"
        # A component without objects says what it will be: -1 still means all.
        if got.stripe_count != want.stripe_count and count_differs(
            want.stripe_count, got.stripe_count, request.pool
        ):
            return f"has {got.stripe_count} stripe(s) in component {number}"
        if want.stripe_bytes not in (None, got.stripe_bytes):
            return f"has stripes of {got.stripe_bytes} bytes in component {number}"
    if request.stripe_count is not None and count_differs(
        request.stripe_count, file.stripe_count, request.pool
    ):
        return f"has {file.stripe_count} stripe(s)"
    if request.stripe_bytes not in (None, file.stripe_bytes):
        return f"has stripes of {file.stripe_bytes} bytes"
    if request.start not in (None, file.start):
        return f"starts on target {file.start}"
    return None


def layout(
    *,
    request: Layout | None,
    placed: Mapping[str, int],
    files: Sequence[FileLayout],
    active: int,
) -> Finding:
    """G10: every file has the layout that was asked for, as it was read back after the first write.

    ``placed`` maps a file, or a directory with all files in it, to the one target that it was pinned to;
    every such name must have a file, and a file that is not pinned must be as ``request`` says. ``active``
    is how many targets a count of -1 stands for. Lustre gives less than it was asked for without an error.
    """
    demands = " ".join(["lfs setstripe", *request.arguments()]) if request else ""
    if placed:
        also = f"{len(placed)} name(s) on the storage target of their own"
        demands = f"{demands}, {also}" if demands else also
    remedy = (
        "Compare the layout with the active targets and the pool (lfs df, lfs getstripe); a tool that "
        "makes the file anew loses its layout"
    )
    wrong: list[str] = []
    pinned: set[str] = set()
    for file in files:
        parts = file.path.split("/")
        above = ("/".join(parts[: i + 1]) for i in range(len(parts)))
        name = next((path for path in above if path in placed), None)
        if name is not None:
            pinned.add(name)
            if file.osts != (placed[name],):
                where = ", ".join(map(str, file.osts)) or "none"
                wrong.append(f"{file.path} is on target {where}, asked was {placed[name]}")
        elif request is None:
            wrong.append(f"{file.path} was pinned to no target")
        elif differs := _unlike(request, file, active):
            wrong.append(f"{file.path} {differs}")
    wrong += [f"{name} was pinned and holds no file" for name in placed if name not in pinned]
    if not files:
        saw = "no file was found"
    elif wrong:
        saw = f"{wrong[0]}; {len(wrong)} of {max(len(files), len(wrong))} are not as asked"
    else:
        saw = f"{len(files)} file(s) as asked"
    return _finding("G10", bool(files) and not wrong, saw, demands, remedy)


def coverage(*, files: Sequence[FileLayout], targets: Sequence[int], shared: bool) -> Finding:
    """G11: the files are spread over the storage targets, k of n hit.

    A file for each process: k >= 0.9 min(n, files), and the most files on a target at most 1.5 times the
    mean (or the mean rounded up, which is the best that there is). A shared file hits as many targets as it
    has stripes: G10 demands that.
    """
    demands = "k >= 0.9 x min(targets, files), most files on a target <= 1.5 x mean"
    remedy = "Pin the files to targets, or use more files: the allocator of the file system chose"
    wanted = set(targets)
    on = Counter(ost for file in files for ost in file.osts)
    hit = len(wanted & set(on))
    saw = f"{len(files)} file(s) on {hit} of {len(wanted)} storage targets"
    if not files or not wanted:
        return Finding("G11", Outcome.INVALID, saw, demands, remedy)
    if shared:
        return Finding("G11", Outcome.OK, saw, "as many targets as stripes (G10)")
    possible = min(len(wanted), len(files))
    if hit < 0.9 * possible:
        by_chance = len(wanted) * (1 - (1 - 1 / len(wanted)) ** len(files))
        saw += f" (placed at random: {by_chance:.1f})"
        return Finding("G11", Outcome.INVALID, saw, demands, remedy)
    mean = on.total() / min(len(wanted), on.total())
    target, most = max(on.items(), key=lambda item: (item[1], -item[0]))
    return _finding(
        "G11",
        most <= max(math.ceil(mean), 1.5 * mean),
        f"{saw}, at most {most} on one (target {target}), mean {mean:.3g}",
        demands,
        remedy,
    )


#: Flags of a storage target (lfs-df(1)) with which new files land elsewhere, and those that cost speed.
_TAKES_NO_FILES: Final = {"N": "no new files", "R": "read-only", "S": "full", "I": "no inodes left"}
_HARMLESS_FLAGS: Final = "f"


def health(*, targets: Sequence[StorageTarget], declared: int | None = None) -> Finding:
    """G12: every storage target is active and takes new files. A degraded one is remarked upon.

    ``declared``: how many the site says that there are.
    """
    demands = (f"{declared} storage targets, " if declared is not None else "storage targets, ") + (
        "all active, none degraded, none closed to new files"
    )
    remedy = (
        "Ask the administrators of the file system; lfs df, lfs osts and lfs check osts show it"
    )
    inactive = [target.uuid for target in targets if not target.active]
    closed = [
        f"{target.uuid} ({text})"
        for target in targets
        for flag, text in _TAKES_NO_FILES.items()
        if flag in target.flags
    ]
    others = [
        f"{target.uuid} ({'degraded' if flag == 'D' else f'flag {flag}'})"
        for target in targets
        for flag in target.flags
        if flag not in _TAKES_NO_FILES and flag not in _HARMLESS_FLAGS
    ]
    if not targets:
        saw = "no storage target is known"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if declared is not None and len(targets) != declared:
        saw = f"{len(targets)} storage targets"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if inactive:
        saw = f"inactive: {', '.join(inactive)}"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if closed:
        saw = f"new files land elsewhere than on {', '.join(closed)}"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if others:
        return Finding("G12", Outcome.WARN, ", ".join(others), demands, remedy)
    return Finding("G12", Outcome.OK, f"{len(targets)} storage targets, all active", demands)


def target_room(
    *,
    targets: Sequence[StorageTarget],
    need_bytes: int,
    max_fill: float,
    pieces: int | None = None,
    pinned: Collection[int] = (),
) -> Finding:
    """G13, for each storage target: its share of the need x 1.2 must be free, and the fill in bounds.

    ``need_bytes`` is what the whole case holds, in so many equal ``pieces`` that lie on one target each: by
    turns on all active ones, or as ``pinned`` says, the target of each piece. Not known: spread evenly. Fewer
    pieces than targets may lie on any of them.
    """
    active = [target for target in targets if target.active]
    count = len(active) or 1
    share = math.ceil(need_bytes / count)
    if pinned:
        most = Counter(pinned)
        share = math.ceil(need_bytes * max(most.values()) / len(pinned))
        active = [target for target in active if target.index in most]
    elif pieces:
        share = math.ceil(need_bytes / pieces) * math.ceil(pieces / count)
    demands = (
        f"{format_bytes(1.2 * share)} free on each storage target of the case (1.2 x its share), at most "
        f"{max_fill:.0%} full afterwards"
    )
    remedy = "Free space on that target (lfs find -O), or lower limits.case_bytes"
    if not active:
        return Finding("G13", Outcome.INVALID, "no storage target is active", demands, remedy)
    after = {
        target: 1 - (target.bytes_free - share) / target.bytes_total if target.bytes_total else 1.0
        for target in active
    }
    short = [t for t in active if t.bytes_free < 1.2 * share or after[t] > max_fill]
    worst = max(short or active, key=lambda target: after[target])
    saw = (
        f"{worst.uuid}: {format_bytes(worst.bytes_free)} free of {format_bytes(worst.bytes_total)}, "
        f"{after[worst]:.0%} full with its {format_bytes(share)} of this case"
    )
    if len(short) > 1:
        saw += f"; {len(short)} of {len(active)} storage targets are short of room"
    return _finding("G13", not short, saw, demands, remedy)


def stripes_against_size(*, file_bytes: int, stripe_bytes: int, stripe_count: int) -> Finding:
    """G23: a shared file has at least 8 stripes on each of its targets, or some are hardly used."""
    demands = "file size / stripe size >= 8 x stripe count"
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe_bytes)}"
    holds = stripe_bytes > 0 and stripe_count > 0 and file_bytes / stripe_bytes >= 8 * stripe_count
    return _finding(
        "G23",
        holds,
        f"{size} over {stripe_count} storage target(s)",
        demands,
        "Raise limits.case_bytes to "
        f"{format_bytes(8 * max(1, stripe_count) * max(1, stripe_bytes))} or lower the stripe size or count",
    )


def inodes(*, space: Space, quotas: Sequence[Quota], need_bytes: int, need_files: int) -> Finding:
    """G14: inodes free >= 1.2 x files and 5 % left; every quota leaves 1.2 x need of bytes and files."""
    demands = f"{int(1.2 * need_files)} free inodes and 5 % left; 1.2 x need within every quota"
    remedy = "Remove files, raise the quota, or lower limits.case_files and limits.case_bytes"
    saw = f"{space.inodes_free} of {space.inodes_total} inodes free, {need_files} needed"
    if space.inodes_total and (
        space.inodes_free < 1.2 * need_files
        or space.inodes_free - need_files < 0.05 * space.inodes_total
    ):
        return Finding("G14", Outcome.INVALID, saw, demands, remedy)
    for quota in quotas:
        if quota.bytes_left is not None and quota.bytes_left < 1.2 * need_bytes:
            left = f"quota of {quota.owner} leaves {format_bytes(quota.bytes_left)}"
            saw = f"{left}, {format_bytes(need_bytes)} needed"
            return Finding("G14", Outcome.INVALID, saw, demands, remedy)
        if quota.files_left is not None and quota.files_left < 1.2 * need_files:
            saw = f"quota of {quota.owner} leaves {quota.files_left} files, {need_files} needed"
            return Finding("G14", Outcome.INVALID, saw, demands, remedy)
    return Finding("G14", Outcome.OK, saw, demands)


@dataclass(frozen=True, slots=True)
class Binding:
    """Cores that one task was bound to, as the launcher reported it: host, rank, cores of the node."""

    host: str
    rank: int
    cores: frozenset[str]


#: A line about one task's binding, as mpirun of Open MPI 4.1 (``MCW rank``) and 5.0 (``Rank``) print it.
_BINDING: Final = re.compile(
    r"^\[([^\]:]+):\d+\] (?:MCW r|R)ank (\d+) (?:is not bound|bound to (.*))", re.MULTILINE
)


def is_binding(line: str) -> bool:
    """Whether a line of standard error is the launcher's word on a task's binding, and no complaint."""
    return _BINDING.match(line) is not None


def parse_bindings(text: str) -> list[Binding]:
    """Bindings from what mpirun of Open MPI prints on standard error where it is told to report them.

    A task that is bound to no core is left out, and so is one of Open MPI 5 that is bound to hardware threads,
    whose cores it does not tell.
    """
    found = [
        Binding(host, int(rank), frozenset(_cores(where)))
        for host, rank, where in _BINDING.findall(text)
    ]
    return [one for one in found if one.cores]


def _cores(where: str) -> Iterator[str]:
    """Cores in ``socket 0[core 0[hwt 0]], socket 0[core 1[hwt 0]]: [B/B]`` or ``package[0][core:L0-1,3]``."""
    yield from re.findall(r"socket \d+\[core \d+", where)
    for cores in re.findall(r"\[core:([\dL,-]+)\]", where):
        for part in cores.replace("L", "").split(","):
            first, _, last = part.partition("-")
            yield from (f"core {number}" for number in range(int(first), int(last or first) + 1))


def _most_to_a_core(bindings: Sequence[Binding]) -> int:
    """Tasks that some core carries at least: within each set of cores, tasks bound to no others over its size.

    Tasks that may use a whole socket share no core as long as they are no more than its cores.
    """
    by_host: dict[str, list[frozenset[str]]] = {}
    for one in bindings:
        by_host.setdefault(one.host, []).append(one.cores)
    return max(
        math.ceil(sum(task <= cores for task in tasks) / len(cores))
        for tasks in by_host.values()
        for cores in set(tasks)
    )


def placement(
    *,
    tasks_per_node: int,
    cores: Sequence[int],
    load1: Sequence[float],
    governors: Sequence[str] = (),
    bindings: Sequence[Binding] = (),
    oversubscribed: bool = False,
) -> Finding:
    """G15: each task has a physical core to itself, on nodes that were idle before. Else a remark.

    ``cores`` are the physical cores and ``load1`` the load of one minute before the run, a value a node;
    ``governors`` what the nodes say of their frequency, which is recorded. ``bindings`` as the launcher
    reported them, empty where it did not. ``oversubscribed``: more tasks than cores are the purpose.
    """
    demands = (
        ("tasks per node <= physical cores, " if not oversubscribed else "")
        + "load before the run < 0.1 x cores"
        + (", no core shared by tasks" if bindings and not oversubscribed else "")
    )
    seen = [f"{tasks_per_node} task(s) on {min(cores)} core(s)" if cores else "cores not known"]
    wrong = []
    if cores and tasks_per_node > min(cores) and not oversubscribed:
        wrong.append("lower scale.tasks_per_node")
    if cores and load1:
        busiest = max(load / count for load, count in zip(load1, cores, strict=True))
        seen.append(f"load before the run {busiest:.2f} x cores")
        if busiest >= 0.1:
            wrong.append("see what else runs on the nodes")
    if bindings:
        most = _most_to_a_core(bindings)
        seen.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not oversubscribed:
            wrong.append("let the launcher bind each task to a core of its own")
    if governors:
        seen.append(f"governor {', '.join(sorted(set(governors)))}")
    remedy = "; ".join(wrong)
    return _finding(
        "G15",
        not wrong,
        ", ".join(seen),
        demands,
        remedy[:1].upper() + remedy[1:],
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
    return _finding(
        "G18",
        bool(parameters) and not wrong,
        f"{wrong[0] if wrong else 'random data' if parameters else 'no output'} on {compressing}",
        "data that cannot be compressed or found twice",
        "Write random data (IOR -l random; fio refill_buffers=1 with buffer_compress_percentage=0 and "
        "dedupe_percentage=0)",
    )


def spread(*, samples: Sequence[float], limit: float) -> Finding:
    """G17: the coefficient of variation (sample standard deviation over mean) is at most the limit."""
    demands = f"at most {limit:.0%} over at least 2 repetitions"
    remedy = "Others may use the target: repeat at a quiet time, or raise limits.repetitions"
    if len(samples) < 2:
        return Finding("G17", Outcome.WARN, "one repetition: spread unknown", demands, remedy)
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    return _finding(
        "G17",
        cv <= limit,
        f"coefficient of variation {cv:.1%} over {len(samples)} repetitions",
        demands,
        remedy,
        Outcome.UNSTABLE,
    )


def neighbours(*, others: Sequence[str]) -> Finding:
    """G19, in part: no other case of this suite was on the target while this one ran.

    ``others`` are the directories of cases that were seen. What other programs load the target with is for
    :func:`foreign_load`.
    """
    return _finding(
        "G19",
        not others,
        f"{others[0]} was there too" if others else "no other case on the target",
        "one case at a time on a target",
        "Wait for the other session, or use --exec-policy=serial where partitions share a target; "
        "if it is dead: iogauge clean",
        Outcome.CONTAMINATED,
    )


def exclusive(*, objection: str) -> Finding:
    """G19, in part: the case had the target's lock, from before it looked until its directory was removed.

    ``objection`` says why it had not, or why that is not known; empty: it had.
    """
    return _finding(
        "G19",
        not objection,
        objection or "the lock of the target was held throughout",
        "one case at a time on a target",
        "Run when the other has ended, or wait longer: limits.lock_wait; if it is dead: iogauge clean",
        Outcome.CONTAMINATED,
    )


#: Bytes on a node that are nobody's load: journals, logs, what the system itself writes now and then.
FOREIGN_BYTES: Final = 64 << 20


def foreign_load(
    *,
    changes: Sequence[Change],
    own_read: int | None,
    own_written: int | None,
    max_share: float = 0.1,
) -> Finding:
    """G19: at most a tenth of the bytes that were moved meanwhile are somebody else's.

    ``changes`` is what the nodes counted between the first and the last phase that is judged, for everybody
    on them; ``own_read`` and ``own_written`` what the tool says that it moved, None where it does not say.
    A node that moved less had caches. Where a server keeps accounts of jobs that can be read here, those
    decide for it. Other clients' load is not seen otherwise. Less than 64 MiB is not looked at.
    """
    demands = f"at most {max_share:.0%} of the bytes moved by others"
    remedy = "Run when others do not use the target, or ask for nodes of your own"
    # Containers of one kernel over one mount count the same bytes.
    distinct = list({change.cache_id: change for change in changes}.values())
    told = []
    worst = 0.0

    def weigh(foreign: int, total: int, who: str) -> None:
        nonlocal worst
        share = foreign / total if total and foreign >= FOREIGN_BYTES else 0.0
        worst = max(worst, share)
        told.append(f"{who} moved {format_bytes(foreign)} of {format_bytes(total)} ({share:.0%})")

    foreign = total = 0
    unknown = []
    for way, own, moved in (
        ("read", own_read, [change.bytes_read for change in distinct]),
        ("written", own_written, [change.bytes_written for change in distinct]),
    ):
        seen = [count for count in moved if count is not None]
        if own is not None and seen and len(seen) == len(moved):
            total += sum(seen)
            foreign += max(0, sum(seen) - own)
        else:
            unknown.append(way)
    if len(unknown) < 2:
        weigh(foreign, total, f"others on {len(distinct)} node(s)")
        told += [f"what was {way} cannot be compared" for way in unknown]
    accounts = [
        (change.jobs_own, change.jobs_foreign)
        for change in distinct
        if change.jobs_own is not None and change.jobs_foreign is not None
    ]
    if accounts:
        theirs = sum(foreign for _, foreign in accounts)
        weigh(theirs, theirs + sum(own for own, _ in accounts), "other jobs, as the servers say,")
    return _finding(
        "G19",
        worst <= max_share,
        "; ".join(told) or "nothing was counted that the tool's bytes can be compared with",
        demands,
        remedy,
        Outcome.CONTAMINATED,
    )


def connections(*, changes: Sequence[Change]) -> Finding:
    """G20: no connection to a server was lost, no client evicted, no request timed out meanwhile.

    An ordinary user may not be allowed to see any of it; then that is said, and nothing is objected.
    """
    troubles = [f"{change.host}: {text}" for change in changes for text in change.troubles]
    watched = sorted({place for change in changes for place in change.watched})
    saw = f"{len(changes)} node(s), as {' and '.join(watched)} say" if watched else ""
    if troubles:
        saw = troubles[0] + (f"; {len(troubles)} in all" if len(troubles) > 1 else "")
    return _finding(
        "G20",
        not troubles,
        saw or "not visible here (osc.*.state and the kernel's log need root)",
        "no eviction, no lost connection, no request that timed out",
        "Look at the servers and the network, then run again",
    )


def read_after_write(
    *,
    reads: Sequence[tuple[int, float]],
    writes: Sequence[tuple[int, float]],
    writes_first: bool = False,
) -> Finding:
    """G21: what is read was written before, by this run and in the same repetition.

    ``reads`` are (repetition, seconds of one clock at which it started), ``writes`` (repetition, seconds
    at which it had finished). What the preparing repetition 0 has written stands for all, unless a
    repetition writes by itself. A write that goes on while the data are read is none. ``writes_first``: all
    repetitions were to write before the first one reads.
    """
    last = max((ended for _, ended in writes), default=0.0)
    wrong = []
    for repetition, started in reads:
        own = [ended for number, ended in writes if number == repetition]
        ended = own or [ended for number, ended in writes if number == 0]
        if not ended:
            wrong.append(f"repetition {repetition} reads what this run did not write")
        elif min(ended) > started:
            wrong.append(f"repetition {repetition} reads before its data were written")
        elif writes_first and last > started:
            wrong.append(f"repetition {repetition} reads before all repetitions have written")
    return _finding(
        "G21",
        bool(reads) and not wrong,
        wrong[0] if wrong else f"{len(reads)} read(s), each after a write" if reads else "no read",
        "all writes of this run have finished before the first read"
        if writes_first
        else "a write of this run that has finished before each read",
        "Let the case write its data itself, before it reads them (phases.tsv has the order)",
    )


#: Modes of the Lustre client that make one kind of I/O into another (G24), as in a fingerprint.
_MODES: Final = ("hybrid_io", "fast_read", "parallel_dio", "unaligned_dio")


def client_modes(
    *,
    nodes: Sequence[Mapping[str, object]],
    buffered: bool,
    transfer_bytes: int | None,
    direction: str,
) -> Finding:
    """G24: all nodes do I/O in the same way, and buffered I/O is what it is called. Else a remark.

    ``nodes`` are the nodes' fingerprints. With ``hybrid_io`` a Lustre client (2.17) makes buffered
    transfers direct that are as large as ``hybrid_io_write_threshold_bytes`` (2 MiB) or
    ``hybrid_io_read_threshold_bytes`` (8 MiB).
    """
    demands = "one mode on all nodes, and no hybrid I/O under buffered transfers"

    def values(name: str) -> list[str]:
        return sorted({str(node.get(f"tunable.llite.{name}", "unknown")) for node in nodes})

    known = {name: values(name) for name in _MODES}
    known = {name: seen for name, seen in known.items() if seen not in ([], ["unknown"])}
    if not known:
        return Finding("G24", Outcome.OK, "no modes of a Lustre client are known", demands)
    for name, seen in known.items():
        if len(seen) > 1:
            return Finding(
                "G24",
                Outcome.WARN,
                f"{name} is {' and '.join(seen)} on different nodes",
                demands,
                f"Let an administrator set llite.*.{name} alike on all nodes",
            )
    limits = [
        limit for limit in values(f"hybrid_io_{direction}_threshold_bytes") if limit.isdecimal()
    ]
    if buffered and transfer_bytes and known.get("hybrid_io") == ["1"] and limits:
        least = min(map(int, limits))
        if transfer_bytes >= least:
            return Finding(
                "G24",
                Outcome.WARN,
                f"buffered transfers of {format_bytes(transfer_bytes)} may be direct "
                f"(hybrid_io from {format_bytes(least)})",
                demands,
                "Read the figure as one of direct I/O, or use smaller transfers",
            )
    saw = ", ".join(f"{name} {seen[0]}" for name, seen in known.items())
    return Finding("G24", Outcome.OK, saw, demands)


def tool_integrity(
    *,
    tool: str,
    versions: Sequence[str],
    tasks: Sequence[int | None],
    nodes: Sequence[int | None],
    want_tasks: int | None,
    want_nodes: int | None,
    unlike: str = "",
) -> Finding:
    """G22: one version of the tool ran, on as many tasks and nodes as asked. None: the tool is silent.

    ``unlike``: how the words that it says it ran with differ from those that were asked for.
    """
    seen = f"{tool} {', '.join(sorted(set(versions))) or 'of unknown version'}"
    wrong_tasks = sorted(
        {t for t in tasks if t is not None and want_tasks is not None} - {want_tasks}
    )
    wrong_nodes = sorted(
        {n for n in nodes if n is not None and want_nodes is not None} - {want_nodes}
    )
    if wrong_tasks:
        seen += f" with {wrong_tasks[0]} task(s)"
    if wrong_nodes:
        seen += f" on {wrong_nodes[0]} node(s)"
    if unlike:
        return Finding(
            "G22",
            Outcome.INVALID,
            f"{seen}, {unlike}",
            "the words that were asked for",
            "Something between the job script and the tool changes its words: look for a wrapper (type "
            f"{tool}), and for variables of the environment that {tool} reads",
        )
    return _finding(
        "G22",
        len(set(versions)) == 1 and all(versions) and not wrong_tasks and not wrong_nodes,
        seen,
        "one version"
        + (f", {want_tasks} task(s)" if want_tasks is not None else "")
        + (f" on {want_nodes} node(s)" if want_nodes is not None else ""),
        "The launcher may belong to another MPI than the tool: run 'iogauge doctor'",
    )
