"""Sequential writes and reads on a target that is filled up to a level: what a full file system costs."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, words
from iogauge_extras.loads.fio_loads_check import FillLevelCheck


@sweep.simple_test_if(sweep.points("fill_levels", words.O_DIRECT))
class FillLevel(FillLevelCheck):
    descr = "Bandwidth of write and read with O_DIRECT, the target filled up to a level in percent"
    tags = {"fio", "acceptance"}

    fill = parameter(sweep.points("fill_levels", words.O_DIRECT), loggable=True)
    block = "1MiB"

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions("fill_levels", self.fill, words.O_DIRECT)
