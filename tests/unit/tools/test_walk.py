"""A cold walk: what a node does, for real, and its reports."""

import json

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge_extras.loads import walking
from iogauge_extras.loads.walk_check import parse

FILES = 45


@pytest.fixture
def walk(tmp_path, monkeypatch, capsys):
    """Do a phase of two tasks, and return what they print."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def phase(name, tree="tree.1"):
        for rank in range(2):
            monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
            assert walking.command([name, str(tmp_path), tree, str(FILES), "2"]) == 0
        return capsys.readouterr().out

    return phase


def test_all_phases_handle_each_file_of_the_other_task(walk, tmp_path):
    assert walk("pack", "pack") == ""
    kinds = {
        "unpack": ("create", 3),
        "list": ("stat", 1),
        "list-changed": ("stat", 1),
        "import": ("read", 1),
        "clone": ("create", 1),
        "remove": ("remove", 4),
    }
    data = walking.bytes_of(FILES)
    for name, (kind, times) in kinds.items():
        text = walk(name)
        output = parse(text.replace("\n", ""), times * FILES, data)
        (phase,) = output.phases
        assert (phase.name, phase.operations, output.tasks) == (
            kind,
            2 * times * FILES,
            2,
        )
        assert phase.rates["rate"].value == pytest.approx(
            phase.operations / phase.seconds
        )
        assert phase.bytes_moved == (2 * data if name == "import" else None)
        assert output.parameters == ({} if name == "unpack" else {"shift": 1})
        if name == "unpack":
            found = [f for f in (tmp_path / "tree.1/0/list").rglob("*") if f.is_file()]
            assert (len(found), sum(f.stat().st_size for f in found)) == (FILES, data)
    assert [f.name for f in sorted(tmp_path.rglob("*.tar"))] == ["0.tar", "1.tar"]
    assert not list((tmp_path / "tree.1").iterdir())


def test_what_a_program_leaves_out_is_no_report(walk, tmp_path, capsys):
    walk("pack", "pack")
    walk("unpack")
    (tmp_path / "tree.1/0/import/stack/p0/m3.py").unlink()
    with pytest.raises(OSError, match="exit status 1: ModuleNotFoundError"):
        walk("import")
    capsys.readouterr()
    (tmp_path / "tree.1/1/list/stack/m3.py").unlink()
    with pytest.raises(ToolOutputError, match="handled 44 files, expected 45"):
        parse(walk("list"), FILES, 0)


def test_reports_that_do_not_fit_are_refused(walk):
    walk("pack", "pack")
    text = walk("unpack")
    reports = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for change, reason in (
        ({"rank": 1}, "reports of 2 task"),
        ({"rank": "x"}, "damaged: rank is 'x'"),
        ({"words": ["walk"]}, "different words"),
        ({"words": 7}, "damaged: words is 7"),
        ({"seconds": 0}, "took 0 s"),
        ({"files": 1}, "handled 1 files"),
    ):
        damaged = json.dumps(reports[0] | change) + json.dumps(reports[1])
        with pytest.raises(ToolOutputError, match=reason):
            parse(damaged, 3 * FILES, 0)
    with pytest.raises(ToolOutputError, match="reports of 1 task"):
        parse(json.dumps(reports[0]), 3 * FILES, 0)
    with pytest.raises(ToolOutputError, match="no report"):
        parse("walk unpack", 3 * FILES, 0)
    with pytest.raises(ToolOutputError, match="is damaged"):
        parse(text[:-30], 3 * FILES, 0)


def test_a_launcher_that_tells_no_number_is_named(monkeypatch):
    for name in walking._RANKS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"none of OMPI_COMM_WORLD_RANK.* is set"):
        walking.command(["list", "/tmp", "tree", "1", "2"])


def test_the_sizes_are_those_of_the_distribution():
    sizes = [walking.size_of(number) for number in range(1000)]
    assert {size: sizes.count(size) for size in sizes} == {
        s: 10 * n for n, s in walking.SIZES
    }
