"""Ceilings: what the network and the devices carry without the file system.

A partition has the cases that its ``ceilings`` allow. docs/checks.md says how they bound other figures.
"""

import reframe as rfm
from reframe.core.builtins import run_after

from iogauge.cases import sweep
from iogauge_extras.ceilings.ceilings_check import (
    DeviceCeilingCheck,
    NetworkCeilingCheck,
)


@rfm.simple_test
class NetworkCeiling(NetworkCeilingCheck):
    descr = "Streams between nodes, each pair alone"
    tags = {"ceiling", "acceptance"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: (
                extras.ceilings
                and extras.ceilings.network
                and extras.for_check("NetworkCeiling").scale.nodes > 1
            )
        )


@rfm.simple_test
class DeviceCeiling(DeviceCeilingCheck):
    descr = "Reads of the target's devices past the file system, all at once"
    tags = {"fio", "ceiling", "acceptance"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: extras.ceilings and extras.ceilings.devices
        )
