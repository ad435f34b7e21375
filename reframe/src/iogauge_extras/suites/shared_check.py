"""Base classes of the scenarios in which all tasks of IOR write one file together, through MPI-IO or a library over it."""

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import reframe.core.builtins as builtins

from iogauge.cases.ior_check import WRITE, IorCheck
from iogauge.core import registry
from iogauge.core.measurement import Metric, Reference
from iogauge.core.vocabulary import DARSHAN, IOR_HDF5, IOR_MPIIO, IOR_NCMPI
from iogauge.node.lustre.request import Layout
from iogauge.plan.case import REP, PhasePlan
from iogauge.tools import darshan
from iogauge.tools.ior.ior_options import IorOptions
from iogauge.tools.mpi import DIALECTS
from iogauge_extras.suites.hints import MpiHints, environment

WRITE_TIME = Metric("write_time", "s", "less")
WRITERS = Metric("writers", "1")


class SharedFileCheck(IorCheck):
    """A collective write of a file through MPI-IO or a library that uses it.

    The tasks' transfers alternate in the file, like the rows of a distributed array. If each task
    had a part of its own, MPI libraries would not use aggregators (OMPIO then writes from every
    rank).

    A subclass sets ``stripe_count``, 0 for the target's own layout, if the check does not say otherwise; it may have a
    parameter ``api``, one of IOR's back ends.
    """

    stripe_count: int
    back_end = "MPIIO"
    file_per_process = False
    collective = True
    segmented = True
    reads = False
    tags = {"ior", "mpiio", "striping", "weekly", "acceptance"}

    needs = IOR_MPIIO

    @builtins.run_after("init")
    def _choose_back_end(self) -> None:
        """Use the check's back end of IOR, in environments that have it."""
        self.back_end = getattr(self, "api", self.back_end)
        feature = {"HDF5": IOR_HDF5, "NCMPI": IOR_NCMPI}
        self.valid_prog_environs = [f"+{feature.get(self.back_end, IOR_MPIIO)}"]

    def layout(self) -> Layout | None:
        """Return the stripe count that is asked for, or None for the target's own layout."""
        return Layout(stripe_count=self.stripe_count) if self.stripe_count else None

    def hints(self) -> MpiHints | None:
        """Return hints to the MPI library, or None."""
        return None

    def tool_words(self) -> Sequence[str]:
        """Return the words that start IOR, with the hints in its environment; raises ValueError for an unknown MPI."""
        hints = self.hints()
        if hints is None:
            return super().tool_words()
        dialect = self.current_environ.extras.get("mpi")
        if dialect is None:
            raise ValueError(
                f"environment {self.current_environ.name!r} does not say whose MPI-IO hints its MPI "
                f"understands: set extras.mpi to one of {', '.join(DIALECTS)}"
            )
        variables = environment(dialect, hints, nodes=self.nodes)
        return ["env", *(f"{name}={value}" for name, value in variables.items()), "ior"]


class HintedFileCheck(SharedFileCheck):
    """A collective write whose stripes the MPI library is asked for; the layout is read back (G10).

    A subclass sets ``stripe_size`` in bytes. The stripe count is the largest of the site's sweep. A
    library that was built without Lustre ignores such hints, and the case is INVALID.
    """

    hinted = True
    stripe_size: int

    def layout(self) -> Layout:
        """Return the layout that the hints ask for; raises ValueError without a stripe count."""
        counts = self.site.sweeps.stripe_counts
        if not counts:
            raise ValueError(
                "sweeps.striping_hints needs a stripe count: declare sweeps.stripe_counts"
            )
        return Layout(stripe_count=max(counts), stripe_bytes=self.stripe_size)

    def hints(self) -> MpiHints:
        """Return the layout as hints."""
        layout = self.layout()
        return MpiHints(
            stripe_count=layout.stripe_count, stripe_bytes=layout.stripe_bytes
        )


class SizedFileCheck(SharedFileCheck):
    """A collective write of a file of a given size, as an application writes one output.

    A subclass sets ``size`` in bytes. The transfers are small, so that the file is not rounded by much. One output on a few
    targets drives no target to its limit.
    """

    transfer = 256 << 10
    times = MappingProxyType({"write": WRITE_TIME})
    size: int

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, with the file's size; raises ValueError beyond the limits."""
        most = self.site.limits.case_bytes
        if self.size > most:
            raise ValueError(
                f"sweeps.file_sizes names {self.size} bytes, but limits.case_bytes is {most}: raise the "
                "limit, or leave the size out"
            )
        return {**super().declared(), "total_bytes": self.size}


class DefaultWritersCheck(SharedFileCheck):
    """A collective write without hints, and the number of ranks that the MPI library lets write.

    The bandwidth is measured without Darshan. An execution under Darshan counts the ranks that wrote. It
    comes first and removes its file: the layout is asked of the file that was measured.
    """

    @builtins.run_after("init")
    def _choose_back_end(self) -> None:
        """Use the check's back end of IOR, in environments that have it and Darshan."""
        super()._choose_back_end()
        self.valid_prog_environs[0] += f" +{DARSHAN}"

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidth, and the number of ranks that wrote."""
        return (WRITE, WRITERS)

    def sound_phases(self, options: IorOptions) -> list[PhasePlan]:
        """Write under Darshan, write without it, and count the writers with Darshan's parser."""
        log = f"darshan.{REP}.log"
        watched = darshan.run_words(str(self.current_environ.extras["darshan"]), log)
        (write,) = super().sound_phases(options)
        first = self.ior_phase(
            "watched",
            replace(options, write=True, fsync=True, keep=False),
            replace(self._access("write"), fsync=True),
            [*watched, *self.tool_words()],
        )
        counted = registry.load("iogauge_answers", "darshan.writers")
        writers = PhasePlan(
            name="writers",
            command=["darshan-parser", log],
            parse=lambda printed: counted(
                printed.result, printed.stderr, self.file_name(0)
            ),
            rates={WRITERS.name: ("writers", "writers")},
        )
        return [first, write, writers]


class AggregatorsCheck(DefaultWritersCheck):
    """A collective write with a given number of writers; a subclass sets ``aggregators``.

    On Lustre the file has as many stripes as writers.
    """

    aggregators: int

    def standing_references(self) -> dict[str, Reference]:
        """Return references: as many ranks write as the hints ask for."""
        reference = Reference(
            self.aggregators,
            0.0,
            0.0,
            WRITERS.unit,
            "the number that the hints ask for",
        )
        return {WRITERS.name: reference}

    def layout(self) -> Layout | None:
        """Return as many stripes as writers, if Lustre stripes files."""
        if self.site.target.striped_by != "lustre":
            return None
        return Layout(stripe_count=self.aggregators)

    def hints(self) -> MpiHints:
        """Return the number of writers as a hint."""
        return MpiHints(aggregators=self.aggregators)
