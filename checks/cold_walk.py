"""What users call "the file system hangs": the tree of a software stack, seen for the first time."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep
from iogauge_extras.loads.walk_check import ColdWalkCheck


@rfm.simple_test
class ColdWalk(ColdWalkCheck):
    descr = "A software stack unpacked, listed, imported, cloned and removed by nodes that did not make it"
    valid_prog_environs = ["*"]
    tags = {"weekly", "acceptance"}

    meanwhile = parameter(["alone", "changed"], loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: extras.for_check("ColdWalk").scale.nodes > 1
        )
