"""What a site can do without: packages beside the core, found by the entry points of the installed package.

The core imports none of them. It asks here by a group and a name:

- ``iogauge_commands``: commands of ``iogauge``
- ``iogauge_agent``: commands of the agent on a node, which take its words and return the exit status
- ``iogauge_answers``: functions that the core, or another extra, calls if they are there
"""

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

ExtraGroup = Literal["iogauge_commands", "iogauge_agent", "iogauge_answers"]


class Missing(ValueError):
    """Nothing provides a name; the message says what to do."""


@functools.cache
def _points(group: ExtraGroup) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: ExtraGroup) -> list[str]:
    """Return the names in a group."""
    return sorted(_points(group))


def load(group: ExtraGroup, name: str) -> Callable[..., Any]:
    """Return the function that an extra provides under a name; raises :class:`Missing`."""
    point = _points(group).get(name)
    if point is None:
        raise Missing(
            f"{name} is not installed here: run ci/setup, or install the whole wheel of iogauge"
        )
    function: Callable[..., Any] = point.load()
    return function
