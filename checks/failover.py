"""I/O across a failure: what programs see while a part of the storage is away, and what of their data is there afterwards."""

import reframe as rfm
from reframe.core.builtins import run_after

from iogauge.cases import sweep
from iogauge_extras.loads.failover_check import FailoverCheck


@rfm.simple_test
class Failover(FailoverCheck):
    descr = "A verified stream and creates on all clients while a part of the storage fails and comes back"
    valid_prog_environs = ["*"]
    tags = {"failover"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(lambda extras: extras.failover)
