"""Functions that the tools' parsers share.

A tool has a module for its arguments (options to argv) and one for its output (text to values). All
of them are pure: they touch no file and no process.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.measurement import Moment, ToolOutputError

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


def answer(kind: Any, text: str, what: str) -> Any:
    """Return a program's JSON as a value of a type, see :func:`untrusted.build`; raises :class:`ToolOutputError`."""
    try:
        return untrusted.build(kind, untrusted.parse_json(text))
    except (ValueError, TypeError) as error:
        raise ToolOutputError(f"{what}: its answer is damaged: {error}") from error


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


#: ctime(3), as IOR and fio print it; mdtest's form of a date; and that of md-workbench and IO500. Python's own locale is C.
_DATES: Final = {
    "%a %b %d %H:%M:%S %Y": re.compile(
        r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} [\d:]{8} \d{4}"
    ),
    "%m/%d/%Y %H:%M:%S": re.compile(r"[\d/]{10} [\d:]{8}"),
    "%Y-%m-%d %H:%M:%S": re.compile(r"[\d-]{10} [\d:]{8}"),
}

#: Seconds since the epoch that a date with a year of four digits can have.
_LAST: Final = 253402300799


def local_moment(name: str, text: object, where: str) -> Moment:
    """Return the local time of ``Sat Nov 21 01:02:37 2026``, ``11/21/2026 02:50:19`` or
    ``2026-11-21 02:50:19``.

    Raises :class:`ToolOutputError` for other text and for days that no calendar has.
    """
    words = str(text).strip()
    for form in (form for form, written in _DATES.items() if written.fullmatch(words)):
        with contextlib.suppress(ValueError):
            date = datetime.strptime(words, form).replace(tzinfo=timezone.utc)
            return Moment(name, date.timestamp(), local=True)
    raise ToolOutputError(
        f"{where}: {name!r} is {excerpt(repr(text))}, expected a date and a time"
    )


def moment(container: object, key: str, where: str, per_second: int = 1) -> Moment:
    """Return the time at a key, in seconds or parts of seconds since the epoch.

    Raises :class:`ToolOutputError` for other values.
    """
    seconds = non_negative(container, key, where) / per_second
    if seconds > _LAST:
        raise ToolOutputError(
            f"{where}: {key!r} is {seconds:g} s since the epoch, expected a time"
        )
    return Moment(key, seconds)
