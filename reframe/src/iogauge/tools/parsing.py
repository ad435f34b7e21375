"""Functions that the tools' parsers share.

A tool has a module for its arguments (options to argv) and one for its output (text to values). All
of them are pure: they touch no file and no process.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError

#: A line on which a program of IOR's source tree warns, or reports an error.
COMPLAINT: Final = re.compile(r"(?m)^[ \t]*((?:WARNING|ERROR)\b.*\S)")


def excerpt(text: str, lines: int = 3, width: int = 120) -> str:
    """Return a text's first non-empty lines for a message; ``'(nothing)'`` if it is empty."""
    kept = [line.strip()[:width] for line in text.splitlines() if line.strip()][:lines]
    return " | ".join(repr(line)[1:-1] for line in kept) or "(nothing)"


def unique(items: Iterable[str]) -> tuple[str, ...]:
    """Return the items without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys(items))


def load_json_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object at ``text[start]`` and the position just behind it.

    Raises :class:`ToolOutputError` for a number that is not finite, and :class:`ValueError` if it
    is not a JSON object. Of a repeated key the last value is kept: IOR 3.3 and fio's client mode
    repeat keys.
    """
    try:
        value, end = untrusted.decode_json(text, start)
    except untrusted.NotFinite as error:
        raise ToolOutputError(f"{error} in the JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value, end


def member(container: object, key: str, where: str) -> Any:
    """Return ``container[key]``; raises :class:`ToolOutputError` that names key and place."""
    if not isinstance(container, Mapping):
        raise ToolOutputError(
            f"{where}: expected a JSON object, found {excerpt(repr(container))}"
        )
    if key not in container:
        raise ToolOutputError(f"{where}: the key {key!r} is missing")
    return container[key]


def non_negative(container: object, key: str, where: str) -> float:
    """Return the number at a key, at least 0; raises :class:`ToolOutputError` for other values.

    No tool counts beyond 64 bits: a larger number is damaged, and its products may be infinite.
    """
    value = member(container, key, where)
    if not untrusted.is_number(value) or not 0 <= value < 2**64:
        raise ToolOutputError(
            f"{where}: {key!r} is {excerpt(repr(value))}, expected a finite number of at least 0, of 64 "
            "bits at most"
        )
    return float(value)


def positive(container: object, key: str, where: str) -> float:
    """Return the number at a key, above 0; raises :class:`ToolOutputError` for other values."""
    value = non_negative(container, key, where)
    if value == 0:
        raise ToolOutputError(f"{where}: {key!r} is 0, expected a number above 0")
    return value
