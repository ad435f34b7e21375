"""IOR through MPI-IO, independent and through the page cache."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import IorCheck, vocabulary


@rfm.simple_test
class IorMpiio(IorCheck):
    descr = "Bandwidth of write and read with IOR, MPI-IO"
    needs = vocabulary.IOR_MPIIO
    back_end = "MPIIO"

    files = parameter(["per-process", "shared"], loggable=True)

    @run_after("init")
    def choose(self):
        self.file_per_process = self.files == "per-process"
        self.tags = {"ior", "mpiio", "daily", "weekly", "acceptance"}
        if not self.file_per_process:
            self.tags.add("quick")
