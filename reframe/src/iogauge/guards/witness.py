"""Guards that compare the tool's word with the kernel's: bytes (G8), targets (G11), seconds (G4),
load of others (G19).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.core.measurement import Phase, ToolOutput
from iogauge.core.units import format_bytes, format_seconds
from iogauge.core.words import NO_WITNESS
from iogauge.evidence.witness import (
    Moved,
    Testimony,
    files_changed,
    longest_silence,
    seconds_of_activity,
    seconds_of_asking,
    seconds_of_files,
    seconds_of_growth,
    seconds_of_jobs,
)
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.preflight import LEAST_FILES
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.site.extras import DOUBTFUL_LIMIT, generous
from iogauge.tools.fio.output import told_seconds

#: Share by which the tool's and the kernel's count may differ.
TOLERANCE: Final = 0.05

#: What bytes pass between a node and its storage, if nothing under the mount counts them.
_PASSAGES: Final = "the networks and disks of the nodes"

#: Bytes of journals and logs that count as no difference.
SLACK_BYTES: Final = 16 << 20

#: Bytes on a node that count as no load: journals, logs, occasional writes of the system itself.
FOREIGN_BYTES: Final = 16 << 20
#: The same in requests, for phases whose requests are so small that they, not the bytes, load a device.
FOREIGN_REQUESTS: Final = 256
SMALL_REQUEST: Final = 128 << 10

#: Seconds by which two looks at a clock may differ.
_CLOCK_S: Final = 0.1
#: What a tool may do beside what it times: a share of its seconds, and so many seconds.
_UNTIMED: Final = 0.25
_UNTIMED_S: Final = 1.0
#: Seconds until all tasks are connected, on one node and on several, if no line of the tool tells.
_START_S: Final = 5.0
_STARTS_S: Final = 20.0
_START_OF_NODE_S: Final = 0.1
#: Bytes that are too few to say for how long they moved.
_TIMED_BYTES: Final = 1 << 20
#: What a tool does in an execution of which it reports all.
_NAMES: Final = {"create", "stat", "remove"}

#: Bytes that the ends of a buffered operation may add: a page each, or what is read ahead by default.
_PAGE: Final = 4096
_READ_AHEAD: Final = 128 << 10
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4

#: Bytes written beside the data for an operation that makes, removes or writes, in a journal or in trees. Seen with
#: mdtest, -Y, and fio: ext4 0.6 KiB, XFS 0.3 KiB, both also below an overlay, btrfs 14 KiB. f2fs has a page of 4 KiB for each inode.
#: Operations that read or stat write nothing.
_METADATA: Final = 1024
_METADATA_OF_TREES: Final = 16384
_TREES: Final = ("btrfs", "f2fs")
_WRITES_NOTHING: Final = {"read", "stat"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Bytes of one execution, None if unknown.

    ``claimed`` is the tool's word. ``asked`` is what the tasks passed to the kernel, at most
    ``most_asked`` if they read their data alone, ``own`` what the kernel moved for them. ``counted`` is what the devices or the client under the mount moved
    for all, ``least`` the lowest count on the way down to the disks. If nothing under the mount counts, ``passed`` is what passed
    the networks and disks that carried all the case wrote. The tool moved the bytes in ``operations``, for which its tasks made ``calls``.
    """

    claimed: int
    operations: int | None = None
    calls: int | None = None
    asked: int | None = None
    most_asked: int | None = None
    own: int | None = None
    counted: int | None = None
    least: int | None = None
    passed: int | None = None


def bytes_witnessed(
    *,
    direction: str,
    executions: Sequence[Bytes | None],
    source: str,
    copies: tuple[float, float] = (1.0, 1.0),
    extra_bytes: int = 0,
    required: bool = False,
) -> Finding:
    """G8: the kernel counted as many bytes as the tool reports, within 5 %. It counts the bytes of
    the tasks, and their calls of read(2) and write(2): as many as the tool's operations, if it uses POSIX one by one. It also counts the bytes of everything under the mount: down to the disks, or in the
    client of the network file system. If nothing under the mount counts, the networks and disks of the nodes do. 95 % of the
    bytes that a case reads must pass those which carried all that it wrote.

    ``executions`` holds one entry for each execution, None if a witness is missing. ``source``
    names the counter under the mount, empty if there is none. A file system writes ``copies`` bytes
    for each byte, at least and at most. ``extra_bytes`` is what whole pages and reading ahead may
    add to an execution. ``required`` comes from ``limits.witness``.
    """
    rule = Rule(
        "G8",
        f"the kernel counts what the tool reports, within {TOLERANCE:.0%}",
        "The data did not travel between the tool and the storage. Look for a cache, a preloaded "
        "library, or another tool of this name",
    )
    heard = [seen for seen in executions if seen is not None]
    for seen in heard:
        objection = _objection(seen, direction, source, copies, extra_bytes)
        if objection:
            return rule.invalid(objection)
    believed = [x for seen in heard for x in (seen.own, seen.counted) if x is not None]
    if len(heard) == len(executions) and believed and source:
        return rule.ok(f"{source}: {format_bytes(min(believed))} or more in each execution")
    passed = [seen.passed for seen in heard if seen.passed is not None]
    if passed and len(passed) == len(executions):
        return rule.ok(f"{_PASSAGES}: {format_bytes(min(passed))} or more in each execution")
    missing = (
        f"{len(executions) - len(heard)} of {len(executions)} executions have no witness"
        if len(heard) < len(executions)
        else f"{source} could not be read. Before Lustre 2.17 only root can read it: run as root, or update the client"
        if source
        else "nothing under the mount counts bytes that this user may read"
    )
    unseen = Rule(
        "G8",
        "a witness of the bytes beside the tool",
        "Only the tool itself reports this figure. docs/witness.md lists the witnesses that can confirm it",
    )
    return _unwitnessed(unseen, missing, required)


def _unwitnessed(rule: Rule, missing: str, required: bool) -> Finding:
    """Return the remark that a witness is missing, or an objection if the site requires a witness."""
    saw = f"{NO_WITNESS}: {missing}"
    return rule.invalid(saw) if required else rule.warn(saw)


def _objection(
    seen: Bytes, direction: str, source: str, copies: tuple[float, float], extra_bytes: int
) -> str:
    """Return how an execution's counts contradict its claim; empty if they do not."""
    done = "read" if direction == "read" else "wrote"
    claim = f"the tool {done} {format_bytes(seen.claimed)}"
    fewest = (1 - TOLERANCE) * seen.claimed
    least_copies = copies[0] if direction == "write" else 1.0
    for count, demanded, who in (
        (seen.asked, fewest, "its tasks asked the kernel for"),
        (seen.own, fewest, "the kernel moved for its tasks"),
        (seen.counted, fewest * least_copies, f"{source} moved"),
        (seen.least, fewest, f"a device below {source or 'the mount'} moved"),
        (seen.passed, fewest, f"{_PASSAGES} moved"),
    ):
        if count is not None and count < demanded:
            return f"{claim}, as it says; {who} {format_bytes(max(0, count))}"
    if seen.asked is not None and seen.most_asked is not None and seen.asked > seen.most_asked:
        return f"{claim}, as it says; its tasks asked the kernel for {format_bytes(seen.asked)}"
    operations, calls = seen.operations or 0, seen.calls
    if calls is not None and calls < (1 - TOLERANCE) * operations:
        return f"the tool {done} {operations} times, as it says; its tasks called the kernel {calls} times for that"
    most = (1 + TOLERANCE) * seen.claimed + extra_bytes + SLACK_BYTES
    if seen.own is not None and seen.own > most:
        return f"{claim}, as it says; the kernel moved for its tasks {format_bytes(seen.own)}"
    return ""


def bytes_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G8 for phases that report bytes."""
    if seen.phase.witnessed and seen.access.direction == "elsewhere":
        yield _past_the_target(seen)
    direction = seen.access.direction
    if not seen.moves_data:
        if not any(output.disturber and output.totals.get("write") for output in seen.outputs):
            return
        direction = "write"
    executions: list[Bytes | None] = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        claimed = seen.claimed_bytes(output, direction)
        if claimed is not None:
            executions.append(_bytes_of(seen, output, testimony, claimed, direction))
    if not executions and all(seen.claimed_bytes(o, direction) is None for o in seen.outputs):
        return
    executions += [None] * (len(seen.outputs) - len(executions))
    operations = max((phase.operations or 0 for phase in seen.tool_phases), default=0)
    ends = 2 * (_READ_AHEAD if direction == "read" else _PAGE)
    beside = 0
    for output in (output for output in seen.outputs if output.totals):
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        operations = max(operations, sum(phase.operations or 0 for phase in output.phases))
        ends = 2 * (_READ_AHEAD if direction == "read" else _METADATA_OF_TREES)
        beside = max(beside, output.beside.get(direction, 0))
        if output.disturber:
            beside = max(beside, (output.disturber.phase.operations or 0) * _METADATA_OF_TREES)
    extra = beside
    if not seen.access.o_direct:
        extra += operations * ends * seen.phase.samples
        if direction == "read":
            # If memory is short, pages that were read ahead are dropped and fetched again.
            extra = max(extra, *(e.claimed // _DROPPED for e in executions if e), 0)
    yield bytes_witnessed(
        direction=direction,
        executions=executions,
        source=seen.case.source,
        copies=seen.case.copies,
        extra_bytes=extra,
        required=seen.case.extras.limits.witness == "required",
    )


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
        return [passed.get(name, Moved()).written / claimed for passed, claimed in writes]

    carried = [n for n in {n for p, _ in writes for n in p} if min(shares(n)) >= 1 - TOLERANCE]
    single = [name for name in carried if name]
    return [name for name in single if max(shares(name)) <= 1 + TOLERANCE] or single or carried


def _past_the_target(seen: PhaseSeen) -> Finding:
    """Return G8 for reads past the file system: the kernel counts those of devices, not of memory."""
    executions = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        claimed = sum(phase.bytes_moved or 0 for phase in output.phases)
        own = testimony.moved.read if seen.phase.of_devices else None
        heard = testimony.complete and testimony.speaks_of_tasks
        executions.append(Bytes(claimed=claimed, own=own) if heard else None)
    return bytes_witnessed(
        direction="read",
        executions=executions,
        source="block devices" if seen.phase.of_devices else "",
        required=seen.case.extras.limits.witness == "required",
    )


def _bytes_of(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony, claimed: int, way: str
) -> Bytes | None:
    """Return all counts of an execution, or None if a witness is missing."""
    if not testimony.complete:
        return None
    case, speaks = seen.case, testimony.speaks_of_tasks
    counted, least = testimony.counted(case.counters), testimony.counted(case.disks)
    # MPI-IO merges what tasks transfer, and reads what others send.
    posix = not output.totals and output.parameters.get("api") in (None, "POSIX")
    # Who reads the data twice finds them in a cache. Tasks also read libraries.
    most = round((1 + TOLERANCE) * claimed) + SLACK_BYTES * testimony.expected
    passed = testimony.passed(case.ways)
    through = [passed.get(name, Moved()).way(way) for name in _carriers(case)]
    told = testimony.calls.read > 0 and posix and speaks and _synchronous(output)
    return Bytes(
        claimed=claimed,
        operations=_operations(output, way),
        calls=testimony.calls.way(way) if told else None,
        asked=testimony.asked.way(way) if speaks and _synchronous(output) else None,
        most_asked=most if posix and way == "read" else None,
        own=testimony.moved.way(way) if case.traits.accounts and speaks else None,
        counted=None if counted is None else counted.way(way),
        least=None if least is None else least.way(way),
        # A mirror reads a part from each of its disks.
        passed=sum(through) if counted is None and through else None,
    )


def _operations(output: ToolOutput, way: str) -> int | None:
    """Return how often an execution moved data in a direction, as its tool says; None if it does not say it."""
    counts = [phase.operations for phase in output.phases if phase.name == way]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def targets_witnessed(
    *, counted: Mapping[str, int], held: Collection[int], whole: bool
) -> Finding | None:
    """G11: a Lustre client moved bytes with each storage target that holds a part of the files.
    This holds if the phase moves all of their bytes. The finding reports how many bytes each target
    moved.

    ``counted`` holds the bytes by target (``OST000a``, index in hexadecimal) that the client counted
    in the phase's direction. ``held`` are the numbers of the targets in the files' layouts. Returns
    None if no target counts, or if the files lie on no target.
    """
    moved = {
        int(name[3:], 16): n for name, n in counted.items() if name.startswith("OST") and n > 0
    }
    if not counted or not held:
        return None
    silent = sorted(set(held) - set(moved))
    beside = sum(moved[index] for index in set(moved) - set(held))
    on = sorted((moved[index], index) for index in set(moved) & set(held))
    saw = f"bytes with {len(on)} of {len(held)} storage targets of the files"
    if on:
        (fewest, least), (most, busiest) = on[0], on[-1]
        saw += (
            f", {format_bytes(fewest)} (ost{least:04x}) to {format_bytes(most)} (ost{busiest:04x})"
        )
    if beside:
        saw += f"; {format_bytes(beside)} with targets that hold none of them"
    if silent:
        saw += f"; none with ost{silent[0]:04x}" + (
            f" and {len(silent) - 1} more" if silent[1:] else ""
        )
    return Rule(
        "G11",
        "bytes with every storage target of the files (osc.*.stats)"
        if whole
        else "bytes by storage target",
        "The data are not where the layout says. Look for a cache, or another tool of this name",
    ).decide(not (silent and whole), saw)


def targets_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G11 for phases whose bytes a Lustre client counted."""
    direction = seen.access.direction
    if not seen.moves_data:
        return
    counted: Counter[str] = Counter()
    for testimony in seen.testimonies:
        for name, moved in testimony.by_target(seen.case.counters).items():
            counted[name] += moved.way(direction)
    layouts = seen.case.layouts
    files = [file for layout in layouts for file in layout.noted.files]
    # Each file is so long that it has bytes in all of its objects.
    fewest = (seen.phase.data_bytes or 0) // max(1, *(x.noted.total for x in layouts), 1)
    finding = targets_witnessed(
        counted=counted,
        held={ost for file in files for ost in file.osts},
        # If a node did not tell, the bytes that are missing may be its own.
        whole=all(t.complete and t.counted(seen.case.counters) for t in seen.testimonies)
        and all(
            not file.composite and file.last.stripe_bytes * file.last.stripe_count <= fewest
            for file in files
        ),
    )
    if finding:
        yield finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """Seconds of one execution as the tool reports them, and as the job saw them, None if unknown.

    ``ran`` lies between start and end of its processes. ``moving`` lies between the first and the last bytes on the
    devices, or that a task passed to the kernel, at least. ``making`` lies between the first and the last file that
    it made or removed. It was told to run for ``asked``, and says that it did for ``timed``: beside a disturber,
    which runs longer, this is the time of what is measured. ``working``: it did hardly more than what it times. ``seen_by`` says who saw it ``moving``.
    """

    claimed: float
    ran: float | None = None
    moving: float | None = None
    seen_by: str = ""
    making: float | None = None
    asked: float | None = None
    timed: float = 0.0
    working: float | None = None


def seconds_witnessed(*, executions: Sequence[Seconds], required: bool = False) -> Finding:
    """G4: no execution reports more seconds than its processes ran. No execution reports fewer seconds than its bytes or
    its files took on the target. The same holds for the time in which its first task passed its bytes to the kernel. The
    first node counts them five times a second, and more often while a phase begins. No execution of fio reports fewer
    seconds than fio was told to run. In half of its executions or more, a tool works no longer than it reports, a quarter
    of that, and a second. mdtest works from the line with the number of its files to its results. fio works while all of
    its jobs have processes; its buffered writes are left out. If nobody saw an execution, you get a remark.

    ``required`` comes from ``limits.witness``.
    """
    rule = Rule(
        "G4",
        "seconds that the job's own clock confirms",
        "The tool's clock is wrong. Look for a preloaded library, or another tool of this name",
    )
    known = [e for e in executions if (e.ran, e.moving, e.making) != (None, None, None)]
    # A busy machine may delay any one of them.
    idle = [
        e
        for e in known
        if e.working is not None and e.working > (1 + _UNTIMED) * e.claimed + _UNTIMED_S
    ]
    for execution in known:
        said = f"the tool reports {format_seconds(execution.claimed)}"
        ran, moving, making = execution.ran, execution.moving, execution.making
        if ran is not None and execution.claimed > ran + _CLOCK_S:
            return rule.invalid(f"{said}; its processes ran {format_seconds(ran)}")
        if execution.asked is not None and execution.timed < (1 - TOLERANCE) * execution.asked:
            timed, asked = format_seconds(execution.timed), format_seconds(execution.asked)
            return rule.invalid(f"the tool reports {timed}; it was told to run {asked}")
        if moving is not None and execution.claimed < (1 - TOLERANCE) * moving:
            by = f" ({execution.seen_by})" if execution.seen_by else ""
            return rule.invalid(f"{said}; its bytes moved for {format_seconds(moving)}{by}")
        if making is not None and execution.claimed < (1 - TOLERANCE) * making:
            return rule.invalid(f"{said}; the target's files changed for {format_seconds(making)}")
        if execution in idle and 2 * len(idle) > len(known):
            worked = format_seconds(execution.working or 0.0)
            return rule.invalid(f"{said}; it worked for {worked}")
    if len(known) < len(executions):
        missing = f"{len(executions) - len(known)} of {len(executions)} executions have no witness"
        unseen = Rule(
            "G4",
            "a witness of the seconds beside the tool",
            "A task's line on standard error is lost. Look for a launcher that changes it, as SLURM_LABELIO does",
        )
        return _unwitnessed(unseen, f"{missing} of their seconds", required)
    return rule.ok(f"{len(known)} of {len(executions)} execution(s) confirmed")


def seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases that are timed."""
    if not seen.phase.witnessed or not seen.outputs:
        return
    executions = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        if testimony.complete:
            timed = sum(phase.seconds for phase in output.phases)
            moving, seen_by = max(
                _moving(seen, output, testimony), key=lambda found: found[0] or 0.0
            )
            executions.append(
                Seconds(
                    claimed=output.disturber.phase.seconds if output.disturber else timed,
                    ran=testimony.seconds,
                    moving=moving,
                    seen_by=seen_by,
                    making=_making(seen, output, testimony),
                    asked=told_seconds(output),
                    timed=timed,
                    working=_working(seen, output, testimony),
                )
            )
    executions += [Seconds(claimed=0.0)] * (len(seen.outputs) - len(executions))
    required = seen.case.extras.limits.witness == "required"
    yield seconds_witnessed(executions=executions, required=required)


def _working(seen: PhaseSeen, output: ToolOutput, testimony: Testimony) -> float | None:
    """Return the seconds in which an execution did hardly more than what it times, at least; None if unknown.

    mdtest prints how many files there are when all tasks are connected, and its results at the end. fio makes a
    process for each job when its files are laid out.
    """
    told = output.parameters
    span = seen.case.span(testimony) if testimony.of_tasks else None
    if span is None or seen.phase.pauses or output.disturber:
        return None
    metadata = {phase.name for phase in _but_trees(output)} <= _NAMES
    if output.tool == "fio":
        # What is written to the page cache may reach storage after the tool has stopped its clock.
        timed = metadata or seen.access.o_direct or seen.access.direction == "read"
        return (
            seconds_of_jobs(seen.case.evidence.processes, span)
            if timed and "ramp_time" not in told
            else None
        )
    if not metadata:
        return None
    begins_at, iterations = told.get("begins_at"), told.get("iterations")
    begins = begins_at if isinstance(begins_at, int) else 1
    worked = longest_silence(seen.case.evidence.printed, span, begins)
    if worked is None:  # Something kept the output back, until its end.
        nodes = seen.case.plan.nodes
        start = _START_S if nodes == 1 else _STARTS_S + _START_OF_NODE_S * nodes
        worked = testimony.seconds - start
    # mdtest reports the mean of its iterations.
    return worked / iterations if isinstance(iterations, int) else worked


def _but_trees(output: ToolOutput) -> list[Phase]:
    """Return the phases of an output without the directories that mdtest makes for its files."""
    return [phase for phase in output.phases if not phase.name.startswith("tree_")]


def _made(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony
) -> tuple[tuple[float, float], int] | None:
    """Return when an execution ran on the first node, and how many files it made, or removed if negative; None if it
    also did something else, or if they are few.
    """
    span = seen.case.span(testimony)
    names = [phase.name for phase in _but_trees(output)]
    kept = output.parameters.get("unlink") != "1" and not output.disturber
    if span is None or names not in (["create"], ["remove"]) or not kept or seen.phase.pauses:
        return None
    files = _but_trees(output)[0].operations or 0
    if files < LEAST_FILES:
        return None
    return span, files if names == ["create"] else -files


def _making(seen: PhaseSeen, output: ToolOutput, testimony: Testimony) -> float | None:
    """Return the seconds in which an execution made or removed its files, with the sync after it; None if unknown."""
    made = _made(seen, output, testimony)
    if made is None:
        return None
    seconds = seconds_of_files(seen.case.evidence.activity, *made)
    synced = (testimony.sync_seconds or 0.0) if seen.phase.syncs else 0.0
    return None if seconds is None else seconds + synced


def foreign_files(
    *, executions: Sequence[tuple[int, int]], max_share: float = 0.1
) -> Finding | None:
    """G19: while a tool makes files, the inodes in use change by as many files, within 10 %. If they
    change by less, the case is INVALID: the files may lie elsewhere. ext2 to ext4, XFS and an overlay
    on them tell this number. A difference of less than 1,000 files is ignored.

    ``executions`` holds the files that the tool made, and those that came or went on the file system meanwhile. Returns
    None if nobody counted any.
    """
    rule = Rule(
        "G19",
        f"the inodes in use change by the files of the tool, within {max_share:.0%}",
        "Run when others neither make nor remove files on the target. If nobody does, the tool's files lay elsewhere",
    )
    for own, changed in executions:
        saw = f"{own} file(s) were made, as the tool says; the inodes in use changed by {changed} meanwhile"
        if own - changed >= LEAST_FILES and changed < (1 - max_share) * own:
            return rule.invalid(saw)
        if changed - own >= LEAST_FILES and own < (1 - max_share) * changed:
            return rule.decide(False, saw, Outcome.CONTAMINATED)
    return rule.ok("the inodes in use agree with the tool") if executions else None


def foreign_files_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G19 for phases that make files on a file system of one node."""
    case = seen.case
    executions = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        made = _made(seen, output, testimony) if testimony.complete else None
        changed = files_changed(case.evidence.activity, made[0]) if made else None
        # XFS counts what was removed later.
        if made and changed is not None and made[1] > 0:
            executions.append((made[1], changed))
    if len({view.cache_id for view in case.evidence.views}) == 1:
        finding = foreign_files(executions=executions, max_share=case.extras.limits.max_foreign)
        if finding:
            yield finding


def _moving(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony
) -> list[tuple[float | None, str]]:
    """Return the seconds in which an execution's bytes moved on the first node, None if unknown, and who saw it.

    The used bytes are those of all programs: who fills and empties the target at a time may leave them as they would be
    without others. So they are not asked if the first task tells.
    """
    asking = _asking(seen, output, testimony)
    heard = [(asking, "asked for by its first task")]
    case, first = seen.case, seen.case.evidence.first
    span = case.span(testimony)
    # Clients of a network count what programs ask for, or in the background.
    # Metadata reach the devices in the sync after the tool.
    of_data = (
        case.counters
        and not case.on_network
        and seen.access.direction not in ("elsewhere", "metadata")
    )
    if seen.phase.pauses or len(output.phases) != 1 or not of_data or span is None or first is None:
        return heard
    # Containers of one kernel over one mount share the counters.
    hosts = {view.host for view in case.evidence.views if view.cache_id == first.cache_id}
    if len(hosts) > 1 and not testimony.of_tasks:
        # Each server starts its clock when it is ready: their bytes move for longer than any of them measures.
        return heard
    own = _own(seen, output, testimony, hosts)
    # Tasks read programs and libraries before the tool's time begins, if nobody did lately. The tool does not claim them.
    told = _claimed(seen, output, hosts)
    bytes_own = min(own.read, told.read) + round(min(own.written, told.written) * case.copies[1])
    if bytes_own < _TIMED_BYTES:
        return heard
    # What is written to the page cache reaches the devices later, and in less time.
    activity = case.evidence.activity
    growth = (
        seconds_of_growth(activity, span, own.written, told.written) if asking is None else None
    )
    return [
        *heard,
        (seconds_of_activity(activity, span, bytes_own), "counted on the devices"),
        (growth, "as the target filled"),
    ]


def _asking(seen: PhaseSeen, output: ToolOutput, testimony: Testimony) -> float | None:
    """Return the seconds in which the first task of the first node passed its data to the kernel; None if unknown.

    A tool may rest between two phases that it runs in one execution.
    """
    span = seen.case.span(testimony)
    ways = {phase.name for phase in output.phases} & {"read", "write"}
    if span is None or not ways or seen.phase.pauses or not _synchronous(output):
        return None
    return seconds_of_asking(seen.case.evidence.asked, span, ways, phases=len(output.phases))


def _synchronous(output: ToolOutput) -> bool:
    """Return whether the kernel counts what a tool asks for: not with an asynchronous engine."""
    return output.tool != "fio" or output.parameters.get("engine") == "psync"


def _own(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony, hosts: Collection[str] | None = None
) -> Moved:
    """Return the bytes of an execution's tasks on some hosts, or on all.

    The kernel does not tell those of servers, nor any of a network's client. Some kernels
    count nothing. Then the tool's word stands, evenly divided, or what the tasks asked for.
    """
    of_hosts = [w for w in testimony.witnesses if hosts is None or w.host in hosts]
    if testimony.speaks_of_tasks and seen.case.traits.accounts:
        return sum((witness.moved for witness in of_hosts), Moved())
    claimed = [seen.claimed_bytes(output, way) for way in ("read", "write")]
    if testimony.speaks_of_tasks and claimed == [None, None]:
        return sum((witness.asked for witness in of_hosts), Moved())
    return _claimed(seen, output, hosts)


def _claimed(seen: PhaseSeen, output: ToolOutput, hosts: Collection[str] | None) -> Moved:
    """Return the bytes that an execution's tool says it moved on some hosts, evenly divided, or on all."""
    share = 1.0 if hosts is None else len(hosts) / seen.case.plan.nodes
    claimed = (seen.claimed_bytes(output, way) for way in ("read", "write"))
    return Moved(*(round(share * (count or 0)) for count in claimed))


def foreign_load(
    *,
    nodes: int,
    own: Moved | None,
    counted: Moved,
    jobs: Sequence[tuple[int, int]] = (),
    requests: tuple[int, int] | None = None,
    max_share: float = 0.1,
) -> Finding:
    """G19: at most 10 % of the bytes that the nodes counted during the judged phases are not the
    tasks' bytes. If servers' job accounts are readable, at most 10 % of the bytes that they counted
    belong to other jobs. Less than 16 MiB are ignored, unless all transfers of the case are direct and
    below 128 KiB. Then at most 10 % of the bytes and of the requests on the devices are those of
    others, and less than 256 requests are ignored. A limit above 50 % gives a remark.

    ``counted`` is what the counters under the mount counted for all programs on the nodes, ``own``
    what the tasks moved; None if nothing was counted. Fewer bytes than the tasks moved are no load:
    there was a cache. ``jobs`` holds the bytes of this job and of others, for each server.
    ``requests`` are those of the tasks and of all programs, None unless they are small.
    """
    parts = []
    worst = 0.0

    def weigh(foreign: int, total: int, who: str, requests: tuple[int, int] | None = None) -> None:
        nonlocal worst
        share = foreign / total if total and foreign >= FOREIGN_BYTES else 0.0
        said = f"{who} moved {format_bytes(foreign)} of {format_bytes(total)}"
        if requests:
            theirs = max(0, requests[1] - requests[0])
            said += f" with {theirs} of {requests[1]} requests"
            if total and theirs >= FOREIGN_REQUESTS:
                # A few large requests are little load, and so are many small ones with hardly a byte.
                share = max(share, min(foreign / total, theirs / requests[1]))
        worst = max(worst, share)
        parts.append(f"{said} ({share:.0%})")

    if own is not None:
        foreign = max(0, counted.read - own.read) + max(0, counted.written - own.written)
        weigh(foreign, counted.read + counted.written, f"others on {nodes} node(s)", requests)
    if jobs:
        theirs = sum(foreign for _, foreign in jobs)
        weigh(theirs, theirs + sum(mine for mine, _ in jobs), "other jobs, as the servers say,")
    rule = Rule(
        "G19",
        f"at most {max_share:.0%} of the bytes moved by others",
        "Run while nobody else uses the target, or request exclusive nodes",
    )
    saw = "; ".join(parts) or "no counter can be compared with the tasks' bytes"
    if worst <= max_share and max_share > DOUBTFUL_LIMIT:
        return Rule("G19", rule.demands).warn(f"{saw}. {generous('max_foreign', max_share)}")
    return rule.decide(worst <= max_share, saw, Outcome.CONTAMINATED)


def foreign_load_of(seen: CaseSeen) -> Iterator[Finding]:
    # Containers of one kernel over one mount count the same bytes.
    distinct = list({change.cache_id: change for change in seen.evidence.changes}.values())
    own, counted = _all_bytes(seen) or (None, Moved())
    yield foreign_load(
        nodes=len(distinct) or seen.plan.nodes,
        own=own,
        counted=counted,
        jobs=[
            (change.jobs_own, change.jobs_foreign)
            for change in distinct
            if change.jobs_own is not None and change.jobs_foreign is not None
        ],
        requests=_all_requests(seen),
        max_share=seen.extras.limits.max_foreign,
    )


def _executions(seen: CaseSeen) -> list[tuple[PhaseSeen, ToolOutput, Testimony]]:
    """Return the executions of the judged phases that use the target."""
    return [
        (phase, output, testimony)
        for phase in seen.phases
        if phase.phase.witnessed
        and phase.access.direction != "elsewhere"
        and not phase.phase.within
        for output, testimony in zip(phase.outputs, phase.testimonies, strict=False)
    ]


def _all_requests(seen: CaseSeen) -> tuple[int, int] | None:
    """Return the tasks' requests and all requests of the judged phases; None unless all are small.

    A direct transfer is one request, if it is not copied.
    """
    own = counted = 0
    for phase, output, testimony in _executions(seen):
        sizes = {one.transfer_bytes or 0 for one in output.phases}
        requests = testimony.requests(seen.shared_counters)
        direct = phase.moves_data and phase.access.o_direct and not output.disturber
        if not direct or not sizes or not 0 < min(sizes) <= max(sizes) < SMALL_REQUEST:
            return None
        if requests is None or not testimony.complete:
            return None
        moved = _own(phase, output, testimony)
        own += (moved.read + round(moved.written * seen.copies[1])) // min(sizes)
        counted += requests
    return (own, counted) if counted else None


def _all_bytes(seen: CaseSeen) -> tuple[Moved, Moved] | None:
    """Return the tasks' bytes and all bytes of the judged executions; None if no execution has all of its witnesses."""
    own, counted, heard = Moved(), Moved(), False
    for phase, output, testimony in _executions(seen):
        moved = testimony.counted(seen.shared_counters)
        if moved is None or not testimony.complete:
            continue
        heard = True
        counted += moved
        own += _own(phase, output, testimony) + _beside(phase, output)
    if not heard or not (seen.traits.accounts or seen.on_network):
        return None
    return Moved(own.read, round(own.written * seen.copies[1])), counted


def _beside(seen: PhaseSeen, output: ToolOutput) -> Moved:
    """Return the bytes that an execution may move beside its data."""
    beside = [output.disturber.phase] if output.disturber else []
    phases = [phase for phase in (*output.phases, *beside) if phase.operations]
    operations = sum(phase.operations or 0 for phase in phases)
    if seen.case.traits.accounts:
        each = _METADATA_OF_TREES if seen.case.extras.target.type in _TREES else _METADATA
        return Moved(
            0, each * sum(p.operations or 0 for p in phases if p.name not in _WRITES_NOTHING)
        )
    more = Moved(output.beside.get("read", 0), output.beside.get("write", 0))
    # A client of a network moves whole pages, and reads ahead, on nobody's account.
    small = all((phase.transfer_bytes or 0) < _READ_AHEAD for phase in phases)
    ends = 0 if seen.access.o_direct or not small else 2 * operations
    return Moved(ends * _READ_AHEAD, ends * _PAGE) + more
