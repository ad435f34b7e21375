"""What a file of references says beside the references: accepted values, published and recorded ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from iogauge.core.untrusted import is_number
from iogauge.core.yamlfile import Mistake, show

ACCEPTED: Final = "$accepted"
_ACCEPTED_FORM: Final = "[value, unit, YYYY-MM-DD], written by 'iogauge calibrate'"
PUBLISHED: Final = "$published"
RECORDED: Final = "$recorded"
MARKS: Final = (PUBLISHED, RECORDED)


def mark_mistakes(file: str, mark: str, found: object, data: Mapping[Any, Any]) -> list[Mistake]:
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


def accepted_mistakes(file: str, accepted: object, data: dict[Any, Any]) -> list[Mistake]:
    """Return mistakes in the accepted values: each belongs to a reference, and has its unit."""
    if not isinstance(accepted, dict) or not accepted:
        return [Mistake(file, ACCEPTED, show(accepted), "a mapping from check to values")]
    return [
        mistake
        for check, entry in accepted.items()
        for mistake in _accepted_below(
            file, f"{ACCEPTED}.{check}", entry, data.get(check) if check != "$sources" else None
        )
    ]


def _accepted_below(file: str, key: str, value: object, reference: object) -> list[Mistake]:
    if isinstance(value, dict) and value and isinstance(reference, dict):
        return [
            mistake
            for name, inner in value.items()
            for mistake in _accepted_below(
                file, f"{key}.{name}", inner, reference.get(name) if name != "$index" else None
            )
        ]
    if not isinstance(reference, list):
        return [Mistake(file, key, show(value), "the keys of a reference in this file")]
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not (is_number(value[0]) and value[0] > 0)
        or not (isinstance(value[2], date) and not isinstance(value[2], datetime))
    ):
        return [Mistake(file, key, show(value), _ACCEPTED_FORM)]
    leaf = reference[-1] if reference[:1] == ["$xfail"] else reference
    unit = leaf[-1] if isinstance(leaf, list) and leaf else None
    if value[1] != unit:
        found = f"{show(value[1])}, and {unit!r} in the reference"
        allowed = "one unit in both. 'iogauge calibrate' wrote this one: correct the reference"
        return [Mistake(file, f"{key} (unit)", found, allowed)]
    return []


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


def has_entry(entry: object, values: Sequence[object]) -> bool:
    """Return whether a check's references have an entry for the values of its index."""
    for value in values:
        if not isinstance(entry, Mapping):
            return False
        fitting = [key for key in entry if key != "$index" and fits(key, value)]
        if not fitting:
            return False
        entry = entry[fitting[0]]
    return bool(entry)
