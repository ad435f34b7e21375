"""Guards that find the load of others (G19): other cases, and bytes, requests and files that are not the tasks' own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iogauge.core.units import format_bytes
from iogauge.evidence.times import files_changed
from iogauge.guards.agreement import Bounds, ReportedFigure, Tolerance, settle
from iogauge.guards.finding import Finding, Guard, Outcome
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

#: Bytes on a node that count as no load: journals, logs, occasional writes of the system itself.
FOREIGN_BYTES = 16 << 20
#: The same in requests, for phases whose requests are so small that they, not the bytes, load a device.
FOREIGN_REQUESTS = 256
SMALL_REQUEST = 128 << 10
#: Bytes that a client of a network reads ahead for a task by default, at most (Lustre: max_read_ahead_per_file_mb).
READ_AHEAD_OF_NETWORK = 64 << 20
#: Phases that write nothing, in no journal either.
_WRITES_NOTHING = {"read", "stat"}
_LOCK = Guard(
    name="G19 lock",
    must="the case held the target's lock before it looked at the free space, and until its directory was removed",
    remedy="Run when the other session has ended, or raise limits.lock_wait. If it is dead, run: iogauge clean",
    against="a: two sessions started at once on one target",
    seen_on="ext4, Lustre 2.17",
    otherwise=Outcome.CONTAMINATED,
    limit="`limits.lock_wait` 10 min ([safety](safety.md#one-case-at-a-time))",
    demands="one case at a time on a target",
    more="No other case on its first node used the disks of the target meanwhile, unless `limits.max_foreign` is above 50 % or "
    "the site names a lock. A case that does not get all this within `limits.lock_wait` measures nothing.",
)


def exclusive(case: CaseView) -> Finding:
    """Return G19 for the lock of the target."""
    evidence = case.evidence
    fine = "the lock of the target was held throughout"
    return _LOCK.unless(fine, evidence.occupied, evidence.lost)


_NEIGHBOURS = Guard(
    name="G19 neighbours",
    must="no other case of this suite was on the target, as far as the suite's directory on the target can be read",
    remedy="Wait for the other session. If partitions share a target, use --exec-policy=serial. If the session is dead, run: "
    "iogauge clean",
    against="a: five partitions without target.lock on one file system ran at once",
    seen_on="ext4, Lustre 2.17",
    otherwise=Outcome.CONTAMINATED,
    demands="one case at a time on a target",
)


def neighbours(case: CaseView) -> Finding:
    """Return G19 for other cases of this suite."""
    others = (f"{name} was there too" for name in case.evidence.neighbours)
    return _NEIGHBOURS.unless("no other case on the target", *others)


_FILES = Guard(
    name="G19 files of others",
    must="while a tool makes files, the inodes in use change by as many files, within 10 %",
    remedy="Run when others neither make nor remove files on the target. If nobody does, the tool's files lay elsewhere",
    against="a: another user unpacked an archive meanwhile",
    seen_on="ext4, XFS, overlay",
    otherwise=Outcome.CONTAMINATED,
    but="or INVALID",
    limit="`limits.max_foreign` 10 %",
    more=f"The same holds on ext2 to ext4 if it removes files. If {LEAST_FILES:,} new files or more are missing, the case is "
    "INVALID: they may lie elsewhere. A smaller lack on ext2 to ext4, in more than half of the executions, is CONTAMINATED. "
    f"ext2 to ext4, XFS and an overlay on them count inodes. Fewer than {LEAST_FILES:,} files too many are ignored.",
)


def foreign_files(phase: PhaseView) -> Finding | None:
    """Return G19 for phases that make or remove files on a file system of one node, if somebody counted files there."""
    case, executions = phase.case, list[list[ReportedFigure]]()
    share = Tolerance(case.extras.limits.max_foreign)
    if len({view.cache_id for view in case.evidence.views}) != 1 or share.share >= 1:
        return None
    for execution in phase.executions:
        made, span = execution.files_changed, execution.span
        if made is None or span is None or not execution.counts.complete:
            continue
        files, removed = abs(made), made < 0
        changed = files_changed(case.evidence.moved, span)
        if changed is None or files < LEAST_FILES or (removed and not case.kind.frees):
            continue
        few = abs(files - changed) < LEAST_FILES
        says = f"{files} file(s) were made or removed, as the tool says"
        # XFS counts a part of what happens later.
        if few and not (case.kind.frees and changed < files):
            executions.append([ReportedFigure(says, files)])
            continue
        saw = f"the inodes in use changed by {changed} meanwhile"
        # Others may remove files too, and make some while a tool removes its own.
        theirs = removed or few
        fewest, most = share.least(changed), share.most(changed)
        above = Bounds(saw, most=most, shared=theirs, often=theirs)
        below = Bounds(saw, fewest, shared=True)
        executions.append([ReportedFigure(says, files, (above, below))])
    if not executions:
        return None
    guard = _FILES.saying(
        f"the inodes in use change by the files of the tool, within {share.share:.0%}"
    )
    return settle(guard, executions, fine="the inodes in use agree with the tool")


@dataclass(frozen=True, slots=True)
class _Foreign:
    """The share of what was counted that is others', and what that is, in words."""

    share: float
    saw: str
    #: Whether the client of NFS may have read that itself, once more after each lock.
    own_again: bool = False


_LOAD = Guard(
    name="G19 foreign load",
    must="at most 10 % of the bytes that the nodes counted during the judged phases are those of others",
    remedy="Run while nobody else uses the target, or request exclusive nodes",
    against="a: dd and cat of another user beside the case, 45 % and 33 % of the bytes",
    seen_on="ext4, XFS, btrfs, GlusterFS, NFS, Lustre 2.17",
    otherwise=Outcome.CONTAMINATED,
    limit="`limits.max_foreign` 10 %",
    more=f"A phase that reads stands for itself, too: at most 10 % of its bytes were read by others. Less than "
    f"{FOREIGN_BYTES >> 20} MiB are ignored, unless all transfers of the case are direct and below {SMALL_REQUEST >> 10} KiB. "
    "Then at most 10 % of the bytes and of the requests on the devices are those of others, and less than "
    f"{FOREIGN_REQUESTS} requests are ignored. On NFS a client that locks (MPI-IO) drops "
    "its pages and reads them again: that is a remark.",
)


def foreign_load(case: CaseView) -> Finding:
    """Return G19: what the counters under the mount counted for all programs on the nodes against what the tasks moved.

    Fewer bytes than the tasks moved are no load: there was a cache. A phase that reads also stands for itself, if others
    read meanwhile. What is written may reach the devices in a later phase, and writing may need reads of the kernel's own.
    """
    every, limit = list[Execution](), case.extras.limits.max_foreign
    for phase in case.phases:
        if phase.plan.witnessed and not phase.plan.within:
            every += phase.executions
    worst = _foreign(case, every)
    for phase in case.phases:
        if phase.access.direction != "read":
            continue
        own = [run for run in every if run.phase.plan.name == phase.plan.name]
        reads = _foreign(case, own, reads_alone=True)
        if reads.share > max(worst.share, limit):
            saw = f"in {phase.plan.name} {reads.saw}"
            worst = _Foreign(reads.share, saw, reads.own_again)
    guard = _LOAD.saying(f"at most {limit:.0%} of the bytes moved by others")
    if worst.own_again and worst.share > limit:
        return guard.warn(
            f"{worst.saw}: others, or this client of NFS, which reads again after each lock of MPI-IO"
        )
    return guard.decide(worst.share <= limit, worst.saw)


def _foreign(
    case: CaseView, executions: Sequence[Execution], reads_alone: bool = False
) -> _Foreign:
    """Return what others moved in some executions. An execution of which counts are lost says nothing."""
    own, counted = Reading(), Reading()
    known, again = False, 0
    # A partition's disk also serves the other partitions.
    names = case.by_host(lambda view: view.below.disk_of_partition or view.counters)
    for execution in executions:
        moved = execution.counts.counted(names)
        if moved is None or not execution.counts.complete:
            continue
        known = True
        counted += moved
        mine = execution.own
        if execution.output.parameters.get("api") not in (None, "POSIX"):
            again += mine.read
        requests = _requests(execution, mine)
        own += Reading(mine.read, mine.written, requests) + _beside(execution)
    if not known or not (case.kind.accounts or case.on_network):
        return _Foreign(0.0, "no counter can be compared with the tasks' bytes")
    read = max(0, counted.read - own.read)
    written = max(0, counted.written - round(own.written * case.copies[1]))
    foreign = read if reads_alone else read + written
    total = counted.read + counted.written
    share = 0.0
    if foreign >= FOREIGN_BYTES:
        share = foreign / total
    # Containers of one kernel over one mount count the same bytes.
    distinct = {view.cache_id for view in case.evidence.views}
    saw = (
        f"others on {len(distinct)} node(s) moved {format_bytes(foreign)} of "
        f"{format_bytes(total)}"
    )
    if own.requests is not None and counted.requests:
        theirs = max(0, counted.requests - own.requests)
        saw += f" with {theirs} of {counted.requests} requests"
        if total and theirs >= FOREIGN_REQUESTS:
            # A few large requests are little load, and so are many small ones with hardly a byte.
            share = max(share, min(foreign / total, theirs / counted.requests))
    on_nfs = case.extras.target.type in ("nfs", "nfs4")
    relocked = on_nfs and read <= again and foreign - read < FOREIGN_BYTES
    return _Foreign(share, f"{saw} ({share:.0%})", relocked)


def _requests(execution: Execution, own: Reading) -> int | None:
    """Return the requests that moved the tasks' own bytes; None unless all are small.

    A direct transfer is one request, if it is not copied.
    """
    phase, output = execution.phase, execution.output
    if not phase.moves_data or not phase.access.o_direct:
        return None
    sizes = {part.transfer_bytes or 0 for part in output.phases} or {0}
    if min(sizes) <= 0 or max(sizes) >= SMALL_REQUEST:
        return None
    written = round(own.written * execution.case.copies[1])
    return (own.read + written) // min(sizes)


def _beside(execution: Execution) -> Reading:
    """Return the bytes that an execution may move beside its data."""
    case, output = execution.case, execution.output
    if case.kind.accounts:
        written = 0.0
        for phase in output.phases:
            operations, most = phase.operations or 0, math.inf
            if phase.name in _WRITES_NOTHING:
                continue
            each = SYNCHRONOUS
            if not case.mounted_with("sync|dirsync|wsync"):
                each = case.kind.journal
                if phase.bytes_moved:
                    most = case.kind.beside * phase.bytes_moved
            written += min(each * operations, most)
        return Reading(0, round(written))
    beside = Reading(
        output.extra_bytes.get("read", 0), output.extra_bytes.get("write", 0)
    )
    if execution.phase.access.o_direct:
        return beside
    # A client of a network moves whole pages, and reads ahead, on nobody's account.
    ends = largest = 0
    for phase in output.phases:
        if phase.operations:
            ends += 2 * phase.operations
            largest = max(largest, phase.transfer_bytes or 0)
    if largest >= READ_AHEAD:
        ends = 0
    read, ahead = execution.reported("read") or 0, 0
    if read:
        left = max(0, case.plan.held_bytes - read)
        ahead = min(left, case.plan.tasks * READ_AHEAD_OF_NETWORK)
    return Reading(ends * READ_AHEAD + ahead, ends * PAGE) + beside
