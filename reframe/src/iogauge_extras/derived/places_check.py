"""Metrics that compare places: a partition with its baseline, file systems of several sizes, boxes of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import reframe.core.builtins as builtins
from reframe.core.runtime import runtime

from iogauge.cases.fio import span_of_boxes
from iogauge.core.measurement import Metric
from iogauge.core.units import dimension
from iogauge.site.extras import PartitionExtras
from iogauge.site.topology import Servers
from iogauge_extras.derived import derive
from iogauge_extras.derived.check import DerivedCheck, Formula, of_best
from iogauge_extras.derived.derive import (
    Derived,
    NotComputable,
    Operands,
    Point,
    Source,
)


def _partition_extras() -> dict[str, PartitionExtras]:
    """Return the extras of the selected system's partitions by name."""
    return {
        partition.name: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras
    }


def baseline_checks() -> list[str]:
    """Return the checks that partitions of the selected system compare with a baseline."""
    extras = _partition_extras().values()
    return sorted(
        {check for partition in extras if partition.baseline for check in partition.baseline.checks}
    )


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
    return {name: found for name, found in families.items() if len(set(found.values())) > 2}


def sized_checks() -> list[str]:
    """Return the checks that the selected system compares over file systems of several sizes."""
    return [check for check in baseline_checks() if sizes(check)]


#: Ends of a metric's name in a comparison, with their direction.
_COMPARED: Final[dict[str, Literal["more", "less"]]] = {
    "_time_ratio": "less",
    "_ratio": "more",
    "_scale_out": "more",
}


#: Ends of a metric's name over several sizes, with their formulas.
_OVER_SIZES: Final = {"_fit": derive.fit, "_scale_out": derive.scale_out}


class BaselineCheck(DerivedCheck):
    """A check on this partition against the same check on its baseline.

    A subclass makes ``check`` a parameter.
    """

    check: str

    @builtins.run_after("init")
    def _select_environments(self) -> None:
        """Select the environments shared with the baseline, or all of this partition."""
        environments = {p.name: {e.name for e in p.environs} for p in runtime().system.partitions}
        chosen: set[str] = set()
        for name, extras in _partition_extras().items():
            if extras.baseline and self.check in extras.baseline.checks:
                # ReFrame hides the other partition if --system names this one.
                both = environments[name] & environments.get(extras.baseline.partition, set())
                chosen |= both or environments[name]
        self.valid_prog_environs = sorted(chosen)

    @property
    def _baseline(self) -> str:
        assert self.site.baseline is not None
        return self.site.baseline.partition

    def sources(self) -> tuple[Source, ...]:
        """Return all cases of the check here, and all on the baseline."""
        here = self.current_partition.name
        return (self.source(self.check, here), self.source(self.check, self._baseline))

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of the reference file that have the form of a comparison.

        The metrics that both sides have are known only after their records are read.
        """
        named = leaves(self._references.data.get(type(self).__name__))
        return tuple(
            Metric(name, "1", "less" if _bounds_above(named[name]) else better)
            for name in sorted(named)
            if (better := next((b for end, b in _COMPARED.items() if name.endswith(end)), None))
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare the best case here with the best there, for every metric that both sides have."""
        self._demand(operands)
        this, other = operands
        names = [name for name in this.metrics if this.metrics[name] == other.metrics.get(name)]
        if not names:
            raise NotComputable(
                f"{self.check} has no metric in common: here {', '.join(this.metrics)}; on "
                f"{self._baseline} {', '.join(other.metrics)}"
            )
        return [formula for name in names for formula in self._compare(name, operands)]

    def _compare(self, name: str, sides: Sequence[Operands]) -> Iterator[Formula]:
        metric = sides[0].metrics[name]
        yield of_best(Metric(f"{name}_ratio", "1", metric.better), name, sides, derive.ratio)
        if dimension(metric.unit) not in ("bandwidth", "operations"):
            return
        yield of_best(Metric(f"{name}_time_ratio", "1", "less"), name, sides, derive.time_ratio)
        beside = _partition_extras().get(self._baseline)
        here, there = self.site.topology, beside and beside.topology
        if here and here.servers and there and there.servers:
            counts = here.servers.count, there.servers.count

            def scale_out(a: Point, b: Point) -> Derived:
                return derive.scale_out_against(a, b, *counts)

            yield of_best(Metric(f"{name}_scale_out", "1"), name, sides, scale_out)


class SizesCheck(DerivedCheck):
    """A check over file systems of several sizes: a baseline, and those that are compared with it.

    A subclass makes ``check`` a parameter. The point of a size is the best case there.
    """

    check: str

    @builtins.run_after("init")
    def _select_places(self) -> None:
        """Select the baselines, in the environments that all sizes share."""
        families, system = sizes(self.check), runtime().system
        environments = {p.name: {e.name for e in p.environs} for p in system.partitions}
        shared = [
            set.intersection(*(environments[n] for n in names)) for names in families.values()
        ]
        self.valid_systems = [f"{system.name}:{name}" for name in families]
        self.valid_prog_environs = sorted(set().union(*shared))

    @property
    def _sizes(self) -> dict[str, int]:
        return sizes(self.check)[self.current_partition.name]

    def sources(self) -> tuple[Source, ...]:
        """Return all cases of the check on each file system."""
        return tuple(self.source(self.check, partition) for partition in self._sizes)

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of the reference file that have the form of a curve over sizes."""
        names = leaves(self._references.data.get(type(self).__name__))
        return tuple(
            Metric(name, "1") for name in sorted(names) if name.endswith(tuple(_OVER_SIZES))
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compute each quantity of each rate that all sizes have."""
        self._demand(operands)
        first, *others = operands
        return [
            of_best(
                Metric(f"{name}{end}", "1"), name, operands, over(self._sizes.values(), formula)
            )
            for name, metric in first.metrics.items()
            if dimension(metric.unit) in ("bandwidth", "operations")
            and all(side.metrics.get(name) == metric for side in others)
            for end, formula in _OVER_SIZES.items()
        ]


def over(
    numbers: Iterable[int], formula: Callable[[Sequence[Point]], Derived]
) -> Callable[..., Derived]:
    """Return the formula of a curve over numbers: a point for each."""
    return lambda *best: formula(
        [replace(point, x=float(x)) for point, x in zip(best, numbers, strict=True)]
    )


class BoxScalingCheck(DerivedCheck):
    """Random reads from all servers against those from one box of them.

    A subclass sets ``block`` and ``tasks``, as of the reads.
    """

    block: str
    tasks: int

    @property
    def _servers(self) -> Servers:
        assert self.site.topology and self.site.topology.servers  # the partitions have boxes
        return self.site.topology.servers

    def _spans(self) -> list[str]:
        """Return all servers first, then what they are compared with."""
        return ["all", "one-box"]

    def sources(self) -> tuple[Source, ...]:
        """Return the reads from each span."""
        here = self.current_partition.name
        alike = {"block": self.block, "tasks": self.tasks}
        return tuple(
            self.source("RandomRead", here, fixed={**alike, "span": span}) for span in self._spans()
        )

    def promise(self) -> tuple[Metric, ...]:
        """Return the share of what as many boxes would do if each did as much as the first."""
        return (Metric("read_iops_scale_out", "1"),)

    def _compute(self, *best: Point) -> Derived:
        (every, box), servers = best, self._servers
        return derive.scale_out_against(every, box, servers.count, servers.per_box or 1)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare all boxes with one, or fit the line through all numbers of boxes."""
        self._demand(operands, "read_iops")
        return [of_best(self.promise()[0], "read_iops", operands, self._compute)]


class BoxCurveCheck(BoxScalingCheck):
    """Random reads over the number of boxes that hold the files, from one to all."""

    def _spans(self) -> list[str]:
        return ["all", *map(span_of_boxes, range(1, self._servers.boxes))]

    def promise(self) -> tuple[Metric, ...]:
        """Return how well a straight line through the origin describes the operations."""
        return (Metric("read_iops_fit", "1"),)

    def _compute(self, *best: Point) -> Derived:
        return over((self._servers.boxes, *range(1, self._servers.boxes)), derive.fit)(*best)


def leaves(entry: object) -> dict[str, list[Any]]:
    """Return the references of each metric in a check's entry of the reference file, at any depth."""
    found: dict[str, list[Any]] = {}
    if isinstance(entry, dict):
        for name, value in entry.items():
            if isinstance(value, list) and name != "$index":
                found.setdefault(name, []).append(value)
            for inner, values in leaves(value).items():
                found.setdefault(inner, []).extend(values)
    return found


def _bounds_above(of_metric: Sequence[Any]) -> bool:
    """Return whether the references of a ratio have an upper bound alone, as those of latencies."""
    return all(len(leaf) == 4 and leaf[1] is None and leaf[2] is not None for leaf in of_metric)
