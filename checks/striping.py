"""A file that all tasks write together: stripe count, stripe size, and number of writers."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import Layout, sweep, vocabulary
from iogauge_extras.suites.shared_check import (
    AggregatorsCheck,
    DefaultWritersCheck,
    HintedFileCheck,
    SharedFileCheck,
    SizedFileCheck,
)

#: Libraries through which all tasks write one file.
_APIS = ["MPIIO", "HDF5", "NCMPI"]


@sweep.simple_test_if(sweep.points("stripe_counts", vocabulary.LUSTRE))
class StripeCount(SharedFileCheck):
    descr = "Collective write of a shared file by stripe count"

    api = parameter(_APIS, loggable=True)
    stripe_count = parameter(
        sweep.points("stripe_counts", vocabulary.LUSTRE), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "stripe_counts", self.stripe_count, vocabulary.LUSTRE
        )


@sweep.simple_test_if(sweep.points("stripe_sizes", vocabulary.LUSTRE))
class StripeSize(SharedFileCheck):
    descr = "Collective write of a shared file over all storage targets by stripe size"

    api = parameter(_APIS, loggable=True)
    stripe_size = parameter(
        sweep.points("stripe_sizes", vocabulary.LUSTRE), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "stripe_sizes", self.stripe_size, vocabulary.LUSTRE
        )

    def layout(self):
        return Layout(stripe_count=-1, stripe_bytes=self.stripe_size)


@sweep.simple_test_if(sweep.points("striping_hints", vocabulary.LUSTRE))
class StripeHints(HintedFileCheck):
    descr = "Collective write of a shared file whose stripes the MPI library makes, by hints"

    stripe_size = parameter(
        sweep.points("striping_hints", vocabulary.LUSTRE), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "striping_hints", self.stripe_size, vocabulary.LUSTRE
        )


@rfm.simple_test
class SharedFile(SharedFileCheck):
    descr = "Collective write and read of a shared file, by stripe count"
    reads = True

    api = parameter(_APIS, loggable=True)
    stripe_count = parameter(sweep.found(sweep.stripes), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: self.stripe_count in sweep.stripes(extras)
        )


@sweep.simple_test_if(sweep.points("file_sizes"))
class OutputFile(SizedFileCheck):
    descr = "Seconds for an application's output, a shared file of its size, by stripe count"

    api = parameter(_APIS, loggable=True)
    size = parameter(sweep.points("file_sizes"), loggable=True)
    stripe_count = parameter(sweep.found(sweep.stripes), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: (
                self.size in extras.sweeps.file_sizes
                and self.stripe_count in sweep.stripes(extras)
            )
        )


@sweep.simple_test_if(sweep.points("aggregators"))
class Aggregators(AggregatorsCheck):
    descr = "Collective write by so many tasks on behalf of all, counted with Darshan"

    api = parameter(_APIS, loggable=True)
    aggregators = parameter(sweep.points("aggregators"), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("aggregators", self.aggregators)


@sweep.simple_test_if(sweep.points("default_writers", vocabulary.LUSTRE))
class DefaultWriters(DefaultWritersCheck):
    descr = "Collective write without hints: how many tasks the MPI library lets write, by stripe count"

    api = parameter(_APIS, loggable=True)
    stripe_count = parameter(
        sweep.points("default_writers", vocabulary.LUSTRE), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "default_writers", self.stripe_count, vocabulary.LUSTRE
        )
