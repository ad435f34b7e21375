"""Reads and writes at once: what both reach, and what the writes cost the reads."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, vocabulary
from iogauge_extras.loads.mixed_check import MixedCheck


@sweep.simple_test_if(sweep.points("read_shares"))
class Mixed(MixedCheck):
    descr = "Reads alone, then reads and writes of the same files"

    order = parameter(["random", "sequential"], loggable=True)
    #: A part of the names of recorded cases.
    cache = parameter(["direct"], loggable=True)
    reads = parameter(sweep.points("read_shares"), loggable=True)
    span = parameter(["one-client", "all"], loggable=True)

    @run_after("init")
    def choose(self):
        self.block = "4KiB" if self.order == "random" else "1MiB"
        self.tags = {"fio", "weekly", "acceptance"}
        if (self.order, self.span) == ("random", "one-client"):
            self.tags.add("daily")
        self.valid_systems = sweep.partitions(
            "read_shares", self.reads, vocabulary.O_DIRECT
        )
        if self.span == "all":
            several = sweep.partitions_of(lambda extras: extras.scale.nodes > 1)
            self.valid_systems = [
                name for name in self.valid_systems if name in several
            ]
