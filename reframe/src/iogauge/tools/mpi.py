"""MPI-IO hints in the words of the MPI library at hand, its reports on bindings, labels of lines, and tasks that run alone.

Every MPI has its own names for the same three hints. No MPI reports whether a hint took effect:
Open MPI echoes hints that had no effect. So layouts are read back from the files and writers are
counted; the echo is never used.

All hints go into the environment of the ranks: ``IOR_HINT__MPI__<hint>`` for IOR (4.0.0), MCA
parameters for Open MPI, ``MPICH_MPIIO_HINTS`` for Cray MPICH. Striping hints take effect only when
a file is created, and only if the MPI was built with Lustre's headers (Debian's Open MPI is not).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Dialects: Cray MPICH; ROMIO (MPICH and its derivatives); OMPIO of Open MPI 4.1; OMPIO of Open MPI
#: 5.
DIALECTS: Final = ("cray", "romio", "ompio4", "ompio5")

_STRIPING: Final = {
    "cray": ("striping_factor", "striping_unit"),
    "romio": ("striping_factor", "striping_unit"),
    "ompio4": ("stripe_width", "stripe_size"),
    "ompio5": ("striping_factor", "striping_unit"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiHints:
    """Hints for a shared file and its collective I/O; None leaves the choice to the MPI library.

    ``aggregators`` is the number of ranks that write, and read, on behalf of all. Libraries ignore
    stripes that no file system can make: a site's sweeps hold none.
    """

    stripe_count: int | None = None
    stripe_bytes: int | None = None
    aggregators: int | None = None


def environment(dialect: str, hints: MpiHints, *, nodes: int) -> dict[str, str]:
    """Return the ranks' environment for hints in a dialect; see the module's text.

    ``nodes`` is the number of the ranks' nodes. Cray MPICH applies hints to files by their names: here to all.

    ROMIO needs three words for the number of aggregators. The first is ``cb_nodes``. The second is
    ``cb_config_list``, because its default of one a host caps the number. The third is
    ``romio_cb_write`` and ``romio_cb_read``: without them every rank writes for itself if the
    ranks' shares of a call do not interleave. If these shares leave holes, the aggregators read and
    rewrite the data between them: with IOR, make a block one transfer long. (Seen with ROMIO of
    MPICH 3.1.4.)

    Cray MPICH has no cap. OMPIO of Open MPI 4.1 ignores the number for two ranks, unless its
    component ``individual`` is excluded. Under Open MPI the dialect also decides whose code runs,
    OMPIO's or ROMIO's.
    """
    count, size = _STRIPING[dialect]
    words: dict[str, int | str | None] = {count: hints.stripe_count, size: hints.stripe_bytes}
    variables: dict[str, str] = {}
    if dialect.startswith("ompio"):
        variables["OMPI_MCA_io"] = "ompio"
        if hints.aggregators is not None:
            variables["OMPI_MCA_fcoll"] = "^individual"
            variables["OMPI_MCA_io_ompio_num_aggregators"] = str(hints.aggregators)
    elif hints.aggregators is not None:
        words |= {
            "cb_nodes": hints.aggregators,
            "romio_cb_write": "enable",
            "romio_cb_read": "enable",
        }
    if dialect == "romio":
        # Every other component of Open MPI's io framework is ROMIO, whatever its version. No other
        # MPI knows the variable.
        variables["OMPI_MCA_io"] = "^ompio"
        if hints.aggregators is not None:
            words["cb_config_list"] = f"*:{math.ceil(hints.aggregators / nodes)}"
    wanted = {name: str(value) for name, value in words.items() if value is not None}
    if dialect == "cray":
        text = ":".join(["*", *(f"{name}={value}" for name, value in wanted.items())])
        return {"MPICH_MPIIO_HINTS": text}
    return variables | {f"IOR_HINT__MPI__{n}": v for n, v in wanted.items()}


_DIALECT_OF: Final = (
    (re.compile(r"cray\W?mpich", re.IGNORECASE), "cray"),
    (re.compile(r"\bOpen MPI\)? v?4\."), "ompio4"),
    (re.compile(r"\bOpen MPI\)? v?([5-9]|\d\d)\."), "ompio5"),
    (re.compile(r"\bMPICH\b|\bHYDRA\b|Intel\(R\) MPI|\bMVAPICH", re.IGNORECASE), "romio"),
)


def dialect_of(version: str) -> str | None:
    """Return the dialect of an MPI by ``mpirun --version`` or ``mpichversion``; None if unknown.

    Open MPI before 4 is unknown: its default was ROMIO on some file systems and OMPIO on others.
    """
    return next((dialect for form, dialect in _DIALECT_OF if form.search(version)), None)


#: Labels of lines: mpirun of Open MPI 5, then of 4.1, with tags, ranks, times or several. srun --label and MPICH's mpiexec -l
#: label all lines.
_TAGS: Final = [
    re.compile(rf"(?m)^[^<\n]{{0,80}}<std(?:out|err)>:{blank}(.*)$") for blank in (" ", "")
]
_NUMBER: Final = re.compile(r"(?m)^(?: *\d+:|\[\d+\]) (.*)$")
#: MPICH labels all that it reads at a time, wherever in a line that begins.
_WITHIN: Final = re.compile(r"\[\d+\] ")


def unlabelled(text: str) -> str:
    """Return what tasks printed, without a launcher's labels. Blanks at the ends of lines take their place: as much was printed."""
    numbered = len(_NUMBER.findall(text)) == len(text.splitlines())
    label = _NUMBER if numbered else max(_TAGS, key=lambda form: len(form.findall(text)))

    def plain(line: re.Match[str]) -> str:
        own = _WITHIN.sub("", line[1]) if numbered and line[0][0] == "[" else line[1]
        return f"{own:{len(line[0])}}"

    return label.sub(plain, text)


OTHER_MPI: Final = (
    "this is what happens when the launcher is not that of the MPI library that the tool was built with: each task "
    "then runs alone as a world of one; use the matching mpirun or srun"
)
#: How the output of a tool begins: once, or once for each task that runs alone.
_BEGINS: Final = re.compile(
    r"(?m)^\S+ was launched with 1 total task|^Args: \S*md-workbench |^IO500 version |^-+ WRF-IO \w+ benchmark -+$"
    r"|^IOR-\S+: MPI Coordinated"
)


def alone(text: str) -> str:
    """Return that several worlds of one task printed a text, and why that may be; empty if one world did."""
    worlds = len(_BEGINS.findall(text))
    return f"{worlds} runs in one output, expected 1: {OTHER_MPI}" if worlds > 1 else ""


@dataclass(frozen=True, slots=True)
class Binding:
    """Cores to which one task was bound, by the launcher's report: host, rank, the node's cores."""

    host: str
    rank: int
    cores: frozenset[str]


#: A line on one task's binding from mpirun of Open MPI 4.1 (``MCW rank``) and 5.0 (``Rank``).
_BINDING: Final = re.compile(
    r"^\[([^\]:]+):\d+\] (?:MCW r|R)ank (\d+) (?:is not bound|bound to (.*))", re.MULTILINE
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
            yield from (f"core {number}" for number in range(int(first), int(last or first) + 1))
