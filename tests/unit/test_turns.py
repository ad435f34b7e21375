"""Nodes in turn: which node a session measures."""

import pytest

from iogauge.records.node_turns import node_in_turn
from support.records import append, values

NODES = ("n1", "n2", "n3")


def measure(folder, session, node, partition="p"):
    record = values(
        session=session, case="a", system="s", partition=partition, pinned=node
    )
    append(folder / "s" / f"{session}.jsonl", record)


def test_as_many_sessions_as_nodes_cover_all(tmp_path):
    chosen = []
    for night in range(7):
        node = node_in_turn(tmp_path / "history", "s:p", NODES, [])
        # All cases of a session have one node, and so have those that confirm its failures.
        for session, own in ((f"t{night}", []), (f"t{night}-again", [f"t{night}"])):
            own.append(session)
            assert node_in_turn(tmp_path / "history", "s:p", NODES, own) == node
            measure(tmp_path / "history", session, node)
            assert node_in_turn(tmp_path / "history", "s:p", NODES, own) == node
        chosen.append(node)
    assert chosen == ["n1", "n2", "n3", "n1", "n2", "n3", "n1"]


@pytest.mark.parametrize(
    "measured, expected",
    [
        ([("t1", "n1", "p"), ("t2", "n3", "p")], "n2"),
        ([("t1", "n2", "p"), ("t2", "n3", "p"), ("t3", "n1", "p")], "n2"),
        ([("t1", "n1", "other"), ("t2", "gone", "p")], "n1"),
    ],
)
def test_the_node_that_waited_longest(tmp_path, measured, expected):
    for session, node, partition in measured:
        measure(tmp_path / "history", session, node, partition)
    assert node_in_turn(tmp_path / "history", "s:p", NODES, []) == expected
