"""Recorded job scripts: of each family of checks on each kind of site, the script of one case.

A family is a file in checks/. Its script is ``tests/data/golden/<dry run>/<family>.txt``: the first case of the first class
that has one with phases. :mod:`e2e.dry_runs` says which cases there are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff

from support.project import ROOT

FOLDER = ROOT / "tests" / "data" / "golden"
#: Words that are long, and the same in every script.
_SHORT = {
    "/bin/sh @ROOT@/reframe/src/iogauge/job/agent.sh @PYTHON@": "@AGENT@",
    "/bin/sh @ROOT@/reframe/src/iogauge/job/witness.sh": "@WITNESS@",
}


@dataclass(frozen=True)
class Case:
    """A case's job script and its input files, without what is this machine's or this run's."""

    partition: str
    environ: str
    title: str
    hash: str
    nodes: int
    tasks: int
    script: str
    inputs: Mapping[str, str]

    @property
    def check(self):
        """Name of the check's class."""
        return self.title.split()[0]

    @property
    def name(self):
        """Name of the stage directory: with the hash if the check has parameters."""
        return f"{self.check}_{self.hash}" if " " in self.title else self.check

    @property
    def key(self):
        """What no other case of a dry run has."""
        return f"{self.title} /{self.hash} @{self.partition}+{self.environ}"

    @property
    def phases(self):
        """Words of every phase, its name first."""
        lines = [line.strip() for line in self.script.splitlines()]
        return [
            shlex.split(line)[1:] for line in lines if line.startswith("iog_phase ")
        ]

    @property
    def text(self):
        """Script and input files."""
        files = [f"--> {name}\n{text}" for name, text in sorted(self.inputs.items())]
        return "\n".join([self.script, *files])

    @property
    def does(self):
        """What the tool is told to do, without the names of directories and results."""
        words = [word for phase in self.phases for word in phase]
        return " ".join(words) + "".join(self.inputs.values())


def families():
    """Names of the check classes in each file of checks/, in their order."""
    return {
        file.stem: re.findall(r"simple_test.*\nclass (\w+)", file.read_text())
        for file in (ROOT / "checks").glob("*.py")
    }


def scripts(cases):
    """Script and input files of one case of each family that has any, by the family's name."""
    found = {}
    for family, classes in families().items():
        mine = [case for case in cases if case.check in classes and case.phases]
        if mine:
            first = min(mine, key=lambda case: (classes.index(case.check), case.key))
            text = f"# {first.title}: {first.nodes} nodes, {first.tasks} tasks\n{first.text}"
            for long, short in _SHORT.items():
                text = text.replace(long, short)
            found[family] = text
    return found


def read(dry_run):
    """Recorded scripts of a dry run by family."""
    return {file.stem: file.read_text() for file in (FOLDER / dry_run).glob("*.txt")}


def write(dry_run, scripts):
    """Record the scripts of a dry run anew."""
    folder = FOLDER / dry_run
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.txt"):
        file.unlink()
    for family, text in scripts.items():
        (folder / f"{family}.txt").write_text(text)


def differences(recorded, found):
    """The lines that differ, by family; empty if there are none."""
    lines = []
    for family in sorted(recorded.keys() | found.keys()):
        old, new = (texts.get(family, "").splitlines() for texts in (recorded, found))
        lines += unified_diff(old, new, f"{family} recorded", family, n=0, lineterm="")
    return "\n".join(lines)
