"""Two sets of records side by side: which belong together, their ratio and how sure it is."""

import json

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge_extras.compare import sides, window
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


def compared(folder, a, b, **more):
    return sides.contrast(sides.read(folder, a, **more), sides.read(folder, b, **more))


@pytest.fixture
def upgraded(tmp_path):
    """Four runs before an upgrade and four after it, 20 % slower."""
    for day in range(1, 9):
        value = (100.0 if day < 5 else 80.0) + day % 3
        kernel = {"kernel": "5.14" if day < 5 else "5.15"}
        measure(tmp_path, f"2027010{day}T120000-n1-1", value, fingerprint=kernel)
    return tmp_path


BEFORE, AFTER = "until=2027-01-04", "since=2027-01-05"


def ratio(mark, runs, value=1.0):
    """A ratio as a window shows it."""
    fixed = dict.fromkeys(("low", "high", "per_tib", "per_server"))
    return sides.Ratio(
        case="Ior",
        metric=f"{mark}_bw",
        unit="MiB/s",
        a=1.0,
        b=value,
        runs=runs,
        ratio=value,
        over="",
        mark=mark,
        **fixed,
    )


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ([("worse", (3, 3)), ("alike", (3, 3))], "of 2 metrics: 1 worse, 1 alike"),
        (
            [("differs", (2, 2), 0.165), ("alike", (2, 2))],
            "of 2 metrics: 1 alike, 1 not decided. 2 run(s) of a side decide nothing, 3 are needed: window start "
            "--runs 3. The largest difference: Ior differs_bw x 0.165",
        ),
    ],
)
def test_a_window_that_cannot_decide_says_so(ratios, text):
    assert window.effect([ratio(*values) for values in ratios]) == text


def test_per_server_and_per_tib(tmp_path):
    measure(tmp_path, "20270101T1-n-1", 100.0, fingerprint={"lustre.servers": 4})
    measure(tmp_path, "20270102T1-n-1", 180.0, fingerprint={"lustre.servers": 8})
    (ratio,) = compared(tmp_path, "day=2027-01-01", "day=2027-01-02", tib=3.0).ratios
    assert ratio.per_server == pytest.approx(0.9) and ratio.per_tib == pytest.approx(
        1.8
    )


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
    ],
)
def test_what_cannot_be_compared_is_said(upgraded, a, said):
    with pytest.raises(CompareError, match=said):
        compared(upgraded, a, AFTER)


@pytest.fixture
def sessions(tmp_path):
    """One session of three records, one of a single record."""
    folder = tmp_path / "history" / "here"
    for session, case, check, name in (
        ("s1", "IorPosix %files=shared", "IorPosix", "12345678"),
        ("s1", "IorPosix %files=per-process", "IorPosix", "87654321"),
        ("s1", "Fio", "Fio", "aaaa"),
        ("s2", "IorPosix %files=shared", "IorPosix", "12345678"),
    ):
        values = records.values(
            session=session, case=case, check=check, hash=name, metrics=[metric()]
        )
        append(folder / f"{session}.jsonl", values)
    return tmp_path / "history"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("s1:12345678", ["IorPosix shared"]),
        ("s1:IorPosix %files=shared", ["IorPosix shared"]),
        ("s1:IorPosix", ["IorPosix shared", "IorPosix per-process"]),
        ("s2", ["IorPosix shared"]),
        ("{home}/here/s2.jsonl", ["IorPosix shared"]),
        ("{home}/here/s1.jsonl:aaaa", ["Fio"]),
    ],
)
def test_records_are_found_by_session_file_and_case(sessions, text, names):
    side = sides.read(sessions, text.format(home=sessions))
    assert [record.short_name for record in side.records] == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1:bbbb", "no record in .*there are:(?s:.*)  aaaa  Fio"),
        ("s1:Other", "there are:"),
        ("s3", "s3: no record in .*system=NAME"),
        ("{home}/none.jsonl", "none.jsonl: No such file or directory"),
    ],
)
def test_a_record_that_is_not_found_is_named(sessions, text, message):
    with pytest.raises(CompareError, match=message):
        sides.read(sessions, text.format(home=sessions))


def test_values_that_are_not_valid_do_not_count(tmp_path):
    measure(tmp_path, "20270101T1-n-1", 100.0)
    measure(tmp_path, "20270102T1-n-1", 500.0, metric={"verdict": "INVALID"})
    with pytest.raises(
        CompareError,
        match=r"no valid metric .* in common .*day=2027-01-02: \w+ is INVALID",
    ):
        compared(tmp_path, "day=2027-01-01", "day=2027-01-02")


def test_the_command_prints_and_writes_both(upgraded, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "history").symlink_to(upgraded)
    monkeypatch.setenv("IOGAUGE_HOME", str(home))
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app.app, ["compare", BEFORE, AFTER, "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "worse" in done.output and "kernel: 5.14 -> 5.15" in done.output
    text = page.read_text()
    assert "worse in 1" in text and "<svg" in text and "<script" not in text
    done = CliRunner().invoke(
        app.app, ["compare", BEFORE, AFTER, "--json", "--servers", "1,2"]
    )
    assert json.loads(done.output)["ratios"][0]["per_server"] < 0.5
    done = CliRunner().invoke(app.app, ["compare", BEFORE, AFTER, "--servers", "4"])
    assert done.exit_code == 2
