"""The borders inside the library that no linter can hold."""

import ast
import configparser
import functools
import re

import pytest

from support.project import ROOT

LIBRARY = ROOT / "reframe" / "src" / "iogauge"
ROOMS = sorted(file.parent for file in LIBRARY.glob("*/__init__.py"))


@functools.cache
def modules():
    """Path below the library, tree and text of every module; those of extras below the source."""
    files = sorted(LIBRARY.parent.rglob("*.py"))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    return [
        (
            str(f.relative_to(LIBRARY.parent)).removeprefix("iogauge/"),
            ast.parse(text),
            text,
        )
        for f, text in texts.items()
    ]


def test_only_the_room_of_checks_hands_on_names():
    code = {
        path
        for path, tree, _ in modules()
        if path.endswith("__init__.py") and tree.body[1:]
    }
    assert code == {"cases/__init__.py"}


def test_every_room_has_a_floor():
    layers = configparser.ConfigParser()
    layers.read(ROOT / "reframe" / ".importlinter", encoding="utf-8")
    floors = layers["importlinter:contract:rooms"]["layers"]
    assert sorted(re.findall(r"iogauge\.(\w+)", floors)) == [
        room.name for room in ROOMS
    ]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "checks").glob("[!_]*.py")), ids=lambda file: file.name
)
def test_a_scenario_imports_only_the_room_of_checks_and_reframe(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            known = r"iogauge\.cases|reframe\..*|iogauge_extras\.\w+(\.\w+_check)?"
            assert re.fullmatch(known, node.module or ""), (
                f"{node.module}: a check imports iogauge.cases, reframe and base classes of extras"
            )
        if isinstance(node, ast.Import):
            assert [name.name for name in node.names] == ["reframe"]
