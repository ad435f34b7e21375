"""MPI-IO hints in the words of the MPI library at hand.

Every MPI has its own names for the same three hints. No MPI reports whether a hint took effect:
Open MPI echoes hints that had no effect. So layouts are read back from the files and writers are
counted; the echo is never used.

All hints go into the environment of the ranks: ``IOR_HINT__MPI__<hint>`` for IOR (4.0.0), MCA
parameters for Open MPI, ``MPICH_MPIIO_HINTS`` for Cray MPICH. Striping hints take effect only when
a file is created, and only if the MPI was built with Lustre's headers (Debian's Open MPI is not).
"""

import math
from dataclasses import dataclass
from typing import Final

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
    words: dict[str, int | str | None] = {
        count: hints.stripe_count,
        size: hints.stripe_bytes,
    }
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
