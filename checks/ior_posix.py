"""IOR through POSIX: all combinations of files, order and cache."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import IorCheck, vocabulary


@rfm.simple_test
class IorPosix(IorCheck):
    descr = "Bandwidth of write and read with IOR, POSIX"

    files = parameter(["per-process", "shared"], loggable=True)
    order = parameter(["sequential", "random"], loggable=True)
    cache = parameter(["direct", "buffered"], loggable=True)

    @run_after("init")
    def choose(self):
        self.file_per_process = self.files == "per-process"
        self.random = self.order == "random"
        if self.random:
            self.transfer, self.share = 4096, 16
        self.o_direct = self.cache == "direct"
        if self.o_direct:
            self.valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
        self.tags = {"ior", "daily", "weekly", "acceptance"}
        if not self.random and (self.o_direct or self.file_per_process):
            self.tags.add("quick")


@rfm.simple_test
class IorHard(IorCheck):
    descr = "Transfers of 47008 bytes of all tasks in turns, in a shared file"
    tags = {"ior", "weekly", "acceptance"}
    file_per_process = False
    segmented = True
    transfer = 47008
    share = 4
