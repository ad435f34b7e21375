"""Metrics that compare places: a partition with its baseline, file systems of several sizes, boxes of servers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import reframe.core.builtins as builtins
from reframe.core.runtime import runtime

from iogauge.core.measurement import Metric
from iogauge.core.units import dimension
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import bare, leaves
from iogauge_extras.derived import derive
from iogauge_extras.derived.derive import NotComputable, Operands, Source
from iogauge_extras.derived.derived_check import DerivedCheck, Formula


def _environments() -> dict[str, set[str]]:
    """Return the names of the environments of the selected system's partitions by name."""
    found = {}
    for partition in runtime().system.partitions:
        found[partition.name] = {environ.name for environ in partition.environs}
    return found


def _partition_extras() -> dict[str, PartitionExtras]:
    """Return the extras of the selected system's partitions by name."""
    return {
        partition.name: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras
    }


def baseline_checks() -> list[str]:
    """Return the checks that partitions of the selected system compare with a baseline."""
    checks: set[str] = set()
    for extras in _partition_extras().values():
        if extras.baseline:
            checks.update(extras.baseline.checks)
    return sorted(checks)


def sizes(check: str) -> dict[str, dict[str, int]]:
    """Return the sizes of the file systems that a check is compared over, by their baseline.

    They belong to a baseline and to all partitions that compare the check with it. Fewer than three make no curve.
    """
    every = _partition_extras()
    families: dict[str, dict[str, int]] = {}
    for name, extras in every.items():
        other = extras.baseline
        if other and check in other.checks and other.partition in every:
            members = families.setdefault(other.partition, {})
            for member in (other.partition, name):
                parts = every[member].topology
                if parts and parts.size:
                    members[member] = parts.size
    return {
        name: found for name, found in families.items() if len(set(found.values())) > 2
    }


def sized_checks() -> list[str]:
    """Return the checks that the selected system compares over file systems of several sizes."""
    return [check for check in baseline_checks() if sizes(check)]


class PlacesCheck(DerivedCheck):
    """A check on several file systems, compared by the metrics that all of them have.

    A subclass makes ``check`` a parameter.
    """

    check: str

    def places(self) -> Mapping[str, float]:
        """Return the compared partitions, each with its number on the curve."""
        raise TypeError(f"{type(self).__name__} must define places()")

    def compared(self, metric: Metric) -> Iterator[Formula]:
        """Yield the formulas of a metric."""
        raise TypeError(f"{type(self).__name__} must define compared()")

    def sources(self) -> tuple[Source, ...]:
        """Return all cases of the check on each file system."""
        found = []
        for place, x in self.places().items():
            found.append(replace(self.source(self.check, place), x=x))
        return tuple(found)

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of the reference file; one that has no lower bound is better if it is less.

        The metrics that all sides have are known only after their records are read.
        """
        found: dict[str, Metric] = {}
        check, file = type(self).__name__, self._references
        if file.mistakes or check not in file.checks:
            return ()
        for _, name, leaf in leaves(check, file.data[check]):
            if bare(leaf)[1] is None:
                found.setdefault(name, Metric(name, "1", "less"))
            else:
                found[name] = Metric(name, "1")
        return tuple(found.values())

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare the best cases, for every metric that all sides have."""
        common = []
        for name, metric in operands[0].metrics.items():
            if all(side.metrics.get(name) == metric for side in operands):
                common.append(metric)
        if common:
            return list(chain.from_iterable(map(self.compared, common)))
        sides = []
        for place, side in zip(self.places(), operands, strict=True):
            sides.append(f"on {place} {', '.join(side.metrics)}")
        raise NotComputable(f"{self.check} has no metric in common: {'; '.join(sides)}")


class BaselineCheck(PlacesCheck):
    """A check on this partition against the same check on its baseline."""

    @builtins.run_after("init")
    def _select_environments(self) -> None:
        """Select the environments shared with the baseline, or all of this partition."""
        environments = _environments()
        chosen: set[str] = set()
        for name, extras in _partition_extras().items():
            if extras.baseline and self.check in extras.baseline.checks:
                # ReFrame hides the other partition if --system names this one.
                both = environments[name] & environments.get(
                    extras.baseline.partition, set()
                )
                chosen |= both or environments[name]
        self.valid_prog_environs = sorted(chosen)

    def places(self) -> Mapping[str, float]:
        """Return this partition and its baseline."""
        assert self.site.baseline is not None
        return dict.fromkeys(
            (self.current_partition.name, self.site.baseline.partition), 0.0
        )

    def compared(self, metric: Metric) -> Iterator[Formula]:
        """Yield the ratio; of rates also that of the times, and of the shares of the servers."""
        name = metric.name
        yield Formula(Metric(f"{name}_ratio", "1", metric.better), name, derive.ratio)
        if not _is_rate(metric):
            return
        yield Formula(
            Metric(f"{name}_time_ratio", "1", "less"), name, derive.time_ratio
        )
        every = _partition_extras()
        parts = [every[place].topology for place in self.places() if place in every]
        servers = [part.servers.count for part in parts if part and part.servers]
        if len(servers) == 2:
            scale_out = partial(
                derive.scale_out_against, servers=servers[0], of_baseline=servers[1]
            )
            yield Formula(Metric(f"{name}_scale_out", "1"), name, scale_out)


class SizesCheck(PlacesCheck):
    """A check over file systems of several sizes: a baseline, and those that are compared with it.

    The point of a size is the best case there.
    """

    @builtins.run_after("init")
    def _select_places(self) -> None:
        """Select the baselines, in the environments that all sizes share."""
        families, environments = sizes(self.check), _environments()
        shared: set[str] = set()
        for names in families.values():
            shared |= set.intersection(*(environments[name] for name in names))
        system = runtime().system.name
        self.valid_systems = [f"{system}:{name}" for name in families]
        self.valid_prog_environs = sorted(shared)

    def places(self) -> Mapping[str, float]:
        """Return the file systems with their sizes."""
        return sizes(self.check)[self.current_partition.name]

    def compared(self, metric: Metric) -> Iterator[Formula]:
        """Yield both quantities of a rate."""
        if _is_rate(metric):
            for end, formula in (("fit", derive.fit), ("scale_out", derive.scale_out)):
                yield Formula(Metric(f"{metric.name}_{end}", "1"), metric.name, formula)


def _is_rate(metric: Metric) -> bool:
    return dimension(metric.unit) in ("bandwidth", "operations")


class BoxScalingCheck(DerivedCheck):
    """Random reads from all servers against those from one box of them.

    A subclass sets ``block`` and ``tasks``, as of the reads.
    """

    block: str
    tasks: int

    def sources(self) -> tuple[Source, ...]:
        """Return the reads from all servers, and those from one box."""
        here = self.current_partition.name
        found = []
        for span in ("all", "one-box"):
            fixed = {"block": self.block, "tasks": self.tasks, "span": span}
            found.append(replace(self.source("RandomRead", here), fixed=fixed))
        return tuple(found)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Return the share of what as many boxes would do if each did as much as the first."""
        topology = self.site.topology
        assert topology and topology.servers  # the partitions have boxes
        servers = topology.servers
        against = partial(
            derive.scale_out_against,
            servers=servers.count,
            of_baseline=servers.per_box or 1,
        )
        return [Formula(Metric("read_iops_scale_out", "1"), "read_iops", against)]
