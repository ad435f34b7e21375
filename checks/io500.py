"""IO500, as a list submission needs it, and in a short form."""

import reframe as rfm
from reframe.core.builtins import run_after

from iogauge.cases import sweep
from iogauge_extras.suites.io500_check import Io500Check


def _several_nodes(check):
    return lambda extras: extras.for_check(check).scale.nodes > 1


@rfm.simple_test
class Io500(Io500Check):
    descr = "IO500 with 300 s for each phase that writes"
    tags = {"io500", "acceptance"}
    time_limit = "4h"

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_several_nodes("Io500"))


@rfm.simple_test
class Io500Short(Io500Check):
    descr = "IO500 with phases as short as the site says: comparable with itself alone"
    tags = {"io500", "weekly", "acceptance"}
    official = False

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(_several_nodes("Io500Short"))
