"""Guards that compare a tool's seconds with those in which its processes ran and its bytes and files moved (G4)."""

from typing import Any

from iogauge.core.text import because
from iogauge.core.units import format_seconds
from iogauge.core.vocabulary import MDTEST
from iogauge.evidence import times
from iogauge.guards.agreement import (
    CLOCK,
    SECONDS,
    Bounds,
    ReportedFigure,
    Tolerance,
    lost_of,
    settle,
)
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import LEAST_FILES, Execution, PhaseView
from iogauge.tools.fio.fio_output import time_limit_s

#: Work beside what a tool times. An mdtest that only asks for the status of files does hardly anything else: at a load of
#: 13 to 16 on two cores 45 runs worked 0.32 s longer at most.
_WORK = Tolerance(0.2, 1.0)
_WORK_OF_STAT = Tolerance(0.1, 0.5)
#: Seconds until all tasks are connected, on one node and on several, if no line of the tool says it.
_START_S = 5.0
_STARTS_S = 20.0
_START_OF_NODE_S = 0.1
#: Seconds between two looks at the bytes and inodes, at most.
_LOOK_S = 0.2
#: A source confirms seconds that are so many times as long as what it may miss.
_CONFIRMS = 5
#: Bytes that are too few to say for how long they moved.
_TIMED_BYTES = 1 << 20

_SECONDS = Guard(
    name="G4 seconds",
    must="no execution reports more seconds than its processes ran, or fewer than its bytes took on the target",
    remedy="Its tasks did not start together (raise limits.case_bytes), or its clock is wrong: look for a preloaded library, or another tool of this name",
    against="b: a preloaded libfaketime ran the tool's clock at half speed, and doubled the rate",
    seen_on="ext4, XFS, GlusterFS, NFS, Lustre 2.17",
    but="or CONTAMINATED on a busy node",
    demands="seconds that the job's own clock confirms",
    more="The same holds for the time in which its first task passed its bytes to the kernel. The first node counts them five "
    "times a second, and more often while a phase begins. No execution of fio reports fewer seconds than fio was told to "
    "run. A tool may work for a quarter longer than it reports, and a second; an mdtest that only asks for the status of "
    "files may work a ninth longer, and half a second. If more than half of the executions work longer, the case is "
    "INVALID. mdtest works from the line with the number of its files to its results. While it makes or removes files, the inodes in "
    "use say for how long, where they are counted (G19); XFS says it of new files alone. If only the run time bounds the seconds of all executions, you get a "
    "remark. The same holds if the bytes moved and the files changed for less than a second, and mdtest worked for less than five. If the first node did not look at its devices for a second while a tenth of the bytes moved, its looks are lost. "
    "Such looks at the first task confirm nothing. "
    "On a node that others keep busy, a contradiction is CONTAMINATED: there a healthy tool "
    "waits for a processor.",
)


def reported_seconds(
    reported: float,
    *,
    ran: float | None = None,
    moving: float | None = None,
    source: str = "",
    unseen: float = 0.0,
    changing: float | None = None,
    asked: float | None = None,
    working: float | None = None,
    work: Tolerance = _WORK,
) -> ReportedFigure:
    """Return the seconds of an execution, with the bounds of all that saw it, None if nobody did.

    ``ran`` lies between start and end of its processes. ``moving`` lies between the first and the last bytes on the
    devices, or that a task passed to the kernel, at least; ``source`` says who saw it, but for ``unseen`` seconds in which a
    tenth of them moved. ``changing``: its files were made or
    removed, at least. ``working``: it did hardly more than what it times, see ``work``. It was told to run for ``asked``.
    """
    bounds: list[Bounds] = []
    if asked is not None:
        bounds.append(
            Bounds(f"it was told to run {format_seconds(asked)}", SECONDS.least(asked))
        )
    if ran is not None:
        saw = f"its processes ran {format_seconds(ran)}"
        bounds.append(Bounds(saw, most=CLOCK.most(ran), firm=True))
    if moving is not None:
        saw = f"its bytes moved for {format_seconds(moving)}{because(source)}"
        is_exact = moving >= _CONFIRMS * _LOOK_S > unseen
        bounds.append(Bounds(saw, SECONDS.least(moving), exact=is_exact))
    if changing is not None:
        saw = f"the inodes in use changed for {format_seconds(changing)}"
        is_exact = changing >= _CONFIRMS * _LOOK_S
        bounds.append(Bounds(saw, SECONDS.least(changing), exact=is_exact))
    if working is not None:
        saw = f"it worked for {format_seconds(working)}"
        is_exact = working >= _CONFIRMS * work.slack
        bounds.append(Bounds(saw, work.least(working), exact=is_exact, often=True))
    says = f"the tool reports {format_seconds(reported)}"
    return ReportedFigure(says, reported, bounds)


def seconds_witnessed(phase: PhaseView) -> Finding | None:
    """Return G4 for phases that are timed. If the tool rests on purpose, the run time must do."""
    if not phase.plan.witnessed or not phase.outputs:
        return None
    case, complete = phase.case, phase.complete
    executions = []
    for execution in phase.executions:
        figure = _figure(execution)
        if not execution.complete:
            figure = figure.of_a_part
        executions.append([figure])
    unseen = None
    if not phase.plan.pauses:
        guard = _SECONDS.saying(
            "a witness of the seconds beside the tool",
            "The tool may report fewer seconds than it took, and so too high a rate. Use an engine that the kernel counts "
            "(psync), or longer phases",
        )
        unseen = guard.unwitnessed(
            "no count shows how long the tool was at work, or it worked for too short a time to tell",
            case.witness_asked,
        )
    lost = lost_of(_SECONDS, complete, phase.nodes_lost, case.lines_required)
    return settle(
        _SECONDS,
        executions,
        fine=f"{sum(complete)} of {len(complete)} execution(s) confirmed",
        unseen=unseen,
        lost=lost or _looks_lost(phase),
        busy=phase.busy,
    )


def _looks_lost(phase: PhaseView) -> Finding | None:
    """Return that nobody looked at the devices while bytes of a phase moved; None if somebody did, or if no clock of theirs counts.

    Where others keep a node busy, its looks are late, and late ones do not count.
    """
    case = phase.case
    if not (case.kind.accounts and case.counters and phase.moves_data) or phase.busy:
        return None
    looks = [(instant.time, instant.bytes_moved) for instant in case.evidence.moved]
    unseen = 0.0
    for execution in phase.executions:
        if execution.span is not None:
            unseen = max(unseen, times.longest_unseen(looks, execution.span))
    if unseen < _CONFIRMS * _LOOK_S:
        return None
    guard = _SECONDS.saying(
        "looks at the counters of the devices while bytes move",
        "The agent of the first node was stopped, or had no processor. See what stopped it, and run again",
    )
    saw = f"nobody looked at the counters for {format_seconds(unseen)}"
    return guard.unwitnessed(saw, case.lines_required)


def _figure(execution: Execution) -> ReportedFigure:
    output, counts = execution.output, execution.counts
    working, work = _working(execution)
    ran = None
    if counts.witnesses:
        ran = counts.seconds
    moving, source, unseen = _moving(execution)
    return reported_seconds(
        output.timed,
        ran=ran,
        moving=moving,
        source=source,
        unseen=unseen,
        changing=_changing(execution),
        asked=time_limit_s(output),
        working=working,
        work=work,
    )


def _working(execution: Execution) -> tuple[float | None, Tolerance]:
    """Return the seconds in which an execution did hardly more than what it times, at least, and by how much they may
    differ; None if unknown.

    mdtest prints how many files there are when all tasks are connected, and its results at the end. Between them it also
    makes or removes trees, which it times apart.
    """
    output, case, span = execution.output, execution.case, execution.span
    if output.tool != MDTEST or execution.phase.plan.pauses or span is None:
        return None, _WORK
    done = {reported.name for reported in output.phases}
    begins: Any = output.parameters.get("begins_at", 1)
    worked, work = times.longest_silence(case.evidence.printed, span[0], begins), _WORK
    if worked is None:  # Something kept the output back, until its end.
        start = _START_S
        if case.plan.nodes > 1:
            start = _STARTS_S + _START_OF_NODE_S * case.plan.nodes
        worked = execution.counts.seconds - start
    elif done == {"stat"}:
        work = _WORK_OF_STAT
    trees: Any = output.parameters.get("trees_s", 0.0)
    return worked - trees, work


def _moving(execution: Execution) -> tuple[float | None, str, float]:
    """Return the seconds in which an execution's bytes moved on the first node, None if unknown, who saw it, and for
    how long nobody did.
    """
    asking, unseen = _asking(execution)
    counted = _moving_on_devices(execution)
    if counted is not None and counted > (asking or 0.0):
        return counted, "counted on the devices", 0.0
    return asking, "asked for by its first task", unseen


def _moving_on_devices(execution: Execution) -> float | None:
    """Return the seconds in which an execution's bytes moved on the devices of the first node; None if unknown."""
    phase, case, span = execution.phase, execution.case, execution.span
    first = case.evidence.opened
    if span is None or first is None or not case.counters or case.on_network:
        # Clients of a network count what programs ask for, or in the background.
        return None
    if phase.plan.syncs or phase.access.direction == "metadata":
        # Metadata reach the devices in the sync after the tool; between both no clock runs, and data move.
        return None
    if phase.plan.pauses or execution.output.stretches != 1:
        return None
    # Containers of one kernel over one mount share their counters.
    hosts = [view for view in case.evidence.views if view.cache_id == first.cache_id]
    if len(hosts) > 1 and not execution.counts.of_tasks:
        # Each server starts its clock when it is ready: their bytes move for longer than any of them measures.
        return None
    share = len(hosts) / case.plan.nodes
    reported = execution.reported_bytes
    moved = round(share * (reported.read + reported.written * case.copies[1]))
    if moved < _TIMED_BYTES:
        return None
    return times.seconds_of_activity(case.evidence.moved, span, moved)


def _changing(execution: Execution) -> float | None:
    """Return the seconds in which an execution's files were made or removed; None if nobody counted inodes, or others made as many.

    Hosts that see several file systems are not compared. XFS counts later what is removed.
    """
    case, files, span = execution.case, execution.files_changed, execution.span
    if files is None or span is None or execution.phase.plan.pauses:
        return None
    if execution.output.tool != MDTEST:
        return None
    if len({view.cache_id for view in case.evidence.views}) != 1:
        return None
    if abs(files) < LEAST_FILES or (files < 0 and not case.kind.frees):
        return None
    return times.seconds_of_files(case.evidence.moved, span, files)


def _asking(execution: Execution) -> tuple[float | None, float]:
    """Return the seconds in which the first task of the first node passed its data to the kernel, None if unknown, and
    the longest time of them in which nobody looked.

    A tool may rest between two phases that it runs in one execution.
    """
    span, output = execution.span, execution.output
    names = {phase.name for phase in output.phases}
    ways = names & {"read", "write"}
    if output.totals or "create" in names:
        # What makes files may also write data to them; without data nothing is known. IO500 does all of this.
        ways = {"read", "write"}
    if span is None or not ways:
        return None, 0.0
    if execution.phase.plan.pauses or not execution.synchronous:
        return None, 0.0
    asked = execution.case.evidence.asked
    seconds = times.seconds_of_asking(asked, span, ways, phases=output.stretches)
    return seconds, times.longest_unasked(asked, span, ways)
