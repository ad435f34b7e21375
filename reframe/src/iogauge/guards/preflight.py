"""Guards of the target, most of them before the first byte: identity, room, inodes, health (G9, G12
to G14).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.node.directories import Directory
from iogauge.node.layouts import Part, last_with_data
from iogauge.node.mounts import Mount, Quota, Space, StorageTarget, Traits, View
from iogauge.node.uuids import differ

if TYPE_CHECKING:  # the job applies these rules on the nodes, without the judge
    from iogauge.guards.seen import CaseSeen, LayoutSeen, PhaseSeen


def storage(*, traits: Traits) -> Finding:
    """G9: the target of metadata is storage, not memory, and fsync reaches it."""
    rule = Rule("G9", "a file system with storage behind it", "Choose another target")
    if traits.cache == "memory":
        return rule.invalid(f"the target is memory, not storage{because(traits.why)}")
    if traits.unsynced:
        return rule.invalid(f"fsync proves nothing here{because(traits.unsynced)}")
    return rule.ok("the target is storage")


def storage_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.access.direction == "metadata":
        yield storage(traits=seen.case.traits)


def identity(
    *,
    declared_type: str,
    declared_source: str | None,
    declared_uuid: str | None,
    views: Sequence[View],
    at_end: Mapping[str, str] = MappingProxyType({}),
) -> Finding:
    """G9: every node sees the declared type (and source, and UUID) at the target's path, and the
    same file system (by its UUID) from the first byte to the end.

    ``at_end`` maps hosts to the UUIDs that they saw after the last phase. An unknown UUID agrees
    with any, but not with a declared one.
    """
    demands = f"type {declared_type}" + (f" from {declared_source}" if declared_source else "")
    demands += f" with UUID {declared_uuid}" if declared_uuid else ""
    for view in views:
        mount = view.mount
        if (
            mount is None
            or mount.type != declared_type
            or (declared_source is not None and mount.source != declared_source)
        ):
            remedy = "Mount the target there, or correct target.path, target.type and target.source"
            return Rule("G9", demands, remedy).invalid(
                f"{view.host} sees {_mounted(view)} for {view.path}"
            )
        if declared_uuid and (not view.uuid or differ(declared_uuid, view.uuid)):
            remedy = (
                "Mount the declared file system there. If this is the right one, write its UUID "
                "into target.uuid, or leave target.uuid out"
            )
            return Rule("G9", demands, remedy).invalid(
                f"{view.host} sees UUID {view.uuid or 'unknown'} for {view.path}: {_mounted(view)}"
            )
    if not views:
        return Rule("G9", demands, "Run again").invalid("no node reported its mounts")
    return _one_file_system(views, at_end) or Rule("G9", demands).ok(
        f"{len(views)} node(s) see {demands}"
    )


def _mounted(view: View) -> str:
    mount = view.mount
    return f"{mount.type} from {mount.source} at {mount.point}" if mount else "no mount"


def _one_file_system(views: Sequence[View], at_end: Mapping[str, str]) -> Finding | None:
    """Return the objection to views of different file systems; None if they may be of one."""
    first = next((view for view in views if view.uuid), views[0])
    for view in views:
        if differ(first.uuid, view.uuid):
            return Rule(
                "G9",
                "the same file system on every node",
                "Mount the target on every node, and nothing over it (iogauge doctor shows the UUID)",
            ).invalid(
                f"{view.host} sees UUID {view.uuid} for {view.path}: {_mounted(view)}; "
                f"{first.host} sees UUID {first.uuid}: {_mounted(first)}"
            )
    for host, uuid in at_end.items():
        if differ(first.uuid, uuid):
            return Rule(
                "G9",
                "the same file system to the end",
                "See what was mounted or unmounted meanwhile, and run again",
            ).invalid(
                f"{host} sees UUID {uuid} for {first.path} after the last phase; it was "
                f"{first.uuid} before the first byte"
            )
    return None


def identity_of(seen: CaseSeen) -> Iterator[Finding]:
    target, evidence = seen.extras.target, seen.evidence
    yield identity(
        declared_type=target.type,
        declared_source=target.source,
        declared_uuid=target.uuid,
        views=evidence.views,
        at_end={activity.host: activity.uuid for activity in evidence.changes},
    )


def room(*, space: Space, need_bytes: int, max_fill: float, keep_free: float) -> Finding:
    """G13: 1.2 x need is free. Fill afterwards is at most ``max_fill``, and ``keep_free`` of the
    target stays free.
    """
    after = space.bytes_free - need_bytes
    fill_after = 1 - after / space.bytes_total if space.bytes_total else 1.0
    holds = (
        space.bytes_free >= 1.2 * need_bytes
        and fill_after <= max_fill
        and after >= keep_free * space.bytes_total
    )
    lowest = max(1.2 * need_bytes, need_bytes + keep_free * space.bytes_total)
    lowest = max(lowest, need_bytes + (1 - max_fill) * space.bytes_total)
    return Rule(
        "G13",
        f"{format_bytes(lowest)} free (1.2 x need, at most {max_fill:.0%} full, {keep_free:.0%} kept free)",
        "Free space on the target, or lower limits.case_bytes",
    ).decide(
        holds,
        f"{format_bytes(space.bytes_free)} free of {format_bytes(space.bytes_total)}, "
        f"{max(0.0, fill_after):.0%} full with the {format_bytes(need_bytes)} of this case",
    )


def share_of_free(*, space: Space, need_bytes: int, max_of_free: float) -> Finding:
    """G13: one case takes at most ``max_of_free`` of the free space."""
    limit = max_of_free * space.bytes_free
    return Rule(
        "G13",
        f"at most {format_bytes(limit)} ({max_of_free:.3g} x what is free)",
        "Lower limits.case_bytes, or declare how much this target can bear (limits.max_of_free)",
    ).decide(
        need_bytes <= limit,
        f"{format_bytes(need_bytes)} of this case are {_share(need_bytes, space.bytes_free)} of the "
        f"{format_bytes(space.bytes_free)} that are free",
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "more than all"


#: Flags of a storage target (lfs-df(1)) that send new files elsewhere, and flags that cost speed.
_TAKES_NO_FILES: Final = {"N": "no new files", "R": "read-only", "S": "full", "I": "no inodes left"}
_HARMLESS_FLAGS: Final = "f"


def health(*, targets: Sequence[StorageTarget], declared: int | None = None) -> Finding:
    """G12: as many storage targets as declared, all active, none closed to new files. A degraded
    target yields a remark.

    ``declared`` is the site's number of storage targets, None if it gives none.
    """
    count = f"{declared} " if declared is not None else ""
    rule = Rule(
        "G12",
        f"{count}storage targets, all active, none degraded, none closed to new files",
        "Ask the administrators of the file system; lfs df, lfs osts and lfs check osts show them",
    )
    inactive = [target.uuid for target in targets if not target.active]
    closed = [
        f"{target.uuid} ({text})"
        for target in targets
        for flag, text in _TAKES_NO_FILES.items()
        if flag in target.flags
    ]
    others = [
        f"{target.uuid} ({'degraded' if flag == 'D' else f'flag {flag}'})"
        for target in targets
        for flag in target.flags
        if flag not in _TAKES_NO_FILES and flag not in _HARMLESS_FLAGS
    ]
    if not targets:
        return rule.invalid("no storage target is known")
    if declared is not None and len(targets) != declared:
        return rule.invalid(f"{len(targets)} storage targets")
    if inactive:
        return rule.invalid(f"inactive: {', '.join(inactive)}")
    if closed:
        return rule.invalid(f"new files land elsewhere than on {', '.join(closed)}")
    if others:
        return rule.warn(", ".join(others))
    return rule.ok(f"{len(targets)} storage targets, all active")


def health_of(seen: CaseSeen) -> Iterator[Finding]:
    topology, opened = seen.extras.topology, seen.evidence.opened
    if seen.extras.target.striped_by == "lustre":
        yield health(
            targets=opened.targets if opened else (),
            declared=topology.targets if topology else None,
        )


def servers(*, declared: int, addresses: Collection[str], clients: int | None = None) -> Finding:
    """G12: the target is served from as many addresses as servers are declared, or up to twice as
    many. A client of NFS talks to one address at least, so that N clients need not show more.

    ``addresses`` are those that the nodes use now. ``clients`` is N on NFS, None on Lustre, where
    every client talks to all servers. A server with two networks, or a standby server, adds an
    address.
    """
    least = declared if clients is None else min(declared, clients)
    return Rule(
        "G12",
        f"{least} to {2 * declared} addresses of servers (topology.servers.count: {declared})",
        "If no server is down, write into the partition's extras: topology: {servers: {count: "
        f"{len(addresses)}}}}}; the ceiling (G6) rests on it",
    ).decide(
        least <= len(addresses) <= 2 * declared,
        f"the target is served from {len(addresses)} address(es)",
        Outcome.WARN,
    )


def servers_of(seen: CaseSeen) -> Iterator[Finding]:
    topology, opened, views = seen.extras.topology, seen.evidence.opened, seen.evidence.views
    declared = topology.servers.count if topology and topology.servers else None
    targets = opened.targets if opened else ()
    known = {target.server for target in targets if target.server}
    if declared and targets and all(target.server for target in targets):
        yield servers(declared=declared, addresses=known)
    shares = [view.mount for view in views if view.mount and view.mount.type in ("nfs", "nfs4")]
    if declared and shares and len(shares) == len(views):
        yield servers(declared=declared, addresses=set(map(_address, shares)), clients=len(views))


def _address(share: Mount) -> str:
    """Return the address that an NFS mount uses (nfs(5), ``addr``), or the name of its server."""
    match = re.search(r"(?:^|,)addr=([^,]+)", share.options)
    return match[1] if match else share.source.partition(":/")[0]


def target_room(
    *,
    targets: Sequence[StorageTarget],
    need_bytes: int,
    max_fill: float,
    pieces: int | None = None,
    pinned: Collection[int] = (),
) -> Finding:
    """G13: on Lustre every storage target has room for 1.2 x its share of the case. Its fill
    afterwards is at most ``max_fill``. Shares follow from stripes and pins.

    ``need_bytes`` is the size of the whole case. The case is made of ``pieces`` of equal size, each
    on one target; without ``pieces`` its bytes are spread evenly. ``pinned`` gives the target of
    each piece; without ``pinned`` the pieces go round all active targets. If there are fewer pieces
    than targets, each target may hold a piece.
    """
    active = [target for target in targets if target.active]
    count = len(active) or 1
    share = math.ceil(need_bytes / count)
    if pinned:
        most = Counter(pinned)
        share = math.ceil(need_bytes * max(most.values()) / len(pinned))
        active = [target for target in active if target.index in most]
    elif pieces:
        share = math.ceil(need_bytes / pieces) * math.ceil(pieces / count)
    rule = Rule(
        "G13",
        f"{format_bytes(1.2 * share)} free on each storage target of the case (1.2 x its share), at most "
        f"{max_fill:.0%} full afterwards",
        "Free space on that target (lfs find -O), or lower limits.case_bytes",
    )
    if not active:
        return rule.invalid("no storage target is active")
    after = {
        target: 1 - (target.bytes_free - share) / target.bytes_total if target.bytes_total else 1.0
        for target in active
    }
    short = [t for t in active if t.bytes_free < 1.2 * share or after[t] > max_fill]
    worst = max(short or active, key=lambda target: after[target])
    saw = (
        f"{worst.uuid}: {format_bytes(worst.bytes_free)} free of {format_bytes(worst.bytes_total)}, "
        f"{after[worst]:.0%} full with its {format_bytes(share)} of this case"
    )
    if len(short) > 1:
        saw += f"; {len(short)} of {len(active)} storage targets are short of room"
    return rule.decide(not short, saw)


def pool(*, name: str, targets: Sequence[StorageTarget], seen: Directory) -> Finding:
    """G12: the declared pool exists, and has active storage targets."""
    active = [target for target in seen.usable(targets) if target.active]
    rule = Rule(
        "G12",
        f"a pool {name} with active storage targets",
        "Make the pool (lctl pool_new, lctl pool_add), or correct target.pool; lfs pool_list shows all",
    )
    if not seen.pool:
        return rule.invalid(seen.pool_problem or f"the pool {name} is empty")
    return rule.decide(
        bool(active), f"the pool {name} has {len(seen.pool)} storage targets, {len(active)} active"
    )


def stripes_against_size(*, file_bytes: int, part: Part) -> Finding:
    """G23: a shared file has at least 8 stripes on each of its targets. In a progressive layout this
    holds for the last component with data.
    """
    count, stripe = part.stripe_count, part.stripe_bytes
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe)}"
    holds = stripe > 0 and count > 0 and file_bytes / stripe >= 8 * count
    return Rule(
        "G23",
        "file size / stripe size >= 8 x stripe count",
        f"Raise limits.case_bytes to {format_bytes(8 * max(1, count) * max(1, stripe))} or lower the stripe "
        "size or count",
    ).decide(holds, f"{size} over {count} storage target(s)")


def stripes_against_size_of(seen: LayoutSeen) -> Iterator[Finding]:
    plan, files = seen.case.plan, seen.noted.files
    if plan.shared_file and files and (part := last_with_data(files[0].parts, plan.shared_bytes)):
        yield stripes_against_size(file_bytes=plan.shared_bytes, part=part)


def cores(*, bound_tasks: int, usable: int, declared: int) -> Finding:
    """G15: if mpirun binds each task to a core, the first node has a core for each of its tasks.
    Else mpirun would abort, because ``node.cores`` promises more cores than there are.

    ``bound_tasks`` is the number of bound tasks on the node, ``usable`` the number of physical
    cores that the job may use there.
    """
    return Rule(
        "G15",
        "a physical core for each task that is bound to one",
        f"Write into the partition's extras: node: {{cores: {usable}}}, and lower "
        "scale.tasks_per_node to as many; threads are no cores",
    ).decide(
        bound_tasks <= usable,
        f"{bound_tasks} task(s) on {usable} physical core(s), node.cores is {declared}",
    )


def inodes(*, space: Space, need_files: int) -> Finding:
    """G14: 1.2 x files free, and 5 % of inodes left."""
    return Rule(
        "G14",
        f"{int(1.2 * need_files)} free inodes and 5 % left",
        "Remove files, or lower limits.case_files",
    ).decide(
        not space.inodes_total
        or (
            space.inodes_free >= 1.2 * need_files
            and space.inodes_free - need_files >= 0.05 * space.inodes_total
        ),
        f"{space.inodes_free} of {space.inodes_total} inodes free, {need_files} needed",
    )


def quota(
    *,
    quotas: Sequence[Quota],
    need_bytes: int,
    need_files: int,
    unanswered: Collection[str] = (),
) -> Finding:
    """G14: on Lustre 1.2 x need within the quotas of user, group and project. After its grace a soft
    limit counts as a hard one; within its grace it yields a remark. So does a quota that was not
    answered.

    ``unanswered`` names the owners of such quotas.
    """
    rule = Rule(
        "G14",
        "1.2 x need within every quota, and no soft limit exceeded",
        "Remove files, raise the quota, or lower limits.case_files and limits.case_bytes",
    )
    for quota in quotas:
        owner = f"quota of {quota.owner} leaves"
        if quota.bytes_left is not None and quota.bytes_left < 1.2 * need_bytes:
            left, need = format_bytes(quota.bytes_left), format_bytes(need_bytes)
            return rule.invalid(f"{owner} {left}, {need} needed")
        if quota.files_left is not None and quota.files_left < 1.2 * need_files:
            return rule.invalid(f"{owner} {quota.files_left} files, {need_files} needed")
    doubts = [
        f"{quota.owner} is beyond its soft limit: {quota.over}" for quota in quotas if quota.over
    ]
    doubts += [f"the quota of {owner} was not answered" for owner in unanswered]
    if doubts:
        return rule.warn("; ".join(doubts))
    return rule.ok(f"room in the quotas of {', '.join(quota.owner for quota in quotas)}")


def quota_of(seen: CaseSeen) -> Iterator[Finding]:
    opened, plan = seen.evidence.opened, seen.plan
    if opened and (opened.quotas or opened.unanswered):
        yield quota(
            quotas=opened.quotas,
            need_bytes=plan.held_bytes,
            need_files=plan.most_files,
            unanswered=opened.unanswered,
        )
