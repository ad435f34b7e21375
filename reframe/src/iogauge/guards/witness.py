"""Guards that compare what a tool moved and made with the kernel's word: bytes (G8), targets (G11), files (G9)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.measurement import ToolOutput
from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.evidence.witness import Testimony
from iogauge.guards.finding import Finding
from iogauge.guards.ledger import BYTES, BYTES_BESIDE, Bounds, Claim, settle
from iogauge.guards.rules import rule
from iogauge.guards.seen import LEAST_FILES, PAGE, READ_AHEAD, CaseSeen, PhaseSeen, synchronous
from iogauge.node.counters import Reading
from iogauge.node.kinds import KINDS
from iogauge.plan.seen import MOST_FOUND

#: What bytes pass between a node and its storage, if nothing under the mount counts them.
_PASSAGES: Final = "the networks and disks of the nodes"
#: What a new file takes at least on any file system: an inode of ext4 has 128 bytes or more.
_INODE_BYTES: Final = 64
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4
#: Bytes that an operation on metadata may write in trees, whatever the type: that of the servers is unknown.
_METADATA_OF_TREES: Final = KINDS["btrfs"].journal


def bytes_witnessed(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G8 for phases that report bytes."""
    if seen.phase.witnessed and seen.access.direction == "elsewhere":
        yield _past_the_target(seen)
    direction = seen.access.direction
    if not seen.moves_data:
        if not any(output.disturber and output.totals.get("write") for output in seen.outputs):
            return
        direction = "write"
    claimed = [seen.claimed_bytes(output, direction) for output in seen.outputs]
    executions = [
        _claims_of(seen, output, testimony, count, direction)
        for output, testimony, count in zip(seen.outputs, seen.testimonies, claimed, strict=False)
        if count is not None
    ]
    if executions or claimed.count(None) < len(claimed):
        executions += [None] * (len(seen.outputs) - len(executions))
        yield _settled(seen, executions, seen.case.source)


def _settled(seen: PhaseSeen, executions: Sequence[Sequence[Claim] | None], source: str) -> Finding:
    """Return G8 of the claims of each execution, None if a witness is missing. ``source`` names the counter under the
    mount, empty if there is none.
    """
    words = [w for claims in executions for claim in claims or () for w in claim.words if w.exact]
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
    return [BYTES.most(f"{who} {format_bytes(max(0, count))}", count / of_each, exact=exact)]


def _own(count: int | None, beside: int, source: str, there: int | None = None) -> list[Bounds]:
    """Return the words of the kernel, which moved ``count`` bytes for the tasks, up to ``beside`` of them beside their data.

    Tasks also read programs. No more than ``there`` can have come from the target, if that is known.
    """
    who = "the kernel moved for its tasks"
    if count is None:
        return []
    data = count if there is None else min(count, there)
    fewest = BYTES_BESIDE.least(f"{who} {format_bytes(data)}", data - beside)
    return [*_at_most(who, count, exact=bool(source)), fewest]


def _beside(seen: PhaseSeen, direction: str) -> int:
    """Return the bytes that whole pages, reading ahead and metadata may add to an execution of a phase."""
    operations = max((phase.operations or 0 for phase in seen.tool_phases), default=0)
    ends = 2 * (READ_AHEAD if direction == "read" else PAGE)
    beside = 0
    for output in (output for output in seen.outputs if output.totals):
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        operations = max(operations, sum(phase.operations or 0 for phase in output.phases))
        ends = 2 * (READ_AHEAD if direction == "read" else _METADATA_OF_TREES)
        beside = max(beside, output.beside.get(direction, 0))
        if output.disturber:
            beside = max(beside, (output.disturber.phase.operations or 0) * _METADATA_OF_TREES)
    return beside if seen.access.o_direct else beside + operations * ends * seen.phase.samples


def _carriers(case: CaseSeen) -> list[str]:
    """Return the ways out of the nodes that carried all that a case wrote, its preparation included; empty without any.

    If some of them carried hardly more, only those count: the others serve other programs too, or carry copies. All ways
    together ("") count if none carried it alone.
    """
    writes = [
        (testimony.passed(case.ways), phase.claimed_bytes(output, "write") or math.inf)
        for phase in (PhaseSeen(case, phase) for phase in case.plan.phases)
        if phase.access.direction == "write"
        for output, testimony in zip(phase.outputs, phase.testimonies, strict=False)
    ]

    def shares(name: str) -> list[float]:
        return [passed.get(name, Reading()).written / claimed for passed, claimed in writes]

    names = {name for passed, _ in writes for name in passed}
    carried = [name for name in names if min(shares(name)) >= 1 - BYTES.share]
    single = [name for name in carried if name]
    return [name for name in single if max(shares(name)) <= 1 + BYTES.share] or single or carried


def _past_the_target(seen: PhaseSeen) -> Finding:
    """Return G8 for reads past the file system: the kernel counts those of devices, not of memory. The disks below the
    devices count as well: a loop device answers itself what its file does not hold.
    """
    executions = []
    below, first = seen.case.evidence.disks, seen.case.evidence.first
    disks = {first.host: below} if first and below else {}
    source = "block devices" if seen.phase.of_devices else ""
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        claimed = sum(phase.bytes_moved or 0 for phase in output.phases)
        moved = testimony.counted(disks)
        words = _own(testimony.moved.read, 0, source) if seen.phase.of_devices else []
        who = f"a device below {source or 'the mount'} moved"
        words += _at_most(who, moved.read if moved else None)
        says = f"the tool read {format_bytes(claimed)}, as it says"
        heard = testimony.complete and testimony.speaks_of_tasks
        executions.append([Claim(says, claimed, words)] if heard else None)
    return _settled(seen, executions, source)


def _claims_of(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony, claimed: int, way: str
) -> list[Claim] | None:
    """Return the claims of an execution with the words of all that counted, or None if a witness is missing."""
    if not testimony.complete:
        return None
    case, source, words = seen.case, seen.case.source, list[Bounds]()
    tool = f"the tool {'read' if way == 'read' else 'wrote'}"
    counted, least = testimony.counted(case.counters), testimony.counted(case.disks)
    # MPI-IO merges what tasks transfer, and reads what others send.
    posix = not output.totals and output.parameters.get("api") in (None, "POSIX")
    asks = testimony.speaks_of_tasks and synchronous(output)
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
    under = counted.way(way) if counted else case.over_time(testimony, way)
    words += _at_most(f"{source} moved", under, fewest, exact=bool(counted and source))
    if least is not None:
        words += _at_most(f"a device below {source or 'the mount'} moved", least.way(way))
    if counted is None and (carriers := _carriers(case)):
        # A mirror reads a part from each of its disks.
        through = sum(passed.get(name, Reading()).way(way) for name in carriers)
        words += _at_most(f"{_PASSAGES} moved", through)
    claims = [Claim(f"{tool} {format_bytes(claimed)}, as it says", claimed, words)]
    operations = _operations(output, way)
    if operations and testimony.calls.read > 0 and posix and asks:
        calls = testimony.calls.way(way)
        called = BYTES.most(f"its tasks called the kernel {calls} times for that", calls)
        claims.append(Claim(f"{tool} {operations} times, as it says", operations, [called]))
    return claims


def _operations(output: ToolOutput, way: str) -> int | None:
    """Return how often an execution moved data in a direction, as its tool says; None if it does not say it."""
    counts = [phase.operations for phase in output.phases if phase.name == way]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def targets_witnessed(seen: PhaseSeen) -> Finding | None:
    """Return G11 for phases whose bytes a Lustre client counted by target (``OST000a``, index in hexadecimal)."""
    if not seen.moves_data:
        return None
    counted: Counter[str] = Counter()
    for testimony in seen.testimonies:
        for name, bytes_moved in testimony.by_target(seen.case.counters).items():
            counted[name] += bytes_moved.way(seen.access.direction)
    layouts = seen.case.layouts
    files = [file for layout in layouts for file in layout.noted.files]
    held = {ost for file in files for ost in file.osts}
    if not counted or not held:
        return None
    # If a node did not tell, the bytes that are missing may be its own. A file may be too short for all of its objects.
    fewest = (seen.phase.data_bytes or 0) // max(1, *(x.noted.total for x in layouts), 1)
    whole = all(t.complete and t.counted(seen.case.counters) for t in seen.testimonies) and all(
        not file.composite and file.last.stripe_bytes * file.last.stripe_count <= fewest
        for file in files
    )
    moved = {
        int(name[3:], 16): n for name, n in counted.items() if name.startswith("OST") and n > 0
    }
    silent = sorted(held - set(moved))
    beside = sum(moved[index] for index in set(moved) - held)
    on = sorted((moved[index], index) for index in set(moved) & held)
    saw = f"bytes with {len(on)} of {len(held)} storage targets of the files"
    if on:
        (least, idlest), (most, busiest) = on[0], on[-1]
        saw += (
            f", {format_bytes(least)} (ost{idlest:04x}) to {format_bytes(most)} (ost{busiest:04x})"
        )
    if beside:
        saw += f"; {format_bytes(beside)} with targets that hold none of them"
    if silent:
        more = f" and {len(silent) - 1} more" if silent[1:] else ""
        saw += f"; none with ost{silent[0]:04x}{more}"
    return rule("G11 bytes by target", "" if whole else "part").decide(not (silent and whole), saw)


def storage(seen: PhaseSeen) -> Finding | None:
    """Return G9 for metadata: the target is storage, and the files of each execution are there."""
    if seen.access.direction != "metadata":
        return None
    case, traits, made, most = seen.case, seen.case.traits, [], 0
    if traits.cache == "memory":
        saw = f"the target is memory, not storage{because(traits.why)}"
        return rule("G9 storage").invalid(saw)
    if traits.unsynced:
        return rule("G9 storage").invalid(f"fsync proves nothing here{because(traits.unsynced)}")
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        # fio may remove what it made before it is written, and does beside another load.
        if output.parameters.get("unlink") != "1" and not output.disturber:
            operations: Counter[str] = Counter()
            for phase in output.phases:
                operations[phase.name] += phase.operations or 0
            most = max(most, operations["create"], operations["remove"])
            made.append(_files_claim(seen, operations["create"], testimony))
    unseen = ""
    if not (case.counters and case.kind.syncs) and most >= LEAST_FILES:
        unseen = f"{most} file(s) were made or removed, and nothing under the mount counts"
    fine, required = "the target is storage", case.witness_required
    return settle("G9 storage", [made], fine=fine, unseen=unseen, required=required)


def _files_claim(seen: PhaseSeen, files: int, testimony: Testimony) -> Claim:
    """Return the claim of an execution that made files, with the words of who looked for them."""
    case, words = seen.case, []
    found = case.found_after(testimony)
    if found is not None and found < MOST_FOUND:
        saw = f"the case's directory holds {found}, not counting links: the files lay elsewhere"
        words.append(Bounds(saw, most=found))
    # Clients of a network count data alone. Without a sync, new inodes may wait in memory for half a minute.
    there = testimony.complete and seen.phase.syncs and not case.on_network
    counted = testimony.counted(case.counters) if there else None
    wrote = counted.written if counted else case.over_time(testimony, "write") if there else None
    if wrote is not None and files >= LEAST_FILES:
        saw = f"the target's devices wrote {format_bytes(wrote)}: the files lay elsewhere"
        words.append(Bounds(saw, most=wrote / _INODE_BYTES))
    return Claim(f"{files} file(s) were made", files, words)
