"""Guards that find the load of others (G19): other cases, and bytes, requests and files that are not the tasks' own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.evidence.times import files_changed
from iogauge.guards.agreement import ReportedFigure, Tolerance, settle
from iogauge.guards.figures import within
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
from iogauge.guards.views import (
    LEAST_FILES,
    PAGE,
    READ_AHEAD,
    CaseView,
    Execution,
    PhaseView,
)
from iogauge.node.counters import Reading
from iogauge.node.kinds import SYNCHRONOUS
from iogauge.node.mounts import option

#: Bytes on a node that count as no load: journals, logs, occasional writes of the system itself.
FOREIGN_BYTES: Final = 16 << 20
#: The same in requests, for phases whose requests are so small that they, not the bytes, load a device.
FOREIGN_REQUESTS: Final = 256
SMALL_REQUEST: Final = 128 << 10
#: Bytes that a client of a network reads ahead for a task by default, at most (Lustre: max_read_ahead_per_file_mb).
READ_AHEAD_OF_NETWORK: Final = 64 << 20
#: Phases that write nothing, in no journal either.
_WRITES_NOTHING: Final = {"read", "stat"}
#: Share of its half-seconds in which a disturber finishes an operation. It removes its files between.
_ACTIVE: Final = 0.5
#: Files that come and go on the target at least, of all that a disturber makes and removes.
_FEWEST_FILES: Final = 10


def foreign_files(seen: PhaseView) -> Finding | None:
    """Return G19 for phases that make or remove files on a file system of one node, if somebody counted files there."""
    case, claims = seen.case, []
    share = Tolerance(case.extras.limits.max_foreign)
    for one in seen.executions:
        made = one.files_changed if one.testimony.complete else None
        changed = files_changed(case.evidence.activity, made[0]) if made else None
        if made and changed is not None and abs(made[1]) >= LEAST_FILES:
            files, done = abs(made[1]), "made" if made[1] > 0 else "removed"
            if done == "removed" and not case.kind.frees:
                continue
            saw = f"the inodes in use changed by {changed} meanwhile"
            # Others may remove files too, and make some while a tool removes its own.
            theirs = done == "removed" or abs(files - changed) < LEAST_FILES
            most = share.most(saw, changed, shared=theirs, often=theirs)
            words = (most, share.least(saw, changed, shared=True))
            # XFS tells a part of what happens later.
            lacks = case.kind.frees and changed < files
            few = abs(files - changed) < LEAST_FILES and not lacks
            says = f"{files} file(s) were {done}, as the tool says"
            claims.append(ReportedFigure(says, files, () if few else words))
    if not claims or len({view.cache_id for view in case.evidence.views}) != 1:
        return None
    fine = "the inodes in use agree with the tool"
    each = [[claim] for claim in claims]
    return settle("G19 files of others", each, fine=fine, limit=share.share)


def foreign_load(seen: CaseView) -> Finding:
    """Return G19: what the counters under the mount counted for all programs on the nodes against what the tasks moved.

    Fewer bytes than the tasks moved are no load: there was a cache. A phase that reads also stands for itself, if others
    read meanwhile. What is written may reach the devices in a later phase, and writing may need reads of the kernel's own.
    """
    every = [
        one
        for phase in seen.phases
        if phase.phase.witnessed
        and phase.access.direction != "elsewhere"
        and not phase.phase.within
        for one in phase.executions
    ]
    share, said = _foreign(seen, every)
    for name in [
        one.phase.name for one in seen.phases if one.access.direction == "read"
    ]:
        of_phase = [one for one in every if one.seen.phase.name == name]
        reads, of_reads = _foreign(seen, of_phase, reads_alone=True)
        if reads > max(share, seen.extras.limits.max_foreign):
            share, said = reads, f"in {name} {of_reads}"
    return within("G19 foreign load", seen, "max_foreign", share, said)


def _foreign(
    seen: CaseView, executions: Sequence[Execution], reads_alone: bool = False
) -> tuple[float, str]:
    """Return the share of what was counted in some executions that is others', and what that is, in words.

    An execution without all of its witnesses says nothing.
    """
    own, counted, heard = Reading(), Reading(), False
    for one in executions:
        moved = one.testimony.counted(seen.shared_counters)
        if moved is None or not one.testimony.complete:
            continue
        heard = True
        counted += moved
        mine = one.own()
        own += Reading(mine.read, mine.written, _requests(one, mine)) + _beside(one)
    if not heard or not (seen.traits.accounts or seen.on_network):
        return 0.0, "no counter can be compared with the tasks' bytes"
    own = Reading(own.read, round(own.written * seen.copies[1]), own.requests)
    # Containers of one kernel over one mount count the same bytes.
    distinct = {change.cache_id: change for change in seen.evidence.changes}.values()
    foreign = max(0, counted.read - own.read)
    foreign += 0 if reads_alone else max(0, counted.written - own.written)
    total = counted.read + counted.written
    share = foreign / total if total and foreign >= FOREIGN_BYTES else 0.0
    who = f"others on {len(distinct) or seen.plan.nodes} node(s)"
    said = f"{who} moved {format_bytes(foreign)} of {format_bytes(total)}"
    if own.requests is not None and counted.requests:
        theirs = max(0, counted.requests - own.requests)
        said += f" with {theirs} of {counted.requests} requests"
        if total and theirs >= FOREIGN_REQUESTS:
            # A few large requests are little load, and so are many small ones with hardly a byte.
            share = max(share, min(foreign / total, theirs / counted.requests))
    return share, f"{said} ({share:.0%})"


def _requests(one: Execution, own: Reading) -> int | None:
    """Return the requests that moved the tasks' own bytes; None unless all are small.

    A direct transfer is one request, if it is not copied.
    """
    sizes = {phase.transfer_bytes or 0 for phase in one.output.phases}
    direct = (
        one.seen.moves_data and one.seen.access.o_direct and not one.output.disturber
    )
    if not direct or not sizes or not 0 < min(sizes) <= max(sizes) < SMALL_REQUEST:
        return None
    return (own.read + round(own.written * one.case.copies[1])) // min(sizes)


def _beside(one: Execution) -> Reading:
    """Return the bytes that an execution may move beside its data."""
    seen, case, output = one.seen, one.case, one.output
    beside = [output.disturber.phase] if output.disturber else []
    phases = [phase for phase in (*output.phases, *beside) if phase.operations]
    if case.traits.accounts:
        each, share = case.kind.journal, case.kind.beside
        mounts = [view.mount for view in case.evidence.views if view.mount]
        if any(option(mount, "sync|dirsync|wsync") for mount in mounts):
            each, share = SYNCHRONOUS, math.inf
        written = (
            round(min(each * (p.operations or 0), share * (p.bytes_moved or math.inf)))
            for p in phases
            if p.name not in _WRITES_NOTHING
        )
        return Reading(0, sum(written))
    more = Reading(output.beside.get("read", 0), output.beside.get("write", 0))
    if seen.access.o_direct:
        return more
    # A client of a network moves whole pages, and reads ahead, on nobody's account.
    small = all((phase.transfer_bytes or 0) < READ_AHEAD for phase in phases)
    ends = 2 * sum(phase.operations or 0 for phase in phases) if small else 0
    read = one.claimed("read") or 0
    left = max(0, case.plan.held_bytes - read) if read else 0
    ahead = min(left, case.plan.tasks * READ_AHEAD_OF_NETWORK)
    return Reading(ends * READ_AHEAD + ahead, ends * PAGE) + more


def neighbours(seen: CaseView) -> Finding:
    others = (f"{one} was there too" for one in seen.evidence.neighbours)
    return rule("G19 neighbours").unless("no other case on the target", *others)


def exclusive(seen: CaseView) -> Finding:
    fine = "the lock of the target was held throughout"
    return rule("G19 lock").unless(fine, seen.evidence.occupied, seen.evidence.lost)


def on_purpose(seen: PhaseView) -> Finding | None:
    """Return G19 for phases beside which the target is loaded on purpose."""
    if seen.phase.beside is None:
        return None
    demanded = rule("G19 load on purpose", active=_ACTIVE)
    ran = [
        (one, d, d.phase.seconds)
        for one in seen.executions
        if (d := one.output.disturber)
    ]
    if missing := len(seen.outputs) - len(ran):
        return demanded.invalid(
            f"{missing} of {len(seen.outputs)} execution(s) without a disturber"
        )
    lead = min(d.lead_s for _, d, _ in ran)
    after = min(
        took - d.lead_s - sum(p.seconds for p in one.output.phases)
        for one, d, took in ran
    )
    active = min(d.active for _, d, _ in ran)
    saw = (
        f"it began {lead:.2f} s before the measurement, ended {after:.2f} s after it, and was at work in {active:.0%} "
        "of its half-seconds"
    )
    # How many files came and went beside each execution, if the disturber makes any and they are counted.
    looks = seen.case.evidence.activity if seen.phase.beside == "metadata" else ()
    counts = [files_changed(looks, one.span) for one in seen.executions if one.span]
    changed = min((n for n in counts if n is not None), default=_FEWEST_FILES)
    if changed < _FEWEST_FILES:
        return demanded.invalid(
            f"{saw}; meanwhile {changed} file(s) came or went on the target, so its own lay elsewhere"
        )
    in_time = lead > 0 and after >= 0 and active >= _ACTIVE
    # Other nodes have no common clock: all that the phase took beside the disturber's own seconds may lie before its begin.
    late = [
        (run.ended - run.started - took, d.lead_s)
        for one, d, took in ran
        if (run := one.run(seen.phase))
    ]
    worst = max((by for by, lead_s in late if by >= lead_s), default=0.0)
    if in_time and worst and seen.case.plan.nodes > 1:
        return demanded.warn(
            f"{saw}; on its nodes it may have begun up to {worst:.2f} s later"
        )
    return demanded.decide(in_time, saw)
