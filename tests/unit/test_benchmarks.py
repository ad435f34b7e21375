"""Each program of benchmarks/ finds what it imports, and explains its options."""

from __future__ import annotations

import ast
import importlib
import re
import sys

import pytest

from support import programs
from support.programs import FOLDER

PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_starts_and_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = programs.load(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: {name}.py")
    first = (module.__doc__ or "").partition("\n")[0]
    assert first.split()[0] in said


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_gives_to_python_as_text_can_be_imported_and_called(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"(import|from) ", node.value.lstrip())
    ]
    for text in texts:
        code = ast.parse(text)
        called = {
            n.func.id
            for n in ast.walk(code)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        }
        for node in ast.walk(code):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("iogauge"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    found = getattr(module, alias.name)
                    assert callable(found) or alias.name not in called, text


def test_the_trend_keeps_its_promise() -> None:
    """False alarms in at most 5 % of stable series, and as many drops found as when its limits were set."""
    assert [name for name, _, holds in programs.load("detectors").shares(2000) if not holds] == []
