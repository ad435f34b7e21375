"""Guards of the target, most of them before the first byte: identity, room, inodes, health (G9, G13, G16, G23)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome, finding_of
from iogauge.node.mounts import Quota, Space, StorageTarget, Traits, View


def storage(*, traits: Traits) -> Finding:
    """G9, for metadata: a target in memory has no storage to measure."""
    return finding_of(
        "G9",
        traits.cache != "memory",
        "the target is memory, not storage"
        if traits.cache == "memory"
        else "the target is storage",
        "a file system with storage behind it",
        "Choose another target",
    )


def identity(*, declared_type: str, declared_source: str | None, views: Sequence[View]) -> Finding:
    """G9: every node must see the declared file system at the target's path."""
    demands = f"type {declared_type}" + (f" from {declared_source}" if declared_source else "")
    for view in views:
        mount = view.mount
        if (
            mount is None
            or mount.type != declared_type
            or (declared_source is not None and mount.source != declared_source)
        ):
            seen = f"{mount.type} from {mount.source} at {mount.point}" if mount else "no mount"
            return Finding(
                "G9",
                Outcome.INVALID,
                f"{view.host} sees {seen} for {view.path}",
                demands,
                "Mount the target there, or correct target.path, target.type and target.source",
            )
    seen = f"{len(views)} node(s) see {demands}"
    if not views:
        return Finding("G9", Outcome.INVALID, "no node reported its mounts", demands, "Run again")
    return Finding("G9", Outcome.OK, seen, demands)


def room(*, space: Space, need_bytes: int, max_fill: float, keep_free: float) -> Finding:
    """G13: need x 1.2 must be free, the fill afterwards at most ``max_fill``, ``keep_free`` must remain."""
    after = space.bytes_free - need_bytes
    fill_after = 1 - after / space.bytes_total if space.bytes_total else 1.0
    holds = (
        space.bytes_free >= 1.2 * need_bytes
        and fill_after <= max_fill
        and after >= keep_free * space.bytes_total
    )
    lowest = max(1.2 * need_bytes, need_bytes + keep_free * space.bytes_total)
    lowest = max(lowest, need_bytes + (1 - max_fill) * space.bytes_total)
    return finding_of(
        "G13",
        holds,
        f"{format_bytes(space.bytes_free)} free of {format_bytes(space.bytes_total)}, "
        f"{max(0.0, fill_after):.0%} full with the {format_bytes(need_bytes)} of this case",
        f"{format_bytes(lowest)} free (1.2 x need, at most {max_fill:.0%} full, {keep_free:.0%} kept free)",
        "Free space on the target, or lower limits.case_bytes",
    )


def share_of_free(*, space: Space, need_bytes: int, max_of_free: float) -> Finding:
    """G13: one case takes at most ``max_of_free`` of what is free."""
    limit = max_of_free * space.bytes_free
    return finding_of(
        "G13",
        need_bytes <= limit,
        f"{format_bytes(need_bytes)} of this case are {_share(need_bytes, space.bytes_free)} of the "
        f"{format_bytes(space.bytes_free)} that are free",
        f"at most {format_bytes(limit)} ({max_of_free:.3g} x what is free)",
        "Lower limits.case_bytes, or declare how much this target can bear (limits.max_of_free)",
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.2%}" if whole else "more than all"


#: Flags of a storage target (lfs-df(1)) with which new files land elsewhere, and those that cost speed.
_TAKES_NO_FILES: Final = {"N": "no new files", "R": "read-only", "S": "full", "I": "no inodes left"}
_HARMLESS_FLAGS: Final = "f"


def health(*, targets: Sequence[StorageTarget], declared: int | None = None) -> Finding:
    """G12: every storage target is active and takes new files. A degraded one is remarked upon.

    ``declared``: how many the site says that there are.
    """
    demands = (f"{declared} storage targets, " if declared is not None else "storage targets, ") + (
        "all active, none degraded, none closed to new files"
    )
    remedy = (
        "Ask the administrators of the file system; lfs df, lfs osts and lfs check osts show it"
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
        saw = "no storage target is known"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if declared is not None and len(targets) != declared:
        saw = f"{len(targets)} storage targets"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if inactive:
        saw = f"inactive: {', '.join(inactive)}"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if closed:
        saw = f"new files land elsewhere than on {', '.join(closed)}"
        return Finding("G12", Outcome.INVALID, saw, demands, remedy)
    if others:
        return Finding("G12", Outcome.WARN, ", ".join(others), demands, remedy)
    return Finding("G12", Outcome.OK, f"{len(targets)} storage targets, all active", demands)


def target_room(
    *,
    targets: Sequence[StorageTarget],
    need_bytes: int,
    max_fill: float,
    pieces: int | None = None,
    pinned: Collection[int] = (),
) -> Finding:
    """G13, for each storage target: its share of the need x 1.2 must be free, and the fill in bounds.

    ``need_bytes`` is what the whole case holds, in so many equal ``pieces`` that lie on one target each: by
    turns on all active ones, or as ``pinned`` says, the target of each piece. Not known: spread evenly. Fewer
    pieces than targets may lie on any of them.
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
    demands = (
        f"{format_bytes(1.2 * share)} free on each storage target of the case (1.2 x its share), at most "
        f"{max_fill:.0%} full afterwards"
    )
    remedy = "Free space on that target (lfs find -O), or lower limits.case_bytes"
    if not active:
        return Finding("G13", Outcome.INVALID, "no storage target is active", demands, remedy)
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
    return finding_of("G13", not short, saw, demands, remedy)


def inodes(*, space: Space, quotas: Sequence[Quota], need_bytes: int, need_files: int) -> Finding:
    """G14: inodes free >= 1.2 x files and 5 % left; every quota leaves 1.2 x need of bytes and files."""
    demands = f"{int(1.2 * need_files)} free inodes and 5 % left; 1.2 x need within every quota"
    remedy = "Remove files, raise the quota, or lower limits.case_files and limits.case_bytes"
    saw = f"{space.inodes_free} of {space.inodes_total} inodes free, {need_files} needed"
    if space.inodes_total and (
        space.inodes_free < 1.2 * need_files
        or space.inodes_free - need_files < 0.05 * space.inodes_total
    ):
        return Finding("G14", Outcome.INVALID, saw, demands, remedy)
    for quota in quotas:
        if quota.bytes_left is not None and quota.bytes_left < 1.2 * need_bytes:
            left = f"quota of {quota.owner} leaves {format_bytes(quota.bytes_left)}"
            saw = f"{left}, {format_bytes(need_bytes)} needed"
            return Finding("G14", Outcome.INVALID, saw, demands, remedy)
        if quota.files_left is not None and quota.files_left < 1.2 * need_files:
            saw = f"quota of {quota.owner} leaves {quota.files_left} files, {need_files} needed"
            return Finding("G14", Outcome.INVALID, saw, demands, remedy)
    return Finding("G14", Outcome.OK, saw, demands)
