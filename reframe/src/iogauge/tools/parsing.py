"""The benchmark programs: their arguments (options to argv) and their output (text to values).

One module for each program. Everything here is pure: text in, values out, no file and no process is
touched. What the parsers share stands below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError

__all__ = [
    "excerpt",
    "is_number",
    "load_json_object",
    "member",
    "non_negative",
    "positive",
    "unique",
]


def excerpt(text: str, lines: int = 3, width: int = 120) -> str:
    """First non-empty lines of a text, for a message; ``'(nothing)'`` for an empty one."""
    kept = [line.strip()[:width] for line in text.splitlines() if line.strip()][:lines]
    return " | ".join(repr(line)[1:-1] for line in kept) or "(nothing)"


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """The items without repetitions, in the order of their first appearance."""
    return tuple(dict.fromkeys(items))


def load_json_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The JSON object that begins at ``text[start]`` and the position just behind it.

    Raises :class:`ToolOutputError` for a number that is not finite, and :class:`ValueError` for anything
    else that is not a JSON object; of a repeated key the last value is kept, as IOR 3.3 and fio's client
    mode repeat keys.
    """
    try:
        value, end = untrusted.decode_json(text, start)
    except untrusted.NotFinite as error:
        raise ToolOutputError(f"{error} in the JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value, end


def is_number(value: object) -> bool:
    """Whether a value from JSON is a finite number (True and False are not)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def member(container: object, key: str, where: str) -> Any:
    """``container[key]``; raises :class:`ToolOutputError` naming what is missing, and where."""
    if not isinstance(container, Mapping):
        raise ToolOutputError(f"{where}: expected a JSON object, found {excerpt(repr(container))}")
    if key not in container:
        raise ToolOutputError(f"{where}: the key {key!r} is missing")
    return container[key]


def non_negative(container: object, key: str, where: str) -> float:
    """The number at a key, at least 0; raises :class:`ToolOutputError` for anything else.

    No tool counts further than 64 bits: what is larger is damaged, and its products need not be finite.
    """
    value = member(container, key, where)
    if not is_number(value) or not 0 <= value < 2**64:
        raise ToolOutputError(
            f"{where}: {key!r} is {excerpt(repr(value))}, expected a finite number of at least 0, of 64 "
            "bits at most"
        )
    return float(value)


def positive(container: object, key: str, where: str) -> float:
    """The number at a key, above 0; raises :class:`ToolOutputError` for anything else."""
    value = non_negative(container, key, where)
    if value == 0:
        raise ToolOutputError(f"{where}: {key!r} is 0, expected a number above 0")
    return value
