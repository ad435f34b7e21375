"""Mounts of one target beside each other: what one client has otherwise than the others, or than the site declares."""

import statistics
from collections.abc import Iterator, Sequence

from iogauge.cli.answers import Answer, State
from iogauge.core.groups import grouped
from iogauge.core.text import some
from iogauge.node.identity import differ
from iogauge.site.extras import Target
from iogauge_extras.clients.meeting import Seen

#: Facts that all clients must share, and what they are called.
_ALIKE = {
    "type": "type of the mount",
    "source": "source of the mount",
    "uuid": "file system",
    "options": "mount options",
    "version": "client",
}

#: Numbers that all clients must share: by how much they may differ, what is said of one that does, and what to do.
_NEAR = {
    "free": (
        0.01,
        "sees {:.1%} of the space free, most see {:.1%}",
        "look for targets that it does not reach",
    ),
    "inodes": (
        0.01,
        "sees {:.1%} of the inodes free, most see {:.1%}",
        "look for metadata targets that it does not reach",
    ),
    "ahead": (
        1.0,
        "its clock is {:+.1f} s from the asking host's, most are {:+.1f} s",
        "set it (chronyc makestep)",
    ),
}


def _answer(
    clients: Sequence[str], text: str, remedy: str, *, grave: bool = True
) -> Answer:
    state: State = "problem"
    if not grave:
        state = "note"
    return Answer(state, f"client {some(clients)}", text, remedy)


def compare(clients: Seen, target: Target, options: str = "") -> Iterator[Answer]:
    """Yield what clients have otherwise, the gravest first, from their views by name.

    ``options`` are mount options that the site expects, separated by commas.
    """
    well = {}
    for name, seen in clients.items():
        if seen["problem"]:
            text = f"{target.path} {seen['problem']}"
            yield _answer(
                [name], text, "mount the target there, or look at its network"
            )
        else:
            well[name] = seen
    for fact, what in _ALIKE.items():
        yield from _unlike(well, fact, what, getattr(target, fact, None) or "")
    expected = set(filter(None, options.split(",")))
    for mounted, names in grouped(well, lambda name: well[name]["options"]).items():
        lacks = some(sorted(expected - set(mounted.split(","))))
        if lacks:
            text = f"mounted without {lacks}, which the site expects"
            yield _answer(names, text, f"mount it with -o {lacks}")
    yield from _far(well)
    for name, seen in well.items():
        if seen["apart"]:
            text = f"not connected to {some(seen['apart'])}"
            yield _answer([name], text, "look at its network (lctl ping, lfs check)")
        if seen["log"]:
            text = f"the kernel's log: {seen['log'][-1]}"
            yield _answer([name], text, "dmesg has more", grave=False)


def _far(clients: Seen) -> Iterator[Answer]:
    """Yield the clients whose numbers are not those of most."""
    for fact, (most, words, remedy) in _NEAR.items():
        shared = [seen[fact] for seen in clients.values()]
        if fact == "ahead":
            # The asking host has a clock, too.
            shared.append(0.0)
        for name, seen in clients.items():
            usual = statistics.median_low(shared)
            if abs(seen[fact] - usual) > most:
                yield _answer([name], words.format(seen[fact], usual), remedy)


def _unlike(clients: Seen, fact: str, what: str, declared: str) -> Iterator[Answer]:
    """Yield the clients whose fact is not what the site declares, else not that of most; of a list what one of both lacks."""
    groups = grouped(clients, lambda name: clients[name][fact])
    usual = declared or max(groups, key=lambda value: len(groups[value]), default="")
    whose, remedy = "the others have", "make the clients alike"
    if declared:
        whose, remedy = "the site declares", "mount the right one, or correct the site"
    theirs = set(usual.split(","))
    for value, names in groups.items():
        # A file system may be reached by several networks.
        alike = not differ(value, usual) if fact == "uuid" else value in ("", usual)
        if not alike:
            own = set(value.split(","))
            more, lacks = some(sorted(own - theirs)), some(sorted(theirs - own))
            text = f"{what}: {more or 'none more'}; {whose} {lacks or 'none more'}"
            yield _answer(names, text, remedy)
