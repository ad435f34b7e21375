"""What a site's reference file says beside values: which figures are published, and what is only
recorded.

``$published`` maps a check to the partitions whose references a document prints: their cases have
the tag ``published-figure``. ``$recorded`` maps a check to metrics without a figure in the
document. Such a metric is recorded, and does not keep its case from a PASS by the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from iogauge.core.yamlfile import Mistake, show

PUBLISHED: Final = "$published"
RECORDED: Final = "$recorded"
MARKS: Final = (PUBLISHED, RECORDED)


def mistakes(file: str, mark: str, found: object, data: Mapping[Any, Any]) -> list[Mistake]:
    """Return every mistake in one of the two marks; ``data`` is the whole file's content."""
    what = "partitions with references" if mark == PUBLISHED else "metrics"
    form = f"a mapping from check to a list of {what}"
    if not isinstance(found, dict) or not found:
        return [Mistake(file, mark, show(found), form)]
    wrong = []
    for check, names in found.items():
        key, entry = f"{mark}.{check}", data.get(check)
        listed = isinstance(names, list) and names and all(isinstance(n, str) for n in names)
        if str(check).startswith("$") or not isinstance(entry, dict):
            wrong.append(Mistake(file, key, "this check", "a check with references in this file"))
        elif not listed:
            wrong.append(Mistake(file, key, show(names), f"a list of {what}"))
        elif mark == PUBLISHED:
            places = [str(place) for place in entry if place != "$index"]
            wrong += [
                Mistake(file, key, f"{name!r}", ", ".join(places))
                for name in names
                if name not in places
            ]
    return wrong


def recorded(data: Mapping[str, Any], check: str) -> frozenset[str]:
    """Return the names of a check's metrics that are recorded if they have no reference."""
    return frozenset(data.get(RECORDED, {}).get(check, ()))


def published(data: Mapping[str, Any], check: str) -> Sequence[str]:
    """Return the partitions, as ``system:partition``, with published references of a check."""
    found: Sequence[str] = data.get(PUBLISHED, {}).get(check, ())
    return found


def has_entry(entry: object, values: Sequence[object]) -> bool:
    """Return whether a check's references have an entry for the values of its index.

    A key that is text is an anchored regular expression, as for ReFrame.
    """
    for value in values:
        if not isinstance(entry, Mapping):
            return False
        fitting = [
            key
            for key in entry
            if key == value
            or (
                isinstance(key, str)
                and isinstance(value, str)
                and key != "$index"
                and re.fullmatch(key, value)
            )
        ]
        if not fitting:
            return False
        entry = entry[fitting[0]]
    return bool(entry)
