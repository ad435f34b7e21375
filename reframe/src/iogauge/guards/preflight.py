"""Guards of the target before the first byte: identity, room, inodes, health, metadata targets, settings (G9, G10, G12 to
G15, G23, G25).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from iogauge.core.units import format_bytes
from iogauge.core.words import Value
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.node.identity import differ
from iogauge.node.kinds import Below
from iogauge.node.lustre.directory import Directory
from iogauge.node.lustre.layout import Part
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.mounts import Space, fsname_of
from iogauge.node.view import View
from iogauge.plan.stage import JobOrder

if TYPE_CHECKING:
    from iogauge.guards.views import CaseView

_BEFORE: Final = "before a byte is written"


class Declares(Protocol):
    """What says which file system the target is: a site, or the order of a job; None if it does not say it."""

    @property
    def type(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def uuid(self) -> str | None: ...


_DEVICES: Final = Guard(
    "G9 devices",
    "the block devices that a case reads past the file system are storage, and no cache serves them",
    "Correct ceilings.devices of the site",
    "a: ceilings.devices named a zram",
    "ext4, loop, zram",
    but=_BEFORE,
    limit="`ceilings.devices`",
    demands="devices with storage behind them",
)


def devices(below: Mapping[str, Below]) -> Finding:
    """G9: ``below`` maps the declared devices to what lies below them."""
    for name, stack in below.items():
        why = stack.memory or stack.cached or stack.o_direct
        if why:
            return _DEVICES.invalid(f"{name} is no storage: {why}")
    return _DEVICES.ok(f"{len(below)} device(s)")


_IDENTITY: Final = Guard(
    "G9 identity",
    "every node sees the declared type, source and UUID at the target's path, and the same file system from the first byte to "
    "the end",
    "Mount the target there, or correct target.path, target.type and target.source",
    "a: the mount failed at boot, and the target was a directory of the root disk",
    "ext4, XFS, btrfs, overlay, NFS, LVM, md, Lustre 2.17",
    limit="`target.type`, `target.source`, `target.uuid`",
    more="On the first node nothing is mounted over the case's directory or in it while a tool runs, and its mount keeps its "
    "barriers. A name such as /dev/sdb1 is no identity. If the site declares neither the UUID nor a source on a network, you "
    "get a remark, and in a gate INVALID: another file system of the same type would pass.",
)


def identity(
    declares: Declares,
    views: Sequence[View],
    *,
    at_end: Mapping[str, str] = MappingProxyType({}),
    hidden: Sequence[str] = (),
    hosts: Collection[str] = (),
) -> Finding:
    """G9: ``at_end`` maps hosts to the UUIDs that they saw after the last phase. An unknown UUID agrees with any, but not
    with a declared UUID. ``hidden`` describes what was mounted over the case's directory. A task of a case on one node ran
    on each of ``hosts``.
    """
    declared = _declared(declares)
    guard = _IDENTITY.saying(declared)
    for view in views:
        mount, source = view.mount, declares.source
        as_declared = mount is not None and mount.type == declares.type
        if mount is None or not as_declared or source not in (None, mount.source):
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
    first = next((view for view in views if view.uuid), views[0])
    for view in views:
        if differ(first.uuid, view.uuid):
            return guard.saying(
                "the same file system on every node",
                "Mount the target on every node, and nothing over it (iogauge check --all shows the UUID)",
            ).invalid(
                f"{view.host} sees UUID {view.uuid} for {view.path}: {_mounted(view)}; "
                f"{first.host} sees UUID {first.uuid}: {_mounted(first)}"
            )
    for host, uuid in at_end.items():
        if differ(first.uuid, uuid):
            return guard.saying(
                "the same file system to the end",
                "See what was mounted or unmounted meanwhile, and run again",
            ).invalid(
                f"{host} sees UUID {uuid} for {first.path} after the last phase; it was "
                f"{first.uuid} before the first byte"
            )
    elsewhere = sorted(set(hosts) - {view.host for view in views})
    if elsewhere:
        return guard.saying(
            "the target seen by the node of the tasks",
            "Start the job script on the node of its tasks. See how the partition's launcher chooses the node",
        ).invalid(
            f"the tasks ran on {elsewhere[0]}, but {views[0].host} looked at the target"
        )
    if hidden:
        return guard.saying(
            "the target itself to the end",
            "See what was mounted meanwhile, and run again",
        ).invalid(f"while the tool ran, the case's directory lay on {hidden[0]}")
    return guard.ok(f"{len(views)} node(s) see {declared}")


def _declared(declares: Declares) -> str:
    """Return what is declared, in words."""
    source = f" from {declares.source}" if declares.source else ""
    uuid = f" with UUID {declares.uuid}" if declares.uuid else ""
    return f"type {declares.type}{source}{uuid}"


def _mounted(view: View) -> str:
    at = view.mount
    return f"{at.type} from {at.source}, mounted at {at.point}" if at else "not mounted"


def identity_of(case: CaseView) -> Finding:
    """Return G9 of a case: in a gate the site must declare what no other file system has."""
    evidence, target = case.evidence, case.extras.target
    hosts = list[str]()
    if case.plan.nodes == 1:
        for executions in evidence.task_counters.values():
            for counts in executions:
                hosts += counts.hosts
    finding = identity(
        target,
        evidence.views,
        at_end={change.host: change.uuid for change in evidence.changes},
        hidden=evidence.hidden,
        hosts=hosts,
    )
    # A resource manager makes another file system for each job.
    if finding.outcome is not Outcome.OK or target.uuid or target.of_job:
        return finding
    # A device gets its name when it is found. A server's name and a path stay.
    uuids = [view.uuid for view in evidence.views if view.uuid]
    if target.source and not (uuids and target.source.startswith("/dev/")):
        return finding
    key = f"uuid: {uuids[0]}" if uuids else ""
    for view in evidence.views:
        if view.mount and not key:
            key = f"source: {view.mount.source}"
    guard = _IDENTITY.saying(
        "a declared UUID or a source on a network, because another file system of this type would pass",
        f"Declare target.{key} in the settings of your site",
    )
    return guard.invalid(finding.saw) if case.gate else guard.warn(finding.saw)


def _full(free: int, total: int, need: int) -> float:
    """Return the share that is in use once a case has taken what it needs."""
    return 1 - (free - need) / total if total else 1.0


#: Times what a case needs that must be free.
_ROOM: Final = 1.2
#: Share of the inodes that may be in use.
_MOST_INODES: Final = 0.95


def _fits(free: int, total: int, need: int, most: float) -> bool:
    """Return whether so many bytes or inodes have room for a case, and a fifth more, and are not too full with it."""
    return free >= _ROOM * need and _full(free, total, need) <= most


_SPACE: Final = Guard(
    "G13 room",
    f"{_ROOM:g} x the case's need is free, and afterwards the fill is at most `max_fill`",
    "Free space on the target, or lower limits.case_bytes",
    "a: a target at 98 %",
    "ext4, NFS, Lustre 2.17",
    but=_BEFORE,
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


_SHARE: Final = Guard(
    "G13 share",
    "one case takes at most `max_of_free` of the free space",
    "Lower limits.case_bytes. If this target can bear more, raise limits.max_of_free",
    "a: sizes of another site, ten times too large",
    "ext4",
    but=_BEFORE,
    limit="`limits.max_of_free` 1 %",
)


def share_of_free(space: Space, order: JobOrder) -> Finding:
    """G13: share of the free space that a case takes."""
    need, free, share = order.held_bytes, space.bytes_free, order.max_of_free
    part = f"{need / free:.2%}" if free else "more than all"
    saw = f"this case writes {format_bytes(need)}, {part} of the {format_bytes(free)} that are free"
    most = format_bytes(share * free)
    guard = _SHARE.saying(f"at most {most} ({share:.3g} x what is free)")
    return guard.decide(need <= share * free, saw)


#: Flags of a storage target (lfs-df(1)) that send new files elsewhere, and flags that cost speed.
_TAKES_NO_FILES: Final = {
    "N": "no new files",
    "R": "read-only",
    "S": "full",
    "I": "no inodes left",
}
_HARMLESS_FLAGS: Final = "f"

_HEALTH: Final = Guard(
    "G12 health",
    "there are as many storage targets as declared, all of them active and open to new files",
    "Ask the administrators of the file system; lfs df, lfs osts and lfs check osts show them",
    "a: an OST was deactivated for maintenance",
    "Lustre 2.17",
    but=_BEFORE,
    limit="`topology.targets`",
    more="The only exceptions are targets that the site declares out (`topology.out`): these must be out. A degraded target "
    "gives a remark, and so does a file system that is smaller than its targets together: then the metadata servers leave "
    "some out, which this client calls active.",
)


def health(
    *,
    targets: Sequence[StorageTarget],
    declared: int | None = None,
    out: Collection[int] = (),
    space: Space | None = None,
) -> Finding:
    """G12: ``declared`` is the number in the site's ``topology.targets``. If the site gives no number, any number will do.
    ``space`` is that of the whole file system; None if a project's quota limits it.
    """
    left = [target for target in targets if target.index not in out]
    missing = set(out) - {target.index for target in targets}
    for target in targets:
        closed_to_files = set(target.flags) & set(_TAKES_NO_FILES)
        if target.index in out and target.active and not closed_to_files:
            missing.add(target.index)
    inactive = ", ".join(target.uuid for target in left if not target.active)
    closed, slow = list[str](), list[str]()
    for target in left:
        for flag in target.flags:
            if flag in _TAKES_NO_FILES:
                closed.append(f"{target.uuid} ({_TAKES_NO_FILES[flag]})")
            elif flag not in _HARMLESS_FLAGS:
                what = "degraded" if flag == "D" else f"flag {flag}"
                slow.append(f"{target.uuid} ({what})")
    doubt = ", ".join(slow) or _left_out(targets, space)
    count = "" if declared is None else f"{declared} "
    demands = (
        f"{count}storage targets, all active, none degraded, none closed to new files"
    )
    fine = f"{len(left)} storage targets, all active"
    if out:
        demands += f", but for {_names(out)}, which must be out"
        fine += f"; out: {_names(out)}"
    miscounted = declared not in (None, len(targets))
    return _HEALTH.saying(demands).unless(
        fine,
        "" if left else "no storage target is known",
        f"{len(targets)} storage targets" if miscounted else "",
        f"not out: {_names(missing)}" if missing else "",
        inactive and f"inactive: {inactive}",
        f"new files land elsewhere than on {', '.join(closed)}" if closed else "",
        doubt=doubt,
    )


def _left_out(targets: Sequence[StorageTarget], space: Space | None) -> str:
    """Return why the metadata servers must leave some targets out; empty if all targets make up the file system."""
    sizes = [target.bytes_total for target in targets if target.active]
    if not space or not sizes or sum(sizes) - space.bytes_total <= min(sizes) / 2:
        return ""
    return (
        f"the file system has {format_bytes(space.bytes_total)}, its {len(sizes)} storage targets together "
        f"{format_bytes(sum(sizes))}: the metadata servers put no new files on some of them (on a metadata server: "
        "lctl get_param osp.*.active)"
    )


def _names(indices: Collection[int]) -> str:
    return ", ".join(f"OST{index:04x}" for index in sorted(indices))


def health_of(case: CaseView) -> Finding | None:
    """Return G12 of a case on Lustre."""
    topology, opened = case.extras.topology, case.evidence.opened
    if case.extras.target.striped_by != "lustre":
        return None
    return health(
        targets=case.targets,
        declared=topology.targets if topology else None,
        out=topology.out if topology else (),
        space=opened.whole_space if opened else None,
    )


_TARGET_ROOM: Final = Guard(
    "G13 storage targets",
    f"on Lustre every storage target has room for {_ROOM:g} x its share of the case",
    "Free space on that target, or lower limits.case_bytes",
    "a: one OST was full, the file system half empty",
    "Lustre 2.17",
    but=_BEFORE,
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
    need, most, on_storage = (
        order.held_bytes,
        order.max_fill,
        kind.startswith("storage"),
    )
    active = [target for target in targets if target.active]
    count = len(active) or 1
    share = math.ceil(need / count)
    if pinned:
        pieces = Counter(pinned)
        share = math.ceil(need * max(pieces.values()) / len(pinned))
        active = [target for target in active if target.index in pieces]
    elif order.pieces and on_storage:
        share = math.ceil(need / order.pieces) * math.ceil(order.pieces / count)
    lowest, option = format_bytes(_ROOM * share), "-O" if on_storage else "-m"
    guard = _TARGET_ROOM.saying(
        f"{lowest} free on each {kind} of the case ({_ROOM:g} x its share), at most {most:.0%} full afterwards",
        f"Free space on that target (lfs find {option}), or lower limits.case_bytes",
    )
    if not active:
        return guard.invalid(f"no {kind} is active")
    short = [
        target
        for target in active
        if not _fits(target.bytes_free, target.bytes_total, share, most)
    ]

    def full(target: StorageTarget) -> float:
        return _full(target.bytes_free, target.bytes_total, share)

    worst = max(short or active, key=full)
    saw = (
        f"{worst.uuid}: {format_bytes(worst.bytes_free)} free of {format_bytes(worst.bytes_total)}, "
        f"{full(worst):.0%} full once this case has written {format_bytes(share)} there"
    )
    if len(short) > 1:
        saw += f"; {len(short)} of {len(active)} {kind}s are short of room"
    return guard.decide(not short, saw)


_POOL: Final = Guard(
    "G12 pool",
    "the declared pool exists, and has active storage targets",
    "Make the pool (lctl pool_new, lctl pool_add), or correct target.pool; lfs pool_list shows all",
    "a: a mistyped name of a pool: lfs setstripe took it, and striped over all targets",
    "Lustre 2.17",
    but=_BEFORE,
    limit="`target.pool`",
)


def pool(name: str, targets: Sequence[StorageTarget], directory: Directory) -> Finding:
    """G12: ``directory`` is what the target's directory shows of the pool."""
    active = [target for target in directory.usable(targets) if target.active]
    guard = _POOL.saying(f"a pool {name} with active storage targets")
    if not directory.pool:
        return guard.invalid(directory.pool_problem or f"the pool {name} is empty")
    count = len(directory.pool)
    return guard.decide(
        bool(active),
        f"the pool {name} has {count} storage targets, {len(active)} active",
    )


#: Stripes of a shared file on each of its storage targets, at least.
_STRIPES: Final = 8

_STRIPED: Final = Guard(
    "G23 stripes",
    f"a shared file over several targets has at least {_STRIPES} stripes on each of them",
    "Raise limits.case_bytes (for OutputFile, sweeps.file_sizes), or lower the stripe size or count",
    "a: 16 MiB in stripes of 4 MiB over 4 targets: each had one, and the tasks queued",
    "Lustre 2.17",
    but=_BEFORE,
    demands=f"file size / stripe size >= {_STRIPES} x stripe count",
    more="In a progressive layout this holds for the last component with data.",
)


def stripes_against_size(file_bytes: int, part: Part) -> Finding:
    """G23: ``part`` is the last component with data."""
    count, stripe = part.stripe_count, part.stripe_bytes
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe)}"
    enough = _STRIPES * count * stripe
    guard = _STRIPED.saying(
        remedy="Raise limits.case_bytes (for OutputFile, sweeps.file_sizes) until the shared file has "
        f"{format_bytes(enough)}, or lower the stripe size or count"
    )
    return guard.decide(
        file_bytes >= enough or count == 1, f"{size} over {count} storage target(s)"
    )


_CORES: Final = Guard(
    "G15 cores",
    "if mpirun binds each task to a core, the first node has a core for each of its tasks",
    "Correct node.cores, and lower scale.tasks_per_node to that number. Threads are no cores",
    "a: node.cores counted the threads",
    "Open MPI 4.1",
    but=_BEFORE,
    limit="`node.cores`",
    demands="a physical core for each task that is bound to one",
    more="Otherwise mpirun would abort, because `node.cores` declares more cores than there are.",
)


def cores(bound_tasks: int, usable: int, declared: int) -> Finding:
    """G15: ``bound_tasks`` is the number of bound tasks on the node, ``usable`` the number of physical cores that the job
    may use there.
    """
    saw = (
        f"{bound_tasks} task(s) on {usable} physical core(s), node.cores is {declared}"
    )
    remedy = (
        f"Write into the partition's extras: node: {{cores: {usable}}}, and lower scale.tasks_per_node to that number. "
        "Threads are no cores"
    )
    return _CORES.saying(remedy=remedy).decide(bound_tasks <= usable, saw)


_INODES: Final = Guard(
    "G14 inodes",
    f"inodes for {_ROOM:g} x the case's files are free, and {1 - _MOST_INODES:.0%} of the inodes stay free",
    "Remove files, or lower limits.case_files",
    "a: an ext4 of 1 GiB has 65,536 inodes",
    "ext4",
    but=_BEFORE,
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


_QUOTA: Final = Guard(
    "G14 quota",
    f"on Lustre {_ROOM:g} x the case's need is within the quotas of user, group and project",
    "Remove files, raise the quota, or lower limits.case_files and limits.case_bytes",
    "a: a project's quota was used up",
    "Lustre 2.17",
    but=_BEFORE,
    demands=f"{_ROOM:g} x need within every quota, and no soft limit exceeded",
    more="After its grace period, a soft limit counts as a hard limit. Within its grace period, it gives a remark. If a quota "
    "cannot be read in time, you also get a remark.",
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
        if of_owner.over:
            doubts.append(f"{of_owner.owner} is beyond its soft limit: {of_owner.over}")
    for owner in opened.unanswered:
        doubts.append(f"the quota of {owner} was not answered")
    if not (owners or doubts):
        return None
    fine = f"room in the quotas of {', '.join(owners)}"
    return _QUOTA.unless(fine, *short, doubt="; ".join(doubts))


def quota_of(case: CaseView) -> Finding | None:
    """Return G14 of a case."""
    opened, plan = case.evidence.opened, case.plan
    return quota(opened, plan.held_bytes, plan.most_files) if opened else None


_METADATA_ROOM: Final = Guard(
    "G14 metadata targets",
    f"each metadata target that holds the directory has inodes for {_ROOM:g} x its share of the files, and "
    f"{1 - _MOST_INODES:.0%} of its inodes stay free",
    "Choose a directory on other metadata targets (lfs getdirstripe, lfs mkdir -i), or lower limits.case_files",
    "a: a metadata target without inodes, the other half empty",
    "Lustre 2.17",
    but=_BEFORE,
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


_METADATA_HEALTH: Final = Guard(
    "G12 metadata targets",
    "there are as many metadata targets as declared, if each is measured alone",
    "Ask the administrators of the file system, or correct topology.metadata_targets; lfs df -i shows all",
    "a: a metadata target was added, and the site not changed",
    "Lustre 2.17",
    but=_BEFORE,
    limit="`topology.metadata_targets`",
)


def metadata_health(targets: Sequence[MetadataTarget], declared: int) -> Finding:
    """G12: ``declared`` is the number in the site's ``topology.metadata_targets``."""
    indices = sorted(target.index for target in targets)
    saw = "no metadata target is known"
    if indices:
        saw = f"metadata targets {', '.join(map(str, indices))}"
    guard = _METADATA_HEALTH.saying(f"{declared} metadata targets, 0 to {declared - 1}")
    return guard.decide(indices == list(range(declared)), saw)


_ALLOW: Final = (
    "Run the case as root. Or root runs on each metadata server: lctl set_param mdt.*.enable_remote_dir_gid=-1. In a nodemap, "
    "rbac needs dne_ops"
)
_PLACEMENT: Final = Guard(
    "G10 metadata placement",
    "a case that measures each metadata target alone has a directory on each metadata target",
    _ALLOW,
    "a: an ordinary user may not place directories",
    "Lustre 2.17",
    but=_BEFORE,
    more="Each directory lies on its own target only.",
)


def metadata_placement(
    count: int, placed: Mapping[str, Collection[int]], problem: str = ""
) -> Finding:
    """G10: ``placed`` maps the directories, in order of the targets, to theirs. ``problem`` is why Lustre made no more."""
    guard = _PLACEMENT.saying(
        f"a directory on each of {count} metadata targets (lfs mkdir -i)"
    )
    for index, (name, mdts) in enumerate(placed.items()):
        if set(mdts) != {index}:
            where = ", ".join(map(str, mdts))
            return guard.invalid(
                f"{name} is on metadata target {where} instead of {index}"
            )
    wrong = f"metadata target {len(placed)}: {problem}" if problem else ""
    return guard.unless("each directory lies on its metadata target", wrong)


_DEFAULT: Final = Guard(
    "G10 metadata default",
    "a case that asks for directories on certain metadata targets may ask Lustre for them",
    _ALLOW,
    "a: an ordinary user may not stripe directories",
    "Lustre 2.17",
    but=_BEFORE,
)


def metadata_default(words: Sequence[str], problem: str) -> Finding:
    """G10: ``words`` are those of the request, ``problem`` is why Lustre refused it, empty if it did not."""
    guard = _DEFAULT.saying(f"lfs setdirstripe {' '.join(words)}")
    return guard.unless("as asked", problem)


def _differs(key: str, expected: Value, fact: Value) -> bool:
    """Return whether a fact is not as expected.

    A text ``>= N`` or ``<= N`` is a bound. Of ``mount.options`` each expected option must be there.
    """
    if key == "mount.options":
        return not set(str(expected).split(",")) <= set(str(fact).split(","))
    bound = re.fullmatch(r"([<>]=)\s*(\d{1,18})", str(expected))
    if bound is None:
        return str(expected) != str(fact)
    # A fact has several values if devices differ.
    values = re.findall(r"[^,\s]+", str(fact))
    if not values:
        return True
    for value in values:
        if not re.fullmatch(r"\d{1,18}", value):
            return True
        if int(value) < int(bound[2]) and bound[1] == ">=":
            return True
        if int(value) > int(bound[2]) and bound[1] == "<=":
            return True
    return False


#: Options of lfs setstripe, which puts the usual value in place of what it is not given.
_STRIPE_OPTIONS: Final = {"layout.stripe_count": "-c", "layout.stripe_bytes": "-S"}
#: How to set what a key of a fingerprint shows: the first pattern that fits counts.
_COMMANDS: Final = {
    "tunable.*": "lctl set_param {kind}.{fs}-*.{name}={value} (as root, on every client; lctl set_param -P on the MGS keeps it)",
    "mount.options": "mount -o remount,{value} {path} (as root)",
    "cpu.governor": "cpupower frequency-set -g {value} (as root)",
    "mem.thp": "echo {value} > /sys/kernel/mm/transparent_hugepage/enabled (as root)",
    "nic.*.mtu": "ip link set {kind} mtu {value} (as root)",
    "layout.stripe_*": "lfs setstripe {stripes} {path}",
    "lustre.*s": "lfs check servers, lctl get_param osc.*.ost_conn_uuid show them",
    "*": "set it, or correct expect.{key}",
}


def _command(key: str, expect: Mapping[str, Value], path: str, fsname: str) -> str:
    """Return how to set a fact, or the advice to correct the expectation."""
    value = re.sub(r"^[<>]=\s*", "", str(expect[key]))
    several = "," in value and key != "mount.options"
    stripes = []
    for name, option in _STRIPE_OPTIONS.items():
        if name in expect:
            stripes.append(f"{option} {expect[name]}")
    name = "" if several else key
    pattern = next(known for known in _COMMANDS if fnmatchcase(name, known))
    return _COMMANDS[pattern].format(
        key=key,
        kind=key.partition(".")[2].partition(".")[0],
        name=key.rpartition(".")[2],
        value=value,
        path=path,
        stripes=" ".join(stripes),
        fs=fsname,
    )


_SETTINGS: Final = Guard(
    "G25 settings",
    "every setting that the site expects has the expected value on every node",
    "Set it, or correct the partition's extras.expect",
    "a: max_dirty_mb was lowered for a test, and stayed so",
    "ext4, Lustre 2.17",
    but=_BEFORE,
    limit="`expect`",
    more="They are read before the first byte, and again while the case runs. A setting that a node does not tell is unknown: "
    "you get a remark. A client's setting that changes while the case runs is a remark too.",
)


def expected_settings(
    *,
    expect: Mapping[str, Value],
    facts: Mapping[str, Value],
    host: str,
    path: str,
    fsname: str,
) -> Finding:
    """G25: ``expect`` and ``facts`` have the keys of a fingerprint. ``fsname`` is the name of the file system on Lustre, for
    the commands that set something. A fact that nobody told is unknown, which is no change.
    """
    wrong, unknown, commands = [], [], dict[str, None]()
    for key, value in expect.items():
        if key not in facts:
            unknown.append(key)
        elif _differs(key, value, facts[key]):
            wrong.append(key)
            commands[_command(key, expect, path, fsname)] = None
    shown = wrong or unknown or expect
    guard = _SETTINGS.saying(
        ", ".join(f"{key} {expect[key]}" for key in shown),
        "Run again. If it stays so, the node was too busy to answer, or does not show it to your user: compare 'iogauge "
        "check' as root",
    )
    if wrong:
        saw = ", ".join(f"{key} is {facts[key]}" for key in wrong)
        remedy = f"{'; '.join(commands)}. Or correct the partition's extras.expect"
        return guard.saying(remedy=remedy).invalid(f"{host}: {saw}")
    if unknown:
        return guard.warn(f"{host} did not tell {', '.join(unknown)}")
    return guard.ok(f"{host}: {len(expect)} setting(s) as expected")


def expected_settings_of(case: CaseView) -> Finding | None:
    """Return G25 by what the nodes told while the case ran: what differs first, then what is unknown."""
    expect, target, evidence = case.extras.expect, case.extras.target, case.evidence
    layout = evidence.passed_on.stripes if evidence.passed_on else {}
    worst = None
    for host, facts in zip(evidence.versions, evidence.nodes, strict=False):
        if not expect:
            break
        finding = expected_settings(
            expect=expect,
            facts={**layout, **facts},
            host=host,
            path=target.path,
            fsname=fsname_of(target.source or "*"),
        )
        if finding.outcome is Outcome.INVALID:
            return finding
        if worst is None or worst.outcome is Outcome.OK:
            worst = finding
    return worst


def changed_settings(case: CaseView) -> Finding | None:
    """Return G25 for a setting of a client of which two looks at one node, before and after, differ."""
    for host, facts in zip(case.evidence.versions, case.evidence.nodes, strict=False):
        for key, value in facts.items():
            if key.startswith("tunable.") and " | " in str(value):
                guard = _SETTINGS.saying(
                    "the same settings throughout the case",
                    "See who changed it, and run again",
                )
                return guard.warn(f"on {host} {key} changed in the case: {value}")
    return None
