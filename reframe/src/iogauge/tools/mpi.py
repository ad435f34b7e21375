"""Whose MPI it is, its reports on bindings, labels of lines, and tasks that run alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Dialects of MPI-IO's hints: Cray MPICH; ROMIO (MPICH and its derivatives); OMPIO of Open MPI 4.1; OMPIO of Open MPI
#: 5.
DIALECTS: Final = ("cray", "romio", "ompio4", "ompio5")

_DIALECT_OF: Final = (
    (re.compile(r"cray\W?mpich", re.IGNORECASE), "cray"),
    (re.compile(r"\bOpen MPI\)? v?4\."), "ompio4"),
    (re.compile(r"\bOpen MPI\)? v?([5-9]|\d\d)\."), "ompio5"),
    (
        re.compile(r"\bMPICH\b|\bHYDRA\b|Intel\(R\) MPI|\bMVAPICH", re.IGNORECASE),
        "romio",
    ),
)


def dialect_of(version: str) -> str | None:
    """Return the dialect of an MPI by ``mpirun --version`` or ``mpichversion``; None if unknown.

    Open MPI before 4 is unknown: its default was ROMIO on some file systems and OMPIO on others.
    """
    return next(
        (dialect for form, dialect in _DIALECT_OF if form.search(version)), None
    )


#: Labels of lines: tags of mpirun, numbers of srun --label, of MPICH's mpiexec -l, and of PALS, which names the host too.
_LABEL: Final = re.compile(
    r"[^<\n]{0,80}<std(?:out|err|diag)>:|(?=\S*\d)[\w.-]+ \d+: | *\d+: |\[\d+\] "
)
#: MPICH labels all that it reads at a time, wherever in a line that begins. So does Open MPI with its tags.
_WITHIN: Final = re.compile(r"\[\d+\] ")


def unlabelled(text: str) -> str:
    """Return what tasks printed, without a launcher's labels.

    Each line is looked at by itself: the launcher's own lines have none. Blanks at the ends of lines take the place of
    labels: as much was printed.
    """
    lines = text.splitlines(keepends=True)
    tags = [label for label in map(_LABEL.match, lines) if label and ">" in label[0]]
    # Open MPI 5 puts a blank behind its tags, 4.1 does not.
    has_blank = all(label.string[label.end()].isspace() for label in tags)
    return "".join(_own_part(line, has_blank) for line in lines)


def _own_part(line: str, has_blank: bool) -> str:
    """Return a line without its label, as long as before."""
    label = _LABEL.match(line)
    if label is None:
        return line
    printed = line.rstrip("\n")
    own = printed[label.end() :]
    tag = label[0]
    if tag.endswith(">:"):
        if has_blank:
            tag += " "
        own = printed[len(tag) :].replace(tag, "")
    if re.fullmatch(_WITHIN, label[0]):
        own = _WITHIN.sub("", own)
    return own.ljust(len(printed)) + line[len(printed) :]


OTHER_MPI: Final = (
    "this is what happens when the launcher is not that of the MPI library that the tool was built with: each task "
    "then runs alone as a world of one; use the matching mpirun or srun"
)
#: How the output of a tool begins: once, or once for each task that runs alone.
_BEGINS: Final = re.compile(
    r"(?m)^\S+ was launched with 1 total task|^IO500 version |^-+ WRF-IO \w+ benchmark -+$"
    r"|^IOR-\S+: MPI Coordinated"
)


def alone(text: str) -> str:
    """Return that several worlds of one task printed a text, and why that may be; empty if one world did."""
    worlds = len(_BEGINS.findall(text))
    if worlds < 2:
        return ""
    return f"{worlds} runs in one output, expected 1: {OTHER_MPI}"


@dataclass(frozen=True, slots=True)
class Binding:
    """Cores to which one task was bound, by the launcher's report: host, rank, the node's cores."""

    host: str
    rank: int
    cores: frozenset[str]


#: A line on one task's binding from mpirun of Open MPI 4.1 (``MCW rank``) and 5.0 (``Rank``).
_BINDING: Final = re.compile(
    r"^\[([^\]:]+):\d+\] (?:MCW r|R)ank (\d+) (?:is not bound|bound to (.*))",
    re.MULTILINE,
)


def is_binding(line: str) -> bool:
    """Return whether a line of standard error is the launcher's report on a binding."""
    return _BINDING.match(line) is not None


def parse_bindings(text: str) -> list[Binding]:
    """Parse the bindings that Open MPI's mpirun reports on standard error.

    Tasks bound to no core are left out. So are tasks of Open MPI 5 bound to hardware threads: the
    report does not name their cores.
    """
    bindings = [
        Binding(host, int(rank), frozenset(_cores(where)))
        for host, rank, where in _BINDING.findall(text)
    ]
    return [binding for binding in bindings if binding.cores]


def _cores(where: str) -> Iterator[str]:
    """Yield cores of ``socket 0[core 0[hwt 0]], ...: [B/B]`` or ``package[0][core:L0-1,3]``."""
    yield from re.findall(r"socket \d+\[core \d+", where)
    for cores in re.findall(r"\[core:([\dL,-]+)\]", where):
        for part in cores.replace("L", "").split(","):
            first, _, last = part.partition("-")
            yield from (
                f"core {number}" for number in range(int(first), int(last or first) + 1)
            )
