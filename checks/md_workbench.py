"""Latencies of metadata: md-workbench."""

import reframe as rfm
from reframe.core.builtins import run_after

from iogauge.cases import sweep
from iogauge_extras.suites.md_workbench_check import MdWorkbenchCheck


@rfm.simple_test
class MdLatency(MdWorkbenchCheck):
    descr = "Latencies of stat, read, remove and create on files of 3901 bytes"
    tags = {"md-workbench", "weekly", "acceptance"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: extras.for_check("MdLatency").scale.nodes > 1
        )
