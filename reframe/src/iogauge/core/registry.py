"""What a site can do without: packages beside the core, found by the entry points of the installed package.

The core imports none of them. It asks here by a group and a name:

- ``iogauge.commands``: commands of ``iogauge``
- ``iogauge.agent``: commands of the agent on a node, which take its words and return the exit status
- ``iogauge.answers``: functions that the core calls if they are there
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal

Group = Literal["iogauge.commands", "iogauge.agent", "iogauge.answers"]

_EXTRAS: Final = "iogauge_extras"


class Missing(ValueError):
    """An extra is not installed; the message names it, and says what to do."""


@functools.cache
def _points(group: Group) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: Group) -> list[str]:
    """Return the names in a group."""
    return sorted(_points(group))


def load(group: Group, name: str) -> Any:
    """Return what an extra provides under a name; raises :class:`Missing`."""
    point, lacks = _points(group).get(name), _EXTRAS
    if point is not None:
        try:
            return point.load()
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(_EXTRAS):
                raise
            lacks = str(error.name)
    raise Missing(
        f"{name} needs {lacks}, which is not installed here: run ci/setup, or install the whole wheel of iogauge"
    )
