"""Where the reference of a metric stands in a site's references.yaml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from iogauge.records.record import Record
from iogauge.site.reference_notes import key_for
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
    known: dict[str, Any] = {}
    for name in KEPT:
        if name in record.model_fields_set:
            known[name] = getattr(record, name)
    known |= record.overridden
    known |= record.parameters
    known["$system"] = record.system
    known["$partition"] = f"{record.system}:{record.partition}"
    known["$environ"] = record.environment
    if part not in known:
        raise Refused(
            f"$index names {part}, which a record does not keep: write this entry by hand"
        )
    value: Key = known[part]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise Refused(f"$index: {part} is {value!r}: only text and numbers can be keys")


def _keys(entry: Mapping[Any, Any], index: Sequence[str], record: Record) -> list[Key]:
    """Return the keys of a record below an entry, as ReFrame takes them; those of the record where there are none."""
    keys: list[Key] = []
    for part in index:
        value = _value_of(part, record)
        key: Key = key_for(entry, value)
        if key is None:
            key, entry = value, {}
        else:
            entry = entry[key]
        keys.append(key)
    return keys


def position_of(
    entry: Mapping[str, Any] | None, record: Record, metric: str
) -> FilePosition:
    """Return the position of a metric's reference in the entry of its check, even if not yet
    written.

    It is found as ReFrame finds it. A check without an entry gets an ``$index`` of the partition
    and its parameters. Raises :class:`SkippedRuns` for runs with overridden variables that the
    index does not name.
    """
    if "parameters" not in record.model_fields_set:
        raise Refused(
            "its records are older than their parameters: only newer runs can be calibrated"
        )
    if record.pinned:
        raise SkippedRuns(
            f"pinned to {record.pinned} by --distribute: one node's value, not the target's"
        )
    plain = entry is not None and "$index" not in entry
    if entry is None:
        index, entry = [], {}
        if record.parameters:
            index = ["$partition", *record.parameters]
    else:
        index = [str(part) for part in entry.get("$index") or ()]
    foreign = []
    for name, value in record.overridden.items():
        if name not in index:
            foreign.append(f"{name}={value}")
    if foreign:
        raise SkippedRuns(
            f"measured with {', '.join(foreign)}; references hold for what the site declares, "
            "unless $index names it"
        )
    if plain or not index:
        scopes = (f"{record.system}:{record.partition}", record.system, "*")
        for scope in scopes:
            if metric in (entry.get(scope) or {}):
                return FilePosition(keys=(scope, metric))
        return FilePosition(keys=(scopes[0], metric))
    keys = _keys(entry, index, record)
    return FilePosition(keys=(*keys, metric), index=tuple(index))
