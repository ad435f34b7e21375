"""Where the reference of a metric stands in a site's references.yaml."""

import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from iogauge.records.record import Record
from iogauge_extras.history.runs import Refused, SkippedRuns

Key: TypeAlias = str | int | float | bool | None

#: Variables of every check that a record keeps in addition to its parameters.
KEPT: Final = ("nodes", "tasks_per_node", "repetitions", "tier", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePosition:
    """Keys of a leaf below its check."""

    keys: tuple[Key, ...]
    index: tuple[str, ...] = ()


def _value_of(part: str, record: Record) -> Key:
    """Return the value in a record of a part of ``$index``; raises :class:`Refused`."""
    special = {
        "$system": record.system,
        "$partition": f"{record.system}:{record.partition}",
        "$environ": record.environment,
    }
    kept: dict[str, Any] = {
        name: getattr(record, name) for name in KEPT if name in record.kept
    }
    known = ChainMap[str, Any](
        special, dict(record.parameters), dict(record.overridden), kept
    )
    if part not in known:
        raise Refused(
            f"$index names {part}, which a record does not keep: write this entry by hand"
        )
    value: Key = known[part]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise Refused(f"$index: {part} is {value!r}: only text and numbers can be keys")


def _matching(mapping: Mapping[Any, Any], key: Key) -> Key | None:
    """Return the key that ReFrame takes: the same key, else the first that matches as a regular
    expression.
    """
    if key in mapping:
        return key
    texts = (name for name in mapping if isinstance(name, str) and isinstance(key, str))
    return next((name for name in texts if re.match(f"^{name}$", str(key))), None)


def position_of(
    entry: Mapping[str, Any] | None, record: Record, metric: str
) -> FilePosition:
    """Return the position of a metric's reference in the entry of its check, even if not yet
    written.

    It is found as ReFrame finds it. A check without an entry gets an ``$index`` of the partition
    and its parameters. Raises :class:`SkippedRuns` for runs with overridden variables that the
    index does not name.
    """
    if "parameters" not in record.kept:
        raise Refused(
            "its records are older than their parameters: only newer runs can be calibrated"
        )
    if record.pinned:
        raise SkippedRuns(
            f"pinned to {record.pinned} by --distribute: one node's value, not the target's"
        )
    plain = entry is not None and "$index" not in entry
    if entry is None:
        named = ["$partition", *record.parameters]
        index, entry = ([] if len(named) == 1 else named), {}
    else:
        index = [str(part) for part in entry.get("$index") or ()]
    foreign = [
        f"{name}={value}"
        for name, value in record.overridden.items()
        if name not in index
    ]
    if foreign:
        raise SkippedRuns(
            f"measured with {', '.join(foreign)}; references hold for what the site declares, "
            "unless $index names it"
        )
    if plain or not index:
        scopes = (f"{record.system}:{record.partition}", record.system, "*")
        scope = next(
            (name for name in scopes if metric in (entry.get(name) or {})), scopes[0]
        )
        return FilePosition(keys=(scope, metric))
    keys: list[Key] = []
    below: Any = {name: value for name, value in entry.items() if name != "$index"}
    for part in index:
        value = _value_of(part, record)
        key = _matching(below, value)
        if key is None:
            key, below = value, {}
        else:
            below = below[key]
        keys.append(key)
    return FilePosition(keys=(*keys, metric), index=tuple(index))
