"""Guards that compare the tool's word with the kernel's: bytes (G8), targets (G11), seconds (G4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iogauge.core.measurement import ToolOutput
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence.witness import (
    Moved,
    Testimony,
    longest_silence,
    seconds_of_activity,
    seconds_of_asking,
    seconds_of_files,
    seconds_of_growth,
    seconds_of_jobs,
)
from iogauge.guards.finding import Finding, Rule
from iogauge.guards.preflight import LEAST_FILES
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.tools.fio.options import METADATA_PHASES
from iogauge.tools.fio.output import told_seconds

#: Share by which the tool's and the kernel's count may differ.
TOLERANCE: Final = 0.05

#: What bytes pass between a node and its storage, if nothing under the mount counts them.
_PASSAGES: Final = "the networks and disks of the nodes"

#: Bytes of journals and logs that count as no difference.
SLACK_BYTES: Final = 16 << 20

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
_MAKES_FILES: Final = {"create", "precreate", "benchmark"}
#: What a tool does in an execution of which it reports all.
_NAMES: Final = {"create", "stat", "remove"}

#: Bytes that the ends of a buffered operation may add: a page each, or what is read ahead by default.
PAGE: Final = 4096
READ_AHEAD: Final = 128 << 10
#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4

#: Bytes that btrfs and f2fs write beside the data for an operation that makes, removes or writes. Seen: btrfs 14 KiB; f2fs has
#: a page of 4 KiB for each inode.
METADATA_OF_TREES: Final = 16384


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
    client of the network file system. If nothing under the mount counts, the networks and disks of the nodes can contradict
    the tool, but they serve other programs too: you get a remark. 95 % of the bytes that a case reads must pass those
    which carried all that it wrote.

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
        "Only the tool itself reports this figure. docs/guards.md lists the witnesses that can confirm it",
    )
    return unseen.unwitnessed(missing, required)


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
    ends = 2 * (READ_AHEAD if direction == "read" else PAGE)
    beside = 0
    for output in (output for output in seen.outputs if output.totals):
        # The bytes are those of all phases, and so are the ends, the metadata and the unscored ones.
        operations = max(operations, sum(phase.operations or 0 for phase in output.phases))
        ends = 2 * (READ_AHEAD if direction == "read" else METADATA_OF_TREES)
        beside = max(beside, output.beside.get(direction, 0))
        if output.disturber:
            beside = max(beside, (output.disturber.phase.operations or 0) * METADATA_OF_TREES)
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
    """Return G8 for reads past the file system: the kernel counts those of devices, not of memory. The disks below the
    devices count as well: a loop device answers itself what its file does not hold.
    """
    executions = []
    below, first = seen.case.evidence.disks, seen.case.evidence.first
    disks = {first.host: below} if first and below else {}
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        claimed = sum(phase.bytes_moved or 0 for phase in output.phases)
        own = testimony.moved.read if seen.phase.of_devices else None
        heard = testimony.complete and testimony.speaks_of_tasks
        moved = testimony.counted(disks)
        least = moved.read if moved else None
        executions.append(Bytes(claimed=claimed, own=own, least=least) if heard else None)
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


def seconds_witnessed(
    *, executions: Sequence[Seconds], rests: bool = False, required: bool = False
) -> Finding:
    """G4: no execution reports more seconds than its processes ran, or fewer than its bytes or files took on the target.
    The same holds for the time in which its first task passed its bytes to the kernel. The first node counts them five
    times a second, and more often while a phase begins. No execution of fio reports fewer seconds than fio was told to
    run. A tool may work for a quarter longer than it reports, and a second. If more than half of the executions work
    longer, the case is INVALID. mdtest works from the line with the number of its files to its results. fio works while
    all of its jobs have processes; its buffered writes are left out. If nobody saw an execution, you get a remark. You
    also get it if only the run time bounds the seconds of all executions.

    ``rests`` means that the tool rests on purpose: then the run time must do. ``required`` comes from ``limits.witness``.
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
    demanded = "a witness of the seconds beside the tool"
    if len(known) < len(executions):
        missing = f"{len(executions) - len(known)} of {len(executions)} executions have no witness"
        lost = Rule(
            "G4",
            demanded,
            "A task's line on standard error is lost. Look for a launcher that changes it, as SLURM_LABELIO does",
        )
        return lost.unwitnessed(f"{missing} of their seconds", required)
    at_work = [e for e in known if (e.moving, e.making, e.working) != (None, None, None)]
    if known and not at_work and not rests:
        unseen = Rule(
            "G4",
            demanded,
            "The tool may report fewer seconds than it took, and so too high a rate. Use an engine that the kernel "
            "counts (psync), or longer phases",
        )
        return unseen.unwitnessed("nobody saw how long the tool was at work", required)
    return rule.ok(f"{len(known)} of {len(executions)} execution(s) confirmed")


def seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases that are timed."""
    if not seen.phase.witnessed or not seen.outputs:
        return
    executions = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        if testimony.complete:
            timed = output.timed
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
    yield seconds_witnessed(executions=executions, rests=seen.phase.pauses, required=required)


def _working(seen: PhaseSeen, output: ToolOutput, testimony: Testimony) -> float | None:
    """Return the seconds in which an execution did hardly more than what it times, at least; None if unknown.

    mdtest prints how many files there are when all tasks are connected, and its results at the end. fio makes a
    process for each job when its files are laid out.
    """
    told = output.parameters
    span = seen.case.span(testimony) if testimony.of_tasks else None
    if span is None or seen.phase.pauses or output.disturber:
        return None
    names = _NAMES | {"read"} if output.tool == "mdtest" else _NAMES
    metadata = {phase.name for phase in output.but_trees} <= names
    if output.tool == "fio":
        # What is written to the page cache may reach storage after the tool has stopped its clock.
        way = seen.access.direction
        timed = metadata or seen.access.o_direct or way in ("read", "elsewhere")
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


def _making(seen: PhaseSeen, output: ToolOutput, testimony: Testimony) -> float | None:
    """Return the seconds in which an execution made or removed its files, with the sync after it; None if unknown."""
    made = seen.files_changed(output, testimony)
    if made is None or abs(made[1]) < LEAST_FILES:
        return None
    seconds = seconds_of_files(seen.case.evidence.activity, *made)
    synced = (testimony.sync_seconds or 0.0) if seen.phase.syncs else 0.0
    return None if seconds is None else seconds + synced


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
    if seen.phase.pauses or output.stretches != 1 or not of_data or span is None or first is None:
        return heard
    # Containers of one kernel over one mount share the counters.
    hosts = {view.host for view in case.evidence.views if view.cache_id == first.cache_id}
    if len(hosts) > 1 and not testimony.of_tasks:
        # Each server starts its clock when it is ready: their bytes move for longer than any of them measures.
        return heard
    own = seen.own(output, testimony, hosts)
    # Tasks read programs and libraries before the tool's time begins, if nobody did lately. The tool does not claim them.
    told = seen.claimed(output, hosts)
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
    names = {phase.name for phase in output.phases}
    # What makes files may also write data to them; without data nothing is known. IO500 does all of this.
    both = output.totals or names & _MAKES_FILES
    ways = {"read", "write"} if both else names & {"read", "write"}
    if span is None or not ways or seen.phase.pauses or not _synchronous(output):
        return None
    return seconds_of_asking(seen.case.evidence.asked, span, ways, phases=output.stretches)


def _synchronous(output: ToolOutput) -> bool:
    """Return whether the kernel counts what a tool asks for: not with an asynchronous engine of a job that moves data."""
    if output.tool != "fio":
        return True
    jobs: Any = output.parameters.get("jobs") or {}
    engines = {told.get("ioengine", "psync") for told in jobs.values()} or {
        output.parameters.get("engine")
    }
    return engines - set(METADATA_PHASES) == {"psync"}
