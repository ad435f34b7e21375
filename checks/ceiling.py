"""Ceilings: what the network, a client's memory and the devices carry without the file system.

A partition has the cases that its ``ceilings`` allow. docs/checks.md says how they bound other figures.
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep
from iogauge_extras.ceilings.check import (
    DeviceCeilingCheck,
    MemoryCeilingCheck,
    NetworkCeilingCheck,
)


@rfm.simple_test
class NetworkCeiling(NetworkCeilingCheck):
    descr = "Streams between nodes: each pair alone, one to all, all to one"
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
class MemoryCeiling(MemoryCeilingCheck):
    descr = "Copies from a node's memory, by one task and by all"
    tags = {"fio", "ceiling", "acceptance"}

    copied_by = parameter(["one-task", "all-tasks"], loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: extras.ceilings and extras.ceilings.memory
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
