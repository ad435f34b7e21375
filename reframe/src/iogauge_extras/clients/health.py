"""Mounts of one target beside each other: what one client has otherwise than the others, or than the site declares."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import some
from iogauge.core.units import format_bytes
from iogauge.node.identity import differ
from iogauge.site.extras import Target
from iogauge_extras.clients.meeting import Seen

#: Seconds that clocks may differ by, and share of the room that clients may see differently.
CLOCKS_S: Final = 1.0
_ROOM: Final = 0.01

#: Facts that all clients must share, and what they are called.
_ALIKE: Final = {
    "type": "type of the mount",
    "source": "source of the mount",
    "uuid": "file system",
    "options": "mount options",
    "version": "client",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """What some clients have otherwise."""

    clients: tuple[str, ...]
    text: str
    remedy: str
    #: Whether nothing on these clients can be trusted.
    grave: bool = True


def compare(clients: Seen, target: Target, options: str = "") -> Iterator[Difference]:
    """Yield what clients have otherwise, the gravest first, from their views by name.

    ``options`` are mount options that the site expects, separated by commas.
    """
    well = {}
    for name, seen in clients.items():
        if seen["problem"]:
            text = f"{target.path} {seen['problem']}"
            remedy = "mount the target there, or look at its network"
            yield Difference((name,), text, remedy)
        else:
            well[name] = seen
    for fact, what in _ALIKE.items():
        yield from _unlike(well, fact, what, getattr(target, fact, None) or "")
    yield from _lacking(well, options)
    for name, seen in well.items():
        usual = statistics.median_low(view["free"] for view in well.values())
        if abs(seen["free"] - usual) > _ROOM * seen["bytes"]:
            text = f"sees {format_bytes(seen['free'])} free, most see {format_bytes(usual)}"
            remedy = "look for targets that it does not reach"
            yield Difference((name,), text, remedy)
        if seen["apart"]:
            text = f"not connected to {some(seen['apart'])}"
            remedy = "look at its network (lctl ping, lfs check)"
            yield Difference((name,), text, remedy)
        if seen["log"]:
            text = f"the kernel's log: {seen['log'][-1]}"
            yield Difference((name,), text, "dmesg has more", grave=False)
    for name, seen in clients.items():
        usual = statistics.median_low(view["ahead"] for view in clients.values())
        apart = seen["ahead"] - usual
        if abs(apart) > CLOCKS_S:
            text = f"its clock is {apart:+.1f} s beside the others"
            yield Difference((name,), text, "set it (chronyc makestep)")


def _by(clients: Seen, fact: str) -> dict[str, list[str]]:
    """Return the clients by a fact of theirs."""
    return grouped(clients, lambda name: clients[name][fact])


def _unlike(clients: Seen, fact: str, what: str, declared: str) -> Iterator[Difference]:
    """Yield the clients whose fact is not what the site declares, else not that of most; of a list what one of both lacks."""
    groups = _by(clients, fact)
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
            yield Difference(tuple(names), text, remedy)


def _lacking(clients: Seen, options: str) -> Iterator[Difference]:
    """Yield the clients that are mounted without an option that the site expects."""
    for option in filter(None, options.split(",")):
        lacking = []
        for mounted, names in _by(clients, "options").items():
            if option not in mounted.split(","):
                lacking += names
        if lacking:
            text = f"mounted without {option}, which the site expects"
            yield Difference(tuple(lacking), text, f"mount it with -o {option}")
