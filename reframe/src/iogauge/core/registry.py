"""What a site can do without: packages beside the core, found by the entry points of the installed package.

The core imports none of them. It asks here by a group and a name:

- ``iogauge_commands``: commands of ``iogauge``
- ``iogauge_agent``: commands of the agent on a node, which take its words and return the exit status
- ``iogauge_answers``: functions that the core, or another extra, calls if they are there
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

ExtraGroup = Literal["iogauge_commands", "iogauge_agent", "iogauge_answers"]

_EXTRAS = "iogauge_extras"


class Missing(ValueError):
    """An extra is not installed; the message names it, and says what to do."""

    def __init__(self, name: str, package: str) -> None:
        """Say that a name needs a package."""
        super().__init__(
            f"{name} needs {package}, which is not installed here: run ci/setup, or install the whole wheel of iogauge"
        )


@functools.cache
def _points(group: ExtraGroup) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def names(group: ExtraGroup) -> list[str]:
    """Return the names in a group."""
    return sorted(_points(group))


@contextlib.contextmanager
def _needed_by(name: str) -> Iterator[None]:
    """Raise :class:`Missing` for an extra that cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _EXTRAS:
            raise
        raise Missing(name, str(error.name)) from error


def load(group: ExtraGroup, name: str) -> Callable[..., Any]:
    """Return the function that an extra provides under a name.

    Raises :class:`Missing` if it is not there; so does the function if it needs another extra.
    """
    point = _points(group).get(name)
    if point is None:
        raise Missing(name, _EXTRAS)
    with _needed_by(name):
        function = point.load()

    @functools.wraps(function)
    def asked(*words: Any, **options: Any) -> Any:
        with _needed_by(name):
            return function(*words, **options)

    return asked
