"""Small random requests with more and more of them in flight: operations, and the latency of each."""

from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, words
from iogauge_extras.loads.fio_loads_check import QueueDepthCheck


@sweep.simple_test_if(sweep.points("queue_depths", words.O_DIRECT))
class QueueDepth(QueueDepthCheck):
    descr = (
        "Random 4 KiB requests with O_DIRECT, a depth of them in flight for each task"
    )
    tags = {"fio", "weekly", "acceptance"}

    access = parameter(["read", "write"], loggable=True)
    depth = parameter(sweep.points("queue_depths", words.O_DIRECT), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions(
            "queue_depths", self.depth, words.O_DIRECT
        )
