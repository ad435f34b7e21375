"""Writes the golden files, whose form :mod:`support.golden` describes.

What is found here decides how short the files are, never what they say: :func:`fold` expands what it wrote and
raises if that is not, word for word, what it was given.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import takewhile

from support.golden import EVERY_CHECK, Case, Files, case_key, expand, form_name, unfold, units

_FUNCTIONS = {"iog_prepare": "prepare", "iog_write": "first", "iog_case": "case"}
_ACCESS = r"(?:^#(?:SBATCH --(?:partition|account)=|DW |PBS -(?:q |l place)).*\n)+"
_ENVIRONMENT = r'(?:^\. @ROOT@/environments/.*\n(?:^\[ "\$\?" -eq 0 \] .*\n)?)+'
_BINDINGS = r"(?:^export (?:OMPI|PRTE)_MCA_.*bindings.*\n)+"
_DIRECTORY = "/iogauge/@USER@/@SESSION@/<check>-<hash>-<partition>-<environ>"
_LAUNCHER = r"((?:mpirun|mpiexec|srun|aprun) .*?)(?= (?:<counted|sh|ior|mdtest|env|fio)\b)"
#: What tells launchers from each other, and shapes, in the order of the words of their names.
_LAUNCHER_MARKS = {
    "hosts": r"--hostfile",
    "one-node": r"^mpirun(?!.*--map-by)",
    "each": r"^(?!.*<tasks>).*<nodes>",
    "cyclic": r"cyclic|--map-by node",
    "unbound": r"^(?!.*<nodes>).*bind(?:-to |=)none",
    "default-binding": r"^(?!mpiexec)(?!.*<nodes>|.*bind|.*cyclic|.*--map-by node)",
}
_SHAPE_MARKS = {
    "slurm": r"#SBATCH",
    "pbs": r"#PBS",
    "local": r"^(?!.*(?:#SBATCH|#PBS))",
    "no-job": r"^(?!.*iog_open)",
    "mpi": r"<bindings>",
    "nodes": r"iog_phase view",
    "clients": r"servers\.sh",
    "restores": r"iog_at_close",
    "prepared": r"<prepare>",
    "writes-first": r"<first>",
    "hosts": r"<hosts>",
    "cold": r"iog_repeat 1",
}
#: What the names of a phase's lines end with.
_KINDS = {
    "phase": "",
    "client": "@clients",
    "verify": "@verify",
    "sample": "@sample",
    "layouts": "@layouts",
}
#: A value that follows from others.
_TASKS = "tasks"

#: Units of each command or job file of a kind, or the form that they have in common, by what they are of.
Sequences = dict[tuple[str, str], list[list[str]]]
Forms = dict[tuple[str, str], list[str]]


@dataclass(frozen=True)
class _Phase:
    """A phase of a case: the function in which it stands, its name in checks.txt, its command."""

    where: str
    name: str
    command: list[str]


@dataclass(frozen=True)
class _Partition:
    """A partition of a dry run with its environment: its values, the block of each case by title and hash."""

    name: str
    values: Mapping[str, str]
    blocks: Mapping[str, str]
    #: Dry run and partition whose blocks it has, but for those that differ.
    like: str = ""
    base: Mapping[str, str] = field(default_factory=dict)

    @property
    def sections(self) -> list[str]:
        """Its values, then the blocks of its own."""
        values = dict(self.values)
        if self.like:
            without = "\n".join(key for key in self.base if key not in self.blocks)
            values = {"like": self.like, **({"without": without} if without else {}), **values}
        lines = [
            f"  {name} {line}".rstrip()
            for name, value in values.items()
            for line in value.splitlines() or [""]
        ]
        own = [block for key, block in self.blocks.items() if self.base.get(key) != block]
        return [_lines([f"partition {self.name}", *lines]), *(["".join(own)] if own else [])]


@dataclass(frozen=True)
class _Parts:
    """What a case is made of."""

    case: Case
    #: Name of the check in checks.txt.
    form: str
    shape: str
    values: Mapping[str, str]
    phases: Sequence[_Phase]
    jobs: Mapping[str, list[str]]


def fold(runs: Mapping[str, Sequence[Case]]) -> Files:
    """Golden files of dry runs by name."""
    words: dict[str, str] = {}
    parts = {
        run: [
            _take_apart(case, form_name(case.check, run), words)
            for case in sorted(cases, key=_order)
        ]
        for run, cases in sorted(runs.items())
    }
    everything = [part for run in parts.values() for part in run]
    phases, jobs = _forms_of_phases(everything), _forms_of_jobs(everything)
    shapes: dict[str, str] = {}
    for part in everything:
        if part.shape not in shapes.values():
            shapes[_name(part.shape, _SHAPE_MARKS, shapes)] = part.shape
    names = {text: name for name, text in shapes.items()}
    known: dict[str, _Partition] = {}
    commands = {
        run: _partitions(run, cases, names, phases, jobs, known) for run, cases in parts.items()
    }
    files = {
        "words.txt": _lines(f"{name}  {text}" for name, text in sorted(words.items())),
        "checks.txt": _checks_text(phases),
        **{f"scripts/{name}.txt": text for name, text in shapes.items()},
        **{f"jobs/{check}.{file}": _lines(form) for (check, file), form in jobs.items()},
        **{
            f"commands/{run}.txt": "\n".join(text for one in found for text in one.sections)
            for run, found in commands.items()
        },
    }
    for run, cases in runs.items():
        expanded = {case.key: case for case in expand(files, run)}
        for case in cases:
            if expanded.get(case.key) != case:
                raise ValueError(f"{run}: the form cannot express {case.key}")
    return files


def _order(case: Case) -> tuple[object, ...]:
    """By partition and title; numbers in a title by their values."""
    title = [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", case.title)]
    return case.partition, case.environ, title, case.hash


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _name(text: str, marks: Mapping[str, str], taken: Iterable[str], *first: str) -> str:
    """A name for a text, of the marks that it bears, with a number if it is taken."""
    signs = [mark for mark, sign in marks.items() if re.search(sign, text, re.DOTALL)]
    name = "-".join([*first, *signs])
    names = [name, *(f"{name}-{number}" for number in range(2, 100))]
    return next(name for name in names if name not in taken)


# --- One case -------------------------------------------------------------------------------------


class _Text:
    """A text in which words give way to slots."""

    def __init__(self, text: str, values: dict[str, str]) -> None:
        self.text, self.values = text, values

    def take(self, pattern: str, name: str) -> None:
        """Make what the first group matches a value."""
        match = re.search(pattern, self.text, re.MULTILINE)
        if match:
            self.values[name] = match[1]
            self.put(pattern, name)

    def put(self, pattern: str, name: str) -> None:
        """Replace what the first group matches by the slot of a value, if it is that value."""

        def replaced(match: re.Match[str]) -> str:
            start, end = (at - match.start() for at in match.span(1))
            slot = f"<{name}>" if match[1] == self.values.get(name) else match[1]
            return match[0][:start] + slot + match[0][end:]

        self.text = re.sub(pattern, replaced, self.text, flags=re.MULTILINE)

    def take_lines(self, pattern: str, name: str) -> None:
        """Make whole lines a value."""
        match = re.search(pattern, self.text, re.MULTILINE)
        if match:
            self.values[name] = match[0].rstrip("\n")
            self.text = self.text.replace(match[0], f"<{name}>\n", 1)

    def name(self, pattern: str, name: str, words: dict[str, str]) -> None:
        """Let a slot stand for what the first group matches, everywhere."""
        match = re.search(pattern, self.text, re.MULTILINE)
        if match and words.setdefault(name, match[1]) == match[1]:
            self.text = self.text.replace(match[1], f"<{name}>")


def _take_apart(case: Case, form: str, words: dict[str, str]) -> _Parts:
    """Shape, values, phases and job files of a case; what stands for much goes into ``words``."""
    per_node = case.tasks // max(case.nodes, 1)
    values = {"nodes": str(case.nodes), "tasks": str(case.tasks), "tasks-per-node": str(per_node)}
    script = _Text(case.script, values)
    script.name(r"(env PYTHONPATH=\S+ \S+ -m \S+)", "agent", words)
    script.name(r"^\. (\S+)/job\.sh$", "job", words)
    _take_head(script, case)
    script.take(r'"\$IOG_REP" != (\d+) \] \|\| iog_phase facts-after', "repetitions")
    script.put(r"^iog_repeat \d+ (\d+)", "repetitions")
    script.put(r"^    iog_servers \w+ (\d+)", "nodes")
    script.take(r"iog_phase facts-start (.+) <agent> facts", "each")
    if "each" in values:
        script.put(r" (\S+ -.*?)(?= <agent>|$)", "each")
        values["each"] = _launcher(values["each"], "nodes", values, words)
    _take_nodes(script)
    phases = _take_phases(script, words)
    jobs = {
        name: _job_units(text, values)
        for name, text in case.inputs.items()
        if name.endswith(".fio")
    }
    if "hosts.txt" in case.inputs:
        values["hosts"] = _folded(case.inputs["hosts.txt"].rstrip("\n"), "\n")
        script.text += "--> hosts.txt\n<hosts>\n"
    return _Parts(case, form, script.text, values, phases, jobs)


def _take_head(script: _Text, case: Case) -> None:
    """Put slots into what comes before the functions."""
    script.take_lines(_ACCESS, "access")
    script.take_lines(_ENVIRONMENT, "environment")
    script.take_lines(_BINDINGS, "bindings")
    if "environment" not in script.values:
        # An empty slot, so that sites with and without an environment have their shapes in common.
        script.values["environment"] = ""
        script.text = re.sub(r"\n(?=export|\. |true)", "\n<environment>\n", script.text, count=1)
    directory = f"{case.check}-{case.hash}-{case.partition}-{case.environ}"
    script.text = script.text.replace(f"/iogauge/@USER@/@SESSION@/{directory}", _DIRECTORY)
    script.take(rf"^export IOG_DIR=(.*){_DIRECTORY}$", "target")
    script.take(r"^#(?:SBATCH --time|PBS -l walltime)=(\S+)$", "time")
    script.take(r"^IOG_WARNED=(\d+)$", "warned")
    script.put(r"^#SBATCH --signal=B:USR1@(\d+)$", "warned")
    script.take(r"^#(?:SBATCH --cpus-per-task|PBS -l select=.*:ncpus)=(\d+)$", "cpus")
    script.put(r"^#SBATCH --ntasks=(\d+)$", "tasks")
    script.put(r"^#SBATCH --ntasks-per-node=(\d+)$", "tasks-per-node")
    script.put(r"^#PBS -l select=(\d+)", "nodes")
    script.put(r":mpiprocs=(\d+)", "tasks-per-node")
    names = _Text(script.text, {"name": case.name, "short-name": f"rfm_{case.name}"[:15]})
    names.put(r"^#SBATCH --job-name=\"rfm_(.*)\"$", "name")
    names.put(r"^cd .*/(\S+)$", "name")
    names.put(r"^#PBS -N (.*)$", "short-name")
    script.text = names.text


def _launcher(text: str, number: str, values: Mapping[str, str], words: dict[str, str]) -> str:
    """The slot that stands for the words of a launcher, which starts as many as the value ``number``."""
    form = _Text(text, dict(values))
    form.put(r" (?:-np|-n) (\d+)", number)
    form.put(r" --ntasks=(\d+)", number)
    form.put(r" --nodes=(\d+)", "nodes")
    if number == "tasks":
        form.put(r"ppr:(\d+):node", "tasks-per-node")
    for name, known in words.items():
        if known == form.text:
            return f"<{name}>"
    name = _name(form.text, _LAUNCHER_MARKS, words, text.split()[0])
    words[name] = form.text
    return f"<{name}>"


def _take_phases(script: _Text, words: dict[str, str]) -> list[_Phase]:
    """Phases of a script: a slot takes the place of those of each function."""
    found: list[_Phase] = []
    left: list[str] = []
    where = ""
    # Launchers of the servers' clients differ from those of tasks, and have a slot of their own.
    launcher = "clients" if "servers.sh" in script.text else "run"
    kept = re.search(r"^    iog_phase .*\$IOG_DIR/\$IOG_REP", script.text, re.MULTILINE)
    directory = "$IOG_DIR/$IOG_REP" if kept else "$IOG_DIR"
    # What is added in the warm-up bears the name of its phase, which is in the next line.
    text = re.sub(
        r"(?m)^(    iog_verify) (.*\n    iog_(?:phase|client) (\S+))", r"\1 \3 \2", script.text
    )
    text = re.sub(r"(?m)^(    iog_layouts) ", r"\1 files ", text)
    for line in text.splitlines():
        function = re.fullmatch(r"(iog_\w+)\(\) \{", line)
        phase = re.match(
            r"    iog_(phase|client|verify|sample|layouts) (?!facts-|view )(\S+) (.*)", line
        )
        if function:
            where = _FUNCTIONS.get(function[1], "")
        slot = f"    <{where}>"
        # What comes after another line than a phase stays in the shape.
        if phase and where and (slot not in left or left[-1] == slot):
            line = slot
            name = phase[2] + _KINDS[phase[1]]
            command = _Text(phase[3].replace(directory, "<dir>"), script.values)
            command.take(_LAUNCHER, launcher)
            found.append(_Phase(where, name, units(command.text)))
        if line != slot or left[-1] != slot:
            left.append(line)
    script.text = _lines(left)
    if found:
        script.values["dir"] = directory
    if launcher in script.values:
        script.put(_LAUNCHER, launcher)
        script.values[launcher] = _launcher(script.values[launcher], "tasks", script.values, words)
    if launcher == "run" and "run" in script.values and "bindings" not in script.values:
        # An empty slot, so that launchers that show their bindings and others have their shapes in common.
        script.values["bindings"] = ""
        script.text = script.text.replace("\n<environment>\n", "\n<bindings>\n<environment>\n", 1)
    return found


def _take_nodes(script: _Text) -> None:
    """Put slots where a script says which nodes measure and which load: the first one and the last one."""
    script.take(r"iog_parts disturbed (\d+ \d+) ", "measured")
    script.take(r"iog_parts disturbed <measured> .* (\d+ \d+) disturber\.fio ", "loading")
    script.put(r"iog_parts \w+ (\d+ \d+) ", "measured")
    script.put(r"iog_parts \w+ (\d+ \d+) ", "loading")


def _start(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)


def _folded(text: str, between: str) -> str:
    """A text whose sections, if they differ by a counter alone, are one."""
    sections = text.split(between)
    heads = [section.split("\n")[0] for section in sections]
    prefix = _start(heads).rstrip("0123456789")
    suffix = _start([head[::-1] for head in heads])[::-1].lstrip("0123456789")
    numbers = [head[len(prefix) : len(head) - len(suffix)] for head in heads]
    word = re.sub(r".*\W", "", prefix)
    span = f"{{{numbers[0]}..{numbers[-1]}}}"
    rest = [
        line.replace(f"{word}{numbers[0]}", f"{word}{span}") for line in sections[0].split("\n")[1:]
    ]
    one = "\n".join([f"{prefix}{span}{suffix} x {len(heads)}", *rest])
    try:
        return one if len(heads) > 1 and unfold(one, between) == text else text
    except ValueError:
        return text


def _job_units(text: str, values: dict[str, str]) -> list[str]:
    """Lines of a job file; its run of sections goes into the values."""
    folded = _folded(text.rstrip("\n"), "\n\n")
    run = re.match(r".*?(\{\w+\.\.\w+\}).* x (\d+)\n", folded)
    if run:
        values |= {"sections": run[1], "count": run[2]}
        folded = folded.replace(run[1], "<sections>").replace(f" x {run[2]}\n", " x <count>\n", 1)
    return folded.split("\n")


# --- What cases have in common --------------------------------------------------------------------


def _key(unit: str) -> str:
    """What makes two units the same one: an option, a name before ``=``, the whole of another word."""
    match = re.match(r"-[^\s=]+ (?:[^\s=]+=)?|[^\s=]+=", unit)
    return match[0] if match else unit


def _aligned(keys: Sequence[str], sequence: Sequence[str]) -> list[str | None]:
    """A sequence's unit for each key, None: it has none."""
    left, found = list(sequence), list[str | None]()
    for key in keys:
        found.append(left.pop(0) if left and _key(left[0]) == key else None)
    return found


def _form(sequences: Sequence[Sequence[str]]) -> list[str]:
    """Units of all sequences in one: ``(a)`` is not in each, ``a=_`` is not the same in each."""
    keys: list[str] = []
    for sequence in sequences:
        mine = [_key(unit) for unit in sequence]
        merged: list[str] = []
        for _, a, b, c, d in SequenceMatcher(None, keys, mine, autojunk=False).get_opcodes():
            merged += keys[a:b] if keys[a:b] == mine[c:d] else [*keys[a:b], *mine[c:d]]
        keys = merged
    form = []
    for key, column in zip(
        keys, zip(*(_aligned(keys, one) for one in sequences), strict=True), strict=True
    ):
        found = {unit for unit in column if unit is not None}
        text = found.pop() if len(found) == 1 else f"{key}_"
        form.append(f"({text})" if None in column else text)
    # Of two units with one key a case may have the second alone: from one to the other it names all.
    twice = [n for n, key in enumerate(keys) if keys.count(key) > 1]
    if any(_named(form[n]) for n in twice):
        for n in range(twice[0], twice[-1] + 1):
            form[n] = form[n] if _named(form[n]) else f"({form[n]})"
    return form


def _named(unit: str) -> bool:
    """Whether a case names this unit of a form."""
    return unit.startswith("(") or unit.endswith("_")


def _own(form: Sequence[str], sequence: Sequence[str]) -> str:
    """What a case itself names of a form."""
    keys = [_key(unit.removeprefix("(").removesuffix(")").removesuffix("_")) for unit in form]
    aligned = zip(form, _aligned(keys, sequence), strict=True)
    return " ".join(unit for part, unit in aligned if unit is not None and _named(part))


def _forms_of_phases(parts: Sequence[_Parts]) -> Forms:
    """Form of each phase, by check and phase. What runs no benchmark is the same in every check."""
    found: Sequences = defaultdict(list)
    for part in parts:
        for phase in part.phases:
            shared = phase.command[0] in ("<agent>", "iog_do", "<each>", "<dir>", "lfs")
            found[EVERY_CHECK if shared else part.form, phase.name].append(phase.command)
    return {key: _form(sequences) for key, sequences in found.items()}


def _forms_of_jobs(parts: Sequence[_Parts]) -> Forms:
    """Form of each job file, by check and file."""
    found: Sequences = defaultdict(list)
    for part in parts:
        for file, lines in part.jobs.items():
            found[part.case.check, file].append(lines)
    return {key: _form(sequences) for key, sequences in found.items()}


# --- The files ------------------------------------------------------------------------------------


def _checks_text(phases: Forms) -> str:
    checks: dict[str, list[str]] = defaultdict(list)
    for (check, phase), form in phases.items():
        checks[check].append(f"  {phase}  {' '.join(form)}")
    order = sorted(checks, key=lambda check: (check != EVERY_CHECK, check))
    return "\n".join(_lines([check, *checks[check]]) for check in order)


def _partitions(
    run: str,
    parts: Sequence[_Parts],
    shapes: Mapping[str, str],
    phases: Forms,
    jobs: Forms,
    known: dict[str, _Partition],
) -> list[_Partition]:
    """Partitions of a dry run. One that does mostly what a known one does refers to it; others become known."""
    partitions: dict[tuple[str, str], list[_Parts]] = defaultdict(list)
    for part in parts:
        partitions[part.case.partition, part.case.environ].append(part)
    found = []
    for (partition, environ), cases in partitions.items():
        shared = _most_frequent([part.values for part in cases])
        blocks = {
            case_key(case.case.title, case.case.hash): _block(case, shared, shapes, phases, jobs)
            for case in cases
        }
        one = _Partition(f"{partition} {environ}", shared, blocks)
        same = {
            like: len(other.blocks.items() & blocks.items())
            - len(other.blocks.keys() - blocks.keys())
            for like, other in known.items()
        }
        like = max(same, key=lambda name: same[name], default="")
        if like and 2 * same[like] > len(blocks):
            one = replace(one, like=like, base=known[like].blocks)
        else:
            known[f"{run}: {one.name}"] = one
        found.append(one)
    return found


def _most_frequent(values: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The most frequent of each value."""
    names = dict.fromkeys(name for each in values for name in each if name != _TASKS)
    counts = {name: Counter(each[name] for each in values if name in each) for name in names}
    return {
        name: min(found, key=lambda value: (-found[value], value)) for name, found in counts.items()
    }


def _block(
    part: _Parts,
    shared: Mapping[str, str],
    shapes: Mapping[str, str],
    phases: Forms,
    jobs: Forms,
) -> str:
    """Lines of a case. What a case does not vary shares a line with what comes before."""
    case, values = part.case, part.values
    words = [shapes[part.shape]]
    words += [
        shlex.quote(f"{name}={value}")
        for name, value in values.items()
        if name != _TASKS and shared[name] != value
    ]
    lines = [f"{case.title} /{case.hash}: {' '.join(words)}"]
    before = ""
    for phase in part.phases:
        check = EVERY_CHECK if (EVERY_CHECK, phase.name) in phases else part.form
        own = _own(phases[check, phase.name], phase.command)
        text = f"{phase.name} {own}".rstrip()
        if phase.where == before and not own:
            lines[-1] += f"; {text}"
        else:
            lines.append(f"  {text}" if phase.where == "case" else f"  {phase.where}: {text}")
        before = phase.where
    files: dict[str, list[str]] = defaultdict(list)
    for file, units_of_file in sorted(part.jobs.items()):
        files[_own(jobs[case.check, file], units_of_file)].append(file)
    lines += [f"  {' '.join(names)} {own}".rstrip() for own, names in files.items()]
    return _lines(lines)
