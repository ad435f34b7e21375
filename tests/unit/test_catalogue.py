"""The catalogue names every rule, the judge and the job ask what it names, and the page says the same."""

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from string import Formatter

import pytest

from iogauge import guards
from iogauge.core.paths import JOB_FILES
from iogauge.evidence import collect
from iogauge.guards import preflight
from iogauge.guards.catalogue import OF_CASE, OF_LAYOUT, OF_METRIC, OF_PHASE
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rows, rule
from iogauge.guards.views import CaseView
from iogauge.job import opening, target
from support import programs, stage
from support.extras import extras
from support.shell import completed

ROOT = Path(__file__).parents[2]
JUDGED = {**OF_CASE, **OF_LAYOUT, **OF_PHASE, **OF_METRIC}


def speaking():
    """The functions of all modules with guards that find something in what was seen of a case."""
    modules = [
        importlib.import_module(f"{guards.__name__}.{module.name}")
        for module in pkgutil.iter_modules(guards.__path__)
    ]
    return {
        name
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if [*inspect.signature(function).parameters] == ["seen"]
    }


def test_every_rule_has_a_row_and_is_asked():
    assert set(JUDGED) <= set(rows())
    assert sorted(speak.__name__ for speak in JUDGED.values()) == sorted(speaking())


def test_a_row_is_words_and_limits():
    """In the order of numbers, with all that docs and `iogauge explain` need; figures are filled in by name."""
    numbers = [int(row.number[1:]) for row in rows().values()]
    assert numbers == sorted(numbers)
    for name, row in rows().items():
        assert row["must"] and row["seen on"] and row.outcome, name
        assert (not row["must"].endswith(".") and row["more"].endswith(".")) or not row[
            "more"
        ], name
        for key, text in row.texts.items():
            known = key in ("must", "more", "otherwise", "limit", "seen on")
            assert known or re.match(
                r"(demand|remedy)(\.[a-z0-9]+)?$|set\.[a-z_.*]+$", key
            ), f"{name}: {key}"
            assert all(
                re.match(r"[a-z_]*$", field or "")
                for _, field, _, _ in Formatter().parse(text)
            )


def test_a_special_case_has_its_own_words():
    usual, lost = rule("G8 witness", tolerance=0.05), rule("G8 witness", "lost")
    assert usual.demands == "the kernel counts what the tool reports, within 5%"
    assert (
        lost.demands == "a witness of the bytes beside the tool"
        and lost.remedy != usual.remedy
    )


def test_findings_bear_the_number_of_their_guard(tmp_path):
    plan = stage.plan()
    evidence = collect.collect(stage.build(tmp_path / "stage"), plan, 0)
    values = {metric.name: (1.0, 1.0) for metric in stage.METRICS}
    case = CaseView(plan, evidence, extras(), "quick", stage.METRICS, values)
    asked = [(OF_CASE, case), *((OF_PHASE, phase) for phase in case.phases)]
    asked += [(OF_METRIC, (case, name)) for name in values]
    said = [
        (name, speak(seen)) for guards, seen in asked for name, speak in guards.items()
    ]
    each = [
        (name, [one] if isinstance(one, Finding) else one or ()) for name, one in said
    ]
    spoken = [(name, finding.name) for name, findings in each for finding in findings]
    assert len(spoken) > 25
    assert all(name == said for name, said in spoken)


@pytest.mark.parametrize("name", sorted(rows().keys() - JUDGED.keys()))
def test_the_job_asks_the_rules_that_the_judge_does_not(name):
    (function,) = (
        function
        for _, function in inspect.getmembers(preflight, inspect.isfunction)
        if f'"{name}"' in inspect.getsource(function)
    )
    assert function in [getattr(m, function.__name__, None) for m in (opening, target)]


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


def test_a_rule_that_refuses_was_seen_on_the_real_thing():
    """What rests on a recorded or an imagined form alone gives a remark."""
    for row in rows().values():
        if row["seen on"] in ("recorded", "none"):
            assert row["otherwise"] == "remark", row.name
