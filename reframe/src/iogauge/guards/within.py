"""Guards of a phase within an execution that runs several: its bytes (G8) and its seconds (G4).

IO500 runs twelve phases in one execution, and writes down when each began and ended. The agent on the first node writes
down the counters under the target's mount five times a second (job/activity.py). Together they say what the kernel moved
while a phase ran.

IO500 cuts its dates to whole seconds, but tells the length of a phase in full. So begin and end are known within a
second. Bytes of a neighbour may lie in that second: they can hide that bytes are missing, and they can make none missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iogauge.core.measurement import Phase, ToolOutput
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence.model import ClockSeen
from iogauge.evidence.witness import counted_between, seconds_of_activity
from iogauge.guards.finding import Finding, Rule
from iogauge.guards.origin import SLACK_S
from iogauge.guards.seen import PhaseSeen
from iogauge.guards.witness import SLACK_BYTES, TOLERANCE
from iogauge.plan.stage import PhaseRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """A phase of one execution, on the first node: claims of its tool, and what was counted meanwhile.

    ``claimed_bytes`` are those of the node's tasks. ``counted_bytes`` is None if nobody counted while the phase ran.
    ``moving_s`` lies between the first and the last of the bytes, at least; None if unknown.
    """

    claimed_bytes: int
    claimed_s: float
    counted_bytes: int | None
    moving_s: float | None = None


def phase_witnessed(
    *, direction: str, parts: Sequence[PhasePart | None], copies: float = 1.0
) -> Finding:
    """G8: while a phase of IO500's IOR ran, the first node counted 95 % of the bytes that its tasks
    report. If nothing was counted meanwhile, you get a remark. The dates that IO500 prints give the
    time of the phase, to a second.

    ``parts`` holds None for an execution that does not say when its phase ran. A file system writes ``copies`` bytes for
    each byte, at least.
    """
    rule = Rule(
        "G8",
        f"the first node counts what the phase reports, within {TOLERANCE:.0%}, while it ran",
        "The data did not travel between the tool and the storage. Look for a cache, or another program of the "
        "tool's name",
    )
    counts = [
        (part.counted_bytes, part.claimed_bytes)
        for part in parts
        if part is not None and part.counted_bytes is not None
    ]
    least = copies if direction == "write" else 1.0
    for counted, claimed in counts:
        if counted < (1 - TOLERANCE) * least * claimed:
            done = "read" if direction == "read" else "wrote"
            return rule.invalid(
                f"the tasks of the first node {done} {format_bytes(claimed)}, as the tool says; while the phase ran "
                f"its counters moved {format_bytes(counted)}"
            )
    if len(counts) < len(parts):
        return Rule(
            "G8",
            "counters of the first node for each phase",
            "The bytes are proven for the whole run only. Block devices, NFS and, for root, a Lustre client "
            "count them over time",
        ).warn(f"nobody counted {len(parts) - len(counts)} of {len(parts)} execution(s) by phase")
    return rule.ok(f"{format_bytes(min(counted for counted, _ in counts))} or more while it ran")


def phase_seconds_witnessed(*, parts: Sequence[PhasePart]) -> Finding | None:
    """G4: no phase of IO500's IOR reports fewer seconds than its bytes took on the devices of the first node.

    Returns None if that is unknown.
    """
    known = [(part.claimed_s, part.moving_s) for part in parts if part.moving_s is not None]
    rule = Rule(
        "G4",
        "seconds of the phase that the counters of the first node confirm",
        "The tool's clock is wrong. Look for a preloaded library, or another tool of this name",
    )
    for claimed, moving in known:
        if claimed < (1 - TOLERANCE) * moving:
            return rule.invalid(
                f"the tool reports {format_seconds(claimed)}; its bytes moved for {format_seconds(moving)}"
            )
    return rule.ok(f"{len(known)} of {len(parts)} execution(s) confirmed") if known else None


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


def _parts(seen: PhaseSeen) -> list[PhasePart | None]:
    """Return the phase in each execution, or None if the execution does not say when it ran."""
    case, way = seen.case, seen.access.direction
    views, name = case.evidence.views, seen.phase.within or seen.phase.name
    if not views:
        return [None] * len(seen.reported)
    hosts = {view.host for view in views if view.cache_id == views[0].cache_id}
    share, instants = len(hosts) / case.plan.nodes, case.evidence.activity
    runs = [run for run in case.evidence.runs if run.name == name and run.repetition > 0]
    found: list[PhasePart | None] = []
    for (output, phase), run in zip(seen.reported, runs, strict=False):
        span = _span_in(output, phase, run, case.evidence.clocks)
        if span is None or phase.bytes_moved is None:
            found.append(None)
            continue
        own = round(share * phase.bytes_moved)
        counted = counted_between(instants, span, way)
        # Clients of a network count what programs ask for, or in the background.
        least = max(round((1 - TOLERANCE) * own), SLACK_BYTES)
        timed = not case.on_network and counted is not None and counted >= least
        copied = round(own * case.copies[1]) if way == "write" else own
        found.append(
            PhasePart(
                claimed_bytes=own,
                claimed_s=phase.seconds,
                counted_bytes=counted,
                moving_s=seconds_of_activity(instants, span, copied) if timed else None,
            )
        )
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
        yield phase_witnessed(
            direction=seen.access.direction, parts=_parts(seen), copies=seen.case.copies[0]
        )


def phase_seconds_witnessed_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for phases of IOR within an execution of several phases, if their bytes were counted."""
    if seen.moves_data and _of_several(seen):
        parts = [part for part in _parts(seen) if part is not None]
        finding = phase_seconds_witnessed(parts=parts)
        if finding is not None:
            yield finding


def _of_several(seen: PhaseSeen) -> bool:
    """Return whether the phase is one of several, and of IOR, whose writes end with fsync."""
    several = any("lengths" in output.parameters for output in seen.outputs)
    return several and all("bw" in phase.rates for phase in seen.tool_phases)
