"""Guards that find the load of others (G19): bytes, requests and files that are not the tasks' own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.measurement import ToolOutput
from iogauge.core.units import format_bytes
from iogauge.evidence.witness import Moved, Testimony, files_changed
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.preflight import LEAST_FILES
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.guards.witness import METADATA_OF_TREES, PAGE, READ_AHEAD
from iogauge.node.mounts import option
from iogauge.site.extras import DOUBTFUL_LIMIT, generous

#: Bytes on a node that count as no load: journals, logs, occasional writes of the system itself.
FOREIGN_BYTES: Final = 16 << 20
#: The same in requests, for phases whose requests are so small that they, not the bytes, load a device.
FOREIGN_REQUESTS: Final = 256
SMALL_REQUEST: Final = 128 << 10

#: What else may write to a file system that nobody uses.
_NEW_EXT4: Final = (
    ". A new ext4 goes on writing its inode tables for minutes, as the kernel's thread ext4lazyinit: wait until it has "
    "ended, or make the file system with -E lazy_itable_init=0"
)

#: Bytes written beside the data for an operation that makes, removes or writes, in a journal or in trees. Seen with
#: mdtest, -Y, and fio: ext4 0.6 KiB, XFS 0.3 KiB, both also below an overlay.
#: Operations that read or stat write nothing. If each operation is synchronous by a mount option: ext4 137 KiB, XFS 27 KiB.
_METADATA: Final = 1024
_METADATA_IF_SYNCHRONOUS: Final = 160 << 10
_TREES: Final = ("btrfs", "f2fs")
#: The same for data that are synced at the end, as a share of them. Seen with fio: ext4 and XFS 0.5 %, btrfs 42 % for 4 KiB.
_BESIDE_DATA: Final = 0.05
_BESIDE_DATA_OF_TREES: Final = 0.5
_WRITES_NOTHING: Final = {"read", "stat"}


def foreign_files(
    *, executions: Sequence[tuple[int, int]], max_share: float = 0.1
) -> Finding | None:
    """G19: while a tool makes files, the inodes in use change by as many files, within 10 %. If they
    change by less, the case is INVALID: the files may lie elsewhere. ext2 to ext4, XFS and an overlay
    on them tell this number. A difference of less than 1,000 files is ignored.

    ``executions`` holds the files that the tool made, and those that came or went on the file system meanwhile. Returns
    None if nobody counted any.
    """
    rule = Rule(
        "G19",
        f"the inodes in use change by the files of the tool, within {max_share:.0%}",
        "Run when others neither make nor remove files on the target. If nobody does, the tool's files lay elsewhere",
    )
    for own, changed in executions:
        saw = f"{own} file(s) were made, as the tool says; the inodes in use changed by {changed} meanwhile"
        if own - changed >= LEAST_FILES and changed < (1 - max_share) * own:
            return rule.invalid(saw)
        if changed - own >= LEAST_FILES and own < (1 - max_share) * changed:
            return rule.decide(False, saw, Outcome.CONTAMINATED)
    return rule.ok("the inodes in use agree with the tool") if executions else None


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
        finding = foreign_files(executions=executions, max_share=case.extras.limits.max_foreign)
        if finding:
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
    """G19: at most 10 % of the bytes that the nodes counted during the judged phases are those of
    others. If servers' job accounts are readable, at most 10 % of the bytes that they counted
    belong to other jobs. Less than 16 MiB are ignored, unless all transfers of the case are direct and
    below 128 KiB. Then at most 10 % of the bytes and of the requests on the devices are those of
    others, and less than 256 requests are ignored. A limit above 50 % gives a remark.

    ``counted`` is what the counters under the mount counted for all programs on the nodes, ``own``
    what the tasks moved; None if nothing was counted. Fewer bytes than the tasks moved are no load:
    there was a cache. ``jobs`` holds the bytes of this job and of others, for each server.
    ``requests`` are those of the tasks and of all programs, None unless they are small. ``kind`` is the file system's type.
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
    rule = Rule(
        "G19",
        f"at most {max_share:.0%} of the bytes moved by others",
        "Run while nobody else uses the target, or request exclusive nodes"
        + (_NEW_EXT4 if kind in ("ext4", "overlay") else ""),
    )
    saw = "; ".join(parts) or "no counter can be compared with the tasks' bytes"
    if worst <= max_share and max_share > DOUBTFUL_LIMIT:
        return Rule("G19", rule.demands).warn(f"{saw}. {generous('max_foreign', max_share)}")
    return rule.decide(worst <= max_share, saw, Outcome.CONTAMINATED)


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
    operations = sum(phase.operations or 0 for phase in phases)
    if seen.case.traits.accounts:
        mounts = [view.mount for view in seen.case.evidence.views if view.mount]
        kind = seen.case.extras.target.type
        # The upper directory of an overlay may lie on trees.
        share_of_data = _BESIDE_DATA_OF_TREES if kind in (*_TREES, "overlay") else _BESIDE_DATA
        each, share = (
            (_METADATA_IF_SYNCHRONOUS, math.inf)
            if any(option(mount, "sync|dirsync|wsync") for mount in mounts)
            else (METADATA_OF_TREES if kind in _TREES else _METADATA, share_of_data)
        )
        return Moved(
            0,
            sum(
                round(min(each * (p.operations or 0), share * (p.bytes_moved or math.inf)))
                for p in phases
                if p.name not in _WRITES_NOTHING
            ),
        )
    more = Moved(output.beside.get("read", 0), output.beside.get("write", 0))
    # A client of a network moves whole pages, and reads ahead, on nobody's account.
    small = all((phase.transfer_bytes or 0) < READ_AHEAD for phase in phases)
    ends = 0 if seen.access.o_direct or not small else 2 * operations
    return Moved(ends * READ_AHEAD, ends * PAGE) + more
