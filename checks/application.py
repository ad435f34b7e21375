"""An application's output: the file of a weather model, timed as the application sees it."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, vocabulary
from iogauge_extras.suites.wrf_check import WrfOutputCheck


@sweep.simple_test_if(sweep.environments(vocabulary.WRF_IO))
class WrfOutput(WrfOutputCheck):
    descr = "A weather model's output through PnetCDF, from open to close and sync, and its input"
    tags = {"wrf_io", "weekly", "acceptance"}

    stripe_count = parameter(sweep.found(sweep.stripes), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: self.stripe_count in sweep.stripes(extras)
        )
