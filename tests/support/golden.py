"""Golden job scripts in a form that a person can review, and the way from there to every script, word for word.

Below tests/data/golden, in the order in which a reader wants them:

``commands/<dry run>.txt``
    Partitions, then a block for each case: name and hash as ReFrame prints them, shape, values of its own, and
    what the case does, phase by phase. Values that most cases of a partition share stand in the partition's block.
    ``like RUN: PARTITION`` there means: all cases of that one, with these values, but for those that follow, and
    those that ``without`` names.
``checks.txt``
    The command of each phase of each check. Of ``-t _`` a case names the value; ``(-z)`` is there if the
    case names it. All else is the same in every case. ``layout@clients`` is run by the fio servers. The words of
    ``read@verify`` come to those of ``read`` in the warm-up. ``read@sample`` looks at the contents after the last
    read, ``files@layouts`` at the layouts after the last write.
``scripts/<shape>.txt``
    A whole script of each shape. ``<case>`` stands for the phases of a repetition, ``<first>`` for the writes
    that come before all reads, ``<prepare>`` for what comes before both.
``jobs/<check>.<file>``
    Job files of fio, in the notation of checks.txt. A run of sections that differ by a counter is one section:
    ``[ost{0000..008f}] x 144``.
``words.txt``
    What ``<agent>``, ``<mpirun>`` and the like stand for.

Nothing here knows how the library makes a script. :mod:`support.golden_form` writes the files.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "golden"
#: Content of each file, by its path below :data:`FOLDER`.
Files = dict[str, str]

#: Under this name stand the phases that several checks have in common.
EVERY_CHECK = "every check"
#: What the name of a dry run of the published commands, and their name in checks.txt, ends with.
PUBLISHED = "published"
_AT_CLIENTS = "@clients"
_VERIFY, _SAMPLE, _LAYOUTS = "@verify", "@sample", "@layouts"
#: Slots of phases that come before ``<case>``.
_EARLIER = ("prepare", "first")
_SLOT = re.compile(r"<([a-z][a-z0-9-]*)>")
_CASE = re.compile(r"(.+) /([0-9a-f]{8}): (\S+)(.*)")
_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'[^']*'"
_UNIT = re.compile(rf"\([^()]*\)|(?:{_QUOTED}|[^\s\"'()])+")
_JOBS = re.compile(r"(\S+\.fio(?: \S+\.fio)*)\b(.*)")
_RANGE = re.compile(r"\{(\w+)\.\.(\w+)\}")


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
        return f"{case_key(self.title, self.hash)} @{self.partition}+{self.environ}"

    @property
    def phases(self) -> list[list[str]]:
        """Words of every phase, its name first."""
        lines = [line.strip() for line in self.script.splitlines()]
        return [shlex.split(line)[1:] for line in lines if line.startswith("iog_phase ")]

    @property
    def text(self) -> str:
        """Script and input files."""
        parts = [
            self.script,
            *(f"--> {name}\n{text}" for name, text in sorted(self.inputs.items())),
        ]
        return "\n".join(parts)

    @property
    def does(self) -> str:
        """What the tool is told to do, without the names of directories and results."""
        words = [word for phase in self.phases for word in phase]
        return " ".join(words) + "".join(self.inputs.values())


def units(text: str) -> list[str]:
    """Parts of a command line that a case names or not: an option with its value, any other word."""
    found: list[str] = []
    for word in _UNIT.findall(text):
        option = bool(found) and re.fullmatch(r"--?[A-Za-z][\w.-]*", found[-1])
        if option and not re.match(r"-\D|<|\(", word):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def merge(form: Sequence[str], own: Sequence[str]) -> list[str]:
    """Units of a form, with those that a case names itself in their places."""
    left, out = list(own), []
    for unit in form:
        optional = unit.startswith("(")
        text = unit[1:-1] if optional else unit
        if not optional and not text.endswith("_"):
            out.append(text)
        elif left and (left[0].startswith(text[:-1]) if text.endswith("_") else left[0] == text):
            out.append(left.pop(0))
        elif not optional:
            raise ValueError(f"expected {text!r} next, found {left[:1]} in {list(own)}")
    if left:
        raise ValueError(f"no place for {left[0]!r} of {list(own)} in {' '.join(form)!r}")
    return out


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its slots filled, also those in what fills them. A line that is one slot takes lines, or none."""
    lines = []
    for line in text.splitlines():
        alone = re.fullmatch(rf"( *){_SLOT.pattern}", line)
        if alone:
            lines += [alone[1] + own for own in fill(values[alone[2]], values).splitlines()]
        else:
            lines.append(_SLOT.sub(lambda slot: fill(values[slot[1]], values), line))
    return "\n".join(lines)


def count(first: str, last: str, number: int) -> list[str]:
    """So many numbers from the first to the last, as wide as the first, decimal or else hexadecimal."""
    for base, form in ((10, "d"), (16, "x")):
        try:
            start, end = int(first, base), int(last, base)
        except ValueError:
            continue
        if end - start + 1 == number:
            return [format(value, f"0{len(first)}{form}") for value in range(start, end + 1)]
    raise ValueError(f"{first}..{last} are not {number}")


def unfold(text: str, between: str = "\n\n") -> str:
    """A text with ``a{1..3} x 3`` written out: every section whose first line is such a run."""
    sections = []
    for section in text.split(between):
        head, *rest = section.split("\n")
        run = re.fullmatch(r"(.*) x (\d+)", head)
        span = _RANGE.search(head)
        if not run or not span:
            sections.append(section)
            continue
        one = "\n".join([run[1], *rest])
        for value in count(span[1], span[2], int(run[2])):
            sections.append(_RANGE.sub(value, one))
    return between.join(sections)


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Heads of a file, each with the lines that are indented below it."""
    found: list[tuple[str, list[str]]] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("  "):
            found[-1][1].append(line[2:])
        else:
            found.append((line, []))
    return found


def pairs(lines: Sequence[str]) -> dict[str, str]:
    """Values by name; a name that comes again adds a line."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        found[name] = f"{found[name]}\n{value.strip()}" if name in found else value.strip()
    return found


def read() -> Files:
    """All golden files."""
    found = sorted(file for file in FOLDER.rglob("*") if file.is_file())
    return {str(file.relative_to(FOLDER)): file.read_text() for file in found}


def write(files: Files) -> None:
    """Write the golden files anew."""
    shutil.rmtree(FOLDER)
    for path, text in files.items():
        file = FOLDER / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def dry_runs(files: Files) -> list[str]:
    """Names of the dry runs that the files speak of."""
    return [path[len("commands/") : -len(".txt")] for path in files if path.startswith("commands/")]


def form_name(check: str, dry_run: str) -> str:
    """Name of a check in checks.txt: the published commands have words and an order of their own."""
    return f"{check} {PUBLISHED}" if dry_run.endswith(f"-{PUBLISHED}") else check


def phase_line(phase: str, command: str) -> str:
    """Line of a script that runs a phase."""
    if phase.endswith(_AT_CLIENTS):
        return f"iog_client {phase.removesuffix(_AT_CLIENTS)} {command}"
    if phase.endswith(_VERIFY):
        return f"iog_verify {command}"
    if phase.endswith(_SAMPLE):
        return f"iog_sample {phase.removesuffix(_SAMPLE)} {command}"
    if phase.endswith(_LAYOUTS):
        return f"iog_layouts {command}"
    return f"iog_phase {phase} {command}"


def expand(files: Files, dry_run: str) -> list[Case]:
    """Cases of a dry run."""
    words = pairs(files["words.txt"].splitlines())
    checks = {head: pairs(lines) for head, lines in blocks(files["checks.txt"])}
    found = []
    for partition in _partitions(files, dry_run):
        for head, lines in partition.cases.values():
            check = head.split()[0]
            forms = checks.get(EVERY_CHECK, {}) | checks.get(form_name(check, dry_run), {})
            found.append(_case(head, lines, {**words, **partition.values}, forms, files))
    return found


@dataclass(frozen=True)
class _Partition:
    """Name and values of a partition, and head and lines of each of its cases by :func:`case_key`."""

    name: str
    values: Mapping[str, str]
    cases: dict[str, tuple[str, list[str]]]


def _partitions(files: Files, dry_run: str) -> list[_Partition]:
    """Partitions of a dry run, with the cases that they have from others."""
    found: list[_Partition] = []
    for head, lines in blocks(files[f"commands/{dry_run}.txt"]):
        if head.startswith("partition "):
            _, name, environ = head.split()
            values = {"partition": name, "environ": environ, **pairs(lines)}
            run, _, like = values.get("like", "").partition(": ")
            known = found if run == dry_run else _partitions(files, run) if run else []
            without = values.get("without", "").splitlines()
            cases = {
                key: case
                for one in known
                if one.name == like
                for key, case in one.cases.items()
                if key not in without
            }
            found.append(_Partition(f"{name} {environ}", values, cases))
        else:
            title, _, digest = head.partition(": ")[0].rpartition(" /")
            found[-1].cases[case_key(title, digest)] = (head, lines)
    return found


def case_key(title: str, digest: str) -> str:
    """What no other case of a partition has."""
    return f"{title} /{digest}"


def _case(
    head: str,
    lines: Sequence[str],
    shared: Mapping[str, str],
    forms: Mapping[str, str],
    files: Files,
) -> Case:
    """The case of a block."""
    match = _CASE.fullmatch(head)
    if not match:
        raise ValueError(f"{head!r} is no head of a case")
    title, digest, shape, deviates = match.groups()
    own = dict(word.split("=", 1) for word in shlex.split(deviates))
    nodes, per_node = (int((shared | own)[name]) for name in ("nodes", "tasks-per-node"))
    case = Case(
        partition=shared["partition"],
        environ=shared["environ"],
        title=title,
        hash=digest,
        nodes=nodes,
        tasks=max(nodes, 1) * per_node,
        script="",
        inputs={},
    )
    values = {
        **shared,
        **{"check": case.check, "hash": digest, "name": case.name},
        **{"short-name": f"rfm_{case.name}"[:15]},
        **{"tasks": str(case.tasks)},
        **own,
        **dict.fromkeys([*_EARLIER, "case"], ""),
    }
    inputs = {}
    for line in lines:
        jobs = _JOBS.fullmatch(line)
        if jobs:
            for file in jobs[1].split():
                form = files[f"jobs/{case.check}.{file}"].splitlines()
                text = "\n".join(merge(form, jobs[2].split()))
                inputs[file] = unfold(fill(text, values)) + "\n"
            continue
        where = next((name for name in _EARLIER if line.startswith(f"{name}: ")), "case")
        for part in line.removeprefix(f"{where}: ").split("; "):
            phase, _, own = part.partition(" ")
            command = " ".join(merge(units(forms[phase]), units(own)))
            values[where] += phase_line(phase, command) + "\n"
    script, *hosts = files[f"scripts/{shape}.txt"].split("--> hosts.txt\n")
    if hosts:
        inputs["hosts.txt"] = unfold(fill(hosts[0], values), between="\n") + "\n"
    return replace(case, script=fill(script, values) + "\n", inputs=inputs)
