"""Guards of the target before the first byte: identity, room, inodes, health (G9, G12 to G14, G23)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.node.identity import differ
from iogauge.node.lustre.file_layout import Part
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.mounts import Space
from iogauge.node.view import View
from iogauge.plan.stage import JobOrder

if TYPE_CHECKING:
    from iogauge.guards.views import CaseView
    from iogauge.site.extras import Target

BEFORE = "before a byte is written"


_IDENTITY = Guard(
    name="G9 identity",
    must="every node sees the declared type, source and UUID at the target's path, and the same file system from the first byte to "
    "the end",
    remedy="Mount the target there, or correct target.path, target.type and target.source",
    against="a: the mount failed at boot, and the target was a directory of the root disk",
    seen_on="ext4, XFS, btrfs, overlay, NFS, LVM, md, Lustre 2.17",
    limit="`target.type`, `target.source`, `target.uuid`",
    more="A name such as /dev/sdb1 is no identity. If the site declares neither the UUID nor a source on a network, you "
    "get a remark, and in a gate INVALID: another file system of the same type would pass.",
)


def identity(declares: Target | JobOrder, views: Sequence[View]) -> Finding:
    """G9 of the first looks of all nodes. An unknown UUID agrees with any, but not with a declared UUID."""
    declared = _declared(declares)
    guard = _IDENTITY.saying(declared)
    for view in views:
        mount, source = view.mount, declares.source
        if mount.type != declares.type or source not in (None, mount.source):
            return guard.invalid(
                f"on {view.host} the target {view.path} is {_mounted(view)}"
            )
        if declares.uuid and (not view.uuid or differ(declares.uuid, view.uuid)):
            return guard.saying(
                remedy="Mount the declared file system there. If this is the right one, write its UUID into target.uuid, or "
                "leave target.uuid out"
            ).invalid(
                f"{view.host} sees UUID {view.uuid or 'unknown'} for {view.path}: {_mounted(view)}"
            )
    if not views:
        return guard.saying(remedy="Run again").invalid("no node reported its mounts")
    first = _first(views)
    for view in views:
        if differ(first.uuid, view.uuid):
            return guard.saying(
                "the same file system on every node",
                "Mount the target on every node, and nothing over it (iogauge check --all shows the UUID)",
            ).invalid(
                f"{view.host} sees UUID {view.uuid} for {view.path}: {_mounted(view)}; "
                f"{first.host} sees UUID {first.uuid}: {_mounted(first)}"
            )
    return guard.ok(f"{len(views)} node(s) see {declared}")


def _first(views: Sequence[View]) -> View:
    """Return the first view that knows the UUID, or the first of all."""
    return next((view for view in views if view.uuid), views[0])


def _declared(declares: Target | JobOrder) -> str:
    """Return what is declared, in words."""
    words = f"type {declares.type}"
    if declares.source:
        words += f" from {declares.source}"
    if declares.uuid:
        words += f" with UUID {declares.uuid}"
    return words


def _mounted(view: View) -> str:
    at = view.mount
    return f"{at.type} from {at.source}, mounted at {at.point}"


def undeclared(
    declares: Target | JobOrder, views: Sequence[View], gate: bool
) -> Finding | None:
    """G9 of a target whose declaration another file system may meet: a remark, and INVALID in a gate; None if none may."""
    uuids = [view.uuid for view in views if view.uuid]
    # A device gets its name when it is found, and programs have any name. A server's name stays.
    is_local = views[0].is_unproven or re.match("/(?!/)", declares.source or "/")
    if declares.uuid or not is_local:
        return None
    key = f"source: {views[0].mount.source}"
    if uuids:
        key = f"uuid: {uuids[0]}"
    guard = _IDENTITY.saying(
        "a declared UUID or a source on a network, because another file system of this type would pass",
        f"Declare target.{key} in the settings of your site",
    )
    outcome = Outcome.INVALID if gate else Outcome.WARN
    return guard.found(outcome, f"{len(views)} node(s) see {_declared(declares)}")


def identity_of(case: CaseView) -> Finding:
    """Return G9 of a case: of the first looks of its nodes, then of the last ones, then of the nodes of its tasks."""
    evidence, target, views = case.evidence, case.extras.target, case.evidence.views
    finding = identity(target, views)
    if finding.outcome is not Outcome.OK:
        return finding
    first = _first(views)
    for last in evidence.activity:
        if differ(first.uuid, last.uuid):
            return _IDENTITY.saying(
                "the same file system to the end",
                "See what was mounted or unmounted meanwhile, and run again",
            ).invalid(
                f"{last.host} sees UUID {last.uuid} for {first.path} after the last phase; it was "
                f"{first.uuid} before the first byte"
            )
    # On several nodes each has looked for itself.
    looked = {view.host for view in views}
    for executions in evidence.task_counters.values():
        for counts in executions:
            elsewhere = sorted(set(counts.hosts) - looked)
            if elsewhere and case.plan.nodes == 1:
                return _IDENTITY.saying(
                    "the target seen by the node of the tasks",
                    "Start the job script on the node of its tasks. See how the partition's launcher chooses the node",
                ).invalid(
                    f"the tasks ran on {elsewhere[0]}, but {views[0].host} looked at the target"
                )
    # A resource manager makes another file system for each job.
    if target.of_job:
        return finding
    return undeclared(target, views, case.gate) or finding


def _full(free: int, total: int, need: int) -> float:
    """Return the share that is in use once a case has taken what it needs."""
    if not total:
        return 1.0
    return 1 - (free - need) / total


#: Times what a case needs that must be free.
_ROOM = 1.2
#: Share of the inodes that may be in use.
_MOST_INODES = 0.95


def _fits(free: int, total: int, need: int, most: float) -> bool:
    """Return whether so many bytes or inodes have room for a case, and a fifth more, and are not too full with it."""
    return free >= _ROOM * need and _full(free, total, need) <= most


_SPACE = Guard(
    name="G13 room",
    must=f"{_ROOM:g} x the case's need is free, and afterwards the fill is at most `max_fill`",
    remedy="Free space on the target, or lower limits.case_bytes",
    against="a: a target at 98 %",
    seen_on="ext4, NFS, Lustre 2.17",
    but=BEFORE,
    limit="`limits.max_fill` 85 %",
)


def room(space: Space, order: JobOrder) -> Finding:
    """G13: room of the whole file system."""
    need, most = order.held_bytes, order.max_fill
    free, total = space.bytes_free, space.bytes_total
    lowest = format_bytes(max(_ROOM * need, need + (1 - most) * total))
    guard = _SPACE.saying(f"{lowest} free ({_ROOM:g} x need, at most {most:.0%} full)")
    return guard.decide(
        _fits(free, total, need, most),
        f"{format_bytes(free)} free of {format_bytes(total)}, "
        f"{max(0.0, _full(free, total, need)):.0%} full once this case has written {format_bytes(need)}",
    )


_SHARE = Guard(
    name="G13 share",
    must="one case takes at most `max_of_free` of the free space",
    remedy="Lower limits.case_bytes. If this target can bear more, raise limits.max_of_free",
    against="a: sizes of another site, ten times too large",
    seen_on="ext4",
    but=BEFORE,
    limit="`limits.max_of_free` 1 %",
)


def share_of_free(space: Space, order: JobOrder) -> Finding:
    """G13: share of the free space that a case takes."""
    need, free, share = order.held_bytes, space.bytes_free, order.max_of_free
    saw = f"this case writes {format_bytes(need)} of the {format_bytes(free)} that are free"
    most = format_bytes(share * free)
    guard = _SHARE.saying(f"at most {most} ({share:.3g} x what is free)")
    return guard.decide(need <= share * free, saw)


#: Flags of a storage target (lfs-df(1)) that send new files elsewhere, and flags that cost speed.
_TAKES_NO_FILES = {
    "N": "no new files",
    "R": "read-only",
    "S": "full",
    "I": "no inodes left",
}
_HARMLESS_FLAG = "f"
_SLOW = {"D": "degraded"}

_HEALTH = Guard(
    name="G12 health",
    must="there are as many storage targets as declared, all of them active and open to new files",
    remedy="Ask the administrators; lfs df and lfs osts show them",
    against="a: an OST was deactivated for maintenance",
    seen_on="Lustre 2.17",
    but=BEFORE,
    limit="`topology.targets`",
    more="A degraded target gives a remark.",
)


def health(targets: Sequence[StorageTarget], declared: int | None) -> Finding:
    """G12: ``declared`` is the number in the site's ``topology.targets``. If the site gives no number, any number will do."""
    inactive, closed, slow = _out_of_order(targets)
    demands = "storage targets, all active, none degraded, none closed to new files"
    fine, problems = f"{len(targets)} storage targets, all active", list[str]()
    if declared is not None:
        demands = f"{declared} {demands}"
    if not targets:
        problems.append("no storage target is known")
    if declared not in (None, len(targets)):
        problems.append(f"{len(targets)} storage targets")
    if inactive:
        problems.append(f"inactive: {', '.join(inactive)}")
    if closed:
        problems.append(f"new files land elsewhere than on {', '.join(closed)}")
    return _HEALTH.saying(demands).unless(fine, *problems, doubt=", ".join(slow))


def _out_of_order(
    targets: Sequence[StorageTarget],
) -> tuple[list[str], list[str], list[str]]:
    """Return the targets that are inactive, that take no new files, and with another flag that is not harmless, with its meaning."""
    inactive, closed, slow = list[str](), list[str](), list[str]()
    for target in targets:
        if not target.active:
            inactive.append(target.uuid)
        for flag in target.flags:
            if flag in _TAKES_NO_FILES:
                closed.append(f"{target.uuid} ({_TAKES_NO_FILES[flag]})")
            elif flag != _HARMLESS_FLAG:
                slow.append(f"{target.uuid} ({_SLOW.get(flag, f'flag {flag}')})")
    return inactive, closed, slow


def health_of(case: CaseView) -> Finding | None:
    """Return G12 of a case on Lustre."""
    topology = case.extras.topology
    if case.extras.target.striped_by != "lustre":
        return None
    declared = topology.targets if topology else None
    return health(case.targets, declared)


_TARGET_ROOM = Guard(
    name="G13 storage targets",
    must=f"on Lustre every storage target has room for {_ROOM:g} x its share of the case",
    remedy="Free space on that target, or lower limits.case_bytes",
    against="a: one OST was full, the file system half empty",
    seen_on="Lustre 2.17",
    but=BEFORE,
    limit="`limits.max_fill` 85 %",
    more="Its fill afterwards is at most `max_fill`. The shares are computed from stripes and pins. If the files lie with their "
    "metadata, this holds for the metadata targets of the directory instead.",
)


def target_room(
    targets: Sequence[StorageTarget],
    order: JobOrder,
    pinned: Collection[int] = (),
    kind: str = "storage target",
) -> Finding:
    """G13: the case is made of pieces of equal size, each on one target; without pieces, and on metadata targets, its
    bytes are spread evenly. ``pinned`` gives the target of each piece; without ``pinned`` the pieces go round all active
    targets. If there are fewer pieces than targets, each target may hold a piece.
    """
    need, most = order.held_bytes, order.max_fill
    option, cut_up = "-m", None
    if kind == "storage target":
        option, cut_up = "-O", order.pieces
    active = [target for target in targets if target.active]
    count = len(active) or 1
    share = math.ceil(need / count)
    if pinned:
        pieces = Counter(pinned)
        share = math.ceil(need * max(pieces.values()) / len(pinned))
        active = [target for target in active if target.index in pieces]
    elif cut_up:
        share = math.ceil(need / cut_up) * math.ceil(cut_up / count)
    guard = _TARGET_ROOM.saying(
        f"{format_bytes(_ROOM * share)} free on each {kind} of the case ({_ROOM:g} x its share), at most {most:.0%} full "
        "afterwards",
        f"Free space on that target (lfs find {option}), or lower limits.case_bytes",
    )
    if not active:
        return guard.invalid(f"no {kind} is active")
    short = []
    for target in active:
        if not _fits(target.bytes_free, target.bytes_total, share, most):
            short.append(target)
    worst = min(short or active, key=attrgetter("bytes_free"))
    free, total = worst.bytes_free, worst.bytes_total
    return guard.decide(
        not short,
        f"{worst.uuid}: {format_bytes(free)} free of {format_bytes(total)}, {_full(free, total, share):.0%} full once this "
        f"case has written {format_bytes(share)} there",
    )


#: Stripes of a shared file on each of its storage targets, at least.
_STRIPES = 8

_STRIPED = Guard(
    name="G23 stripes",
    must=f"a shared file over several targets has at least {_STRIPES} stripes on each of them",
    remedy="Raise limits.case_bytes (for OutputFile, sweeps.file_sizes), or lower the stripe size or count",
    against="a: 16 MiB in stripes of 4 MiB over 4 targets: each had one, and the tasks queued",
    seen_on="Lustre 2.17",
    but=BEFORE,
    demands=f"file size / stripe size >= {_STRIPES} x stripe count",
    more="In a progressive layout this holds for the last component with data.",
)


def stripes_against_size(file_bytes: int, part: Part) -> Finding:
    """G23: ``part`` is the last component with data."""
    count, stripe, held = part.stripe_count, part.stripe_bytes, part.holds(file_bytes)
    size = f"{format_bytes(held)} in stripes of {format_bytes(stripe)}"
    enough = _STRIPES * count * stripe
    guard = _STRIPED.saying(
        remedy="Raise limits.case_bytes (for OutputFile, sweeps.file_sizes) until the shared file has "
        f"{format_bytes(part.begin_bytes + enough)}, or lower the stripe size or count"
    )
    return guard.decide(
        held >= enough or count == 1, f"{size} over {count} storage target(s)"
    )


_INODES = Guard(
    name="G14 inodes",
    must=f"inodes for {_ROOM:g} x the case's files are free, and {1 - _MOST_INODES:.0%} of the inodes stay free",
    remedy="Remove files, or lower limits.case_files",
    against="a: an ext4 of 1 GiB has 65,536 inodes",
    seen_on="ext4",
    but=BEFORE,
)


def inodes(space: Space, need_files: int) -> Finding:
    """G14: a file system that counts no inodes has room."""
    needed = int(_ROOM * need_files)
    holds = _fits(space.inodes_free, space.inodes_total, need_files, _MOST_INODES)
    guard = _INODES.saying(f"{needed} free inodes and {1 - _MOST_INODES:.0%} left")
    return guard.decide(
        not space.inodes_total or holds,
        f"{space.inodes_free} of {space.inodes_total} inodes free, {need_files} needed",
    )


_QUOTA = Guard(
    name="G14 quota",
    must=f"on Lustre {_ROOM:g} x the case's need is within the quotas of user, group and project",
    remedy="Remove files, raise the quota, or lower limits.case_files and limits.case_bytes",
    against="a: a project's quota was used up",
    seen_on="Lustre 2.17",
    but=BEFORE,
    demands=f"{_ROOM:g} x need within every quota",
    more="After its grace period, a soft limit counts as a hard limit. If a quota cannot be read in time, you get a remark.",
)


def quota(opened: View, need_bytes: int, need_files: int) -> Finding | None:
    """G14 if there are quotas; those that could not be read in time count too."""
    short, doubts, owners = list[str](), list[str](), list[str]()
    for of_owner in opened.quotas:
        owners.append(of_owner.owner)
        left, files = of_owner.bytes_left, of_owner.files_left
        leaves = f"quota of {of_owner.owner} leaves"
        if left is not None and left < _ROOM * need_bytes:
            needed = format_bytes(need_bytes)
            short.append(f"{leaves} {format_bytes(left)}, {needed} needed")
        if files is not None and files < _ROOM * need_files:
            short.append(f"{leaves} {files} files, {need_files} needed")
    for owner in opened.unanswered:
        doubts.append(f"not found out: the quota of {owner}")
    if not (owners or doubts):
        return None
    fine = f"room in the quotas of {', '.join(owners)}"
    return _QUOTA.unless(fine, *short, doubt="; ".join(doubts))


def quota_of(case: CaseView) -> Finding | None:
    """Return G14 of a case."""
    opened, plan = case.evidence.opened, case.plan
    if opened is None:
        return None
    return quota(opened, plan.held_bytes, plan.most_files)


_METADATA_ROOM = Guard(
    name="G14 metadata targets",
    must=f"each metadata target that holds the directory has inodes for {_ROOM:g} x its share of the files, and "
    f"{1 - _MOST_INODES:.0%} of its inodes stay free",
    remedy="Choose a directory on other metadata targets (lfs getdirstripe, lfs mkdir -i), or lower limits.case_files",
    against="a: a metadata target without inodes, the other half empty",
    seen_on="Lustre 2.17",
    but=BEFORE,
    more="A striped directory spreads its files evenly.",
)


def metadata_room(
    targets: Sequence[MetadataTarget], mdts: Collection[int], need_files: int
) -> Finding:
    """G14: a striped directory spreads its files evenly over ``mdts``, or over all targets."""
    own = [target for target in targets if target.index in mdts] or list(targets)
    share = math.ceil(need_files / len(own))
    worst = min(own, key=lambda target: target.inodes_free)
    guard = _METADATA_ROOM.saying(
        f"{int(_ROOM * share)} free inodes on each metadata target of the directory, and {1 - _MOST_INODES:.0%} left"
    )
    return guard.decide(
        _fits(worst.inodes_free, worst.inodes_total, share, _MOST_INODES),
        f"MDT {worst.index}: {worst.inodes_free} of {worst.inodes_total} inodes free, {share} needed",
    )
