"""The borders inside the library that no linter can hold."""

import ast
import configparser
import functools
import itertools
import pkgutil
import re
from pathlib import Path

import pytest

from iogauge.plan import stage

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "reframe" / "src" / "iogauge"
JOB_FILES = LIBRARY / "job"
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
            assert re.fullmatch(known, node.module or "")
        if isinstance(node, ast.Import):
            assert [name.name for name in node.names] == ["reframe"]


def files_of_the_stage():
    """Constants of plan/stage.py that name a file."""
    values = {name: value for name, value in vars(stage).items() if name.isupper()}
    return {
        name: value
        for name, value in values.items()
        if re.fullmatch(r"[a-z]+\.[a-z]+", str(value))
    }


def test_files_of_the_stage_are_named_in_one_module():
    names = {*files_of_the_stage().values(), *stage.FACTS}
    literal = [
        f"{path}:{node.lineno}: {node.value}"
        for path, tree, _ in modules()
        if path != "plan/stage.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and str(node.value).rpartition("/")[2] in names
    ]
    assert not literal


def test_scripts_of_the_job_list_the_files_that_they_share_with_the_judge():
    written = files_of_the_stage()
    for name in ("ORDER", "FOOTPRINT", "HOSTFILE", "PINS", "ROUNDS"):  # before the job
        del written[name]
    listed = {}
    for script in ("job.sh", "servers.sh"):
        lines = (JOB_FILES / script).read_text(encoding="utf-8").splitlines()
        header = "\n".join(
            itertools.takewhile(lambda line: line.startswith("#"), lines)
        )
        listed |= re.findall(r"^#   ([A-Z_]+) +(\S+) ", header, re.MULTILINE)
    assert listed == written


def test_every_module_that_a_text_names_is_there():
    texts = [*LIBRARY.parent.rglob("*.py"), *LIBRARY.rglob("*.sh"), *ROOT.glob("*.md")]
    for folder in (
        "benchmarks",
        "checks",
        "ci",
        "docs",
        "tests/e2e",
        "tests/support",
        "tests/unit",
    ):
        texts += [*(ROOT / folder).glob("*.py"), *(ROOT / folder).glob("*.md")]
    named = {
        path
        for file in texts
        for path in re.findall(
            # With a version it is a package of the namespace in Spack.
            r"(?<![\w/])iogauge(?:_extras)?(?:\.(?!sh\b|tar\b)[A-Za-z]\w*)+\b(?!@)",
            file.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 100
    for path in sorted(named):
        pkgutil.resolve_name(path)
