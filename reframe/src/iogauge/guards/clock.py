"""Guards that compare a tool's seconds with those in which its processes ran and its bytes and files moved (G4)."""

from __future__ import annotations

from typing import Final

from iogauge.core.measurement import Phase
from iogauge.core.text import because
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence import times
from iogauge.evidence.model import ClockReading
from iogauge.guards.agreement import (
    BYTES,
    BYTES_BESIDE,
    CLOCK,
    SECONDS,
    Bounds,
    ReportedFigure,
    Tolerance,
    lost_of,
    settle,
)
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import LEAST_FILES, SLACK_S, Execution, PhaseView
from iogauge.tools.fio.output import told_seconds

#: Work beside what a tool times. An mdtest that only asks for the status of files does hardly anything else: at a load of
#: 13 to 16 on two cores 45 runs worked 0.32 s longer at most.
_WORK: Final = Tolerance(0.2, 1.0)
_WORK_OF_STAT: Final = Tolerance(0.1, 0.5)
#: Seconds until all tasks are connected, on one node and on several, if no line of the tool says it.
_START_S: Final = 5.0
_STARTS_S: Final = 20.0
_START_OF_NODE_S: Final = 0.1
#: Bytes that are too few to say for how long they moved.
_TIMED_BYTES: Final = 1 << 20
_MAKES_FILES: Final = {"create", "precreate", "benchmark"}
#: What a tool does in an execution of which it reports all.
_REPORTED: Final = {"create", "stat", "remove"}

_TOOL: Final = "The tool's clock is wrong. Look for a preloaded library, or another tool of this name"
_SECONDS: Final = Guard(
    "G4 clock",
    "no execution reports more seconds than its processes ran, or fewer than its bytes or files took on the target",
    "The tool's clock is wrong. Look for a preloaded library, or another tool of this name",
    "b: a preloaded libfaketime ran the tool's clock at half speed, and doubled the rate",
    "ext4, XFS, GlusterFS, NFS, Lustre 2.17",
    but="or CONTAMINATED on a busy node",
    demands="seconds that the job's own clock confirms",
    more="The same holds for the time in which its first task passed its bytes to the kernel. The first node counts them five "
    "times a second, and more often while a phase begins. No execution of fio reports fewer seconds than fio was told to "
    "run. A tool may work for a quarter longer than it reports, and a second; an mdtest that only asks for the status of "
    "files may work a ninth longer, and half a second. If more than half of the executions work longer, the case is "
    "INVALID. mdtest works from the line with the number of its files to its results. fio works while all of its jobs have "
    "processes; its buffered writes are left out. If only the run time bounds the seconds of all executions, you get a "
    "remark. On a node whose load exceeded its cores by others' work, a contradiction is CONTAMINATED: there a healthy tool "
    "waits for a processor.",
)


def seconds_figures(
    reported: float,
    *,
    ran: float | None = None,
    moving: float | None = None,
    source: str = "",
    making: float | None = None,
    asked: float | None = None,
    timed: float = 0.0,
    working: float | None = None,
    work: Tolerance = _WORK,
) -> list[ReportedFigure]:
    """Return the figures of an execution that took seconds, with the bounds of all that saw it, None if nobody did.

    ``ran`` lies between start and end of its processes. ``moving`` lies between the first and the last bytes on the
    devices, or that a task passed to the kernel, at least; ``source`` says who saw it. ``making`` lies between the first
    and the last file that it made or removed. ``working``: it did hardly more than what it times, see ``work``. It was
    told to run for ``asked``, and reports ``timed``: beside a disturber, which runs longer, this is the time of what is
    measured.
    """
    bounds: list[Bounds] = []
    if ran is not None:
        saw = f"its processes ran {format_seconds(ran)}"
        bounds.append(CLOCK.most(saw, ran, firm=True))
    if moving is not None:
        saw = f"its bytes moved for {format_seconds(moving)}{because(source)}"
        bounds.append(SECONDS.least(saw, moving, exact=True))
    if making is not None:
        saw = f"the target's files changed for {format_seconds(making)}"
        bounds.append(SECONDS.least(saw, making, exact=True))
    if working is not None:
        saw = f"it worked for {format_seconds(working)}"
        bounds.append(work.least(saw, working, exact=True, often=True))
    says = f"the tool reports {format_seconds(reported)}"
    figures = [ReportedFigure(says, reported, bounds)]
    if asked is not None:
        bound = SECONDS.least(f"it was told to run {format_seconds(asked)}", asked)
        says = f"the tool reports {format_seconds(timed)}"
        figures.insert(0, ReportedFigure(says, timed, [bound]))
    return figures


def seconds_witnessed(phase: PhaseView) -> Finding | None:
    """Return G4 for phases that are timed. If the tool rests on purpose, the run time must do."""
    if not phase.phase.witnessed or not phase.outputs:
        return None
    case, complete = phase.case, phase.complete
    executions = []
    for execution in phase.executions:
        figures = _figures(execution)
        if not execution.complete:
            figures = [figure.of_a_part for figure in figures]
        executions.append(figures)
    unseen = None
    if not phase.phase.pauses:
        guard = _SECONDS.saying(
            "a witness of the seconds beside the tool",
            "The tool may report fewer seconds than it took, and so too high a rate. Use an engine that the kernel counts "
            "(psync), or longer phases",
        )
        unseen = guard.unwitnessed(
            "nobody saw how long the tool was at work",
            case.witness_asked,
        )
    return settle(
        _SECONDS,
        executions,
        fine=f"{sum(complete)} of {len(complete)} execution(s) confirmed",
        unseen=unseen,
        lost=lost_of(_SECONDS, complete, phase.nodes_lost, case.lines_required),
        busy=case.busy,
    )


def _figures(execution: Execution) -> list[ReportedFigure]:
    output, counts = execution.output, execution.counts
    reported = output.timed
    if output.disturber:
        reported = output.disturber.phase.seconds
    working, work = _working(execution)
    moving, source = _moving(execution)
    return seconds_figures(
        reported,
        ran=counts.seconds if counts.witnesses else None,
        moving=moving,
        source=source,
        making=_making(execution),
        asked=told_seconds(output),
        timed=output.timed,
        working=working,
        work=work,
    )


def _working(execution: Execution) -> tuple[float | None, Tolerance]:
    """Return the seconds in which an execution did hardly more than what it times, at least, and by how much they may
    differ; None if unknown.

    mdtest prints how many files there are when all tasks are connected, and its results at the end. fio makes a
    process for each job when its files are laid out.
    """
    phase, output, case = execution.view, execution.output, execution.case
    span, parameters = execution.span, output.parameters
    if span is None or not execution.counts.of_tasks:
        return None, _WORK
    if phase.phase.pauses or output.disturber:
        return None, _WORK
    done = {reported.name for reported in output.but_trees}
    if output.tool == "fio":
        # What is written to the page cache may reach storage after the tool has stopped its clock.
        way = phase.access.direction
        timed = phase.access.o_direct or way in ("read", "elsewhere")
        if "ramp_time" in parameters or not (timed or done <= _REPORTED):
            return None, _WORK
        return times.seconds_of_jobs(case.evidence.processes, span), _WORK
    reports_all = done <= _REPORTED
    if output.tool == "mdtest":
        reports_all = done <= _REPORTED | {"read"}
    if not reports_all:
        return None, _WORK
    begins_at, iterations = parameters.get("begins_at"), parameters.get("iterations")
    begins = begins_at if isinstance(begins_at, int) else 1
    worked, work = times.longest_silence(case.evidence.printed, span, begins), _WORK
    if worked is None:  # Something kept the output back, until its end.
        start = _START_S
        if case.plan.nodes > 1:
            start = _STARTS_S + _START_OF_NODE_S * case.plan.nodes
        worked = execution.counts.seconds - start
    elif done == {"stat"}:
        work = _WORK_OF_STAT
    # mdtest reports the mean of its iterations.
    if isinstance(iterations, int):
        worked /= iterations
    return worked, work


def _making(execution: Execution) -> float | None:
    """Return the seconds in which an execution made or removed its files, with the sync after it; None if unknown."""
    changed = execution.files_changed
    if changed is None:
        return None
    span, files = changed
    if abs(files) < LEAST_FILES:
        return None
    seconds = times.seconds_of_files(execution.case.evidence.activity, span, files)
    if seconds is not None and execution.view.phase.syncs:
        seconds += execution.counts.sync_seconds or 0.0
    return seconds


def _moving(execution: Execution) -> tuple[float | None, str]:
    """Return the seconds in which an execution's bytes moved on the first node, None if unknown, and who saw it."""
    asking = _asking(execution)
    counted = _moving_on_devices(execution)
    if counted is not None and counted > (asking or 0.0):
        return counted, "counted on the devices"
    return asking, "asked for by its first task"


def _moving_on_devices(execution: Execution) -> float | None:
    """Return the seconds in which an execution's bytes moved on the devices of the first node; None if unknown."""
    phase, case, span = execution.view, execution.case, execution.span
    hosts = case.with_first
    if span is None or not hosts or not case.counters or case.on_network:
        # Clients of a network count what programs ask for, or in the background.
        return None
    if phase.phase.syncs or phase.access.direction in ("elsewhere", "metadata"):
        # Metadata reach the devices in the sync after the tool; between both no clock runs, and data move.
        return None
    if phase.phase.pauses or execution.output.stretches != 1:
        return None
    if len(hosts) > 1 and not execution.counts.of_tasks:
        # Each server starts its clock when it is ready: their bytes move for longer than any of them measures.
        return None
    # Tasks read programs and libraries before the tool's time begins, if nobody did lately. The tool does not report them.
    own, reported = execution.own(hosts), execution.reported_on(hosts)
    written = round(min(own.written, reported.written) * case.copies[1])
    moved = min(own.read, reported.read) + written
    if moved < _TIMED_BYTES:
        return None
    return times.seconds_of_activity(case.evidence.activity, span, moved)


def _asking(execution: Execution) -> float | None:
    """Return the seconds in which the first task of the first node passed its data to the kernel; None if unknown.

    A tool may rest between two phases that it runs in one execution.
    """
    span, output = execution.span, execution.output
    names = {phase.name for phase in output.phases}
    ways = names & {"read", "write"}
    if output.totals or names & _MAKES_FILES:
        # What makes files may also write data to them; without data nothing is known. IO500 does all of this.
        ways = {"read", "write"}
    if span is None or not ways:
        return None
    if execution.view.phase.pauses or not execution.synchronous:
        return None
    asked = execution.case.evidence.asked
    return times.seconds_of_asking(asked, span, ways, phases=output.stretches)


_BY_PHASE: Final = Guard(
    "G8 witness by phase",
    "while a phase of IO500's IOR ran, the first node counted its bytes, and for no longer than the phase reports",
    "The data went elsewhere, or the tool's clock is wrong. Look for a cache or a preloaded library",
    "b: an fsync that does nothing: the bytes of a phase were written in the next one",
    "ext4",
    but="CONTAMINATED on a busy node, or a remark",
    demands="the first node counts what the phase reports, while it ran",
    more="The dates that IO500 prints give the time of the phase, to a second. If nothing was counted meanwhile, you get a "
    "remark.",
)


def phase_witnessed(phase: PhaseView) -> Finding | None:
    """Return G8 for phases of IOR, whose writes end with fsync, within an execution of several phases.

    IO500 writes down when each phase began and ended, cut to whole seconds, and its length in full. So begin and end are
    known within a second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can
    make none missing.
    """
    several = any("lengths" in output.parameters for output in phase.outputs)
    of_ior = phase.moves_data and all("bw" in part.rates for part in phase.tool_phases)
    if not several or not of_ior:
        return None
    executions = []
    for execution, part in phase.reported:
        figures = _moved_in(execution, part)
        if figures:
            executions.append(figures)
    missing = len(phase.reported) - len(executions)
    uncounted = _BY_PHASE.saying(
        "counters of the first node for each phase",
        "The bytes are proven for the whole run only. Block devices, NFS and, for root, a Lustre client count them over time",
    ).warn(f"nobody counted {missing} of {len(phase.reported)} execution(s) by phase")
    return settle(
        _BY_PHASE,
        executions,
        fine=f"{len(executions)} execution(s) counted while the phase ran",
        lost=uncounted if missing else None,
        busy=phase.case.busy,
    )


def _moved_in(execution: Execution, part: Phase) -> list[ReportedFigure]:
    """Return the bytes of a phase on the first node, and its seconds, with what was counted there while it ran; empty if
    nobody counted.
    """
    case, way = execution.case, execution.view.access.direction
    first, span = case.evidence.first, None
    for clock in case.evidence.clocks:
        span = span or _span_of(execution, part, clock)
    if first is None or span is None or part.bytes_moved is None:
        return []
    if case.silent(first).intersection(first.counters):
        return []
    instants = case.evidence.activity
    counted = times.counted_between(instants, span, way)
    if counted is None:
        return []
    own = round(len(case.with_first) / case.plan.nodes * part.bytes_moved)
    least, most, done = 1.0, 1.0, "read"
    if way == "write":
        (least, most), done = case.copies, "wrote"
    saw = f"while the phase ran its counters moved {format_bytes(counted)}"
    bound = BYTES.most(saw, counted / least, firm=True)
    says = f"the tasks of the first node {done} {format_bytes(own)}, as the tool says"
    figures = [ReportedFigure(says, own, [bound])]
    # Clients of a network count what programs ask for, or in the background.
    enough = max((1 - BYTES.share) * own, BYTES_BESIDE.slack)
    if not case.on_network and counted >= enough:
        moving = times.seconds_of_activity(instants, span, round(own * most))
        figures += seconds_figures(part.seconds, moving=moving)
    return figures


def _span_of(
    execution: Execution, part: Phase, clock: ClockReading
) -> tuple[float, float] | None:
    """Return the earliest begin and the latest end of a phase, in seconds since the first node's boot; None if the
    output does not say when it ran, or not within the execution by this look at a clock.

    The tool's local time may be another than the node's.
    """
    output, run = execution.output, execution.run(execution.view.phase)
    lengths = output.parameters.get("lengths")
    dates = {
        moment.name: moment.seconds - clock.utc_offset
        for moment in output.moments
        if moment.local
    }
    begun, ended = dates.get(f"{part.name} t_start"), dates.get(f"{part.name} t_end")
    length = lengths.get(part.name) if isinstance(lengths, dict) else None
    if run is None or begun is None or ended is None or length is None:
        return None
    begin = max(begun, ended - length) - clock.most
    end = min(ended + 1, begun + 1 + length) - clock.least
    if begin < run.started - SLACK_S or end > run.ended + SLACK_S:
        return None
    return begin, end
