"""The catalogue names every rule, the judge and the job ask what it names, and the page says the same."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iogauge import guards
from iogauge.evidence import collect
from iogauge.guards import catalogue
from iogauge.guards.catalogue import OF_CASE, OF_METRIC, OF_PHASE, OF_TARGET, Entry, Guard
from iogauge.guards.seen import CaseSeen, MetricSeen
from iogauge.job import opening, target
from support import stage
from support.extras import extras

ROOT = Path(__file__).parents[2]
JUDGED = [entry for entry in catalogue.ALL if isinstance(entry, Guard)]


def functions() -> dict[str, Any]:
    """Public functions of all modules with guards."""
    modules = [
        importlib.import_module(f"{guards.__name__}.{module.name}")
        for module in pkgutil.iter_modules(guards.__path__)
    ]
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def test_every_rule_is_in_the_catalogue_once() -> None:
    listed = [entry.rule.__name__ for entry in catalogue.ALL]
    listed += [guard.speak.__name__ for guard in JUDGED]
    assert sorted(listed) == sorted(functions())


@pytest.mark.parametrize("entry", catalogue.ALL, ids=lambda entry: entry.rule.__name__)
def test_a_rule_takes_plain_values_by_keyword_and_says_its_number(entry: Entry) -> None:
    kinds = {value.kind for value in inspect.signature(entry.rule).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert (inspect.getdoc(entry.rule) or "").startswith(f"{entry.number}: ")


@pytest.mark.parametrize("guard", JUDGED, ids=lambda guard: guard.rule.__name__)
def test_what_speaks_for_a_rule_bears_its_name(guard: Guard[Any]) -> None:
    assert guard.speak.__name__ == f"{guard.rule.__name__}_of"


def test_findings_bear_the_number_of_their_guard(tmp_path: Path) -> None:
    plan = stage.plan()
    evidence = collect.collect(stage.build(tmp_path / "stage"), plan, 0)
    values = {metric.name: (1.0, 1.0) for metric in stage.METRICS}
    case = CaseSeen(plan, evidence, extras(), "quick", stage.METRICS, values)
    asked = [(guard, case) for guard in OF_CASE]
    asked += [(guard, phase) for guard in OF_PHASE for phase in case.phases]  # type: ignore[misc]
    asked += [(guard, MetricSeen(case, name)) for guard in OF_METRIC for name in values]  # type: ignore[misc]
    spoken = [
        (guard.number, finding.guard) for guard, seen in asked for finding in guard.speak(seen)
    ]
    assert len(spoken) > 25
    assert all(number == said for number, said in spoken)


def test_the_job_asks_the_rules_of_the_target() -> None:
    for entry in OF_TARGET:
        asked = [getattr(module, entry.rule.__name__, None) for module in (opening, target, target)]
        assert entry.rule in asked


def pages() -> Any:
    spec = importlib.util.spec_from_file_location("docs", ROOT / "ci" / "docs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_say_what_the_code_says() -> None:
    docs = pages()
    for page, name, make in docs.PARTS:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert docs.filled(text, name, make()) == text, f"{page} is out of date: make docs"


def test_a_page_without_its_part_is_refused() -> None:
    with pytest.raises(ValueError, match="0 parts 'guards' between comments"):
        pages().filled("# Guards\n", "guards", "")


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        (["open", "/nonexistent"], "iogauge.guards.preflight"),
        (["facts", "/nonexistent", "facts"], "iogauge.node.probes"),
        (["remove", "/nonexistent", "0"], "iogauge.workspace.directory"),
        (["turns", "/nonexistent", "1", "/nonexistent"], "iogauge_extras.needle.rounds"),
    ],
    ids=["open", "facts", "remove", "turns"],
)
def test_an_agent_loads_nothing_that_judges(command: list[str], needs: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "iogauge.job.agent", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert needs in loaded, done.stderr
    heavy = (
        r"(pydantic|polars|reframe|rich|typer|iogauge\.(judge|evidence|site|records|session|check))"
        r"(\.|$)"
    )
    assert not sorted(name for name in loaded if re.match(heavy, name))


def test_a_rule_that_refuses_was_seen_on_the_real_thing() -> None:
    """What rests on a recorded or an imagined form alone gives a remark."""
    for entry in catalogue.ALL:
        assert entry.seen_on, entry.name
        if entry.seen_on in ("recorded", "none"):
            assert entry.otherwise == "remark", f"{entry.number} {entry.name}"
