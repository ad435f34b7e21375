"""Guards that compare a tool's seconds with those in which its processes ran and its bytes and files moved (G4)."""

from __future__ import annotations

from typing import Final

from iogauge.core.text import because
from iogauge.core.units import format_seconds
from iogauge.evidence import times
from iogauge.guards.agreement import (
    CLOCK,
    SECONDS,
    WORK,
    WORK_OF_STAT,
    ReportedFigure,
    Tolerance,
    settle,
)
from iogauge.guards.finding import Finding
from iogauge.guards.views import LEAST_FILES, Execution, PhaseView
from iogauge.tools.fio.output import told_seconds

#: Seconds until all tasks are connected, on one node and on several, if no line of the tool tells.
_START_S: Final = 5.0
_STARTS_S: Final = 20.0
_START_OF_NODE_S: Final = 0.1
#: Bytes that are too few to say for how long they moved.
_TIMED_BYTES: Final = 1 << 20
_MAKES_FILES: Final = {"create", "precreate", "benchmark"}
#: What a tool does in an execution of which it reports all.
_NAMES: Final = {"create", "stat", "remove"}


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
    work: Tolerance = WORK,
) -> list[ReportedFigure]:
    """Return the claims of an execution that took seconds, with the words of all that saw it, None if nobody did.

    ``ran`` lies between start and end of its processes. ``moving`` lies between the first and the last bytes on the
    devices, or that a task passed to the kernel, at least; ``seen_by`` says who saw it. ``making`` lies between the first
    and the last file that it made or removed. ``working``: it did hardly more than what it times, see ``work``. It was told to run for
    ``asked``, and says that it did for ``timed``: beside a disturber, which runs longer, this is the time of what is measured.
    """
    words = []
    if ran is not None:
        words.append(
            CLOCK.most(f"its processes ran {format_seconds(ran)}", ran, firm=True)
        )
    if moving is not None:
        saw = f"its bytes moved for {format_seconds(moving)}{because(seen_by)}"
        words.append(SECONDS.least(saw, moving, exact=True))
    if making is not None:
        saw = f"the target's files changed for {format_seconds(making)}"
        words.append(SECONDS.least(saw, making, exact=True))
    if working is not None:
        saw = f"it worked for {format_seconds(working)}"
        words.append(work.least(saw, working, exact=True, often=True))
    claims = [
        ReportedFigure(f"the tool reports {format_seconds(claimed)}", claimed, words)
    ]
    if asked is not None:
        word = SECONDS.least(f"it was told to run {format_seconds(asked)}", asked)
        claims.insert(
            0,
            ReportedFigure(f"the tool reports {format_seconds(timed)}", timed, [word]),
        )
    return claims


def seconds_witnessed(seen: PhaseView) -> Finding | None:
    """Return G4 for phases that are timed. If the tool rests on purpose, the run time must do."""
    if not seen.phase.witnessed or not seen.outputs:
        return None
    executions = [
        _claims(one) if one.testimony.complete else None for one in seen.executions
    ]
    heard = sum(claims is not None for claims in executions)
    return settle(
        "G4 clock",
        executions,
        fine=f"{heard} of {len(executions)} execution(s) confirmed",
        unseen="" if seen.phase.pauses else "nobody saw how long the tool was at work",
        unheard=seen.unheard,
        required=seen.case.witness_required,
        busy=seen.case.busy,
    )


def _claims(one: Execution) -> list[ReportedFigure]:
    output, (working, work) = one.output, _working(one)
    moving, seen_by = max(_moving(one), key=lambda found: found[0] or 0.0)
    return seconds_claims(
        output.disturber.phase.seconds if output.disturber else output.timed,
        ran=one.testimony.seconds,
        moving=moving,
        seen_by=seen_by,
        making=_making(one),
        asked=told_seconds(output),
        timed=output.timed,
        working=working,
        work=work,
    )


def _working(one: Execution) -> tuple[float | None, Tolerance]:
    """Return the seconds in which an execution did hardly more than what it times, at least, and by how much they may
    differ; None if unknown.

    mdtest prints how many files there are when all tasks are connected, and its results at the end. fio makes a
    process for each job when its files are laid out.
    """
    seen, output, told = one.seen, one.output, one.output.parameters
    span = one.span if one.testimony.of_tasks else None
    if span is None or seen.phase.pauses or output.disturber:
        return None, WORK
    names = _NAMES | {"read"} if output.tool == "mdtest" else _NAMES
    done = {phase.name for phase in output.but_trees}
    if output.tool == "fio":
        # What is written to the page cache may reach storage after the tool has stopped its clock.
        way = seen.access.direction
        timed = done <= names or seen.access.o_direct or way in ("read", "elsewhere")
        jobs = one.case.evidence.processes if timed and "ramp_time" not in told else ()
        return times.seconds_of_jobs(jobs, span), WORK
    if not done <= names:
        return None, WORK
    begins_at, iterations = told.get("begins_at"), told.get("iterations")
    begins = begins_at if isinstance(begins_at, int) else 1
    worked = times.longest_silence(one.case.evidence.printed, span, begins)
    work = WORK_OF_STAT if done == {"stat"} and worked is not None else WORK
    if worked is None:  # Something kept the output back, until its end.
        nodes = one.case.plan.nodes
        start = _START_S if nodes == 1 else _STARTS_S + _START_OF_NODE_S * nodes
        worked = one.testimony.seconds - start
    # mdtest reports the mean of its iterations.
    return worked / iterations if isinstance(iterations, int) else worked, work


def _making(one: Execution) -> float | None:
    """Return the seconds in which an execution made or removed its files, with the sync after it; None if unknown."""
    made = one.files_changed
    if made is None or abs(made[1]) < LEAST_FILES:
        return None
    seconds = times.seconds_of_files(one.case.evidence.activity, *made)
    synced = (one.testimony.sync_seconds or 0.0) if one.seen.phase.syncs else 0.0
    return None if seconds is None else seconds + synced


def _moving(one: Execution) -> list[tuple[float | None, str]]:
    """Return the seconds in which an execution's bytes moved on the first node, None if unknown, and who saw it.

    The used bytes are those of all programs: who fills and empties the target at a time may leave them as they would be
    without others. So they are not asked if the first task tells.
    """
    seen, case, asking, span, hosts = (
        one.seen,
        one.case,
        _asking(one),
        one.span,
        one.case.with_first,
    )
    heard = [(asking, "asked for by its first task")]
    # Clients of a network count what programs ask for, or in the background.
    # Metadata reach the devices in the sync after the tool; between both no clock runs, and data move.
    of_data = (
        case.counters
        and not seen.phase.syncs
        and not case.on_network
        and seen.access.direction not in ("elsewhere", "metadata")
    )
    if (
        seen.phase.pauses
        or one.output.stretches != 1
        or not (of_data and span and hosts)
    ):
        return heard
    if len(hosts) > 1 and not one.testimony.of_tasks:
        # Each server starts its clock when it is ready: their bytes move for longer than any of them measures.
        return heard
    # Tasks read programs and libraries before the tool's time begins, if nobody did lately. The tool does not claim them.
    own, told = one.own(hosts), one.told(hosts)
    bytes_own = min(own.read, told.read) + round(
        min(own.written, told.written) * case.copies[1]
    )
    if bytes_own < _TIMED_BYTES:
        return heard
    activity = case.evidence.activity
    heard.append(
        (times.seconds_of_activity(activity, span, bytes_own), "counted on the devices")
    )
    if asking is None:
        # What is written to the page cache reaches the devices later, and in less time.
        growth = times.seconds_of_growth(activity, span, own.written, told.written)
        heard.append((growth, "as the target filled"))
    return heard


def _asking(one: Execution) -> float | None:
    """Return the seconds in which the first task of the first node passed its data to the kernel; None if unknown.

    A tool may rest between two phases that it runs in one execution.
    """
    span, output, names = (
        one.span,
        one.output,
        {phase.name for phase in one.output.phases},
    )
    # What makes files may also write data to them; without data nothing is known. IO500 does all of this.
    both = output.totals or names & _MAKES_FILES
    ways = {"read", "write"} if both else names & {"read", "write"}
    if span is None or not ways or one.seen.phase.pauses or not one.synchronous:
        return None
    return times.seconds_of_asking(
        one.case.evidence.asked, span, ways, phases=output.stretches
    )
