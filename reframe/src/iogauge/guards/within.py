"""Guards of a phase within an execution of several: its bytes (G8) and its seconds (G4) on the first node.

IO500 runs twelve phases in one execution, and writes down when each began and ended. The agent on the first node writes
down the counters under the target's mount five times a second (job/opening.py). Together they say what the kernel moved
while a phase ran. IO500 cuts its dates to whole seconds, but tells the length of a phase in full. So begin and end are
known within a second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can make
none missing.
"""

from __future__ import annotations

from iogauge.core.measurement import Phase
from iogauge.core.units import format_bytes
from iogauge.evidence.model import ClockReading
from iogauge.evidence.times import counted_between, seconds_of_activity
from iogauge.guards.agreement import BYTES, BYTES_BESIDE, ReportedFigure, settle
from iogauge.guards.clock import seconds_claims
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
from iogauge.guards.views import SLACK_S, Execution, PhaseView

#: A phase in an execution, on the first node: bytes as its tasks say and as counted, seconds as the tool says and as seen.
_Part = tuple[int, int | None, float, float | None]


def phase_witnessed(seen: PhaseView) -> Finding | None:
    """Return G8 for phases of IOR within an execution of several phases. An execution may not say when its phase ran."""
    if not (parts := _parts(seen)):
        return None
    writes = seen.access.direction == "write"
    done, of_each = ("wrote", seen.case.copies[0]) if writes else ("read", 1.0)
    counts = [
        (part[0], part[1]) for part in parts if part is not None and part[1] is not None
    ]
    claims = []
    for claimed, counted in counts:
        saw = f"while the phase ran its counters moved {format_bytes(counted)}"
        says = f"the tasks of the first node {done} {format_bytes(claimed)}, as the tool says"
        claims.append(
            ReportedFigure(says, claimed, [BYTES.most(saw, counted / of_each)])
        )
    fine = (
        f"{format_bytes(min((n for _, n in counts), default=0))} or more while it ran"
    )
    finding = settle("G8 witness by phase", [claims], fine=fine, tolerance=BYTES.share)
    if finding.saw == fine and len(counts) < len(parts):
        missing = f"{len(parts) - len(counts)} of {len(parts)} execution(s) by phase"
        return rule("G8 witness by phase", "uncounted").warn(
            f"nobody counted {missing}"
        )
    return finding


def phase_seconds_witnessed(seen: PhaseView) -> Finding | None:
    """Return G4 for phases of IOR within an execution of several phases, if their bytes were counted."""
    parts = [part for part in _parts(seen) if part is not None]
    known = [
        seconds_claims(claimed, moving=moving)
        for _, _, claimed, moving in parts
        if moving is not None
    ]
    fine = f"{len(known)} of {len(parts)} execution(s) confirmed"
    return (
        settle("G4 clock by phase", known, fine=fine, busy=seen.case.busy)
        if known
        else None
    )


def _parts(seen: PhaseView) -> list[_Part | None]:
    """Return the phase in each execution, or None if the execution does not say when it ran; empty unless the phase is one
    of several, and of IOR, whose writes end with fsync.
    """
    several = any("lengths" in output.parameters for output in seen.outputs)
    of_ior = seen.moves_data and all("bw" in phase.rates for phase in seen.tool_phases)
    return (
        [_part(one, phase) for one, phase in seen.reported]
        if several and of_ior
        else []
    )


def _part(one: Execution, phase: Phase) -> _Part | None:
    """Return the phase in an execution."""
    case, way, first = one.case, one.seen.access.direction, one.case.evidence.first
    spans = (_span_of(one, phase, clock) for clock in case.evidence.clocks)
    span = next(filter(None, spans), None)
    if first is None or span is None or phase.bytes_moved is None:
        return None
    counts = not case.silent(first).intersection(first.counters)
    instants = case.evidence.activity if counts else ()
    own = round(len(case.with_first) / case.plan.nodes * phase.bytes_moved)
    counted = counted_between(instants, span, way)
    # Clients of a network count what programs ask for, or in the background.
    least = max(round((1 - BYTES.share) * own), BYTES_BESIDE.slack)
    timed = not case.on_network and counted is not None and counted >= least
    copied = round(own * case.copies[1]) if way == "write" else own
    moving = seconds_of_activity(instants, span, copied) if timed else None
    return own, counted, phase.seconds, moving


def _span_of(
    one: Execution, phase: Phase, clock: ClockReading
) -> tuple[float, float] | None:
    """Return the earliest begin and the latest end of a phase, in seconds since the first node's boot; None if the
    output does not say when it ran, or not within the execution by this look at a clock.

    The tool's local time may be another than the node's.
    """
    run, told = one.run(one.seen.phase), one.output.moments
    lengths = one.output.parameters.get("lengths")
    dates = {
        moment.name: moment.seconds - clock.utc_offset
        for moment in told
        if moment.local
    }
    begun, ended = dates.get(f"{phase.name} t_start"), dates.get(f"{phase.name} t_end")
    length = lengths.get(phase.name) if isinstance(lengths, dict) else None
    if run is None or begun is None or ended is None or length is None:
        return None
    begin = max(begun, ended - length) - clock.most
    end = min(ended + 1, begun + 1 + length) - clock.least
    return (
        (begin, end)
        if run.started - SLACK_S <= begin and end <= run.ended + SLACK_S
        else None
    )
