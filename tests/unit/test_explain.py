"""``iogauge explain`` and ``iogauge status``: what they say, and that no text is kept twice."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.cli.results import explain
from iogauge.core.paths import project_root
from iogauge.report.layout import LOOKS
from iogauge.site.references import known_checks
from support import records
from support.records import append
from support.shell import completed


def said(word):
    return "\n".join(explain(word))


def run(*words, width=80):
    done = CliRunner().invoke(app.app, list(words), env={"COLUMNS": str(width)})
    return done.exit_code, done.output


@pytest.mark.parametrize(
    "script, status, told",
    [
        ("exec {} explain G1 >&- 2>&-", 0, ""),
        (
            "mkdir gone && cd gone && rmdir ../gone && exec {} explain G1",
            2,
            "cd to another one",
        ),
    ],
)
def test_a_caller_may_have_closed_its_output_or_lost_its_directory(
    tmp_path, script, status, told
):
    program = Path(sys.executable).with_name("iogauge")
    words = ["sh", "-c", script.format(program)]
    done = completed(words, cwd=tmp_path)
    assert done.returncode == status and told in done.stderr


def test_a_guard_says_its_formula_its_limit_and_what_to_do():
    text = said("G17")
    assert "oefficient of variation (n - 1) over the repetitions" in text
    assert "The site sets it by `limits.max_spread` 10 %." in text
    assert "What to do: Others may use the target: repeat at a quiet time" in text


@pytest.mark.parametrize("check", known_checks(project_root() / "checks"))
def test_every_check_is_explained(check):
    text = said(f"{check} %with=parameters")
    assert text.startswith(f"{check}\n") and text.endswith("See docs/checks.md.")


def test_a_word_of_the_glossary():
    assert "A case has a verdict and a record." in said("Case")


def test_an_unknown_word_is_answered_with_what_was_meant():
    status, text = run("explain", "FioRandomRed")
    assert status == 2 and "did you mean FioRandomRead?" in text


# --- status ---------------------------------------------------------------------------------------


def history(home, verdicts):
    """A record a day of a case; ``verdicts`` are the marks."""
    known = {look.letter: verdict.value for verdict, look in LOOKS.items()}
    for day, mark in enumerate(verdicts, 1):
        session = f"202701{day:02}T120000-n1-1"
        when = {"session": session, "time": f"2027-01-{day:02}T12:00:00Z"}
        values = records.values(known[mark], case="Ior %a=b", **when)
        append(home / "history" / "mysite" / f"{session}.jsonl", values)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def test_the_why_is_of_the_verdict_and_a_path_stays_whole(home):
    path = "/" + "long/" * 30
    odd = records.metric("stat_rate", "INVALID", reason=f"see {path}", reference=None)
    fine = records.metric(verdict="UNREFERENCED", reason="valid", reference=None)
    when = {"session": "s1", "time": "2027-01-01T12:00:00Z"}
    values = records.values("INVALID", metrics=[fine, odd], **when)
    append(home / "history" / "mysite" / "s1.jsonl", values)
    assert f"[1] see\n    {path}\n" in run("status", "--since", "2027-01-01")[1]
    brief = run("status", "--brief", "--since", "2027-01-01")[1].splitlines()
    assert len(brief) <= 10 and "INVALID mysite:lustre IorPosix shared" in brief[0]


def test_cases_that_are_no_longer_measured_are_left_out(home):
    history(home, "F")
    assert (
        "no case was measured since 2027-02-01"
        in run("status", "--since", "2027-02-01")[1]
    )
    assert run("status", "--since", "yesterday")[0] == 2
    assert run("status", "--system", "other")[0] == 2


def test_several_subjects_are_all_explained():
    parts = [said("G12"), said("UNSTABLE"), said("FioRandomRead")]
    assert said("G12 UNSTABLE FioRandomRead 4KiB") == "\n".join(parts)
