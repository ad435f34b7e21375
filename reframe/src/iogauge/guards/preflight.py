"""Guards of the target before the first byte: identity, room, inodes, health, metadata targets, settings (G9, G10, G12 to
G15, G23, G25).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from iogauge.core.units import format_bytes
from iogauge.core.words import Value
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rows, rule
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


class Declares(Protocol):
    """What says which file system the target is: a site, or the order of a job; None if it does not say it."""

    @property
    def type(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def uuid(self) -> str | None: ...


def devices(below: Mapping[str, Below]) -> Finding:
    """G9: ``below`` maps the declared devices to what lies below them."""
    wrong = (
        f"{name} is no storage: {why}"
        for name, stack in below.items()
        if (why := stack.memory or stack.cached or stack.o_direct)
    )
    return rule("G9 devices").unless(f"{len(below)} device(s)", *wrong)


def identity(
    declares: Declares,
    views: Sequence[View],
    *,
    at_end: Mapping[str, str] = MappingProxyType({}),
    hidden: Sequence[str] = (),
    hosts: Collection[str] = (),
) -> Finding:
    """G9: ``at_end`` maps hosts to the UUIDs that they saw after the last phase. An unknown UUID agrees with any, but not
    with a declared one. ``hidden`` describes what was mounted over the case's directory. A task of a case on one node ran
    on each of ``hosts``.
    """
    declared = f"type {declares.type}" + (
        f" from {declares.source}" if declares.source else ""
    )
    declared += f" with UUID {declares.uuid}" if declares.uuid else ""

    def refuse(case: str, saw: str) -> Finding:
        return rule("G9 identity", case, declared=declared).invalid(saw)

    for view in views:
        mount = view.mount
        if (
            mount is None
            or mount.type != declares.type
            or (declares.source is not None and mount.source != declares.source)
        ):
            return refuse(
                "", f"on {view.host} the target {view.path} is {_mounted(view)}"
            )
        if declares.uuid and (not view.uuid or differ(declares.uuid, view.uuid)):
            sees = f"{view.host} sees UUID {view.uuid or 'unknown'} for {view.path}"
            return refuse("other", f"{sees}: {_mounted(view)}")
    if not views:
        return refuse("silent", "no node reported its mounts")
    first = next((view for view in views if view.uuid), views[0])
    for view in views:
        if differ(first.uuid, view.uuid):
            return refuse(
                "unequal",
                f"{view.host} sees UUID {view.uuid} for {view.path}: {_mounted(view)}; "
                f"{first.host} sees UUID {first.uuid}: {_mounted(first)}",
            )
    for host, uuid in at_end.items():
        if differ(first.uuid, uuid):
            return refuse(
                "replaced",
                f"{host} sees UUID {uuid} for {first.path} after the last phase; it was "
                f"{first.uuid} before the first byte",
            )
    if elsewhere := sorted(set(hosts) - {view.host for view in views}):
        ran = (
            f"the tasks ran on {elsewhere[0]}, but {views[0].host} looked at the target"
        )
        return refuse("elsewhere", ran)
    if hidden:
        return refuse(
            "hidden", f"while the tool ran, the case's directory lay on {hidden[0]}"
        )
    return rule("G9 identity", declared=declared).ok(
        f"{len(views)} node(s) see {declared}"
    )


def _mounted(view: View) -> str:
    at = view.mount
    return f"{at.type} from {at.source}, mounted at {at.point}" if at else "not mounted"


def identity_of(seen: CaseView) -> Finding:
    evidence = seen.evidence
    heard = [t for testimonies in evidence.testimony.values() for t in testimonies]
    target = seen.extras.target
    found = identity(
        target,
        evidence.views,
        at_end={activity.host: activity.uuid for activity in evidence.changes},
        hidden=evidence.hidden,
        hosts=[host for t in heard for host in t.hosts] if seen.plan.nodes == 1 else (),
    )
    # A resource manager makes another file system for each job.
    if found.outcome is not Outcome.OK or target.uuid or target.source or target.of_job:
        return found
    told = [f"uuid: {view.uuid}" for view in evidence.views if view.uuid]
    told += [f"source: {view.mount.source}" for view in evidence.views if view.mount]
    return rule("G9 identity", "undeclared", key=told[0]).warn(found.saw)


def _full(free: int, total: int, need: int) -> float:
    """Return the share that is in use once a case has taken what it needs."""
    return 1 - (free - need) / total if total else 1.0


def _fits(free: int, total: int, need: int, most: float) -> bool:
    """Return whether so many bytes or inodes have room for a case, and a fifth more, and are not too full with it."""
    return free >= 1.2 * need and _full(free, total, need) <= most


def room(space: Space, order: JobOrder) -> Finding:
    need, most = order.held_bytes, order.max_fill
    free, total = space.bytes_free, space.bytes_total
    lowest = format_bytes(max(1.2 * need, need + (1 - most) * total))
    return rule("G13 room", lowest=lowest, most=most).decide(
        _fits(free, total, need, most),
        f"{format_bytes(free)} free of {format_bytes(total)}, "
        f"{max(0.0, _full(free, total, need)):.0%} full once this case has written {format_bytes(need)}",
    )


def share_of_free(space: Space, order: JobOrder) -> Finding:
    need, free, share = order.held_bytes, space.bytes_free, order.max_of_free
    part = f"{need / free:.2%}" if free else "more than all"
    saw = f"this case writes {format_bytes(need)}, {part} of the {format_bytes(free)} that are free"
    demanded = rule("G13 share", limit=format_bytes(share * free), share=share)
    return demanded.decide(need <= share * free, saw)


#: Flags of a storage target (lfs-df(1)) that send new files elsewhere, and flags that cost speed.
_TAKES_NO_FILES: Final = {
    "N": "no new files",
    "R": "read-only",
    "S": "full",
    "I": "no inodes left",
}
_HARMLESS_FLAGS: Final = "f"


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
    in_use = [
        t.index for t in targets if t.active and not set(t.flags) & set(_TAKES_NO_FILES)
    ]
    wrong = _names(set(out) - {t.index for t in targets} | set(out) & set(in_use))
    inactive = ", ".join(target.uuid for target in left if not target.active)
    flags = [(target.uuid, flag) for target in left for flag in target.flags]
    closed = ", ".join(
        f"{uuid} ({text})" for uuid, f in flags if (text := _TAKES_NO_FILES.get(f))
    )
    others = ", ".join(
        f"{uuid} ({'degraded' if flag == 'D' else f'flag {flag}'})"
        for uuid, flag in flags
        if flag not in _TAKES_NO_FILES and flag not in _HARMLESS_FLAGS
    )
    sizes = [target.bytes_total for target in targets if target.active]
    if (
        not others
        and space
        and sizes
        and sum(sizes) - space.bytes_total > min(sizes) / 2
    ):
        others = (
            f"the file system has {format_bytes(space.bytes_total)}, its {len(sizes)} storage targets together "
            f"{format_bytes(sum(sizes))}: the metadata servers put no new files on some of them (on a metadata server: "
            "lctl get_param osp.*.active)"
        )
    return rule(
        "G12 health",
        count=f"{declared} " if declared is not None else "",
        without=f", but for {_names(out)}, which must be out" if out else "",
    ).unless(
        f"{len(left)} storage targets, all active"
        + (f"; out: {_names(out)}" if out else ""),
        "" if left else "no storage target is known",
        "" if declared in (None, len(targets)) else f"{len(targets)} storage targets",
        wrong and f"not out: {wrong}",
        inactive and f"inactive: {inactive}",
        closed and f"new files land elsewhere than on {closed}",
        doubt=others,
    )


def _names(indices: Collection[int]) -> str:
    return ", ".join(f"OST{index:04x}" for index in sorted(indices))


def health_of(seen: CaseView) -> Finding | None:
    topology, opened = seen.extras.topology, seen.evidence.opened
    if seen.extras.target.striped_by != "lustre":
        return None
    return health(
        targets=seen.targets,
        declared=topology.targets if topology else None,
        out=topology.out if topology else (),
        space=opened.whole_space if opened else None,
    )


def servers(
    *, declared: int, addresses: Collection[str], clients: int | None = None
) -> Finding:
    """G12: ``addresses`` are those that the nodes use now. ``clients`` is N on NFS, None on Lustre, where every client talks
    to all servers.
    """
    least = declared if clients is None else min(declared, clients)
    most, found = 2 * declared, len(addresses)
    return rule(
        "G12 servers", least=least, most=most, declared=declared, found=found
    ).decide(least <= found <= most, f"the target is served from {found} address(es)")


def servers_of(seen: CaseView) -> Iterator[Finding]:
    topology, targets, views = seen.extras.topology, seen.targets, seen.evidence.views
    declared = topology.servers.count if topology and topology.servers else None
    if declared and targets and all(target.server for target in targets):
        yield servers(
            declared=declared, addresses={str(target.server) for target in targets}
        )
    shares = [
        view.mount
        for view in views
        if view.mount and view.mount.type in ("nfs", "nfs4")
    ]
    if declared and shares and len(shares) == len(views):
        used = {share.server for share in shares}
        yield servers(declared=declared, addresses=used, clients=len(views))


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
    need_bytes, max_fill = order.held_bytes, order.max_fill
    pieces = order.pieces if kind.startswith("storage") else None
    active = [target for target in targets if target.active]
    count = len(active) or 1
    share = math.ceil(need_bytes / count)
    if pinned:
        most = Counter(pinned)
        share = math.ceil(need_bytes * max(most.values()) / len(pinned))
        active = [target for target in active if target.index in most]
    elif pieces:
        share = math.ceil(need_bytes / pieces) * math.ceil(pieces / count)
    demanded = rule(
        "G13 storage targets",
        lowest=format_bytes(1.2 * share),
        kind=kind,
        most=max_fill,
        option="-O" if kind.startswith("storage") else "-m",
    )
    if not active:
        return demanded.invalid(f"no {kind} is active")
    after = {
        target: _full(target.bytes_free, target.bytes_total, share) for target in active
    }
    short = [
        t for t in active if not _fits(t.bytes_free, t.bytes_total, share, max_fill)
    ]
    worst = max(short or active, key=after.__getitem__)
    saw = (
        f"{worst.uuid}: {format_bytes(worst.bytes_free)} free of {format_bytes(worst.bytes_total)}, "
        f"{after[worst]:.0%} full once this case has written {format_bytes(share)} there"
    )
    if len(short) > 1:
        saw += f"; {len(short)} of {len(active)} {kind}s are short of room"
    return demanded.decide(not short, saw)


def pool(name: str, targets: Sequence[StorageTarget], seen: Directory) -> Finding:
    """G12: ``seen`` is what the target's directory shows of the pool."""
    active = [target for target in seen.usable(targets) if target.active]
    if not seen.pool:
        return rule("G12 pool", name=name).invalid(
            seen.pool_problem or f"the pool {name} is empty"
        )
    return rule("G12 pool", name=name).decide(
        bool(active),
        f"the pool {name} has {len(seen.pool)} storage targets, {len(active)} active",
    )


def stripes_against_size(file_bytes: int, part: Part) -> Finding:
    """G23: ``part`` is the last component with data."""
    count, stripe = part.stripe_count, part.stripe_bytes
    size = f"{format_bytes(file_bytes)} in stripes of {format_bytes(stripe)}"
    enough = 8 * count * stripe
    return rule("G23 stripes", enough=format_bytes(enough)).decide(
        file_bytes >= enough or count == 1, f"{size} over {count} storage target(s)"
    )


def cores(bound_tasks: int, usable: int, declared: int) -> Finding:
    """G15: ``bound_tasks`` is the number of bound tasks on the node, ``usable`` the number of physical cores that the job
    may use there.
    """
    saw = (
        f"{bound_tasks} task(s) on {usable} physical core(s), node.cores is {declared}"
    )
    return rule("G15 cores", usable=usable).decide(bound_tasks <= usable, saw)


#: Share of the inodes that may be in use.
_MOST_INODES: Final = 0.95


def inodes(space: Space, need_files: int) -> Finding:
    """G14: a file system that tells no number of inodes has room."""
    holds = _fits(space.inodes_free, space.inodes_total, need_files, _MOST_INODES)
    return rule("G14 inodes", needed=int(1.2 * need_files)).decide(
        not space.inodes_total or holds,
        f"{space.inodes_free} of {space.inodes_total} inodes free, {need_files} needed",
    )


def quota(opened: View, need_bytes: int, need_files: int) -> Finding | None:
    """G14 if there are quotas; those that could not be read in time count too."""
    short = []
    for quota in opened.quotas:
        owner, left, files = (
            f"quota of {quota.owner} leaves",
            quota.bytes_left,
            quota.files_left,
        )
        if left is not None and left < 1.2 * need_bytes:
            short.append(
                f"{owner} {format_bytes(left)}, {format_bytes(need_bytes)} needed"
            )
        if files is not None and files < 1.2 * need_files:
            short.append(f"{owner} {files} files, {need_files} needed")
    doubts = [
        f"{q.owner} is beyond its soft limit: {q.over}" for q in opened.quotas if q.over
    ]
    doubts += [f"the quota of {owner} was not answered" for owner in opened.unanswered]
    if not (opened.quotas or doubts):
        return None
    fine = f"room in the quotas of {', '.join(quota.owner for quota in opened.quotas)}"
    return rule("G14 quota").unless(fine, *short, doubt="; ".join(doubts))


def quota_of(seen: CaseView) -> Finding | None:
    opened, plan = seen.evidence.opened, seen.plan
    return quota(opened, plan.held_bytes, plan.most_files) if opened else None


def metadata_room(
    targets: Sequence[MetadataTarget], mdts: Collection[int], need_files: int
) -> Finding:
    """G14: a striped directory spreads its files evenly over ``mdts``, or over all targets."""
    own = [target for target in targets if target.index in mdts] or list(targets)
    share = math.ceil(need_files / len(own))
    worst = min(own, key=lambda target: target.inodes_free)
    return rule("G14 metadata targets", needed=int(1.2 * share)).decide(
        _fits(worst.inodes_free, worst.inodes_total, share, _MOST_INODES),
        f"MDT {worst.index}: {worst.inodes_free} of {worst.inodes_total} inodes free, {share} needed",
    )


def metadata_health(targets: Sequence[MetadataTarget], declared: int) -> Finding:
    """G12: ``declared`` is the number in the site's ``topology.metadata_targets``."""
    indices = sorted(target.index for target in targets)
    known = f"metadata targets {', '.join(map(str, indices))}"
    return rule("G12 metadata targets", count=declared, last=declared - 1).decide(
        indices == list(range(declared)),
        known if indices else "no metadata target is known",
    )


def metadata_placement(
    count: int, placed: Mapping[str, Collection[int]], problem: str = ""
) -> Finding:
    """G10: ``placed`` maps the directories, in order of the targets, to theirs. ``problem`` is why Lustre made no more."""
    wrong = f"metadata target {len(placed)}: {problem}" if problem else ""
    for index, (name, mdts) in reversed([*enumerate(placed.items())]):
        if set(mdts) != {index}:
            where = ", ".join(map(str, mdts))
            wrong = f"{name} is on metadata target {where} instead of {index}"
    demanded = rule("G10 metadata placement", count=count)
    return demanded.unless("each directory lies on its metadata target", wrong)


def metadata_default(words: Sequence[str], problem: str) -> Finding:
    """G10: ``words`` are those of the request, ``problem`` is why Lustre refused it, empty if it did not."""
    return rule("G10 metadata default", words=" ".join(words)).unless(
        "as asked", problem
    )


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
    if not values or not all(re.fullmatch(r"\d{1,18}", value) for value in values):
        return True
    limit = int(bound[2])
    return not all(
        int(v) >= limit if bound[1] == ">=" else int(v) <= limit for v in values
    )


#: Options of lfs setstripe, which puts the usual value in place of what it is not given.
_STRIPES: Final = {"layout.stripe_count": "-c", "layout.stripe_bytes": "-S"}


def _sets(key: str, expect: Mapping[str, Value], path: str, fsname: str) -> str:
    """Return how to set a fact, or the advice to correct the expectation."""
    value = re.sub(r"^[<>]=\s*", "", str(expect[key]))
    stripes = " ".join(f"{_STRIPES[k]} {expect[k]}" for k in _STRIPES if k in expect)
    several = "," in value and key != "mount.options"
    sought = "set." if several else f"set.{key}"
    ways = rows()["G25 settings"].texts.items()
    way = next(text for pattern, text in ways if fnmatchcase(sought, pattern))
    kind, name = key.partition(".")[2].partition(".")[0], key.rpartition(".")[2]
    figures = {"value": value, "path": path, "stripes": stripes, "fs": fsname}
    return way.format(key=key, kind=kind, name=name, **figures)


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
    wrong = [
        key for key in expect if key in facts and _differs(key, expect[key], facts[key])
    ]
    unknown = [key for key in expect if key not in facts]
    commands = dict.fromkeys(_sets(key, expect, path, fsname) for key in wrong)
    saw = ", ".join(f"{key} is {facts[key]}" for key in wrong)
    return rule(
        "G25 settings",
        "" if wrong else "silent",
        wanted=", ".join(f"{key} {expect[key]}" for key in wrong or unknown or expect),
        commands="; ".join(commands),
    ).unless(
        f"{host}: {len(expect)} setting(s) as expected",
        saw and f"{host}: {saw}",
        doubt=f"{host} did not tell {', '.join(unknown)}" if unknown else "",
    )


def expected_settings_of(seen: CaseView) -> Iterator[Finding]:
    """Yield G25 by what the nodes told while the case ran: what differs first, then what is unknown."""
    expect, target, evidence = seen.extras.expect, seen.extras.target, seen.evidence
    layout = evidence.passed_on.stripes if evidence.passed_on else {}
    found = [
        expected_settings(
            expect=expect,
            facts={**layout, **facts},
            host=host,
            path=target.path,
            fsname=fsname_of(target.source or "*"),
        )
        for host, facts in zip(evidence.versions, evidence.nodes, strict=False)
        if expect
    ]
    worst = (Outcome.INVALID, Outcome.WARN, Outcome.OK)
    yield from sorted(found, key=lambda one: worst.index(one.outcome))[:1]
