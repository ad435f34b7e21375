"""Tests that only ``IOGAUGE_TEST_FULL=1`` runs, and the tests of the default run that keep what they show."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_MARK = "pytest.mark.nightly"


@dataclass(frozen=True)
class Moved:
    """Marks ``nightly`` of a test with the same keepers: the test's name below ``tests``, and how many places have the mark.

    ``places`` is 0 if the test as a whole has it. A function that makes parameters may stand in a test's place.
    """

    test: str
    places: int
    keepers: tuple[str, ...]


Keepers = tuple[str, ...]


def calls(node: ast.AST) -> Iterator[Keepers]:
    """Arguments of every call of ``nightly`` below a node."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == _MARK:
            yield tuple(ast.literal_eval(word) for word in call.args)


def _constants(tree: ast.Module) -> dict[str, Keepers]:
    """Names of the module that stand for a mark, such as ``_OTHER = pytest.mark.nightly(...)``."""
    return {
        target.id: next(calls(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func) == _MARK
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _marks(node: ast.AST, constants: Mapping[str, Keepers]) -> Iterator[Keepers]:
    """Every mark below a node, written out or by its name."""
    yield from calls(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in constants:
            yield constants[inner.id]


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}::{inner.name}", inner
        elif isinstance(node, ast.FunctionDef):
            yield node.name, node


@functools.cache
def names() -> set[str]:
    """All tests by their names below ``tests``, without their parameters."""
    return {
        f"{file.relative_to(TESTS)}::{name}"
        for file in TESTS.rglob("test_*.py")
        for name, _ in _functions(ast.parse(file.read_text(encoding="utf-8")))
    }


@functools.cache
def moved() -> tuple[Moved, ...]:
    """All marks, in the order of files and lines."""
    found = []
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if _MARK not in text or file.name == "test_nightly.py":
            continue
        tree = ast.parse(text)
        # Sets of parameters may have a name of their own, and hold a mark.
        constants = _constants(tree)
        lists = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.value).count("nightly") == 1
            for target in node.targets
            if isinstance(target, ast.Name) and target.id not in constants
        }
        constants |= {name: next(calls(value)) for name, value in lists.items()}
        for name, function in _functions(tree):
            whole = {
                keepers
                for decorator in function.decorator_list
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == _MARK
                for keepers in calls(decorator)
            } | {
                constants[decorator.id]
                for decorator in function.decorator_list
                if isinstance(decorator, ast.Name) and decorator.id in constants
            }
            places: dict[Keepers, int] = dict.fromkeys(whole, 0)
            nodes = (
                function.decorator_list if name.rpartition("::")[2][:4] == "test" else [function]
            )
            for node in nodes:
                for keepers in _marks(node, constants):
                    places[keepers] = 0 if keepers in whole else places.get(keepers, 0) + 1
            test = f"{file.relative_to(TESTS)}::{name}"
            found += [Moved(test, count, keepers) for keepers, count in places.items()]
    return tuple(found)
