"""What one load costs another: a stream beside a metadata storm, and metadata beside a stream."""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, traits, words
from iogauge_extras.loads.interference_check import (
    InterferenceApartCheck,
    InterferenceCheck,
)


@rfm.simple_test
class Interference(InterferenceCheck):
    descr = "Alone, beside a load on purpose, and alone again: writes with O_DIRECT, or creates"
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    tags = {"fio", "weekly", "acceptance"}

    measured = parameter(["stream", "metadata"], loggable=True)


def _several_nodes(extras):
    target = extras.target
    known = traits(target.type, target.cache, target.honours_o_direct)
    nodes = extras.for_check("InterferenceApart").scale.nodes
    return known.honours_o_direct and nodes > 1


@rfm.simple_test
class InterferenceApart(InterferenceApartCheck):
    descr = "Alone, beside a load on other nodes, and alone again: writes with O_DIRECT, or creates"
    tags = {"fio", "weekly", "acceptance"}

    measured = parameter(["stream", "metadata"], loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_several_nodes)
