"""The catalogue names every rule, the judge and the job ask what it names, and the page says the same."""

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

from iogauge.core.paths import JOB_FILES
from iogauge.evidence import collect
from iogauge.guards.catalogue import OF_CASE, OF_LAYOUT, OF_METRIC, OF_PHASE, guards
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.views import CaseView
from iogauge.job import opening, target
from support import programs, stage
from support.extras import extras
from support.shell import completed

ROOT = Path(__file__).parents[2]
JUDGED = (*OF_CASE, *OF_LAYOUT, *OF_PHASE, *OF_METRIC)


def source_of(module):
    return inspect.getsource(importlib.import_module(module))


def test_every_guard_is_asked():
    """Its words stand in the module of a function that the judge or the job asks, and a function there uses them."""
    asked = {function.__name__ for function in JUDGED}
    asked |= set(vars(opening)) | set(vars(target))
    for guard in guards().values():
        modules = [
            module
            for module in {function.__module__ for function in JUDGED}
            if f'"{guard.name}"' in source_of(module)
        ]
        (module,) = modules
        tree = ast.parse(source_of(module))
        (constant,) = (
            node.target.id
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            if isinstance(node.value, ast.Call)
            if [guard.name] == [getattr(a, "value", "") for a in node.value.args[:1]]
        )
        users = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            if any(isinstance(n, ast.Name) and n.id == constant for n in ast.walk(node))
        }
        assert users, guard.name
        called = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            if any(isinstance(n, ast.Name) and n.id in users for n in ast.walk(node))
        }
        assert (users | called) & asked, guard.name


def test_a_guard_names_its_threat_and_a_situation():
    for name, guard in guards().items():
        assert re.match(r"[ab]: \S", guard.against), name
        assert guard.must and guard.remedy and not guard.must.endswith("."), name
        assert not guard.more or guard.more.endswith("."), name


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
    asked += [(OF_METRIC, (case, name)) for name in values]
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
    ("command", "needs"),
    [
        (["open", "/nonexistent"], "iogauge.guards.preflight"),
        (["facts", "/nonexistent", "facts"], "iogauge.node.probes"),
        (["remove", "/nonexistent", "0"], "iogauge.workspace.directory"),
        (["turns", "/nonexistent", "1", "/nonexistent"], "iogauge.tools.fio.output"),
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
