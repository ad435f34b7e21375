"""A year of nights: what an alarm says on which day, what a plugin of Nagios says, and the sheets made from such nights."""

import os
from datetime import datetime, timedelta, timezone

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.cli.reporting import Asked
from iogauge.records import journal, query
from iogauge.report.endings import SessionRecords
from iogauge.site.extras import Criterion
from iogauge_extras.page import nagios, news, notices, page, sheets
from iogauge_extras.page.notices import Notice, Notices, stamp
from support.records import FIRST as BEGIN
from support.records import night


def keep(folder, record):
    file = folder / "history" / "site" / f"{record.session}.jsonl"
    journal.append(file, record.to_line())


def acknowledged(trouble, day, until):
    return Notice(
        what="acknowledged",
        time=stamp(BEGIN + timedelta(days=day)),
        incidents=trouble.incidents,
        by="ada",
        until=stamp(BEGIN + timedelta(days=until)),
        reason="disk ordered",
    )


def test_a_year_in_fast_motion(tmp_path, monkeypatch):
    """Scratch fails from 100 to 112, acknowledged from 101 to 105; home from 199 to 209, in a silence from 198 to 202."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    told = {}
    window = Notice(
        what="silent",
        time=stamp(BEGIN),
        begin=stamp(BEGIN + timedelta(days=198)),
        until=stamp(BEGIN + timedelta(days=202, hours=12)),
        by="ada",
        reason="upgrade",
    )
    notices.append(window)
    bad = {"scratch": range(100, 113), "home": range(199, 210)}
    for day in range(365):
        now = BEGIN + timedelta(days=day, hours=6)
        found = []
        for partition, days in bad.items():
            one = night(day, partition=partition)
            if day in days:
                one = night(day, 60.0, "FAIL", partition=partition)
            keep(tmp_path, one)
            found.append(one)
        # Each day around what happens, and one of ten others.
        if not (98 < day < 122 or 196 < day < 222 or day % 10 == 0):
            continue
        mine = SessionRecords(found)
        known = Notices.read(now)
        alarm = news.collect(
            tmp_path / "history", Asked(mine), gate=True, notices=known
        )
        said = news.news_of(alarm, mine, known)
        if known.silence is None and (said.troubles or said.over):
            told[day] = [trouble.headline for trouble in said.troubles]
            told[day] += [f"over: {incident}" for incident in said.over]
            for notice in news.sent_notices(said, now):
                notices.append(notice)
        if day == 101:
            notices.append(acknowledged(alarm.troubles[0], 101, 105))
        if day == 102:
            assert "by ada until 2027-04-16" in alarm.text and not alarm.failed
    scratch = "FAIL site:scratch IorPosix shared write_bw: 60.00 MiB/s ±1.0%, 40.0% below its reference"
    home = scratch.replace("scratch", "home")
    assert told == {
        100: [f"{scratch} since 2027-04-11"],
        105: [f"{scratch} since 2027-04-11"],
        113: ["over: loss site:scratch IorPosix shared write_bw"],
        203: [f"{home} since 2027-07-19"],
        210: ["over: loss site:home IorPosix shared write_bw"],
    }
    shown = blocks_of(summary_of(tmp_path))
    assert shown["Targets"] == [
        ("site:home", "365 of 365", "97%", "2027-07: 65% of 31"),
        ("site:scratch", "365 of 365", "96%", "2027-04: 57% of 30"),
    ]
    assert shown["Incidents"] == [
        ("site:home", "2027-07-18", "2027-07-29", "11", "IorPosix shared FAIL"),
        ("site:scratch", "2027-04-10", "2027-04-23", "13", "IorPosix shared FAIL"),
    ]
    assert "Incidents" in page.sheet(summary_of(tmp_path))


def blocks_of(sheet):
    return {title: rows for part in sheet.parts for title, rows in part.blocks.items()}


def summary_of(folder):
    return sheets.summary(folder / "history", query.Choice())


@pytest.fixture
def today(tmp_path, monkeypatch):
    """A history whose newest night, an hour ago, is red."""
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    time = stamp(datetime.now(timezone.utc) - timedelta(hours=1))
    keep(tmp_path, night(1, value=60.0, verdict="FAIL", time=time))
    return tmp_path


def called(*words):
    done = CliRunner().invoke(app.app, words)
    return done.exit_code, done.output


def test_the_commands_acknowledge_silence_and_speak_as_a_plugin(today):
    case = "IorPosix shared"
    status, line = called("alarm", "--nagios")
    assert status == 2
    assert line.startswith(
        "IOGAUGE CRITICAL - FAIL site:scratch IorPosix shared write_bw"
    )
    assert " | pass=0;;;0 " in line and "fail=1;;;0" in line and line.count("\n") == 1
    assert called("alarm")[0] == 1
    status, text = called("alarm", "--acknowledge", "nothing", "--until", "2099-01-01")
    assert status == 2
    words = ["--by", "ada", "--until", "2099-01-01", "--reason", "disk ordered"]
    status, text = called("alarm", "--acknowledge", "nothing", *words)
    assert status == 2 and "site:scratch IorPosix shared" in text
    assert called("alarm", "--acknowledge", case, *words)[0] == 0
    assert called("alarm", "--send")[0] == 0
    assert called("alarm", "--nagios")[0] == 1
    for words in (["status"], ["status", "--brief"]):
        assert "acknowledged by ada until 2099-01-01" in called(*words)[1]
    known = "acknowledged by ada until 2099-01-01 23:59 UTC: disk ordered"
    assert known.partition(" ")[2] in called("alarm")[1]
    file = today / "page.html"
    called("report", "--html", str(file))
    assert known.partition(" ")[2] in file.read_text()
    span = ["--silence", "2020-01-01", "2099-01-01"]
    assert called("alarm", *span)[0] == 2  # without a reason
    assert called("alarm", *span, "--reason", "upgrade")[0] == 0
    assert "nothing is sent: silent by " in " ".join(called("alarm")[1].split())


@pytest.mark.parametrize(
    ("verdict", "hours", "status"),
    [("PASS", 1, 0), ("UNREFERENCED", 1, 3), ("UNSTABLE", 1, 3), ("PASS", 49, 3)],
)
def test_a_plugin_is_ok_only_on_what_is_new_and_proven(
    tmp_path, verdict, hours, status
):
    now = BEGIN + timedelta(hours=hours)
    found = SessionRecords([night(0, verdict=verdict)])
    alarm = news.collect(tmp_path, Asked(found), gate=False)
    assert nagios.plugin(alarm, found, now)[0] == status
    assert nagios.plugin(alarm, SessionRecords(), now)[0] == 3


def test_a_plugin_without_a_history_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    status, output = called("alarm", "--nagios")
    assert status == 3 and "IOGAUGE UNKNOWN - no session" in output


def test_a_damaged_line_is_told_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    notices.notices_file().write_text('{"what": "sent", "time"\n')
    assert Notices.read(BEGIN).sent == {}


# Acceptance.


def criterion(**more):
    plain = {"case": "IorPosix shared", "metric": "write_bw", "source": "contract 3.1"}
    return Criterion.model_validate(plain | more)


def accepted(criteria, values):
    found = []
    for day, value in enumerate(values):
        verdict = "PASS" if value >= 90 else "FAIL"
        found.append(night(day, value=value, verdict=verdict))
    found.append(night(9, value=1.0, verdict="UNSTABLE"))
    return sheets.acceptance("site", {"scratch": criteria}, found, [])


def test_an_acceptance_has_each_criterion_with_its_evidence():
    """A run that is not valid proves nothing, and is counted; all valid ones must meet the reference."""
    sheet = accepted([criterion()], [100.0, 101.0, 80.0])
    assert sheet.conclusion == "Not accepted: criteria not met: 1 of 1."
    (row,) = blocks_of(sheet)["Criteria"]
    assert row[1:4] == (
        "3 runs, reference 100.0 MiB/s",
        "3 runs: 80.00 to 101.0, median 100.0 MiB/s",
        "3 valid of 4 runs: s000-scratch, s001-scratch, s002-scratch and 1 more",
    )
    assert row[5] == "not met"
    assert page.sheet(sheet).count("name, date, signature") == 2
    assert accepted([criterion()], [100.0] * 3).conclusion.startswith("Accepted")


@pytest.mark.parametrize(
    ("criteria", "values"),
    [
        ([criterion()], [100.0, 100.0]),
        ([criterion(case="other")], [100.0] * 3),
        ([], []),
    ],
)
def test_an_acceptance_refuses_what_was_not_measured(criteria, values):
    with pytest.raises(ValueError, match="no acceptance report"):
        accepted(criteria, values)
