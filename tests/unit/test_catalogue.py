"""The catalogue names every rule, the judge and the job ask what it names, and the page says the same."""

import re
import sys

import pytest

from iogauge.core.paths import JOB_FILES
from iogauge.evidence import collect
from iogauge.guards.catalogue import OF_CASE, OF_PHASE, guards
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.views import CaseView
from support import programs, stage
from support.extras import extras
from support.project import ROOT
from support.shell import completed


def test_a_guard_that_refuses_was_seen_on_the_real_thing():
    """What rests on a recorded or an imagined form alone gives a remark."""
    for name, guard in guards().items():
        assert guard.seen_on or guard.otherwise is Outcome.WARN, name


def test_findings_bear_the_number_of_their_guard(tmp_path):
    plan = stage.plan()
    evidence = collect.collect(stage.build(tmp_path / "stage"), plan, 0)
    values = {metric.name: (1.0, 1.0) for metric in stage.METRICS}
    case = CaseView(plan, evidence, extras(), "quick", stage.METRICS, values)
    asked = [(OF_CASE, case), *((OF_PHASE, phase) for phase in case.phases)]
    names = [
        finding.name
        for functions, view in asked
        for function in functions
        for finding in found(function(view))
    ]
    assert len(names) > 25
    assert set(names) <= set(guards())


def found(answer):
    return [answer] if isinstance(answer, Finding) else list(answer or ())


def test_the_pages_say_what_the_code_says():
    docs = programs.load("docs", ROOT / "ci")
    for page, name, make in docs.PARTS:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert docs.filled(text, name, make()) == text, (
            f"{page} is out of date: make docs"
        )


def test_a_page_without_its_part_is_refused():
    with pytest.raises(ValueError, match="0 parts 'guards' between comments"):
        programs.load("docs", ROOT / "ci").filled("# Guards\n", "guards", "")


@pytest.mark.parametrize(
    "command, needs",
    [
        (["open", "/nonexistent"], "iogauge.guards.preflight"),
        (["facts", "/nonexistent", "facts"], "iogauge.node.inventory"),
        (["remove", "/nonexistent", "0"], "iogauge.workspace.directory"),
        (
            ["turns", "/nonexistent", "1", "/nonexistent"],
            "iogauge.tools.fio.fio_output",
        ),
    ],
    ids=["open", "facts", "remove", "turns"],
)
def test_an_agent_loads_nothing_that_judges(command, needs, tmp_path):
    done = completed(
        [sys.executable, "-X", "importtime", str(JOB_FILES / "start.py"), *command],
        cwd=tmp_path,
    )
    loaded = {
        line.rpartition("|")[2].strip()
        for line in done.stderr.splitlines()
        if "|" in line
    }
    assert needs in loaded, done.stderr
    heavy = (
        r"(pydantic|polars|reframe|rich|typer|iogauge\.(judge|evidence|site|records|session|check))"
        r"(\.|$)"
    )
    assert not sorted(name for name in loaded if re.match(heavy, name))
