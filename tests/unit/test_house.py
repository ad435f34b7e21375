"""The form of the library: rooms that say what they hold, short functions, one name for one thing."""

import ast
import configparser
import functools
import itertools
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

from iogauge.plan import stage

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "reframe" / "src" / "iogauge"
JOB_FILES = LIBRARY / "job"
ROOMS = sorted(file.parent for file in LIBRARY.glob("*/__init__.py"))
EXTRAS = LIBRARY.with_name("iogauge_extras")
FOLDERS = sorted(
    file.parent
    for package in (LIBRARY, EXTRAS)
    for file in package.rglob("__init__.py")
    if file.parent != package
)

# What is still longer. A name that is no longer needed here makes a test fail.
LONG_FUNCTIONS = {
    "tools/fio/output.py parse_json",
    "tools/ior/output.py parse_json",
    "tools/mdtest.py parse_table",
}


@functools.cache
def modules():
    """Path below the library, tree and text of every module; those of extras below the source."""
    files = sorted(LIBRARY.parent.rglob("*.py"))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    return [
        (str(f.relative_to(LIBRARY.parent)).removeprefix("iogauge/"), ast.parse(text), text)
        for f, text in texts.items()
    ]


def test_no_function_has_more_than_60_lines():
    long = {
        f"{path} {node.name}"
        for path, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    }
    assert long == LONG_FUNCTIONS


def test_no_module_has_more_than_500_lines():
    assert not [path for path, _, text in modules() if len(text.splitlines()) > 500]


def test_no_sentence_of_a_docstring_has_more_than_25_words():
    """A table is no sentence, and what stands in a pair of backticks is one word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    long = []
    for path, tree, _ in modules():
        texts = [ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, kinds)]
        for part in re.split(r"\n\s*\n|\n\s*[-*] |\n {4,}", "\n\n".join(texts)):
            if "====" in part:
                continue
            for sentence in re.split(r"(?<=[.;:!?])\s", part):
                words = re.findall(r"[\w'-]+", re.sub(r"``[^`]*``", "x", sentence))
                if len(words) > 25:
                    long.append(f"{path}: {' '.join(sentence.split())}")
    assert not long


def types_of(tree):
    """Public names of classes, and of other types: those are assigned, and have small letters too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (
                target.id
                for target in node.targets
                if isinstance(target, ast.Name) and re.match("[A-Z].*[a-z]", target.id)
            )


def test_no_public_type_has_the_name_of_another():
    names = Counter(name for _, tree, _ in modules() for name in types_of(tree))
    twice = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert not twice


@pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda folder: str(folder.relative_to(LIBRARY.parent))
)
def test_a_room_says_in_a_sentence_what_it_is_and_lists_its_modules(folder):
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    sentence, empty, *listed = (ast.get_docstring(tree) or "\n").splitlines()
    assert re.fullmatch(r"\w[^.]+\.", sentence)
    assert not empty
    said = [re.fullmatch(r"- ([\w.]+): \S.*[^.]", line) for line in listed]
    assert all(said), listed
    held = [file.stem for file in folder.glob("*.py") if file.stem != "__init__"]
    held += [file.name for file in folder.glob("*.sh")]
    held += [inner.parent.name for inner in folder.glob("*/__init__.py")]
    assert [line[1] for line in said if line] == sorted(held)


def test_only_the_room_of_checks_hands_on_names():
    code = {path for path, tree, _ in modules() if path.endswith("__init__.py") and tree.body[1:]}
    assert code == {"cases/__init__.py"}


def test_every_room_has_a_floor():
    layers = configparser.ConfigParser()
    layers.read(ROOT / "reframe" / ".importlinter", encoding="utf-8")
    floors = layers["importlinter:contract:rooms"]["layers"]
    assert sorted(re.findall(r"iogauge\.(\w+)", floors)) == [room.name for room in ROOMS]


@pytest.mark.parametrize(
    "file", sorted((ROOT / "checks").glob("[!_]*.py")), ids=lambda file: file.name
)
def test_a_scenario_imports_only_the_room_of_checks_and_reframe(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            known = r"iogauge\.cases|reframe\..*|iogauge_extras\.\w+(\.(\w+_)?check)?"
            assert re.fullmatch(known, node.module or "")
        if isinstance(node, ast.Import):
            assert [name.name for name in node.names] == ["reframe"]


def files_of_the_stage():
    """Constants of plan/stage.py that name a file."""
    values = {name: value for name, value in vars(stage).items() if name.isupper()}
    return {
        name: value for name, value in values.items() if re.fullmatch(r"[a-z]+\.[a-z]+", str(value))
    }


def test_files_of_the_stage_are_named_in_one_module():
    names = {*files_of_the_stage().values(), *stage.FACTS}
    literal = [
        f"{path}:{node.lineno}: {node.value}"
        for path, tree, _ in modules()
        if path != "plan/stage.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and str(node.value).rpartition("/")[2] in names
    ]
    assert not literal


def test_scripts_of_the_job_list_the_files_that_they_share_with_the_judge():
    written = files_of_the_stage()
    for name in ("ORDER", "FOOTPRINT", "HOSTFILE", "PINS", "ROUNDS"):  # before the job
        del written[name]
    listed = {}
    for script in ("job.sh", "servers.sh"):
        lines = (JOB_FILES / script).read_text(encoding="utf-8").splitlines()
        header = "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
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
            r"(?<![\w/])iogauge(?:_extras)?(?:\.(?!sh\b)[A-Za-z]\w*)+",
            file.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 100
    for path in sorted(named):
        pkgutil.resolve_name(path)
