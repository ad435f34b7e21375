"""Nodes in turn: each session measures another node of a partition, so that as many nights cover all of them."""

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

from iogauge.records import query


def node_in_turn(
    history: Path, place: str, nodes: Sequence[str], leave_out: Collection[str]
) -> str:
    """Return the node of a place (``system:partition``) that was measured longest ago; one that never was comes first.

    Sessions to ``leave_out`` do not count: their cases share a node.
    """
    here = query.Condition("system || ':' || partition = ?", (place,))
    newest = dict.fromkeys(nodes, "")
    with closing(query.connect(history)) as index:
        condition = query.every(here, query.among("pinned", nodes))
        for row in query.rows(index, "DISTINCT pinned, session", condition):
            if row["session"] not in leave_out:
                newest[row["pinned"]] = max(newest[row["pinned"]], row["session"])
    return min(newest, key=newest.__getitem__)
