"""Metrics of several cases: curves of the sweeps, and one partition against another.

Nothing is measured here: run the measuring checks first, then ``reframe -c checks/ -r -t derived``.
docs/checks.md has the formulas.
"""

import reframe as rfm
from reframe.core.builtins import parameter, run_after

from iogauge.cases import sweep, vocabulary
from iogauge_extras.derived import derive
from iogauge_extras.derived.derived_check import CurveCheck, PairsCheck, SpeedupCheck
from iogauge_extras.derived.places_check import (
    BaselineCheck,
    BoxScalingCheck,
    SizesCheck,
    baseline_checks,
    sized_checks,
)


@rfm.simple_test
class TaskScalingCurve(CurveCheck):
    descr = "Bandwidth over tasks on a node: plateau, linearity up to it, and what holds beyond"
    needs = vocabulary.IOR
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


#: Libraries that StripeCount writes with, and the feature of an environment that has each.
_LIBRARIES = {
    "MPIIO": vocabulary.IOR_MPIIO,
    "HDF5": vocabulary.IOR_HDF5,
    "NCMPI": vocabulary.IOR_NCMPI,
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
    needs = vocabulary.IOR
    valid_systems = [f"+{vocabulary.TARGET} +{vocabulary.O_DIRECT}"]
    points_of = "AccessMatrix"
    varied = "pattern"
    against = "random-buffered-4m"
    pairs = {
        "sequential_over_random": "sequential-buffered-4m",
        "direct_over_buffered": "random-direct-4m",
    }


@sweep.simple_test_if(sweep.points("tasks_per_client", vocabulary.O_DIRECT))
class BoxScaling(BoxScalingCheck):
    descr = "Random reads from all boxes of servers against those from one"
    needs = vocabulary.FIO

    block = parameter(["4KiB", "32KiB", "128KiB"], loggable=True)
    tasks = parameter(
        sweep.points("tasks_per_client", vocabulary.O_DIRECT), loggable=True
    )

    @run_after("init")
    def choose(self):
        self.valid_systems = sweep.partitions_of(self._has_boxes)

    def _has_boxes(self, extras):
        """Return whether a partition has this point, and several boxes of servers on Lustre."""
        if extras.target.striped_by != "lustre" or extras.topology is None:
            return False
        servers = extras.topology.servers
        if servers is None or servers.boxes < 2:
            return False
        return self.tasks in extras.sweeps.tasks_per_client


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
