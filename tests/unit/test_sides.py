"""Two sets of records side by side: which belong together, their ratio and how sure it is."""

import json

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge_extras.compare import sides
from iogauge_extras.compare.logs import CompareError
from support import records
from support.records import append, metric


def measure(folder, session, value, **more):
    """Append a record; its samples differ by 1 %."""
    measured = metric(median=value, samples=[value * s for s in (0.99, 1.0, 1.01)])
    measured |= more.pop("metric", {})
    day = session[:8]
    values = records.values(
        session=session,
        time=f"{day[:4]}-{day[4:6]}-{day[6:]}T12:00:00Z",
        metrics=[measured],
        price=None,
        **more,
    )
    append(folder / "mysite" / f"{session}.jsonl", values)


def compared(folder, a, b):
    return sides.contrast(sides.read(folder, a), sides.read(folder, b))


@pytest.fixture
def upgraded(tmp_path):
    """Four runs before an upgrade and four after it, 20 % slower."""
    for day in range(1, 9):
        value = (100.0 if day < 5 else 80.0) + day % 3
        kernel = {"kernel": "5.14" if day < 5 else "5.15"}
        measure(tmp_path, f"2027010{day}T120000-n1-1", value, fingerprint=kernel)
    return tmp_path


BEFORE, AFTER = "until=2027-01-04", "since=2027-01-05"


def test_places_are_not_mixed(tmp_path):
    for partition in ("home", "scratch"):
        measure(tmp_path, "20270101T1-n-1", 100.0, partition=partition)
    measure(tmp_path, "20270102T1-n-1", 100.0, partition="scratch")
    with pytest.raises(
        CompareError, match=r"mysite:home .* choose one of them, for example day="
    ):
        compared(tmp_path, "day=2027-01-01", "day=2027-01-02")
    # If both sides have the same places, each is compared with itself.
    assert len(compared(tmp_path, "day=2027-01-01", "day=2027-01-01").ratios) == 2


@pytest.mark.parametrize(
    ("a", "said"),
    [
        ("sytem=x", "expected key=value, with a key of session, system"),
        ("system=nowhere", "no record in .* fits"),
        ("since=tomorrow", "is no time"),
        ("check=Other", "no record"),
        ("s3", "s3: no record in .*system=NAME"),
        ("case=Oter", "fits no recorded case"),
    ],
)
def test_what_cannot_be_compared_is_said(upgraded, a, said):
    with pytest.raises(CompareError, match=said):
        compared(upgraded, a, AFTER)


def test_a_case_is_chosen_by_the_name_of_the_tables(tmp_path):
    for number, files in enumerate(("shared", "per-process")):
        case = f"IorPosix %files={files}"
        session = f"2027010{number + 1}T1-n-1"
        measure(tmp_path, session, 100.0, case=case, parameters={"files": files})
    side = sides.read(tmp_path, "case=IorPosix shared,system=mysite")
    assert [record.case for record in side.records] == ["IorPosix %files=shared"]
    (ratio,) = sides.contrast(side, side).ratios
    assert ratio.case == "IorPosix shared"


def test_sides_that_hardly_vary_are_alike_unless_half_a_percent_lies_between_them(
    tmp_path,
):
    for day, value in enumerate((1000.0, 1000.0, 1000.1, 999.9, 999.9, 999.9), start=1):
        measure(tmp_path, f"2027010{day}T120000-n1-1", value)
    for day in (7, 8, 9):
        measure(tmp_path, f"2027010{day}T120000-n1-1", 990.0)
    (rounded,) = compared(
        tmp_path, "until=2027-01-03", "since=2027-01-04,until=2027-01-06"
    ).ratios
    (slower,) = compared(tmp_path, "until=2027-01-03", "since=2027-01-07").ratios
    assert (rounded.mark, slower.mark) == ("alike", "worse")
    assert rounded.high < 1


def test_two_runs_of_a_side_decide_nothing(upgraded):
    found = compared(upgraded, "until=2027-01-02", AFTER)
    (ratio,) = found.ratios
    assert (ratio.runs, ratio.mark, ratio.low, ratio.high) == ((2, 4), "?", None, None)
    assert any("measure 3 runs of each side" in note for note in found.notes)


def test_values_that_are_not_valid_do_not_count(tmp_path):
    measure(tmp_path, "20270101T1-n-1", 100.0)
    measure(tmp_path, "20270102T1-n-1", 500.0, metric={"verdict": "INVALID"})
    with pytest.raises(
        CompareError,
        match=r"no valid metric .* in common .*day=2027-01-02: \w+ is INVALID",
    ):
        compared(tmp_path, "day=2027-01-01", "day=2027-01-02")


def test_the_command_prints_a_table_and_json(upgraded, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "history").symlink_to(upgraded)
    monkeypatch.setenv("IOGAUGE_HOME", str(home))
    done = CliRunner().invoke(app.app, ["compare", BEFORE, AFTER])
    assert done.exit_code == 0, done.output
    assert "worse" in done.output and "kernel: 5.14 -> 5.15" in done.output
    done = CliRunner().invoke(app.app, ["compare", BEFORE, AFTER, "--json"])
    (ratio,) = json.loads(done.output)["ratios"]
    assert (ratio["runs"], ratio["mark"]) == ([4, 4], "worse")
