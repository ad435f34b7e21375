"""A slow part among many: every storage target, every node alone."""

import reframe as rfm
from reframe.core.builtins import run_after

from iogauge.cases import kind_of, sweep
from iogauge_extras.needle.needle_check import NodeNeedleCheck, TargetNeedleCheck


def _several_targets(extras):
    declared = extras.topology.targets if extras.topology else None
    return extras.target.striped_by == "lustre" and declared and declared > 1


def _several_nodes(extras):
    target = extras.target
    known = kind_of(target.type, target.cache, target.honours_o_direct)
    return known.honours_o_direct and extras.for_check("NodeNeedle").scale.nodes > 1


@rfm.simple_test
class TargetNeedle(TargetNeedleCheck):
    descr = "Every storage target alone, and the slow one by name"
    tags = {"fio", "needle", "weekly", "acceptance"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_several_targets)


@rfm.simple_test
class NodeNeedle(NodeNeedleCheck):
    descr = "Every node alone, and the slow one by name"
    tags = {"fio", "needle", "weekly", "acceptance"}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_several_nodes)
