"""MPI-IO hints: what is wanted, in the words that the MPI library at hand understands.

Every MPI has names of its own for the same three wishes, and none of them says that it did what it was
told: Open MPI echoes hints that had no effect. What was obtained is read back from the files (layout) and
counted (writers), never taken from the echo.

Everything goes into the environment of the ranks: ``IOR_HINT__MPI__<hint>`` for IOR (4.0.0), MCA parameters
for Open MPI, ``MPICH_MPIIO_HINTS`` for Cray MPICH. Hints on striping act only where a file is created, and
only where the MPI was built with Lustre's headers (Debian's Open MPI is not).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: Whose words a site's MPI understands: Cray MPICH; ROMIO (MPICH and all that use it); OMPIO of
#: Open MPI 4.1; OMPIO of Open MPI 5.
DIALECTS: Final = ("cray", "romio", "ompio4", "ompio5")

#: Lustre takes stripe sizes in steps of 64 KiB, below 4 GiB.
_STRIPE_STEP: Final = 65536
_STRIPING: Final = {
    "cray": ("striping_factor", "striping_unit"),
    "romio": ("striping_factor", "striping_unit"),
    "ompio4": ("stripe_width", "stripe_size"),
    "ompio5": ("striping_factor", "striping_unit"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a shared file and its collective I/O should be like; None: as the MPI library chooses.

    ``aggregators`` is the number of ranks that write, and read, on behalf of all. Raises
    :class:`ValueError` for a wish that no file system can fulfil, and for one that wishes nothing.
    """

    stripe_count: int | None = None
    stripe_bytes: int | None = None
    aggregators: int | None = None

    def __post_init__(self) -> None:
        """Refuse what the libraries would ignore without a message."""
        for name, value in (("stripe_count", self.stripe_count), ("aggregators", self.aggregators)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1")
        size = self.stripe_bytes
        if size is not None and (size % _STRIPE_STEP or not 0 < size < 2**32):
            raise ValueError(
                f"stripe_bytes is {size}: expected a multiple of 64 KiB above 0 and below 4 GiB"
            )
        if self.stripe_count is None and size is None and self.aggregators is None:
            raise ValueError(
                "nothing is wished: set stripe_count, stripe_bytes or aggregators, or give no hints"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Hints ready for use: variables for the environment of the ranks, and of nothing else."""

    environment: dict[str, str]


def words(dialect: str, wish: Wish, *, nodes: int, pattern: str = "*") -> Given:
    """A wish in a dialect; see the module's text.

    ``nodes`` are those that the ranks run on. ``pattern`` says which files Cray MPICH gives the hints to,
    by the name under which they are opened; the other dialects have no such thing.

    ROMIO needs three words for the number of aggregators: ``cb_nodes``; ``cb_config_list``, because its
    default of one a host caps that; and ``romio_cb_write`` and ``romio_cb_read``, because without them every
    rank writes for itself where the ranks' shares of a call do not interleave. Where these shares leave
    holes, its aggregators then read and rewrite what lies between: with IOR, make a block one transfer long.
    (Seen with ROMIO of MPICH 3.1.4.) Cray MPICH has no cap. OMPIO of Open MPI 4.1 ignores the number for two
    ranks, unless its component ``individual`` is excluded. Under Open MPI the dialect also decides whose
    code runs, OMPIO's or ROMIO's.

    Raises :class:`ValueError` for an unknown dialect, for nodes below 1 and for a pattern that Cray's
    syntax cannot hold.
    """
    if dialect not in DIALECTS:
        raise ValueError(f"dialect is {dialect!r}: expected one of {', '.join(DIALECTS)}")
    if nodes < 1:
        raise ValueError(f"nodes is {nodes}: expected at least 1")
    if not re.fullmatch(r"[^\s,:=\"'\\]+", pattern):
        raise ValueError(
            f"pattern is {pattern!r}: expected a file name, with * and ?, without blanks, quotes, "
            "commas, colons and equal signs"
        )
    count, size = _STRIPING[dialect]
    hints: dict[str, int | str | None] = {count: wish.stripe_count, size: wish.stripe_bytes}
    variables: dict[str, str] = {}
    if dialect.startswith("ompio"):
        variables["OMPI_MCA_io"] = "ompio"
        if wish.aggregators is not None:
            variables["OMPI_MCA_fcoll"] = "^individual"
            variables["OMPI_MCA_io_ompio_num_aggregators"] = str(wish.aggregators)
    elif wish.aggregators is not None:
        hints |= {
            "cb_nodes": wish.aggregators,
            "romio_cb_write": "enable",
            "romio_cb_read": "enable",
        }
    if dialect == "romio":
        # Every other component of Open MPI's io framework is ROMIO, whatever its version; no other MPI
        # knows the variable.
        variables["OMPI_MCA_io"] = "^ompio"
        if wish.aggregators is not None:
            hints["cb_config_list"] = f"*:{math.ceil(wish.aggregators / nodes)}"
    wanted = {name: str(value) for name, value in hints.items() if value is not None}
    if dialect == "cray":
        text = ":".join([pattern, *(f"{name}={value}" for name, value in wanted.items())])
        return Given(environment={"MPICH_MPIIO_HINTS": text})
    return Given(environment=variables | {f"IOR_HINT__MPI__{n}": v for n, v in wanted.items()})


_DIALECT_OF: Final = (
    (re.compile(r"cray\W?mpich", re.IGNORECASE), "cray"),
    (re.compile(r"\bOpen MPI\)? v?4\."), "ompio4"),
    (re.compile(r"\bOpen MPI\)? v?([5-9]|\d\d)\."), "ompio5"),
    (re.compile(r"\bMPICH\b|\bHYDRA\b|Intel\(R\) MPI|\bMVAPICH", re.IGNORECASE), "romio"),
)


def dialect_of(version: str) -> str | None:
    """The dialect of an MPI, by what ``mpirun --version`` or ``mpichversion`` prints; None: not known.

    Open MPI before 4 is not known: its default was ROMIO on some file systems and OMPIO on others.
    """
    return next((dialect for form, dialect in _DIALECT_OF if form.search(version)), None)


@dataclass(frozen=True, slots=True)
class Binding:
    """Cores that one task was bound to, as the launcher reported it: host, rank, cores of the node."""

    host: str
    rank: int
    cores: frozenset[str]


#: A line about one task's binding, as mpirun of Open MPI 4.1 (``MCW rank``) and 5.0 (``Rank``) print it.
_BINDING: Final = re.compile(
    r"^\[([^\]:]+):\d+\] (?:MCW r|R)ank (\d+) (?:is not bound|bound to (.*))", re.MULTILINE
)


def is_binding(line: str) -> bool:
    """Whether a line of standard error is the launcher's word on a task's binding, and no complaint."""
    return _BINDING.match(line) is not None


def parse_bindings(text: str) -> list[Binding]:
    """Bindings from what mpirun of Open MPI prints on standard error where it is told to report them.

    A task that is bound to no core is left out, and so is one of Open MPI 5 that is bound to hardware threads,
    whose cores it does not tell.
    """
    found = [
        Binding(host, int(rank), frozenset(_cores(where)))
        for host, rank, where in _BINDING.findall(text)
    ]
    return [one for one in found if one.cores]


def _cores(where: str) -> Iterator[str]:
    """Cores in ``socket 0[core 0[hwt 0]], socket 0[core 1[hwt 0]]: [B/B]`` or ``package[0][core:L0-1,3]``."""
    yield from re.findall(r"socket \d+\[core \d+", where)
    for cores in re.findall(r"\[core:([\dL,-]+)\]", where):
        for part in cores.replace("L", "").split(","):
            first, _, last = part.partition("-")
            yield from (f"core {number}" for number in range(int(first), int(last or first) + 1))
