"""Where records were made, and what is known of each place: the header of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.records.record import Record
from iogauge_extras.page import sweeps

#: Keys of a fingerprint that the header shows, in its order: name of the fact, and patterns of the keys.
_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "file system": (
        *("mount.type", "mount.source", "lustre.client", "layout.default"),
        *("mount.options", "fs.uuid"),
    ),
    "servers": ("lustre.servers", "lustre.osts", "lustre.mdts"),
    "clients": (
        *("nodes", "node.model", "cpu.model", "cpu.cores"),
        *("mem.bytes", "os", "kernel"),
    ),
    "network": ("nic.*.model", "nic.*.speed_mbps", "ib.*.model", "ib.*.rate"),
    "software": ("tool.*", "mpi", "stack"),
}
#: What a reader of the header calls a fact, where the key of the fingerprint is not plain.
_NAMES: Final[Mapping[str, str]] = {
    "mount.type": "",
    "mount.source": "from",
    "mount.options": "options",
    "lustre.client": "Lustre client",
    "lustre.servers": "servers",
    "lustre.osts": "OSTs",
    "lustre.mdts": "MDTs",
    "layout.default": "default layout",
    "fs.uuid": "UUID",
    "cpu.model": "",
    "cpu.cores": "cores",
    "mem.bytes": "memory",
    "node.model": "",
    "os": "",
    "kernel": "kernel",
    "mpi": "",
}


def _fact(key: str, value: object) -> str:
    """Return a fact of a fingerprint as a reader of the header calls it."""
    name = _NAMES.get(key, re.sub(r"^(tool|nic|ib)\.", "", key).replace(".", " "))
    known = format_bytes(value) if key == "mem.bytes" and type(value) is int else value
    return f"{name} {known}".strip()


def span_of(records: Sequence[Record]) -> str:
    times = sorted(record.time for record in records)
    ends = " to ".join(dict.fromkeys(minute(time) for time in times[:1] + times[-1:]))
    return f"{ends} UTC" if ends else ""


def minute(time: str) -> str:
    """Return the time of a record as people write it, to the minute."""
    return time[:16].replace("T", " ")


def key_of(record: Record) -> tuple[str, str, str]:
    """Return what tells a record from all others."""
    return record.session, record.time, record.line


def file_of(record: Record) -> str:
    return f"history/{record.system}/{record.session}.jsonl"


def where_of(record: Record) -> str:
    return f"{record.system}:{record.partition}"


def places_of(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition, from its newest record with a fingerprint.

    Each tool is known from the records of its cases.
    """
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: (bool(r.fingerprint), r.time)):
        found[where_of(record)] = record
    places = []
    for where, record in sorted(found.items()):
        mine = [r for r in records if where_of(r) == where]
        facts = {"target": record.target_path}
        for name, patterns in _FACTS.items():
            values = [
                _fact(key, value)
                for pattern in patterns
                for one in (mine if name == "software" else [record])
                for key, value in one.fingerprint.items()
                if fnmatchcase(key, pattern)
            ]
            facts[name] = ", ".join(dict.fromkeys(values))
        if not facts["software"]:
            facts["software"] = sweeps.stack_of(mine)
        limits = {str(m.ceiling_from) for r in mine for m in r.metrics if m.ceiling_from}
        facts["declared ceilings"] = "; ".join(sorted(limits)[:4])
        facts["records"] = f"{len(mine)}, {span_of(mine)}"
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places
