"""The defects of benchmarks/mutants.py fit the tree; that each is noticed, the program itself shows."""

from pathlib import Path

import pytest

from support import programs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants():
    return programs.load("mutants")


def test_every_defect_can_be_planted_and_its_test_is_there(mutants):
    assert mutants.mistakes(mutants.MUTANTS) == []
    names = [mutant.name for mutant in mutants.MUTANTS]
    assert len(set(names)) == len(names)


def test_every_room_has_one(mutants):
    rooms = {
        file.parent.name for file in (ROOT / mutants.LIBRARY).glob("*/__init__.py")
    }
    extras = {room for one in mutants.MUTANTS if "/" in (room := one.room)}
    assert {mutant.room for mutant in mutants.MUTANTS} - extras == rooms
