"""``iogauge explain`` and ``iogauge status``: what they say, and that no text is kept twice."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iogauge.cli import app
from iogauge.cli.results import explain
from iogauge.core.paths import project_root
from iogauge.guards.catalogue import guards
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.report.endings import Word
from iogauge.report.layout import LOOKS
from iogauge.site.references import known_checks
from iogauge_extras.history.states import State
from support import records
from support.records import append


def said(word):
    return "\n".join(explain(word))


def run(*words, width=80):
    done = CliRunner().invoke(app.app, list(words), env={"COLUMNS": str(width)})
    return done.exit_code, done.output


def test_the_version_and_the_list_of_commands_in_whole_sentences():
    status, text = run("--version")
    assert status == 0 and re.match(
        r"iogauge \d\S* (commit \S+ )?\(ReFrame-HPC 4\.", text
    )
    status, text = run("--help")
    assert status == 0 and "╭" not in text
    commands = text.partition("Commands:\n")[2].splitlines()
    assert (
        len(commands) == len(app.app.registered_commands) + 1
    )  # and the group ``site``
    assert [
        line for line in commands if not line.endswith(".") or line.endswith("...")
    ] == []


@pytest.mark.parametrize(
    ("script", "status", "told"),
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
    done = subprocess.run(
        words, cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert done.returncode == status and told in done.stderr


@pytest.mark.parametrize("name", guards())
def test_a_guard_says_in_sixty_words_what_must_hold_and_what_follows(name):
    text, guard = said(name), guards()[name]
    assert text.startswith(f"{name}\n")
    assert f"If it does not hold: {guard.follows}." in text
    assert len(text.split()) <= 60
    assert name in said(name.partition(" ")[0].lower())
    whole = "\n".join(explain(name, whole=True))
    assert guard.more in whole and guard.against.partition(": ")[2] in whole


def test_a_guard_says_its_formula_its_limit_and_what_to_do():
    text = said("G17")
    assert "oefficient of variation (n - 1) over the repetitions" in text
    assert "The site sets it by `limits.max_spread` 10 %." in text
    assert "What to do: Others may use the target: repeat at a quiet time" in text
    code, text = run("explain", "G1", "--all")
    assert code == 0 and "What to do: Use two nodes or more" in text


@pytest.mark.parametrize("check", known_checks(project_root() / "checks"))
def test_every_check_is_explained(check):
    text = said(f"{check} %with=parameters")
    assert text.startswith(f"{check}\n  ")
    assert "  It measures " in text and "See docs/" in text


def test_a_word_of_the_glossary():
    text = (project_root() / "docs" / "keys.md").read_text()
    terms = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
    assert len(terms) > 20 and terms == sorted(terms, key=str.casefold)
    for term in terms:
        head, meaning, _ = explain(term)
        assert head == term and meaning.strip().endswith(".")
    assert "A case has a verdict and a record." in said("Case")


def _texts(node, known):
    """Whole texts of an expression, and of the plain names and tuples in it."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for value in known.pop(node.id, []) if isinstance(node, ast.Name) else ():
        if isinstance(value, ast.Constant | ast.Tuple):
            yield from _texts(value, known)
    for one in ast.iter_child_nodes(node):
        yield from _texts(one, known)


def printed():
    """Headings of all tables, names of all metrics, and the words of all enumerations that are printed."""
    found = {word.value for kind in (Verdict, Word, State, Outcome) for word in kind}
    for file in (project_root() / "reframe" / "src").rglob("*.py"):
        tree = ast.parse(file.read_text())
        given = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                for target in (
                    node.targets if isinstance(node, ast.Assign) else [node.target]
                ):
                    given.setdefault(ast.unparse(target), []).append(node.value)
        for node in ast.walk(tree):
            called = getattr(node, "func", None)
            if isinstance(called, ast.Name) and called.id in (
                "columns",
                "Column",
                "Metric",
            ):
                for argument in node.args[: 1 if called.id == "Metric" else None]:
                    found |= {*_texts(argument, dict(given))}
    return found - {"", "_"}


def test_every_word_that_tables_print_is_explained():
    words = printed()
    assert {
        "changed just before",
        "read_bw",
        "B / A",
        "node-minutes",
        "too few runs",
    } <= words
    unknown = set()
    for word in words:
        try:
            explain(word)
        except ValueError:
            unknown.add(word)
    assert unknown == set()


def test_an_unknown_word_is_answered_with_what_was_meant():
    with pytest.raises(ValueError, match=r"Did you mean UNSTABLE"):
        explain("unstabel")
    assert run("explain", "FioRandomRed")[0] == 2
    assert "Did you mean FioRandomRead" in run("explain", "FioRandomRed")[1]


def test_it_fits_the_screen():
    code, text = run("explain", "G22")
    assert code == 0 and max(map(len, text.splitlines())) <= 80


# --- status ---------------------------------------------------------------------------------------


def history(home, verdicts, case="Ior %a=b", start=1, **change):
    """A record a day of a case; ``verdicts`` are the marks."""
    known = {look.letter: verdict.value for verdict, look in LOOKS.items()}
    for day, mark in enumerate(verdicts, start):
        session = f"202701{day:02}T120000-n1-1"
        metric = records.metric(verdict=known[mark], reason=f"its reason {day}")
        record = json.loads(json.dumps(records.RECORD)) | {
            **{"session": session, "time": f"2027-01-{day:02}T12:00:00Z", "case": case},
            **{
                "verdict": known[mark],
                "reason": f"its reason {day}",
                "metrics": [metric],
            },
        }
        append(home / "history" / "mysite" / f"{session}.jsonl", record | change)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def test_since_when_a_case_fails(home):
    history(home, "FPFF")
    assert "FAIL for 2 runs: " in run()[1]
    history(home, "P", case="Ior %a=c")
    history(home, "F", case="Ior %a=c", start=2)
    assert "FAIL for 1 run: " in run()[1]


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
