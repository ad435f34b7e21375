"""Guards of the target, most of them before the first byte: identity, room, inodes, health, metadata
targets, settings (G9, G10, G12 to G14, G25).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from iogauge.core.text import because
from iogauge.core.units import format_bytes
from iogauge.core.words import Value
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.node.identity import differ
from iogauge.node.kinds import Below, Traits
from iogauge.node.lustre.directory import Directory
from iogauge.node.lustre.layout import Part, last_with_data
from iogauge.node.lustre.quotas import Quota
from iogauge.node.lustre.targets import MetadataTarget, StorageTarget
from iogauge.node.mounts import Space
from iogauge.node.view import View
from iogauge.plan.stage import FILL, MOST_FOUND

if TYPE_CHECKING:
    from iogauge.guards.seen import CaseSeen, LayoutSeen, PhaseSeen


#: What a new file takes at least on any file system: an inode of ext4 has 128 bytes or more. And the
#: fewest files that are compared.
_INODE_BYTES: Final = 64
LEAST_FILES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Files that an execution made, as its tool says; what the target's devices wrote meanwhile, and how many files the
    case's directory held then, counted up to :data:`MOST_FOUND`; None if unknown.
    """

    files: int
    written: int | None = None
    found: int | None = None


def storage(
    *, traits: Traits, made: Sequence[Made] = (), counted: bool = True, required: bool = False
) -> Finding:
    """G9: the target of metadata is storage, not memory, and fsync reaches it. After files were
    made, and before the next phase, the first node finds them in the case's directory: 100 at least,
    if there are so many. Links do not count. While files are made, the target's devices write at least 64 bytes for each.
    If nothing under the mount counts, you get a remark: a program may keep the files in memory, and no sync reaches
    what lies below it.

    ``counted`` tells whether something under the mount counts. ``required`` comes from ``limits.witness``.
    """
    rule = Rule("G9", "a file system with storage behind it", "Choose another target")
    if traits.cache == "memory":
        return rule.invalid(f"the target is memory, not storage{because(traits.why)}")
    if traits.unsynced:
        return rule.invalid(f"fsync proves nothing here{because(traits.unsynced)}")
    for one in made:
        if one.found is not None and one.found < min(one.files, MOST_FOUND):
            return rule.invalid(
                f"{one.files} file(s) were made, and the case's directory holds {one.found}, not counting links: "
                "the files lay elsewhere"
            )
        least = one.files * _INODE_BYTES
        if one.files >= LEAST_FILES and one.written is not None and one.written < least:
            return rule.invalid(
                f"{one.files} file(s) were made, and the target's devices wrote {format_bytes(one.written)}: "
                "the files lay elsewhere"
            )
    if not counted and (most := max((one.files for one in made), default=0)) >= LEAST_FILES:
        unseen = Rule(
            "G9",
            "a witness of the files beside the tool",
            "The files may lie in the memory of a program. docs/guards.md lists the witnesses that can confirm this figure",
        )
        return unseen.unwitnessed(
            f"{most} file(s) were made, and nothing under the mount counts", required
        )
    return rule.ok("the target is storage")


def devices(*, below: Mapping[str, Below]) -> Finding:
    """G9: the block devices that a case reads past the file system are storage, and no cache serves
    them.

    ``below`` maps the declared devices to what lies below them.
    """
    rule = Rule("G9", "devices with storage behind them", "Correct ceilings.devices of the site")
    for name, stack in below.items():
        if why := stack.memory or stack.cached or stack.o_direct:
            return rule.invalid(f"{name} is no storage: {why}")
    return rule.ok(f"{len(below)} device(s)")


def storage_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.access.direction != "metadata":
        return
    case, made = seen.case, []
    for output, testimony in zip(seen.outputs, seen.testimonies, strict=False):
        counted = testimony.counted(case.counters) if testimony.complete else None
        files = sum(phase.operations or 0 for phase in output.phases if phase.name == "create")
        # Clients of a network count data alone. fio may remove what it made before it is written, and does beside another load.
        kept = output.parameters.get("unlink") != "1" and not output.disturber
        if kept:
            # Without a sync, new inodes may wait in memory for half a minute.
            there = seen.phase.syncs and not case.on_network
            written = counted.written if counted and there else None
            made.append(Made(files=files, written=written, found=case.found_after(testimony)))
    yield storage(
        traits=case.traits,
        made=made,
        counted=bool(case.counters),
        required=case.extras.limits.witness == "required",
    )


def identity(
    *,
    declared_type: str,
    declared_source: str | None,
    declared_uuid: str | None,
    views: Sequence[View],
    at_end: Mapping[str, str] = MappingProxyType({}),
    hidden: Sequence[str] = (),
    hosts: Collection[str] = (),
) -> Finding:
    """G9: every node sees the declared type, source and UUID at the target's path, and the same file
    system from the first byte to the end. On the first node nothing
    is mounted over the case's directory or in it while a tool runs, and its mount keeps its barriers.

    ``at_end`` maps hosts to the UUIDs that they saw after the last phase. An unknown UUID agrees
    with any, but not with a declared one. ``hidden`` describes what was mounted over the case's directory.
    A task of a case on one node ran on each of ``hosts``.
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
                f"on {view.host} the target {view.path} is {_mounted(view)}"
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
    if objection := _one_file_system(views, at_end):
        return objection
    if elsewhere := sorted(set(hosts) - {view.host for view in views}):
        remedy = "Start the job script on the node of its tasks. See how the partition's launcher chooses the node"
        return Rule("G9", "the target seen by the node of the tasks", remedy).invalid(
            f"the tasks ran on {elsewhere[0]}, but {views[0].host} looked at the target"
        )
    if hidden:
        return Rule(
            "G9", "the target itself to the end", "See what was mounted meanwhile, and run again"
        ).invalid(f"while the tool ran, the case's directory lay on {hidden[0]}")
    return Rule("G9", demands).ok(f"{len(views)} node(s) see {demands}")


def _mounted(view: View) -> str:
    mount = view.mount
    return f"{mount.type} from {mount.source}, mounted at {mount.point}" if mount else "not mounted"


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
    heard = [t for testimonies in evidence.testimony.values() for t in testimonies]
    yield identity(
        declared_type=target.type,
        declared_source=target.source,
        declared_uuid=target.uuid,
        views=evidence.views,
        at_end={activity.host: activity.uuid for activity in evidence.changes},
        hidden=evidence.hidden,
        hosts=[host for t in heard for host in t.hosts] if seen.plan.nodes == 1 else (),
    )


def room(*, space: Space, need_bytes: int, max_fill: float, keep_free: float) -> Finding:
    """G13: 1.2 x the case's need is free, and afterwards the fill is at most ``max_fill``, and
    ``keep_free`` of the target stays free.
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
        f"{max(0.0, fill_after):.0%} full once this case has written {format_bytes(need_bytes)}",
    )


def share_of_free(*, space: Space, need_bytes: int, max_of_free: float) -> Finding:
    """G13: one case takes at most ``max_of_free`` of the free space."""
    limit = max_of_free * space.bytes_free
    return Rule(
        "G13",
        f"at most {format_bytes(limit)} ({max_of_free:.3g} x what is free)",
        "Lower limits.case_bytes. If this target can bear more, raise limits.max_of_free",
    ).decide(
        need_bytes <= limit,
        f"this case writes {format_bytes(need_bytes)}, {_share(need_bytes, space.bytes_free)} of the "
        f"{format_bytes(space.bytes_free)} that are free",
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "more than all"


#: Flags of a storage target (lfs-df(1)) that send new files elsewhere, and flags that cost speed.
_TAKES_NO_FILES: Final = {"N": "no new files", "R": "read-only", "S": "full", "I": "no inodes left"}
_HARMLESS_FLAGS: Final = "f"


def health(
    *,
    targets: Sequence[StorageTarget],
    declared: int | None = None,
    out: Collection[int] = (),
    space: Space | None = None,
) -> Finding:
    """G12: there are as many storage targets as declared, all of them active and open to new files.
    The only exceptions are targets that the site declares out (``topology.out``): these must
    be out. A degraded target gives a remark, and so does a file system that is smaller than its targets together:
    then the metadata servers leave some out, which this client calls active.

    ``declared`` is the number in the site's ``topology.targets``. If the site gives no number, any
    number will do. ``space`` is that of the whole file system; None if a project's quota limits it.
    """
    count = f"{declared} " if declared is not None else ""
    without = f", but for {_names(out)}, which must be out" if out else ""
    rule = Rule(
        "G12",
        f"{count}storage targets, all active, none degraded, none closed to new files{without}",
        "Ask the administrators of the file system; lfs df, lfs osts and lfs check osts show them",
    )
    in_use = [t.index for t in targets if t.active and not set(t.flags) & set(_TAKES_NO_FILES)]
    wrong = sorted(set(out) - {t.index for t in targets} | set(out) & set(in_use))
    everything, targets = targets, [t for t in targets if t.index not in out]
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
    if declared is not None and len(everything) != declared:
        return rule.invalid(f"{len(everything)} storage targets")
    if wrong:
        return rule.invalid(f"not out: {_names(wrong)}")
    if inactive:
        return rule.invalid(f"inactive: {', '.join(inactive)}")
    if closed:
        return rule.invalid(f"new files land elsewhere than on {', '.join(closed)}")
    if others:
        return rule.warn(", ".join(others))
    sizes = [target.bytes_total for target in everything if target.active]
    if space and sizes and sum(sizes) - space.bytes_total > min(sizes) / 2:
        return rule.warn(
            f"the file system has {format_bytes(space.bytes_total)}, its {len(sizes)} storage targets together "
            f"{format_bytes(sum(sizes))}: the metadata servers put no new files on some of them (on a metadata server: "
            "lctl get_param osp.*.active)"
        )
    return rule.ok(
        f"{len(targets)} storage targets, all active" + (f"; out: {_names(out)}" if out else "")
    )


def _names(indices: Collection[int]) -> str:
    return ", ".join(f"OST{index:04x}" for index in sorted(indices))


def health_of(seen: CaseSeen) -> Iterator[Finding]:
    topology, opened = seen.extras.topology, seen.evidence.opened
    if seen.extras.target.striped_by == "lustre":
        yield health(
            targets=opened.targets if opened else (),
            declared=topology.targets if topology else None,
            out=topology.out if topology else (),
            space=opened.whole_space if opened else None,
        )


def servers(*, declared: int, addresses: Collection[str], clients: int | None = None) -> Finding:
    """G12: the target is served from as many addresses as servers are declared, or up to twice as
    many. On NFS, N clients may show only N addresses, because each client may use only one.

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
        addresses = {share.server for share in shares}
        yield servers(declared=declared, addresses=addresses, clients=len(views))


def target_room(
    *,
    targets: Sequence[StorageTarget],
    need_bytes: int,
    max_fill: float,
    pieces: int | None = None,
    pinned: Collection[int] = (),
    kind: str = "storage target",
) -> Finding:
    """G13: on Lustre every storage target has room for 1.2 x its share of the case. Its fill
    afterwards is at most ``max_fill``. The shares are computed from stripes and pins. If the files lie with their
    metadata, this holds for the metadata targets of the directory instead.

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
        f"{format_bytes(1.2 * share)} free on each {kind} of the case (1.2 x its share), at most "
        f"{max_fill:.0%} full afterwards",
        f"Free space on that target (lfs find {'-O' if kind.startswith('storage') else '-m'}), or lower "
        "limits.case_bytes",
    )
    if not active:
        return rule.invalid(f"no {kind} is active")
    after = {
        target: 1 - (target.bytes_free - share) / target.bytes_total if target.bytes_total else 1.0
        for target in active
    }
    short = [t for t in active if t.bytes_free < 1.2 * share or after[t] > max_fill]
    worst = max(short or active, key=lambda target: after[target])
    saw = (
        f"{worst.uuid}: {format_bytes(worst.bytes_free)} free of {format_bytes(worst.bytes_total)}, "
        f"{after[worst]:.0%} full once this case has written {format_bytes(share)} there"
    )
    if len(short) > 1:
        saw += f"; {len(short)} of {len(active)} {kind}s are short of room"
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
    """G23: a shared file over several targets has at least 8 stripes on each of them. In a progressive layout
    this holds for the last component with data.
    """
    count, stripe = part.stripe_count, part.stripe_bytes
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe)}"
    return Rule(
        "G23",
        "file size / stripe size >= 8 x stripe count",
        f"Raise limits.case_bytes until the shared file has {format_bytes(8 * count * stripe)}, or lower the "
        "stripe size or count",
    ).decide(
        file_bytes >= 8 * count * stripe or count == 1, f"{size} over {count} storage target(s)"
    )


def stripes_against_size_of(seen: LayoutSeen) -> Iterator[Finding]:
    plan, files = seen.case.plan, seen.noted.files
    if plan.shared_file and files and (part := last_with_data(files[0].parts, plan.shared_bytes)):
        yield stripes_against_size(file_bytes=plan.shared_bytes, part=part)


def cores(*, bound_tasks: int, usable: int, declared: int) -> Finding:
    """G15: if mpirun binds each task to a core, the first node has a core for each of its tasks.
    Otherwise mpirun would abort, because ``node.cores`` declares more cores than there are.

    ``bound_tasks`` is the number of bound tasks on the node, ``usable`` the number of physical
    cores that the job may use there.
    """
    return Rule(
        "G15",
        "a physical core for each task that is bound to one",
        f"Write into the partition's extras: node: {{cores: {usable}}}, and lower "
        "scale.tasks_per_node to that number. Threads do not count as cores",
    ).decide(
        bound_tasks <= usable,
        f"{bound_tasks} task(s) on {usable} physical core(s), node.cores is {declared}",
    )


def inodes(*, space: Space, need_files: int) -> Finding:
    """G14: inodes for 1.2 x the case's files are free, and 5 % of the inodes stay free."""
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
    """G14: on Lustre 1.2 x the case's need is within the quotas of user, group and project. After
    its grace period, a soft limit counts as a hard limit. Within its grace period, it gives a
    remark. If a quota cannot be read in time, you also get a remark.

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


def metadata_room(
    *, targets: Sequence[MetadataTarget], mdts: Collection[int], need_files: int
) -> Finding:
    """G14: each metadata target that holds the directory has inodes for 1.2 x its share of the
    files, and 5 % of its inodes stay free. A striped directory spreads its files evenly.
    """
    own = [target for target in targets if target.index in mdts] or list(targets)
    share = math.ceil(need_files / len(own))
    rule = Rule(
        "G14",
        f"{int(1.2 * share)} free inodes on each metadata target of the directory, and 5 % left",
        "Choose a directory on other metadata targets (lfs getdirstripe, lfs mkdir -i), or lower limits.case_files",
    )
    worst = min(own, key=lambda target: target.inodes_free)
    left = worst.inodes_free - share
    return rule.decide(
        worst.inodes_free >= 1.2 * share and left >= 0.05 * worst.inodes_total,
        f"MDT {worst.index}: {worst.inodes_free} of {worst.inodes_total} inodes free, {share} needed",
    )


def metadata_health(*, targets: Sequence[MetadataTarget], declared: int) -> Finding:
    """G12: there are as many metadata targets as declared, if each is measured alone."""
    indices = sorted(target.index for target in targets)
    return Rule(
        "G12",
        f"{declared} metadata targets, 0 to {declared - 1}",
        "Ask the administrators of the file system, or correct topology.metadata_targets; lfs df -i shows all",
    ).decide(
        indices == list(range(declared)),
        f"metadata targets {', '.join(map(str, indices))}"
        if indices
        else "no metadata target is known",
    )


#: What lets an ordinary user choose metadata targets. A nodemap has roles since Lustre 2.16 (lustre_nodemap.h).
_PERMIT_DIRECTORIES: Final = (
    "If it is not permitted, root runs on each metadata server: lctl set_param mdt.*.enable_remote_dir_gid=-1 (or the "
    "number of your group). If the client belongs to a nodemap, its property rbac needs dne_ops. Or run the case as root"
)


def metadata_placement(
    *, count: int, placed: Mapping[str, Collection[int]], problem: str = ""
) -> Finding:
    """G10: a case that measures each metadata target alone has a directory on each metadata target.
    Each directory lies on its own target only.

    ``placed`` maps the directories, in order of the targets, to those that they lie on. ``problem``
    is why Lustre did not make or show the next one.
    """
    rule = Rule(
        "G10",
        f"a directory on each of {count} metadata targets (lfs mkdir -i)",
        _PERMIT_DIRECTORIES,
    )
    for index, (name, mdts) in enumerate(placed.items()):
        if set(mdts) != {index}:
            where = ", ".join(map(str, mdts))
            return rule.invalid(f"{name} is on metadata target {where} instead of {index}")
    if problem:
        return rule.invalid(f"metadata target {len(placed)}: {problem}")
    return rule.ok("each directory lies on its metadata target")


def metadata_default(*, words: Sequence[str], problem: str) -> Finding:
    """G10: a case that asks for directories on certain metadata targets may ask Lustre for them.

    ``words`` are those of the request, ``problem`` is why Lustre refused it, empty if it did not.
    """
    return Rule(
        "G10",
        f"lfs setdirstripe {' '.join(words)}",
        _PERMIT_DIRECTORIES,
    ).decide(not problem, problem or "as asked")


#: How far the fill may be from its level, as a share of the target.
_OFF_LEVEL: Final = 0.01

#: How to set a fact, by a pattern of its key; ``{fs}`` is the file system's name on Lustre.
_SETS: Final = (
    (
        r"tunable\.(llite|osc|mdc)\.(\w+)",
        r"lctl set_param \1.{fs}-*.\2={value} (as root, on every client; lctl set_param -P on the "
        "MGS keeps it)",
    ),
    (r"mount\.options", "mount -o remount,{value} {path} (as root)"),
    (r"cpu\.governor", "cpupower frequency-set -g {value} (as root)"),
    (r"mem\.thp", "echo {value} > /sys/kernel/mm/transparent_hugepage/enabled (as root)"),
    (r"nic\.(\w+)\.mtu", r"ip link set \1 mtu {value} (as root)"),
    (r"layout\.stripe_count", "lfs setstripe -c {value} {path}"),
    (r"layout\.stripe_bytes", "lfs setstripe -S {value} {path}"),
    (
        r"lustre\.(servers|osts|mdts)",
        "lfs check servers, lctl get_param osc.*.ost_conn_uuid show them",
    ),
)


def _differs(key: str, expected: Value, fact: Value | None) -> bool:
    """Return whether a fact is not as expected, or unknown.

    A text ``>= N`` or ``<= N`` is a bound. Of ``mount.options`` each expected option must be there.
    """
    if fact is None:
        return True
    if key == "mount.options":
        return not set(str(expected).split(",")) <= set(str(fact).split(","))
    bound = re.fullmatch(r"([<>]=)\s*(\d{1,18})", str(expected))
    if bound is None:
        return str(expected) != str(fact)
    # A fact has several values if devices differ.
    values = re.findall(r"[^,\s]+", str(fact))
    if not values or not all(re.fullmatch(r"\d{1,18}", value) for value in values):
        return True
    limit = int(bound[2])
    return not all(int(v) >= limit if bound[1] == ">=" else int(v) <= limit for v in values)


def _sets(key: str, expected: Value, path: str, fsname: str) -> str:
    """Return how to set a fact, or the advice to correct the expectation."""
    value = re.sub(r"^[<>]=\s*", "", str(expected))
    for pattern, command in _SETS:
        if match := re.fullmatch(pattern, key):
            return match.expand(command).format(fs=fsname, value=value, path=path)
    return f"set it, or correct expect.{key}"


def expected_settings(
    *, expect: Mapping[str, Value], facts: Mapping[str, Value], host: str, path: str, fsname: str
) -> Finding:
    """G25: every setting that the site expects has the expected value on every node.

    ``expect`` and ``facts`` have the keys of a fingerprint. ``fsname`` is the name of the file
    system on Lustre, for the commands that set something. A fact that is not known is not as
    expected.
    """
    wrong = [key for key in expect if _differs(key, expect[key], facts.get(key))]
    demands = ", ".join(f"{key} {expect[key]}" for key in wrong or expect)
    remedy = "; ".join(dict.fromkeys(_sets(key, expect[key], path, fsname) for key in wrong))
    rule = Rule("G25", demands, f"{remedy}. Or correct the partition's extras.expect")
    if wrong:
        saw = ", ".join(f"{key} is {facts.get(key, 'not known')}" for key in wrong)
        return rule.invalid(f"{host}: {saw}")
    return rule.ok(f"{host}: {len(expect)} setting(s) as expected")


def fill_level(*, wanted: float, reached: float, bytes_taken: int) -> Finding:
    """G13: if the case fills the target up to a level, the fill is within 1 % of that level before
    the first phase.
    """
    return Rule(
        "G13",
        f"{wanted:.0%} full, within 1 %",
        "Others have written or removed files meanwhile: repeat at a quiet time",
    ).decide(
        abs(reached - wanted) <= _OFF_LEVEL,
        f"{reached:.1%} full, {format_bytes(bytes_taken)} of it in files of this case",
    )


def fill_level_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G13 for a case that fills the target."""
    for output in seen.evidence.outputs.get(FILL, ()):
        filled: Any = output.parameters["filled"]
        yield fill_level(
            wanted=filled["level"] / 100, reached=filled["fill"], bytes_taken=filled["bytes"]
        )
