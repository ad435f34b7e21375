"""The defects of benchmarks/mutants.py fit the tree; that each is noticed, the program itself shows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "benchmarks" / "mutants.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_defect_can_be_planted_and_its_test_is_there(mutants: ModuleType) -> None:
    assert mutants.mistakes(mutants.MUTANTS) == []
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names)


def test_every_room_has_one(mutants: ModuleType) -> None:
    rooms = {file.parent.name for file in (ROOT / mutants.LIBRARY).glob("*/__init__.py")}
    extras = {room for one in mutants.MUTANTS if "/" in (room := one.room)}
    assert {mutant.room for mutant in mutants.MUTANTS} - extras == rooms


def test_the_page_lists_them(mutants: ModuleType) -> None:
    page = mutants.PAGE.read_text(encoding="utf-8").splitlines()
    rows = {line for line in page if line.startswith("| ")}
    expected = {*mutants.table(mutants.MUTANTS)} - {"|---|---|---|"}
    assert rows == expected, "run: python benchmarks/mutants.py --write"
