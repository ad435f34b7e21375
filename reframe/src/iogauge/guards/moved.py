"""Guards that compare what a tool moved and made with the kernel's word: bytes (G8), targets (G11), files (G9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.agreement import BYTES, BYTES_BESIDE, Bounds, ReportedFigure, settle
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
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

#: What bytes pass between a node and its storage, if nothing under the mount counts them.
_PASSAGES: Final = "the networks and disks of the nodes"
#: What a new file takes at least on any file system: an inode of ext4 has 128 bytes or more.
_INODE_BYTES: Final = 64
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4
#: Bytes that an operation on metadata may write in trees, whatever the type: that of the servers is unknown.
_METADATA_OF_TREES: Final = KINDS["btrfs"].journal


def bytes_witnessed(seen: PhaseView) -> Iterator[Finding]:
    """Yield G8 for phases that report bytes."""
    if seen.phase.witnessed and seen.access.direction == "elsewhere":
        source = "block devices" if seen.phase.of_devices else ""
        yield _settled(
            seen, [_past_the_target(one, source) for one in seen.executions], source
        )
    direction = seen.access.direction
    if not seen.moves_data:
        if not any(
            output.disturber and output.totals.get("write") for output in seen.outputs
        ):
            return
        direction = "write"
    if any(one.claimed(direction) is not None for one in seen.executions):
        executions = [_claims_of(one, direction) for one in seen.executions]
        yield _settled(seen, executions, seen.case.source)


def _settled(
    seen: PhaseView, executions: Sequence[Sequence[ReportedFigure] | None], source: str
) -> Finding:
    """Return G8 of the claims of each execution, None if a witness is missing. ``source`` names the counter under the
    mount, empty if there is none.
    """
    words = [
        w
        for claims in executions
        for claim in claims or ()
        for w in claim.words
        if w.exact
    ]
    least = min((word.most * (1 - BYTES.share) for word in words), default=0.0)
    unseen = (
        f"{source} could not be read. Before Lustre 2.17 only root can read it: run as root, or update the client"
        if source
        else "nothing under the mount counts bytes that this user may read"
    )
    return settle(
        "G8 witness",
        executions,
        fine=f"{source}: {format_bytes(least)} or more in each execution",
        unseen=unseen,
        unheard=seen.unheard,
        required=seen.case.witness_required,
        tolerance=BYTES.share,
    )


def _at_most(
    who: str, count: int | None, of_each: float = 1.0, *, exact: bool = False
) -> list[Bounds]:
    """Return the word of one that counted ``of_each`` bytes for each byte of the tool at least, and missed none; none if
    it did not count.
    """
    if count is None:
        return []
    return [
        BYTES.most(f"{who} {format_bytes(max(0, count))}", count / of_each, exact=exact)
    ]


def _own(
    count: int, beside: int, source: str, there: int | None = None
) -> list[Bounds]:
    """Return the words of the kernel, which moved ``count`` bytes for the tasks, up to ``beside`` of them beside their data.

    Tasks also read programs. No more than ``there`` can have come from the target, if that is known.
    """
    who = "the kernel moved for its tasks"
    data = count if there is None else min(count, there)
    fewest = BYTES_BESIDE.least(f"{who} {format_bytes(data)}", data - beside)
    return [*_at_most(who, count, exact=bool(source)), fewest]


def _beside(seen: PhaseView, direction: str) -> int:
    """Return the bytes that whole pages, reading ahead and metadata may add to an execution of a phase."""
    operations = max((phase.operations or 0 for phase in seen.tool_phases), default=0)
    ends = 2 * (READ_AHEAD if direction == "read" else PAGE)
    beside = 0
    for output in (output for output in seen.outputs if output.totals):
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        operations = max(
            operations, sum(phase.operations or 0 for phase in output.phases)
        )
        ends = 2 * (READ_AHEAD if direction == "read" else _METADATA_OF_TREES)
        beside = max(beside, output.beside.get(direction, 0))
        if output.disturber:
            beside = max(
                beside, (output.disturber.phase.operations or 0) * _METADATA_OF_TREES
            )
    return (
        beside
        if seen.access.o_direct
        else beside + operations * ends * seen.phase.samples
    )


def _carriers(case: CaseView) -> list[str]:
    """Return the ways out of the nodes that carried all that a case wrote, its preparation included; empty without any.

    If some of them carried hardly more, only those count: the others serve other programs too, or carry copies. All ways
    together ("") count if none carried it alone.
    """
    writes = [
        (one.testimony.passed(case.ways), one.claimed("write") or math.inf)
        for phase in case.plan.phases
        if phase.access.direction == "write" and phase.witnessed
        for one in PhaseView(case, phase).executions
    ]

    def shares(name: str) -> list[float]:
        return [
            passed.get(name, Reading()).written / claimed for passed, claimed in writes
        ]

    names = {name for passed, _ in writes for name in passed}
    carried = [name for name in names if min(shares(name)) >= 1 - BYTES.share]
    single = [name for name in carried if name]
    return (
        [name for name in single if max(shares(name)) <= 1 + BYTES.share]
        or single
        or carried
    )


def _past_the_target(one: Execution, source: str) -> list[ReportedFigure] | None:
    """Return the claim of reads past the file system: the kernel counts those of devices, not of memory. The disks below the
    devices count as well: a loop device answers itself what its file does not hold.
    """
    heard, evidence = one.testimony, one.case.evidence
    if not (heard.complete and heard.speaks_of_tasks):
        return None
    claimed = sum(phase.bytes_moved or 0 for phase in one.output.phases)
    first = evidence.first
    moved = heard.counted(
        {first.host: evidence.disks} if first and evidence.disks else {}
    )
    words = _own(heard.moved.read, 0, source) if source else []
    who = f"a device below {source or 'the mount'} moved"
    words += _at_most(who, moved.read if moved else None)
    return [
        ReportedFigure(
            f"the tool read {format_bytes(claimed)}, as it says", claimed, words
        )
    ]


def _claims_of(one: Execution, way: str) -> list[ReportedFigure] | None:
    """Return the claims of an execution with the words of all that counted, or None if a witness is missing."""
    seen, output, testimony, claimed = (
        one.seen,
        one.output,
        one.testimony,
        one.claimed(way),
    )
    if claimed is None or not testimony.complete:
        return None
    case, source, words = seen.case, seen.case.source, list[Bounds]()
    tool = f"the tool {'read' if way == 'read' else 'wrote'}"
    counted, least = testimony.counted(case.counters), testimony.counted(case.disks)
    # MPI-IO merges what tasks transfer, and reads what others send.
    posix = not output.totals and output.parameters.get("api") in (None, "POSIX")
    asks = testimony.speaks_of_tasks and one.synchronous
    if asks:
        asked, who = testimony.asked.way(way), "its tasks asked the kernel for"
        words += _at_most(who, asked)
        # Who reads the data twice finds them in a cache. Tasks also read libraries.
        most = (1 + BYTES.share) * claimed + BYTES_BESIDE.slack * testimony.expected
        if posix and way == "read" and asked > round(most):
            words.append(Bounds(f"{who} {format_bytes(asked)}", least=math.inf))
    if testimony.speaks_of_tasks and case.traits.accounts:
        beside = _beside(seen, way)
        if way == "read" and not seen.access.o_direct:
            # If memory is short, pages that were read ahead are dropped and fetched again.
            beside = max(beside, claimed // _DROPPED)
        there = counted.read if counted and way == "read" else None
        words += _own(testimony.moved.way(way), beside, source, there)
    passed = testimony.passed(case.ways)
    fewest = case.copies[0] if way == "write" else 1.0
    under = counted.way(way) if counted else one.over_time(way)
    words += _at_most(f"{source} moved", under, fewest, exact=bool(counted and source))
    if least is not None:
        words += _at_most(
            f"a device below {source or 'the mount'} moved", least.way(way)
        )
    if counted is None and (carriers := _carriers(case)):
        # A mirror reads a part from each of its disks.
        through = sum(passed.get(name, Reading()).way(way) for name in carriers)
        words += _at_most(f"{_PASSAGES} moved", through)
    claims = [
        ReportedFigure(f"{tool} {format_bytes(claimed)}, as it says", claimed, words)
    ]
    operations = whole(
        [phase.operations for phase in output.phases if phase.name == way]
    )
    if operations and testimony.calls.read > 0 and posix and asks:
        calls = testimony.calls.way(way)
        called = BYTES.most(
            f"its tasks called the kernel {calls} times for that", calls
        )
        claims.append(
            ReportedFigure(
                f"{tool} {operations} times, as it says", operations, [called]
            )
        )
    return claims


def targets_witnessed(seen: PhaseView) -> Finding | None:
    """Return G11 for phases whose bytes a Lustre client counted by target (``OST000a``, index in hexadecimal)."""
    if not seen.moves_data:
        return None
    counted: Counter[str] = Counter()
    for one in seen.executions:
        for name, bytes_moved in one.testimony.by_target(seen.case.counters).items():
            counted[name] += bytes_moved.way(seen.access.direction)
    noted = [striping.noted for striping in seen.case.evidence.striping]
    files = [file for layouts in noted for file in layouts.files]
    held = {ost for file in files for ost in file.osts}
    if not counted or not held:
        return None
    # If a node did not tell, the bytes that are missing may be its own. A file may be too short for all of its objects.
    fewest = (seen.phase.data_bytes or 0) // max(1, *(x.total for x in noted), 1)
    heard = [one.testimony for one in seen.executions]
    every = all(t.complete and t.counted(seen.case.counters) for t in heard) and all(
        not file.composite and file.last.stripe_bytes * file.last.stripe_count <= fewest
        for file in files
    )
    moved = {
        int(name[3:], 16): n
        for name, n in counted.items()
        if name.startswith("OST") and n > 0
    }
    silent = sorted(held - set(moved))
    beside = sum(moved[index] for index in set(moved) - held)
    on = sorted((moved[index], index) for index in set(moved) & held)
    saw = f"bytes with {len(on)} of {len(held)} storage targets of the files"
    if on:
        ends = (
            f"{format_bytes(count)} (ost{index:04x})"
            for count, index in (on[0], on[-1])
        )
        saw += f", {' to '.join(ends)}"
    if beside:
        saw += f"; {format_bytes(beside)} with targets that hold none of them"
    if silent:
        more = f" and {len(silent) - 1} more" if silent[1:] else ""
        saw += f"; none with ost{silent[0]:04x}{more}"
    return rule("G11 bytes by target", "" if every else "part").decide(
        not (silent and every), saw
    )


def storage(seen: PhaseView) -> Finding | None:
    """Return G9 for metadata: the target is storage, and the files of each execution are there."""
    if seen.access.direction != "metadata":
        return None
    case, traits, made, most = seen.case, seen.case.traits, [], 0
    if traits.cache == "memory":
        saw = f"the target is memory, not storage{because(traits.why)}"
        return rule("G9 storage").invalid(saw)
    if traits.unsynced:
        return rule("G9 storage").invalid(
            f"fsync proves nothing here{because(traits.unsynced)}"
        )
    for one in seen.executions:
        # fio may remove what it made before it is written, and does beside another load.
        if one.output.parameters.get("unlink") != "1" and not one.output.disturber:
            operations: Counter[str] = Counter()
            for phase in one.output.phases:
                operations[phase.name] += phase.operations or 0
            most = max(most, operations["create"], operations["remove"])
            made.append(_files_claim(one, operations["create"]))
    unseen = ""
    if not (case.counters and case.kind.syncs) and most >= LEAST_FILES:
        unseen = (
            f"{most} file(s) were made or removed, and nothing under the mount counts"
        )
    fine, required = "the target is storage", case.witness_required
    return settle("G9 storage", [made], fine=fine, unseen=unseen, required=required)


def _files_claim(one: Execution, files: int) -> ReportedFigure:
    """Return the claim of an execution that made files, with the words of who looked for them."""
    found, words = one.found_after, []
    if found is not None and found < MOST_FOUND:
        saw = f"the case's directory holds {found}, not counting links: the files lay elsewhere"
        words.append(Bounds(saw, most=found))
    # Clients of a network count data alone. Without a sync, new inodes may wait in memory for half a minute.
    if one.testimony.complete and one.seen.phase.syncs and not one.case.on_network:
        counted = one.testimony.counted(one.case.counters)
        wrote = counted.written if counted else one.over_time("write")
        if wrote is not None and files >= LEAST_FILES:
            saw = f"the target's devices wrote {format_bytes(wrote)}: the files lay elsewhere"
            words.append(Bounds(saw, most=wrote / _INODE_BYTES))
    return ReportedFigure(f"{files} file(s) were made", files, words)
