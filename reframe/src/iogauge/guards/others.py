"""Guards that find the load of others (G19): other cases, and bytes, requests and files that are not the tasks' own."""

from __future__ import annotations

import math
from typing import Final

from iogauge.core.measurement import ToolOutput
from iogauge.core.units import format_bytes
from iogauge.evidence.times import files_changed
from iogauge.evidence.witness import Moved, Testimony
from iogauge.guards.figures import within
from iogauge.guards.finding import Finding
from iogauge.guards.ledger import Claim, Tolerance, settle
from iogauge.guards.rules import rule
from iogauge.guards.seen import (
    LEAST_FILES,
    PAGE,
    READ_AHEAD,
    READ_AHEAD_OF_NETWORK,
    CaseSeen,
    PhaseSeen,
)
from iogauge.node.kinds import SYNCHRONOUS
from iogauge.node.mounts import option

#: Bytes on a node that count as no load: journals, logs, occasional writes of the system itself.
FOREIGN_BYTES: Final = 16 << 20
#: The same in requests, for phases whose requests are so small that they, not the bytes, load a device.
FOREIGN_REQUESTS: Final = 256
SMALL_REQUEST: Final = 128 << 10
#: Phases that write nothing, in no journal either.
_WRITES_NOTHING: Final = {"read", "stat"}
#: Share of its half-seconds in which a disturber finishes an operation. It removes its files between.
_ACTIVE: Final = 0.5
#: Files that come and go on the target at least, of all that a disturber makes and removes.
_FEWEST_FILES: Final = 10


def foreign_files(seen: PhaseSeen) -> Finding | None:
    """Return G19 for phases that make files on a file system of one node, if somebody counted files there."""
    case, claims = seen.case, []
    share = Tolerance(case.extras.limits.max_foreign)
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        made = seen.files_changed(output, testimony) if testimony.complete else None
        changed = files_changed(case.evidence.activity, made[0]) if made else None
        # XFS counts what was removed later.
        if made and changed is not None and made[1] >= LEAST_FILES:
            saw = f"the inodes in use changed by {changed} meanwhile"
            words = (share.most(saw, changed), share.least(saw, changed, shared=True))
            few = abs(made[1] - changed) < LEAST_FILES
            says = f"{made[1]} file(s) were made, as the tool says"
            claims.append(Claim(says, made[1], () if few else words))
    if not claims or len({view.cache_id for view in case.evidence.views}) != 1:
        return None
    fine = "the inodes in use agree with the tool"
    return settle("G19 files of others", [claims], fine=fine, limit=share.share)


def foreign_load(seen: CaseSeen) -> Finding:
    """Return G19: what the counters under the mount counted for all programs on the nodes against what the tasks moved.

    Fewer bytes than the tasks moved are no load: there was a cache.
    """
    parts, shares = [], [0.0]

    def weigh(foreign: int, total: int, who: str, requests: tuple[int, int] | None = None) -> None:
        share = foreign / total if total and foreign >= FOREIGN_BYTES else 0.0
        said = f"{who} moved {format_bytes(foreign)} of {format_bytes(total)}"
        if requests:
            theirs = max(0, requests[1] - requests[0])
            said += f" with {theirs} of {requests[1]} requests"
            if total and theirs >= FOREIGN_REQUESTS:
                # A few large requests are little load, and so are many small ones with hardly a byte.
                share = max(share, min(foreign / total, theirs / requests[1]))
        shares.append(share)
        parts.append(f"{said} ({share:.0%})")

    # Containers of one kernel over one mount count the same bytes.
    distinct = {change.cache_id: change for change in seen.evidence.changes}.values()
    if moved := _all_bytes(seen):
        own, counted = moved
        foreign = max(0, counted.read - own.read) + max(0, counted.written - own.written)
        who = f"others on {len(distinct) or seen.plan.nodes} node(s)"
        weigh(foreign, counted.read + counted.written, who, _all_requests(seen))
    saw = "; ".join(parts) or "no counter can be compared with the tasks' bytes"
    limit = seen.extras.limits.max_foreign
    return within("G19 foreign load", max(shares), limit, saw, key="max_foreign")


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
        moved = phase.own(output, testimony)
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
        own += phase.own(output, testimony) + _beside(phase, output)
    if not heard or not (seen.traits.accounts or seen.on_network):
        return None
    return Moved(own.read, round(own.written * seen.copies[1])), counted


def _beside(seen: PhaseSeen, output: ToolOutput) -> Moved:
    """Return the bytes that an execution may move beside its data."""
    beside = [output.disturber.phase] if output.disturber else []
    phases = [phase for phase in (*output.phases, *beside) if phase.operations]
    if seen.case.traits.accounts:
        kind = seen.case.kind
        each, share = kind.journal, kind.beside
        mounts = [view.mount for view in seen.case.evidence.views if view.mount]
        if any(option(mount, "sync|dirsync|wsync") for mount in mounts):
            each, share = SYNCHRONOUS, math.inf
        written = (
            round(min(each * (p.operations or 0), share * (p.bytes_moved or math.inf)))
            for p in phases
            if p.name not in _WRITES_NOTHING
        )
        return Moved(0, sum(written))
    more = Moved(output.beside.get("read", 0), output.beside.get("write", 0))
    # A client of a network moves whole pages, and reads ahead, on nobody's account.
    small = all((phase.transfer_bytes or 0) < READ_AHEAD for phase in phases)
    operations = sum(phase.operations or 0 for phase in phases)
    ends = 0 if seen.access.o_direct or not small else 2 * operations
    read = 0 if seen.access.o_direct else seen.claimed_bytes(output, "read") or 0
    left = max(0, seen.case.plan.held_bytes - read) if read else 0
    ahead = min(left, seen.case.plan.tasks * READ_AHEAD_OF_NETWORK)
    return Moved(ends * READ_AHEAD + ahead, ends * PAGE) + more


def neighbours(seen: CaseSeen) -> Finding:
    others = seen.evidence.neighbours
    problem = f"{others[0]} was there too" if others else ""
    return rule("G19 neighbours").unless(problem, "no other case on the target")


def exclusive(seen: CaseSeen) -> Finding:
    objection = seen.evidence.occupied or seen.evidence.lost
    return rule("G19 lock").unless(objection, "the lock of the target was held throughout")


def on_purpose(seen: PhaseSeen) -> Finding | None:
    """Return G19 for phases beside which the target is loaded on purpose."""
    if seen.phase.beside is None:
        return None
    demanded = rule("G19 load on purpose", active=_ACTIVE)
    ran = [(n, out.disturber, out) for n, out in enumerate(seen.outputs, 1) if out.disturber]
    if missing := len(seen.outputs) - len(ran):
        return demanded.invalid(
            f"{missing} of {len(seen.outputs)} execution(s) without a disturber"
        )
    lead = min(disturber.lead_s for _, disturber, _ in ran)
    after = min(d.phase.seconds - d.lead_s - sum(p.seconds for p in o.phases) for _, d, o in ran)
    active = min(disturber.active for _, disturber, _ in ran)
    saw = (
        f"it began {lead:.2f} s before the measurement, ended {after:.2f} s after it, and was at work in {active:.0%} "
        "of its half-seconds"
    )
    changed = min(_files_of_disturber(seen), default=_FEWEST_FILES)
    if changed < _FEWEST_FILES:
        return demanded.invalid(
            f"{saw}; meanwhile {changed} file(s) came or went on the target, so its own lay elsewhere"
        )
    in_time = lead > 0 and after >= 0 and active >= _ACTIVE
    # Other nodes have no common clock: all that the phase took beside the disturber's own seconds may lie before its begin.
    runs = [run for run in seen.case.evidence.runs if run.name == seen.phase.name]
    took = {run.repetition: run.ended - run.started for run in runs}
    late = [(took.get(n, 0.0) - d.phase.seconds, d.lead_s) for n, d, _ in ran]
    worst = max((by for by, lead_s in late if by >= lead_s), default=0.0)
    if in_time and worst and seen.case.plan.nodes > 1:
        return demanded.warn(f"{saw}; on its nodes it may have begun up to {worst:.2f} s later")
    return demanded.decide(in_time, saw)


def _files_of_disturber(seen: PhaseSeen) -> list[int]:
    """Return how many files came and went on the target beside each execution, if its disturber makes any and they are counted."""
    spans = (seen.case.span(testimony) for testimony in seen.testimonies)
    looks = seen.case.evidence.activity if seen.phase.beside == "metadata" else ()
    changed = (files_changed(looks, span) for span in spans if span)
    return [count for count in changed if count is not None]
