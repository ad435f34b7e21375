"""Recorded job scripts: every case of every dry run of :mod:`e2e.dry_runs`, word for word.

``tests/data/golden.jsonl.xz`` has a line of JSON for each case; ``xz -dc`` shows them. What differs is shown once for all
cases that differ alike, by :func:`differences`.
"""

from __future__ import annotations

import json
import lzma
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import unified_diff
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "golden.jsonl.xz"


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
    def check(self) -> str:
        """Name of the check's class."""
        return self.title.split()[0]

    @property
    def name(self) -> str:
        """Name of the stage directory: with the hash if the check has parameters."""
        return f"{self.check}_{self.hash}" if " " in self.title else self.check

    @property
    def key(self) -> str:
        """What no other case of a dry run has."""
        return f"{self.title} /{self.hash} @{self.partition}+{self.environ}"

    @property
    def phases(self) -> list[list[str]]:
        """Words of every phase, its name first."""
        lines = [line.strip() for line in self.script.splitlines()]
        return [
            shlex.split(line)[1:] for line in lines if line.startswith("iog_phase ")
        ]

    @property
    def text(self) -> str:
        """Script and input files."""
        files = [f"--> {name}\n{text}" for name, text in sorted(self.inputs.items())]
        return "\n".join([self.script, *files])

    @property
    def does(self) -> str:
        """What the tool is told to do, without the names of directories and results."""
        words = [word for phase in self.phases for word in phase]
        return " ".join(words) + "".join(self.inputs.values())


Runs = Mapping[str, Sequence[Case]]


def read() -> dict[str, list[Case]]:
    """Recorded cases by dry run."""
    found: dict[str, list[Case]] = defaultdict(list)
    for line in lzma.decompress(FILE.read_bytes()).decode().splitlines():
        case = json.loads(line)
        found[case.pop("dry_run")].append(Case(**case))
    return found


def write(runs: Runs) -> None:
    """Record the cases of all dry runs anew."""
    lines = [
        json.dumps({"dry_run": name, **asdict(case)}, sort_keys=True)
        for name, cases in sorted(runs.items())
        for case in sorted(cases, key=lambda case: case.key)
    ]
    FILE.write_bytes(
        lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9)
    )


def differences(recorded: Sequence[Case], found: Sequence[Case]) -> str:
    """Each difference, with the cases that have it; empty if there is none."""
    before, after = ({case.key: case for case in cases} for cases in (recorded, found))
    alike: dict[str, list[str]] = defaultdict(list)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        texts = (
            f"{one.nodes} {one.tasks}\n{one.text}" if one else "" for one in (old, new)
        )
        _, _, *lines = unified_diff(
            *(text.splitlines() for text in texts), n=0, lineterm=""
        )
        alike["\n".join(line for line in lines if not line.startswith("@@"))].append(
            key
        )
    return "\n".join(
        f"{len(keys)} case(s), such as {keys[0]}:\n{lines}"
        for lines, keys in alike.items()
    )
