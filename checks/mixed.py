"""Reads and writes at once: what both reach, and what the writes cost the reads."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, vocabulary
from iogauge_extras.loads.mixed_check import MixedCheck


@sweep.simple_test_if(sweep.points("read_shares"))
class Mixed(MixedCheck):
    descr = "Reads alone, then reads and writes of the same files"

    order = parameter(["random", "sequential"], loggable=True)
    cache = parameter(["direct", "buffered"], loggable=True)
    reads = parameter(sweep.points("read_shares"), loggable=True)
    span = parameter(["one-client", "all"], loggable=True)

    @run_after("init")
    def choose(self):
        self.block = "4KiB" if self.order == "random" else "1MiB"
        self.o_direct = self.cache == "direct"
        self.tags = {"fio", "weekly", "acceptance"}
        if (self.order, self.cache, self.span) == ("random", "direct", "one-client"):
            self.tags.add("daily")
        needs = (vocabulary.O_DIRECT,) if self.o_direct else ()
        self.valid_systems = sweep.partitions("read_shares", self.reads, *needs)
        if self.span == "all":
            several = sweep.partitions_of(lambda extras: extras.scale.nodes > 1)
            self.valid_systems = [
                name for name in self.valid_systems if name in several
            ]
