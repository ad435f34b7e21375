"""Sequential writes and reads with fio: bandwidth on a machine without IOR and MPI."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import FioSequentialCheck, vocabulary


@rfm.simple_test
class FioSequential(FioSequentialCheck):
    descr = "Bandwidth of write and read with fio, on one node"

    files = parameter(["per-process", "shared"], loggable=True)
    cache = parameter(["direct", "buffered"], loggable=True)
    block = parameter(["1MiB", "4MiB"], loggable=True)

    @run_after("init")
    def choose(self):
        self.file_per_process = self.files == "per-process"
        self.o_direct = self.cache == "direct"
        if self.o_direct:
            self.valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
        self.tags = {"fio", "daily", "weekly", "acceptance"}
        if self.block == "1MiB" and (self.o_direct or self.file_per_process):
            self.tags.add("quick")
