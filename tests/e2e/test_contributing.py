"""CONTRIBUTING.md, followed to the letter in a copy of the project: what a newcomer types there works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from e2e.rig import ROOT, Rig

PAGE = (ROOT / "CONTRIBUTING.md").read_text()

#: The tool that the page adds.
DD = "dd"

pytestmark = pytest.mark.slow


def code(heading: str) -> list[str]:
    """Indented blocks of a section of the page, without their indentation."""
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^ {8}.*\n(?:\n+(?= {8}))*)+", section, re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project with the environment of this one."""
    copy = tmp_path / "clone"
    words = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    for name in subprocess.check_output(words, text=True).rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name, follow_symlinks=False)
    (copy / ".venv").symlink_to(Path(sys.prefix))
    for git in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *git], cwd=copy, check=True)
    return copy


def put(file: Path, before: str, text: str) -> None:
    """Insert a text before another one, which is there once."""
    old = file.read_text()
    assert old.count(before) == 1, f"{file}: {before!r}"
    file.write_text(old.replace(before, text + before))


def run(clone: Path, *words: str) -> None:
    """Run a command of the page in the copy; its status is 0."""
    own = {n: v for n, v in os.environ.items() if not n.startswith(("IOGAUGE", "RFM", "PYTEST"))}
    own |= {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}
    own |= {"PYTHONPATH": str(clone / "reframe" / "src")}
    done = subprocess.run(
        words, cwd=clone, env=own, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"


def finish(clone: Path, *tests: str) -> None:
    """What the page asks for after each change: pages and format, lint, the form of the library, tests of the change."""
    run(clone, "ruff", "format", "--quiet", ".")
    run(clone, sys.executable, "ci/docs.py")
    run(clone, "ci/lint", "ruff", "format", "mypy", "layers")
    files = [f"tests/unit/{name}" for name in ("test_house.py", *tests)]
    run(clone, sys.executable, "-m", "pytest", "-n0", "-q", "-m", "not slow", *files)


@pytest.mark.nightly
def test_a_guard(clone):
    row, rule, line, test = code("Add a guard")
    guards = clone / "reframe" / "src" / "iogauge" / "guards"
    figures = guards / "figures.py"
    put(guards / "rules.ini", "[G26 streams]", f"{row}\n")
    figures.write_text(f"{figures.read_text()}\n\n{rule}")
    put(guards / "catalogue.py", '    Guard("G6 ceiling",', textwrap.indent(line, "    "))
    tests = clone / "tests" / "unit" / "test_guards.py"
    tests.write_text(f"{tests.read_text()}\n\n{test}")
    judge = clone / "tests" / "unit" / "test_judge.py"
    assert "test_every_guard_that_applies_is_asked" in judge.read_text()
    finish(clone, "test_catalogue.py", "test_guards.py")
    assert "100 x the mean" in (clone / "docs" / "guards.md").read_text()


@pytest.mark.nightly
@pytest.mark.needs_fio
def test_a_scenario(clone, make_rig):
    script, *_ = code("Add a scenario")
    assert "`checks/fio_large_read.py`" in PAGE
    (clone / "checks" / "fio_large_read.py").write_text(script)
    finish(clone)
    done = measured(clone, make_rig(cold=True), "fio_large_read.py")
    assert done == ("FioLargeRead", "UNREFERENCED")


@pytest.mark.nightly
def test_a_tool(clone, make_rig):
    parser, base = code("Add a tool")
    library = clone / "reframe" / "src" / "iogauge"
    assert '`DD: Final = "dd"`' in PAGE
    put(library / "core" / "words.py", "\nPARTITION: Final", 'DD: Final = "dd"\n')
    put(library / "core" / "words.py", "FIO, FIO_METADATA,", "DD, ")
    (library / "tools" / "dd.py").write_text(parser)
    put(library / "tools" / "__init__.py", "- fio:", "- dd: command lines of dd\n")
    (library / "cases" / "dd.py").write_text(base)
    cases = library / "cases" / "__init__.py"
    put(cases, "- fio: ", "- dd: scenarios that run dd\n")
    put(cases, "from iogauge.cases.fio import", f"from iogauge.cases.{DD} import DdCheck\n")
    put(cases, '    "DefaultWritersCheck",\n', '    "DdCheck",\n')
    (clone / "checks" / "dd_write.py").write_text(
        '"""dd: one writer."""\n\nimport reframe as rfm\n\nfrom iogauge.cases import DdCheck, words\n\n\n'
        '@rfm.simple_test\nclass DdWrite(DdCheck):\n    descr = "One writer"\n'
        '    valid_systems = [f"+{words.TARGET}"]\n    tags = {"quick"}\n'
    )
    finish(clone, "test_catalogue.py")
    done = measured(clone, make_rig(tools=("dd",), cold=True), "dd_write.py")
    assert done == ("DdWrite", "UNREFERENCED")


def measured(clone: Path, rig: Rig, file: str) -> tuple[str, str]:
    """Check and verdict of a run of a scenario of the copy."""
    (rig.base / "reframe").unlink()
    (rig.base / "reframe").symlink_to(clone / "reframe")
    words = ["reframe", "-c", str(clone / "checks" / file), "-r"]
    done = rig.finish(rig.start(words, PYTHONPATH=str(clone / "reframe" / "src")))
    assert done.records, done.out
    rig.assert_clean()
    assert done.record["verdict"] == "UNREFERENCED", done.record["reason"]
    return done.record["check"], done.record["verdict"]
