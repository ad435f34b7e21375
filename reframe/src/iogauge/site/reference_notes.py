"""What a file of references says beside the references: which are published, and which metrics are recorded alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from iogauge.core.yamlfile import Mistake, show

#: What earlier versions of `iogauge calibrate` wrote, and nothing reads.
ACCEPTED: Final = "$accepted"
PUBLISHED: Final = "$published"
RECORDED: Final = "$recorded"
MARKS: Final = (PUBLISHED, RECORDED)


def mark_mistakes(
    mark: str, found: object, data: Mapping[Any, Any]
) -> Iterator[Mistake]:
    """Yield every mistake in one of the two marks; ``data`` is the whole file's content."""
    what = "partitions with references" if mark == PUBLISHED else "metrics"
    if not isinstance(found, dict) or not found:
        yield Mistake(mark, show(found), f"a mapping from check to a list of {what}")
        return
    for check, names in found.items():
        key, entry = f"{mark}.{check}", data.get(check)
        listed = (
            isinstance(names, list) and names and all(isinstance(n, str) for n in names)
        )
        if str(check).startswith("$") or not isinstance(entry, dict):
            yield Mistake(key, "this check", "a check with references in this file")
        elif not listed:
            yield Mistake(key, show(names), f"a list of {what}")
        elif mark == PUBLISHED:
            places = [str(place) for place in entry if place != "$index"]
            for name in names:
                if name not in places:
                    yield Mistake(key, f"{name!r}", ", ".join(places))


def recorded(data: Mapping[str, Any], check: str) -> frozenset[str]:
    """Return the names of a check's metrics that are recorded if they have no reference."""
    return frozenset(data.get(RECORDED, {}).get(check, ()))


def published(data: Mapping[str, Any], check: str) -> Sequence[str]:
    """Return the partitions, as ``system:partition``, with published references of a check."""
    found: Sequence[str] = data.get(PUBLISHED, {}).get(check, ())
    return found


def fits(key: object, value: object) -> bool:
    """Return whether a key of the references stands for a value.

    A key that is text is an anchored regular expression, as for ReFrame.
    """
    if isinstance(key, str) and isinstance(value, str):
        return key == value or bool(re.fullmatch(key, value))
    return key == value


def key_for(entry: Mapping[Any, Any], value: object) -> Any:
    """Return the key of the references that stands for a value: the value itself, else the first that fits; None if none does."""
    if value in entry:
        return value
    for key in entry:
        if key != "$index" and fits(key, value):
            return key
    return None


def look_up(entry: object, values: Sequence[object]) -> Mapping[Any, Any]:
    """Return what a check's references have for the values of its index; empty if they have nothing."""
    for value in values:
        if not isinstance(entry, Mapping):
            return {}
        entry = entry.get(key_for(entry, value))
    if not isinstance(entry, Mapping):
        return {}
    return entry
