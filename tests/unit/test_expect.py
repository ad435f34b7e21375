"""What a gate should have measured: what its selection had before, and what its names name."""

import re

import pytest

from iogauge.records import selected
from iogauge.records.record import Record
from support import records
from support.records import append

CHOSEN = "--mode=daily"


def values(session, case, **change):
    """JSON of a record of a gate."""
    place = {"system": "s", "partition": "p", "environment": "e"}
    gate = {"selection": CHOSEN}
    return records.values(session=session, case=case, **place | gate | change)


def record(session, case, **change):
    return Record.from_json(values(session, case, **change))


def write(folder, session, *cases, **change):
    for case in cases:
        append(folder / f"{session}.jsonl", values(session, case, **change))


def names(folder, *mine):
    return {
        case: session
        for (*_, case), session in selected.seen_before(
            folder, "s", CHOSEN, mine
        ).items()
    }


def test_every_earlier_gate_of_the_selection_counts(tmp_path):
    write(tmp_path, "t1", "a", "b")
    write(tmp_path, "t2", "a")
    write(tmp_path, "t3", "other", selection="--mode=weekly")
    write(tmp_path, "t4", "no gate", selection=None)
    write(tmp_path, "t5", "now")
    # b was gone already in the run before: it stays missed.
    assert names(tmp_path, "t5") == {"a": "t2", "b": "t1"}


def test_nodes_come_and_go(tmp_path):
    write(tmp_path, "t1", "a %.nid=n1", pinned="n1")
    write(tmp_path, "t1", "a")
    assert set(names(tmp_path)) == {"a"}


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path):
    (tmp_path / "zzz.jsonl").mkdir()
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    assert selected.seen_before(tmp_path, "s", CHOSEN) == {}


def test_only_so_many_sessions_are_looked_at_and_damage_is_passed_over(tmp_path):
    for number in range(40):
        write(tmp_path, f"t{number:02}", f"case {number}")
    (tmp_path / "t99.jsonl").write_text("no record\n")
    assert set(names(tmp_path)) == {f"case {number}" for number in range(10, 40)}
    assert names(tmp_path / "nothing") == {}


def test_what_is_gone_is_named_with_its_place(tmp_path):
    write(tmp_path, "t1", "a", "b")
    before = selected.seen_before(tmp_path, "s", CHOSEN)
    assert selected.gone(before, [record("t2", "a"), record("t2", "b")], "s") == []
    elsewhere = [record("t2", "a"), record("t2", "b", partition="q")]
    assert selected.gone(before, elsewhere, "s") == [
        "b (s:p, e) was recorded in t1, and is gone"
    ]


LISTED = ["IorPosix %files=shared %cache=direct /0a1b2c3d", "MdtestEasy /deadbeef"]


@pytest.mark.parametrize(
    "words, wrong",
    [
        ([], []),
        (
            ["-n", "IorPosix", "-n", "FioSequential"],
            ["FioSequential selects no case that can run here"],
        ),
        (["-n", "MdtstEasy"], ["MdtstEasy selects no case (did you mean MdtestEasy?)"]),
        (["-n", "IorPosix shared direct"], []),
        (["-n", "IorPosix shared"], ["IorPosix shared selects no case"]),
        (["-n", "/deadbeef", "-n", "/0"], ["/0 selects no case"]),
        (
            ["-n", "Burst", "-t", "daily"],
            ["Burst selects no case: it exists, and the other options"],
        ),
        (["-t", "daily", "-T", "^mdtest$", "-x", "Ior", "-x", "%cache=buffered"], []),
    ],
)
def test_each_name_must_fit_a_case(words, wrong):
    listed = [*LISTED, "FioSequential /00000001"]
    found = selected.without_match(
        words, LISTED, listed, ["MdtestEasy", "IorPosix", "Burst"]
    )
    assert len(found) == len(wrong)
    assert all(
        one.startswith(f"-n {text}") for one, text in zip(found, wrong, strict=True)
    )
    assert all(one.endswith(("here", "case", ")", "leave it out")) for one in found)


@pytest.mark.parametrize(
    "given, settled",
    [
        (["-S", "total_bytes=1TiB"], ["-S", "total_bytes=1099511627776"]),
        (
            ["--setvar=IorPosix.transfer_bytes=4MiB"],
            ["--setvar=IorPosix.transfer_bytes=4194304"],
        ),
        (
            ["-S", "total_bytes=5", "-S", "nodes=2"],
            ["-S", "total_bytes=5", "-S", "nodes=2"],
        ),
        (["-S", "tier=daily", "-n", "nodez=3"], ["-S", "tier=daily", "-n", "nodez=3"]),
        (["-S", "num_cpus_per_task=2"], ["-S", "num_cpus_per_task=2"]),
    ],
)
def test_a_variable_may_have_a_unit(given, settled):
    assert selected.with_variables(given) == settled


@pytest.mark.parametrize(
    "setting, said",
    [
        ("nodez=3", "no check has the variable 'nodez' (did you mean nodes?)"),
        ("Steady.repetition=3", "(did you mean repetitions?)"),
        ("tier=weekly", "found 'weekly'; allowed: quick, daily, acceptance"),
        ("total_bytes=1 TiBB", "'1 TiBB' is not a size"),
        ("nodes=two", "found 'two'; allowed: a whole number"),
    ],
)
def test_a_slip_in_a_variable_is_named(setting, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        selected.with_variables(["-S", setting])
