"""Nodes in turn: each session measures another node of a partition, so that as many nights cover all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from iogauge.records import journal
from iogauge.records.record import Record

#: Newest sessions that are looked at, for each node. A node that is in none of them comes first.
_LOOKED_AT = 10


def node_in_turn(
    history: Path, partition: str, nodes: Sequence[str], leave_out: Collection[str]
) -> str:
    """Return the node of a partition that was measured longest ago, by the sessions in the system's folder of a history.

    Sessions to ``leave_out`` do not count: their cases share a node.
    """
    waiting = list(nodes)
    files = sorted(history.glob("*.jsonl"))[-_LOOKED_AT * len(nodes) :]
    for file in reversed(files):
        if file.stem in leave_out:
            continue
        for record in journal.read_whole(file):
            if not isinstance(record, Record) or record.partition != partition:
                continue
            if record.pinned in waiting and len(waiting) > 1:
                waiting.remove(record.pinned)
    return waiting[0]
