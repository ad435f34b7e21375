"""Guards of Lustre's metadata targets (MDTs), before the first byte: number, place, room (G10, G12,
G14).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from iogauge.guards.finding import Finding, Rule
from iogauge.node.directories import MetadataTarget


def metadata_room(
    *, targets: Sequence[MetadataTarget], mdts: Collection[int], need_files: int
) -> Finding:
    """G14: each metadata target that the directory lies on has 1.2 x its share of the files free, and
    5 % of its inodes left. A striped directory spreads its files evenly.
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
    """G12: as many metadata targets as declared, if each is measured alone."""
    indices = sorted(target.index for target in targets)
    return Rule(
        "G12",
        f"{declared} metadata targets, 0 to {declared - 1}",
        "Ask the administrators of the file system, or correct topology.metadata_targets; lfs df -i shows all",
    ).decide(
        indices == list(range(declared)),
        f"metadata targets {', '.join(map(str, indices))}" if indices else "none is known",
    )


def metadata_placement(
    *, count: int, placed: Mapping[str, Collection[int]], problem: str = ""
) -> Finding:
    """G10: a case that measures each metadata target alone has a directory on each, and on no other.

    ``placed`` maps the directories, in order of the targets, to those that they lie on. ``problem``
    is why Lustre did not make or show the next one.
    """
    rule = Rule(
        "G10",
        f"a directory on each of {count} metadata targets (lfs mkdir -i)",
        "If it is not permitted, root runs on each metadata server: lctl set_param "
        "mdt.*.enable_remote_dir_gid=-1 (or the number of your group); or run the case as root",
    )
    for index, (name, mdts) in enumerate(placed.items()):
        if set(mdts) != {index}:
            where = ", ".join(map(str, mdts))
            return rule.invalid(f"{name} is on metadata target {where}, asked was {index}")
    if problem:
        return rule.invalid(f"metadata target {len(placed)}: {problem}")
    return rule.ok("each is as asked")
