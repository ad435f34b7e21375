"""Where records were made, and what is known of each place: the header of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.units import format_bytes
from iogauge.records.record import Record
from iogauge_extras.page import sweeps

#: Keys of a fingerprint that the header shows, by the name of the fact: patterns, and what a reader calls them if
#: the key is not plain.
_FACTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "file system": {
        **{"mount.type": "", "mount.source": "from", "lustre.client": "Lustre client"},
        **{"layout.default": "default layout", "mount.options": "options", "fs.uuid": "UUID"},
    },
    "servers": {"lustre.servers": "servers", "lustre.osts": "OSTs", "lustre.mdts": "MDTs"},
    "clients": {
        **{"nodes": None, "node.model": "", "cpu.model": "", "cpu.cores": "cores"},
        **{"mem.bytes": "memory", "os": "", "kernel": "kernel"},
    },
    "network": dict.fromkeys(("nic.*.model", "nic.*.speed_mbps", "ib.*.model", "ib.*.rate")),
    "software": {"tool.*": None, "mpi": "", "stack": None},
}


def _fact(key: str, value: object, name: str | None) -> str:
    """Return a fact of a fingerprint as a reader of the header calls it."""
    if name is None:
        name = re.sub(r"^(tool|nic|ib)\.", "", key).replace(".", " ")
    known = format_bytes(value) if key == "mem.bytes" and type(value) is int else value
    return f"{name} {known}".strip()


def span_of(records: Sequence[Record]) -> str:
    """Return the first and the last time of records, to the minute."""
    times = sorted(record.minute for record in records)
    ends = " to ".join(dict.fromkeys(times[:1] + times[-1:]))
    return f"{ends} UTC" if ends else ""


def file_of(record: Record) -> str:
    """Return the record's file, below the state directory."""
    return f"history/{record.system}/{record.session}.jsonl"


def places_of(records: Sequence[Record]) -> list[tuple[str, dict[str, str]]]:
    """Return what is known of each partition, from its newest record with a fingerprint.

    Each tool is known from the records of its cases.
    """
    places = []
    for where, mine in sorted(grouped(records, lambda record: record.where).items()):
        newest = sorted(mine, key=lambda record: (bool(record.fingerprint), record.time))[-1]
        facts = {"target": newest.target_path}
        for fact, patterns in _FACTS.items():
            values = [
                _fact(key, value, name)
                for pattern, name in patterns.items()
                for one in (mine if fact == "software" else [newest])
                for key, value in one.fingerprint.items()
                if fnmatchcase(key, pattern)
            ]
            facts[fact] = ", ".join(dict.fromkeys(values))
        if not facts["software"]:
            facts["software"] = sweeps.stack_of(mine)
        limits = {str(m.ceiling_from) for r in mine for m in r.metrics if m.ceiling_from}
        facts["declared ceilings"] = "; ".join(sorted(limits)[:4])
        facts["records"] = f"{len(mine)}, {span_of(mine)}"
        places.append((where, {name: text for name, text in facts.items() if text}))
    return places
