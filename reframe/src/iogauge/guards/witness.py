"""Guards that compare the tool's word with the kernel's: bytes (G8), targets (G11), seconds (G4), files (G9).

IO500 runs twelve phases in one execution, and writes down when each began and ended. The agent on the first node writes
down the counters under the target's mount five times a second (job/opening.py). Together they say what the kernel moved
while a phase ran. IO500 cuts its dates to whole seconds, but tells the length of a phase in full. So begin and end are
known within a second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can make
none missing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from iogauge.core.measurement import Phase, ToolOutput
from iogauge.core.text import because
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence.model import ClockSeen
from iogauge.evidence.witness import (
    Moved,
    Testimony,
    counted_between,
    longest_silence,
    seconds_of_activity,
    seconds_of_asking,
    seconds_of_files,
    seconds_of_growth,
    seconds_of_jobs,
)
from iogauge.guards.finding import Finding
from iogauge.guards.ledger import (
    BYTES,
    BYTES_BESIDE,
    CLOCK,
    SECONDS,
    WORK,
    Bounds,
    Claim,
    settle,
)
from iogauge.guards.rules import rule
from iogauge.guards.seen import LEAST_FILES, PAGE, READ_AHEAD, SLACK_S, CaseSeen, PhaseSeen
from iogauge.node.kinds import KINDS, Traits
from iogauge.plan.seen import MOST_FOUND
from iogauge.plan.stage import PhaseRun
from iogauge.tools.fio.options import METADATA_PHASES
from iogauge.tools.fio.output import told_seconds

#: What bytes pass between a node and its storage, if nothing under the mount counts them.
_PASSAGES: Final = "the networks and disks of the nodes"

#: Seconds until all tasks are connected, on one node and on several, if no line of the tool tells.
_START_S: Final = 5.0
_STARTS_S: Final = 20.0
_START_OF_NODE_S: Final = 0.1
#: Bytes that are too few to say for how long they moved.
_TIMED_BYTES: Final = 1 << 20
_MAKES_FILES: Final = {"create", "precreate", "benchmark"}
#: What a tool does in an execution of which it reports all.
_NAMES: Final = {"create", "stat", "remove"}
#: What a new file takes at least on any file system: an inode of ext4 has 128 bytes or more.
_INODE_BYTES: Final = 64

#: Part of a buffered read, one in so many bytes, that may be fetched twice. Seen: 7 % in a job with 400 MiB of memory.
_DROPPED: Final = 4
#: Bytes that an operation on metadata may write in trees, whatever the type: that of the servers is unknown.
_METADATA_OF_TREES: Final = KINDS["btrfs"].journal


def bytes_claims(
    direction: str,
    claimed: int,
    *,
    source: str = "",
    copies: tuple[float, float] = (1.0, 1.0),
    beside: int = 0,
    operations: int | None = None,
    calls: int | None = None,
    asked: int | None = None,
    most_asked: int | None = None,
    own: int | None = None,
    counted: int | None = None,
    least: int | None = None,
    passed: int | None = None,
) -> list[Claim]:
    """Return the claims of an execution that moved bytes, with the words of all that counted them, None if unknown.

    ``asked`` is what the tasks passed to the kernel, at most ``most_asked`` if they read their data alone. ``own`` is what
    the kernel moved for them, with ``beside``: whole pages, and what was read ahead. ``counted`` is what the devices or the
    client under the mount moved for all; ``source`` names them. ``least`` is the lowest count on the way down to the disks.
    A file system writes ``copies`` bytes for each byte, at least and at most. If nothing under the mount counts,
    ``passed`` is what passed the networks and disks that carried all the case wrote. The tool moved the bytes in
    ``operations``, for which its tasks made ``calls``.
    """
    done = "read" if direction == "read" else "wrote"
    fewest = copies[0] if direction == "write" else 1.0
    words = [
        BYTES.most(
            f"{who} {format_bytes(max(0, count))}", count / of_each, exact=exact and bool(source)
        )
        for count, of_each, who, exact in (
            (asked, 1.0, "its tasks asked the kernel for", False),
            (own, 1.0, "the kernel moved for its tasks", True),
            (counted, fewest, f"{source} moved", True),
            (least, 1.0, f"a device below {source or 'the mount'} moved", False),
            (passed, 1.0, f"{_PASSAGES} moved", False),
        )
        if count is not None
    ]
    if asked is not None and most_asked is not None and asked > most_asked:
        words.append(
            Bounds(f"its tasks asked the kernel for {format_bytes(asked)}", least=math.inf)
        )
    if own is not None:
        saw = f"the kernel moved for its tasks {format_bytes(own)}"
        words.append(BYTES_BESIDE.least(saw, own - beside))
    claims = [Claim(f"the tool {done} {format_bytes(claimed)}, as it says", claimed, words)]
    if operations and calls is not None:
        called = BYTES.most(f"its tasks called the kernel {calls} times for that", calls)
        says = f"the tool {done} {operations} times, as it says"
        claims.append(Claim(says, operations, [called]))
    return claims


def bytes_witnessed(
    *, executions: Sequence[Sequence[Claim] | None], source: str, required: bool = False
) -> Finding:
    """G8: ``executions`` holds the claims of each execution, None if a witness is missing. ``source`` names the counter
    under the mount, empty if there is none.
    """
    words = [w for claims in executions for claim in claims or () for w in claim.words if w.exact]
    least = min((word.most * (1 - BYTES.share) for word in words), default=0.0)
    unseen = (
        f"{source} could not be read. Before Lustre 2.17 only root can read it: run as root, or update the client"
        if source
        else "nothing under the mount counts bytes that this user may read"
    )
    finding = settle(
        "G8 witness",
        executions,
        fine=f"{source}: {format_bytes(least)} or more in each execution",
        unseen=unseen,
        required=required,
        tolerance=BYTES.share,
    )
    return finding


def bytes_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G8 for phases that report bytes."""
    required = seen.case.extras.limits.witness == "required"
    if seen.phase.witnessed and seen.access.direction == "elsewhere":
        yield _past_the_target(seen, required)
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
    if not executions and claimed.count(None) == len(claimed):
        return
    executions += [None] * (len(seen.outputs) - len(executions))
    yield bytes_witnessed(executions=executions, source=seen.case.source, required=required)


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
        return [passed.get(name, Moved()).written / claimed for passed, claimed in writes]

    names = {name for passed, _ in writes for name in passed}
    carried = [name for name in names if min(shares(name)) >= 1 - BYTES.share]
    single = [name for name in carried if name]
    return [name for name in single if max(shares(name)) <= 1 + BYTES.share] or single or carried


def _past_the_target(seen: PhaseSeen, required: bool) -> Finding:
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
        claims = bytes_claims(
            "read",
            claimed,
            source=source,
            own=testimony.moved.read if seen.phase.of_devices else None,
            least=moved.read if moved else None,
        )
        heard = testimony.complete and testimony.speaks_of_tasks
        executions.append(claims if heard else None)
    return bytes_witnessed(executions=executions, source=source, required=required)


def _claims_of(
    seen: PhaseSeen, output: ToolOutput, testimony: Testimony, claimed: int, way: str
) -> list[Claim] | None:
    """Return the claims of an execution, or None if a witness is missing."""
    if not testimony.complete:
        return None
    case, speaks = seen.case, testimony.speaks_of_tasks
    counted, least = testimony.counted(case.counters), testimony.counted(case.disks)
    # MPI-IO merges what tasks transfer, and reads what others send.
    posix = not output.totals and output.parameters.get("api") in (None, "POSIX")
    # Who reads the data twice finds them in a cache. Tasks also read libraries.
    most = round((1 + BYTES.share) * claimed + BYTES_BESIDE.slack * testimony.expected)
    passed = testimony.passed(case.ways)
    through = [passed.get(name, Moved()).way(way) for name in _carriers(case)]
    told = testimony.calls.read > 0 and posix and speaks and _synchronous(output)
    beside = _beside(seen, way)
    if way == "read" and not seen.access.o_direct:
        # If memory is short, pages that were read ahead are dropped and fetched again.
        beside = max(beside, claimed // _DROPPED)
    return bytes_claims(
        way,
        claimed,
        source=case.source,
        copies=case.copies,
        beside=beside,
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
    """G11: ``counted`` holds the bytes by target (``OST000a``, index in hexadecimal) that the client counted in the phase's
    direction. ``held`` are the numbers of the targets in the files' layouts; ``whole`` says that the phase moves all of
    their bytes. Returns None if no target counts, or if the files lie on no target.
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
        more = f" and {len(silent) - 1} more" if silent[1:] else ""
        saw += f"; none with ost{silent[0]:04x}{more}"
    return rule("G11 bytes by target", "" if whole else "part").decide(not (silent and whole), saw)


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


def seconds_claims(
    claimed: float,
    *,
    ran: float | None = None,
    moving: float | None = None,
    seen_by: str = "",
    making: float | None = None,
    asked: float | None = None,
    timed: float = 0.0,
    working: float | None = None,
) -> list[Claim]:
    """Return the claims of an execution that took seconds, with the words of all that saw it, None if nobody did.

    ``ran`` lies between start and end of its processes. ``moving`` lies between the first and the last bytes on the
    devices, or that a task passed to the kernel, at least; ``seen_by`` says who saw it. ``making`` lies between the first
    and the last file that it made or removed. ``working``: it did hardly more than what it times. It was told to run for
    ``asked``, and says that it did for ``timed``: beside a disturber, which runs longer, this is the time of what is measured.
    """
    words = []
    if ran is not None:
        words.append(CLOCK.most(f"its processes ran {format_seconds(ran)}", ran, firm=True))
    if moving is not None:
        saw = f"its bytes moved for {format_seconds(moving)}{because(seen_by)}"
        words.append(SECONDS.least(saw, moving, exact=True))
    if making is not None:
        saw = f"the target's files changed for {format_seconds(making)}"
        words.append(SECONDS.least(saw, making, exact=True))
    if working is not None:
        saw = f"it worked for {format_seconds(working)}"
        words.append(WORK.least(saw, working, exact=True, often=True))
    claims = [Claim(f"the tool reports {format_seconds(claimed)}", claimed, words)]
    if asked is not None:
        word = SECONDS.least(f"it was told to run {format_seconds(asked)}", asked)
        claims.insert(0, Claim(f"the tool reports {format_seconds(timed)}", timed, [word]))
    return claims


def seconds_witnessed(
    *,
    executions: Sequence[Sequence[Claim] | None],
    rests: bool = False,
    required: bool = False,
    busy: str = "",
) -> Finding:
    """G4: ``executions`` holds the claims of each execution, None if nobody saw it.

    ``rests`` means that the tool rests on purpose: then the run time must do. ``required`` comes from ``limits.witness``.
    """
    heard = sum(claims is not None for claims in executions)
    return settle(
        "G4 clock",
        executions,
        fine=f"{heard} of {len(executions)} execution(s) confirmed",
        unseen="" if rests else "nobody saw how long the tool was at work",
        required=required,
        busy=busy,
    )


def seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases that are timed."""
    if not seen.phase.witnessed or not seen.outputs:
        return
    executions: list[Sequence[Claim] | None] = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        if testimony.complete:
            timed = output.timed
            moving = _moving(seen, output, testimony)
            seconds, seen_by = max(moving, key=lambda found: found[0] or 0.0)
            executions.append(
                seconds_claims(
                    output.disturber.phase.seconds if output.disturber else timed,
                    ran=testimony.seconds,
                    moving=seconds,
                    seen_by=seen_by,
                    making=_making(seen, output, testimony),
                    asked=told_seconds(output),
                    timed=timed,
                    working=_working(seen, output, testimony),
                )
            )
    yield seconds_witnessed(
        executions=executions + [None] * (len(seen.outputs) - len(executions)),
        rests=seen.phase.pauses,
        required=seen.case.extras.limits.witness == "required",
        busy=seen.case.busy,
    )


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
    # Metadata reach the devices in the sync after the tool; between both no clock runs, and data move.
    of_data = (
        case.counters
        and not seen.phase.syncs
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


def phase_witnessed(
    *, direction: str, parts: Sequence[tuple[int, int | None] | None], copies: float = 1.0
) -> Finding:
    """G8: ``parts`` holds two bytes of each execution on the first node: what its tasks moved, as the tool says, and what
    its counters moved while the phase ran. The second is None if nobody counted. An execution that does not say when its
    phase ran is None. A file system writes ``copies`` bytes for each byte, at least.
    """
    done = "read" if direction == "read" else "wrote"
    of_each = copies if direction == "write" else 1.0
    counts = [(part[0], part[1]) for part in parts if part is not None and part[1] is not None]
    claims = []
    for claimed, counted in counts:
        saw = f"while the phase ran its counters moved {format_bytes(counted)}"
        says = f"the tasks of the first node {done} {format_bytes(claimed)}, as the tool says"
        claims.append(Claim(says, claimed, [BYTES.most(saw, counted / of_each)]))
    fine = f"{format_bytes(min((n for _, n in counts), default=0))} or more while it ran"
    finding = settle("G8 witness by phase", [claims], fine=fine, tolerance=BYTES.share)
    if finding.saw == fine and len(counts) < len(parts):
        missing = f"{len(parts) - len(counts)} of {len(parts)} execution(s) by phase"
        return rule("G8 witness by phase", "uncounted").warn(f"nobody counted {missing}")
    return finding


def phase_seconds_witnessed(
    *, parts: Sequence[tuple[float, float | None]], busy: str = ""
) -> Finding | None:
    """G4: ``parts`` holds the seconds of the phase, as the tool says, and those between its first and last bytes, at least.

    Returns None if these are unknown.
    """
    known = [
        seconds_claims(claimed, moving=moving) for claimed, moving in parts if moving is not None
    ]
    fine = f"{len(known)} of {len(parts)} execution(s) confirmed"
    return settle("G4 clock by phase", known, fine=fine, busy=busy) if known else None


def _span_of(
    output: ToolOutput, phase: Phase, clock: tuple[float, float], utc_offset: int
) -> tuple[float, float] | None:
    """Return the earliest begin and the latest end of a phase, in seconds since the first node's boot; None if the
    output does not say when it ran.

    ``clock`` holds the least and the most of the seconds since the epoch at boot.
    """
    dates = {moment.name: moment.seconds - utc_offset for moment in output.moments if moment.local}
    begun, ended = dates.get(f"{phase.name} t_start"), dates.get(f"{phase.name} t_end")
    lengths = output.parameters.get("lengths")
    length = lengths.get(phase.name) if isinstance(lengths, dict) else None
    if begun is None or ended is None or length is None:
        return None
    least, most = clock
    return max(begun, ended - length) - most, min(ended + 1, begun + 1 + length) - least


#: A phase in an execution, on the first node: bytes as its tasks say and as counted, seconds as the tool says and as seen.
_Part = tuple[int, int | None, float, float | None]


def _parts(seen: PhaseSeen) -> list[_Part | None]:
    """Return the phase in each execution, or None if the execution does not say when it ran."""
    case, way = seen.case, seen.access.direction
    first, name = case.evidence.first, seen.phase.within or seen.phase.name
    if first is None:
        return [None] * len(seen.reported)
    hosts = {view.host for view in case.evidence.views if view.cache_id == first.cache_id}
    counts = not case.silent(first).intersection(first.counters)
    share, instants = len(hosts) / case.plan.nodes, case.evidence.activity if counts else ()
    runs = [run for run in case.evidence.runs if run.name == name and run.repetition > 0]
    found: list[_Part | None] = []
    for (output, phase), run in zip(seen.reported, runs, strict=False):
        span = _span_in(output, phase, run, case.evidence.clocks)
        if span is None or phase.bytes_moved is None:
            found.append(None)
            continue
        own = round(share * phase.bytes_moved)
        counted = counted_between(instants, span, way)
        # Clients of a network count what programs ask for, or in the background.
        least = max(round((1 - BYTES.share) * own), BYTES_BESIDE.slack)
        timed = not case.on_network and counted is not None and counted >= least
        copied = round(own * case.copies[1]) if way == "write" else own
        moving = seconds_of_activity(instants, span, copied) if timed else None
        found.append((own, counted, phase.seconds, moving))
    return found + [None] * (len(seen.reported) - len(found))


def _span_in(
    output: ToolOutput, phase: Phase, run: PhaseRun, clocks: Sequence[ClockSeen]
) -> tuple[float, float] | None:
    """Return the span of a phase that lies within an execution by a look at a clock; None if none does.

    The tool's local time may be another than the node's.
    """
    for clock in clocks:
        span = _span_of(output, phase, (clock.least, clock.most), clock.utc_offset)
        if span and run.started - SLACK_S <= span[0] and span[1] <= run.ended + SLACK_S:
            return span
    return None


def phase_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G8 for phases of IOR within an execution of several phases."""
    if seen.moves_data and _of_several(seen):
        parts = [None if part is None else part[:2] for part in _parts(seen)]
        yield phase_witnessed(
            direction=seen.access.direction, parts=parts, copies=seen.case.copies[0]
        )


def phase_seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases of IOR within an execution of several phases, if their bytes were counted."""
    if seen.moves_data and _of_several(seen):
        parts = [part[2:] for part in _parts(seen) if part is not None]
        if finding := phase_seconds_witnessed(parts=parts, busy=seen.case.busy):
            yield finding


def _of_several(seen: PhaseSeen) -> bool:
    """Return whether the phase is one of several, and of IOR, whose writes end with fsync."""
    several = any("lengths" in output.parameters for output in seen.outputs)
    return several and all("bw" in phase.rates for phase in seen.tool_phases)


def storage(
    *,
    traits: Traits,
    made: Sequence[Claim] = (),
    most: int = 0,
    counted: bool = True,
    required: bool = False,
) -> Finding:
    """G9: ``made`` holds the files of each execution with what looked for them (:func:`files_claim`), ``most`` the most
    operations of one. ``counted`` tells whether something under the mount counts, and a sync reaches it.
    """
    if traits.cache == "memory":
        saw = f"the target is memory, not storage{because(traits.why)}"
        return rule("G9 storage").invalid(saw)
    if traits.unsynced:
        return rule("G9 storage").invalid(f"fsync proves nothing here{because(traits.unsynced)}")
    unseen = (
        f"{most} file(s) were made or removed, and nothing under the mount counts"
        if not counted and most >= LEAST_FILES
        else ""
    )
    fine = "the target is storage"
    return settle("G9 storage", [made], fine=fine, unseen=unseen, required=required)


def files_claim(files: int, *, written: int | None = None, found: int | None = None) -> Claim:
    """Return the claim of an execution that made files: ``written`` is what the target's devices wrote meanwhile, ``found``
    how many files the case's directory held then, counted up to :data:`MOST_FOUND`; None if unknown.
    """
    words = []
    if found is not None and found < MOST_FOUND:
        saw = f"the case's directory holds {found}, not counting links: the files lay elsewhere"
        words.append(Bounds(saw, most=found))
    if written is not None and files >= LEAST_FILES:
        saw = f"the target's devices wrote {format_bytes(written)}: the files lay elsewhere"
        words.append(Bounds(saw, most=written / _INODE_BYTES))
    return Claim(f"{files} file(s) were made", files, words)


def storage_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.access.direction != "metadata":
        return
    case, made, most = seen.case, [], 0
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        counted = testimony.counted(case.counters) if testimony.complete else None
        operations: Counter[str] = Counter()
        for phase in output.phases:
            operations[phase.name] += phase.operations or 0
        # Clients of a network count data alone. fio may remove what it made before it is written, and does beside another load.
        if output.parameters.get("unlink") != "1" and not output.disturber:
            most = max(most, operations["create"], operations["remove"])
            # Without a sync, new inodes may wait in memory for half a minute.
            there = counted and seen.phase.syncs and not case.on_network
            written = counted.written if there and counted else None
            found = case.found_after(testimony)
            made.append(files_claim(operations["create"], written=written, found=found))
    yield storage(
        traits=case.traits,
        made=made,
        most=most,
        counted=bool(case.counters) and case.kind.syncs,
        required=case.extras.limits.witness == "required",
    )
