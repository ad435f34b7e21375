"""Guards of a phase within an execution of several: its bytes (G8) and its seconds (G4) on the first node.

IO500 runs twelve phases in one execution, and writes down when each began and ended. The agent on the first node writes
down the counters under the target's mount five times a second (job/opening.py). Together they say what the kernel moved
while a phase ran. IO500 cuts its dates to whole seconds, but tells the length of a phase in full. So begin and end are
known within a second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can make
none missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from iogauge.core.measurement import Phase, ToolOutput
from iogauge.core.units import format_bytes
from iogauge.evidence.model import ClockSeen
from iogauge.evidence.times import counted_between, seconds_of_activity
from iogauge.guards.clock import seconds_claims
from iogauge.guards.finding import Finding
from iogauge.guards.ledger import BYTES, BYTES_BESIDE, Claim, settle
from iogauge.guards.rules import rule
from iogauge.guards.seen import SLACK_S, PhaseSeen
from iogauge.plan.stage import PhaseRun


def phase_witnessed(seen: PhaseSeen) -> Finding | None:
    """Return G8 for phases of IOR within an execution of several phases. An execution may not say when its phase ran."""
    if not (seen.moves_data and _of_several(seen)):
        return None
    writes = seen.access.direction == "write"
    done, of_each = ("wrote", seen.case.copies[0]) if writes else ("read", 1.0)
    parts = _parts(seen)
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


def phase_seconds_witnessed(seen: PhaseSeen) -> Finding | None:
    """Return G4 for phases of IOR within an execution of several phases, if their bytes were counted."""
    if not (seen.moves_data and _of_several(seen)):
        return None
    parts = [part for part in _parts(seen) if part is not None]
    known = [
        seconds_claims(claimed, moving=moving)
        for _, _, claimed, moving in parts
        if moving is not None
    ]
    fine = f"{len(known)} of {len(parts)} execution(s) confirmed"
    return settle("G4 clock by phase", known, fine=fine, busy=seen.case.busy) if known else None


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


def _of_several(seen: PhaseSeen) -> bool:
    """Return whether the phase is one of several, and of IOR, whose writes end with fsync."""
    several = any("lengths" in output.parameters for output in seen.outputs)
    return several and all("bw" in phase.rates for phase in seen.tool_phases)
