"""Guards that find the load of others (G19): other cases, and bytes, requests and files that are not the tasks' own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.core.measurement import ToolOutput
from iogauge.core.units import format_bytes
from iogauge.evidence.witness import Moved, Testimony, files_changed
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


def foreign_files(
    *, executions: Sequence[tuple[int, int]], max_share: float = 0.1
) -> Finding | None:
    """G19: ``executions`` holds the files that the tool made, and those that came or went on the file system meanwhile.

    Returns None if nobody counted any.
    """
    claims = []
    for own, changed in executions:
        saw = f"the inodes in use changed by {changed} meanwhile"
        share = Tolerance(max_share)
        words = (share.most(saw, changed), share.least(saw, changed, shared=True))
        few = abs(own - changed) < LEAST_FILES
        says = f"{own} file(s) were made, as the tool says"
        claims.append(Claim(says, own, () if few else words))
    fine = "the inodes in use agree with the tool"
    return settle("G19 files of others", [claims], fine=fine, limit=max_share) if claims else None


def foreign_files_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G19 for phases that make files on a file system of one node."""
    case = seen.case
    executions = []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        made = seen.files_changed(output, testimony) if testimony.complete else None
        changed = files_changed(case.evidence.activity, made[0]) if made else None
        # XFS counts what was removed later.
        if made and changed is not None and made[1] >= LEAST_FILES:
            executions.append((made[1], changed))
    if len({view.cache_id for view in case.evidence.views}) == 1:
        limit = case.extras.limits.max_foreign
        if finding := foreign_files(executions=executions, max_share=limit):
            yield finding


def foreign_load(
    *,
    nodes: int,
    own: Moved | None,
    counted: Moved,
    jobs: Sequence[tuple[int, int]] = (),
    requests: tuple[int, int] | None = None,
    max_share: float = 0.1,
    kind: str = "",
) -> Finding:
    """G19: ``counted`` is what the counters under the mount counted for all programs on the nodes, ``own`` what the tasks
    moved; None if nothing was counted. Fewer bytes than the tasks moved are no load: there was a cache.

    ``jobs`` holds the bytes of this job and of others, for each server. ``requests`` are those of the tasks and of all
    programs, None unless they are small. ``kind`` is the file system's type.
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
    new = "ext4" if kind in ("ext4", "overlay") else ""
    saw = "; ".join(parts) or "no counter can be compared with the tasks' bytes"
    return within("G19 foreign load", worst, max_share, saw, key="max_foreign", case=new)


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
        kind=seen.extras.target.type,
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


def neighbours(*, others: Sequence[str]) -> Finding:
    """G19: ``others`` holds the directories of other cases that were seen during this case."""
    problem = f"{others[0]} was there too" if others else ""
    return rule("G19 neighbours").unless(problem, "no other case on the target")


def neighbours_of(seen: CaseSeen) -> Iterator[Finding]:
    yield neighbours(others=seen.evidence.neighbours)


def exclusive(*, objection: str) -> Finding:
    """G19: ``objection`` says why the case did not hold the lock, or why that is not known; empty if it did."""
    return rule("G19 lock").unless(objection, "the lock of the target was held throughout")


def exclusive_of(seen: CaseSeen) -> Iterator[Finding]:
    yield exclusive(objection=seen.evidence.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPurpose:
    """A disturber in one execution: seconds from its begin to that of what is measured, and from the end of that to its
    own end; the share of its half-seconds in which it finished an operation. It may have begun ``late_s`` later than it
    was asked to: other nodes have no common clock. ``changed`` are the files that came and went on the target meanwhile if
    it makes files; None if nobody counted them.
    """

    lead_s: float
    after_s: float
    active: float
    late_s: float = 0.0
    changed: int | None = None


def on_purpose(*, executions: Sequence[OnPurpose | None]) -> Finding:
    """G19: ``executions`` holds None for an execution without a disturber."""
    demanded = rule("G19 load on purpose", active=_ACTIVE)
    ran = [execution for execution in executions if execution is not None]
    if missing := len(executions) - len(ran):
        return demanded.invalid(f"{missing} of {len(executions)} execution(s) without a disturber")
    lead = min(execution.lead_s for execution in ran)
    after = min(execution.after_s for execution in ran)
    active = min(execution.active for execution in ran)
    saw = (
        f"it began {lead:.2f} s before the measurement, ended {after:.2f} s after it, and was at work in {active:.0%} "
        "of its half-seconds"
    )
    changed = min((one.changed for one in ran if one.changed is not None), default=_FEWEST_FILES)
    if changed < _FEWEST_FILES:
        return demanded.invalid(
            f"{saw}; meanwhile {changed} file(s) came or went on the target, so its own lay elsewhere"
        )
    in_time = lead > 0 and after >= 0 and active >= _ACTIVE
    late = max((one.late_s for one in ran if one.late_s >= one.lead_s), default=0.0)
    if in_time and late:
        return demanded.warn(f"{saw}; on its nodes it may have begun up to {late:.2f} s later")
    return demanded.decide(in_time, saw)


def on_purpose_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G19 for phases beside which the target is loaded on purpose."""
    if seen.phase.beside is None:
        return
    found: list[OnPurpose | None] = []
    runs = [run for run in seen.case.evidence.runs if run.name == seen.phase.name]
    ran = {run.repetition: run.ended - run.started for run in runs}
    changed = [_files_of_disturber(seen, testimony) for testimony in seen.testimonies]
    changed += [None] * (len(seen.outputs) - len(changed))
    for repetition, output in enumerate(seen.outputs, 1):
        if (disturber := output.disturber) is None:
            found.append(None)
            continue
        own, whole = sum(phase.seconds for phase in output.phases), disturber.phase.seconds
        found.append(
            OnPurpose(
                lead_s=disturber.lead_s,
                after_s=whole - disturber.lead_s - own,
                active=disturber.active,
                # All that the phase took beside the disturber's own seconds may lie before its begin.
                late_s=ran.get(repetition, whole) - whole if seen.case.plan.nodes > 1 else 0.0,
                changed=changed[repetition - 1],
            )
        )
    yield on_purpose(executions=found)


def _files_of_disturber(seen: PhaseSeen, testimony: Testimony) -> int | None:
    """Return how many files came and went on the target beside a phase; None if its disturber makes none, or if nobody counts them."""
    span = seen.case.span(testimony) if seen.phase.beside == "metadata" else None
    return files_changed(seen.case.evidence.activity, span) if span else None
