"""Metrics of several cases: curves of the sweeps, and one partition against another.

Nothing is measured here: run the measuring checks first, then ``reframe -c checks/ -r -t derived``.
docs/checks.md has the formulas.
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, words
from iogauge_extras.derived import derive
from iogauge_extras.derived.derived_check import CurveCheck, PairsCheck, SpeedupCheck
from iogauge_extras.derived.places_check import (
    BaselineCheck,
    BoxCurveCheck,
    BoxScalingCheck,
    SizesCheck,
    baseline_checks,
    sized_checks,
)


@rfm.simple_test
class TaskScalingCurve(CurveCheck):
    descr = "Bandwidth over tasks on a node: plateau, linearity up to it, and what holds beyond"
    needs = words.IOR
    points_of = "TaskScaling"
    varied = "tasks"
    sweep_name = "tasks_per_node"
    alike = ("nodes",)
    quantities = {
        "plateau": (derive.plateau, "MiB/s"),
        "linearity": (derive.linearity, "1"),
        "hold": (derive.hold, "1"),
    }

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: len(extras.sweeps.tasks_per_node) > 1
        )


@rfm.simple_test
class ServerScalingCurve(CurveCheck):
    descr = "Bandwidth over servers: efficiency of the largest point, and fit of a straight line"
    needs = words.IOR
    points_of = "ServerScaling"
    varied = "servers"
    sweep_name = "servers"
    quantities = {"scale_out": (derive.scale_out, "1"), "fit": (derive.fit, "1")}

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: (
                extras.target.striped_by == "lustre" and len(extras.sweeps.servers) > 1
            )
        )


def _with_curve(name):
    """Return the partitions with O_DIRECT that declare two points or more of a sweep."""
    points = sweep.points(name, words.O_DIRECT)
    found = [
        place
        for point in points
        for place in sweep.partitions(name, point, words.O_DIRECT)
    ]
    return sorted({place for place in found if found.count(place) > 1})


@sweep.simple_test_if(sweep.points("queue_depths", words.O_DIRECT))
class QueueDepthCurve(CurveCheck):
    descr = (
        "Operations over requests in flight: the plateau, and the depth that it takes"
    )
    needs = words.FIO
    points_of = "QueueDepth"
    varied = "depth"
    sweep_name = "queue_depths"
    measured = ("iops", "ops/s")
    fixed_parameters = ("access",)
    quantities = {"plateau": (derive.plateau, "ops/s"), "knee": (derive.knee, "1")}

    access = parameter(["read", "write"], loggable=True)

    @run_after("init")
    def choose(self):
        self.ways = (self.access,)
        self.valid_systems = _with_curve("queue_depths")


@sweep.simple_test_if(sweep.points("fill_levels", words.O_DIRECT))
class FillLevelCurve(CurveCheck):
    descr = "Bandwidth on the fullest target over that on the emptiest"
    needs = words.FIO
    points_of = "FillLevel"
    varied = "fill"
    sweep_name = "fill_levels"
    quantities = {"kept": (derive.kept, "1")}

    @run_after("init")
    def choose(self):
        self.valid_systems = _with_curve("fill_levels")


@sweep.simple_test_if(sweep.points("tasks_per_client", words.O_DIRECT))
class ReadScalingCurve(CurveCheck):
    descr = "Random reads over the processes on a client: plateau, linearity, and what holds beyond"
    needs = words.FIO
    points_of = "RandomRead"
    varied = "tasks"
    sweep_name = "tasks_per_client"
    ways = ("read",)
    measured = ("iops", "ops/s")
    alike = ("nodes",)
    fixed_parameters = ("block", "span")
    quantities = {
        "plateau": (derive.plateau, "ops/s"),
        "linearity": (derive.linearity, "1"),
        "hold": (derive.hold, "1"),
    }

    block = parameter(["4KiB", "32KiB", "128KiB"], loggable=True)
    span = parameter(["one-client", "all"], loggable=True)

    @run_after("init")
    def choose(self):
        nodes = 1 if self.span == "one-client" else 2
        enough = sweep.partitions_of(lambda extras: extras.scale.nodes >= nodes)
        self.valid_systems = [
            name for name in _with_curve("tasks_per_client") if name in enough
        ]


#: Libraries that StripeCount writes with, and the feature of an environment that has each.
_LIBRARIES = {
    "MPIIO": words.IOR_MPIIO,
    "HDF5": words.IOR_HDF5,
    "NCMPI": words.IOR_NCMPI,
}


@rfm.simple_test
class StripeSpeedup(SpeedupCheck):
    descr = "A shared file over many storage targets against the same on the first stripe count"
    points_of = "StripeCount"
    varied = "stripe_count"
    sweep_name = "stripe_counts"
    fixed_parameters = ("api",)

    api = parameter(list(_LIBRARIES), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_prog_environs = [f"+{_LIBRARIES[self.api]}"]
        self.valid_systems = sweep.partitions_of(
            lambda extras: (
                extras.target.striped_by == "lustre"
                and len(extras.sweeps.stripe_counts) > 1
            )
        )


@rfm.simple_test
class AccessRatios(PairsCheck):
    descr = "What order and cache make of the throughput of 4 MiB transfers"
    needs = words.IOR
    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    points_of = "AccessMatrix"
    varied = "pattern"
    pairs = {
        "sequential_over_random": ("sequential-buffered-4m", "random-buffered-4m"),
        "direct_over_buffered": ("random-direct-4m", "random-buffered-4m"),
    }


def _with_boxes(least, tasks):
    """Return the partitions with so many boxes or more, and with a point of tasks on a client."""
    return sweep.partitions_of(
        lambda extras: (
            tasks in extras.sweeps.tasks_per_client
            and extras.target.striped_by == "lustre"
            and extras.topology
            and extras.topology.servers
            and extras.topology.servers.boxes >= least
        )
    )


@sweep.simple_test_if(sweep.points("tasks_per_client", words.O_DIRECT))
class BoxScaling(BoxScalingCheck):
    descr = "Random reads from all boxes of servers against those from one"
    needs = words.FIO

    block = parameter(["4KiB", "32KiB", "128KiB"], loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.O_DIRECT), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = _with_boxes(2, self.tasks)


@sweep.simple_test_if(sweep.points("tasks_per_client", words.O_DIRECT))
class BoxScalingCurve(BoxCurveCheck):
    descr = "Random reads over the number of boxes of servers: fit of a straight line"
    needs = words.FIO

    block = parameter(["4KiB", "32KiB", "128KiB"], loggable=True)
    tasks = parameter(sweep.points("tasks_per_client", words.O_DIRECT), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = _with_boxes(3, self.tasks)


@sweep.simple_test_if(baseline_checks())
class AgainstBaseline(BaselineCheck):
    descr = (
        "The best of a check's cases here against the best on the partition's baseline"
    )

    check = parameter(baseline_checks(), loggable=True)

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(
            lambda extras: extras.baseline and self.check in extras.baseline.checks
        )


@sweep.simple_test_if(sized_checks())
class SizeScaling(SizesCheck):
    descr = "The best of a check's cases over file systems of three sizes or more"

    check = parameter(sized_checks(), loggable=True)
