"""Points of a sweep, as the partitions of the selected system declare them.

ReFrame needs the values of a parameter when it loads a check, before it has chosen a partition. A
sweep's parameter therefore takes the points of all partitions. Every case runs on the partitions
that declare its point.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import reframe as rfm
from reframe.core.runtime import runtime

from iogauge.site.extras import PartitionExtras


def of_partitions(*needs: str) -> dict[str, PartitionExtras]:
    """Return extras by full name of the partition, for partitions with a target that have all the features."""
    return {
        partition.fullname: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras and set(needs) <= set(partition.features)
    }


def found(of: Callable[[PartitionExtras], Iterable[Any]], *needs: str) -> list[Any]:
    """Return what the extras of the partitions that have all the features hold, each once, ascending."""
    values: set[Any] = set()
    for extras in of_partitions(*needs).values():
        values.update(of(extras))
    return sorted(values)


def points(name: str, *needs: str) -> list[Any]:
    """Return all points of a sweep on the selected system, ascending; empty if none has it."""
    return found(lambda extras: getattr(extras.sweeps, name), *needs)


def partitions_of(holds: Callable[[PartitionExtras], Any], *needs: str) -> list[str]:
    """Return the partitions, as ``system:partition``, that have all the features and whose extras meet a condition."""
    return [where for where, extras in of_partitions(*needs).items() if holds(extras)]


def partitions(name: str, point: object, *needs: str) -> list[str]:
    """Return the partitions, as ``system:partition``, that declare a point."""
    return partitions_of(lambda extras: point in getattr(extras.sweeps, name), *needs)


def stripes(extras: PartitionExtras) -> tuple[int, ...]:
    """Return the stripe counts of a file that is made: 0, the target's own, if no sweep of Lustre names others."""
    if extras.target.striped_by != "lustre":
        return (0,)
    return extras.sweeps.stripe_counts or (0,)


def environments(feature: str) -> list[str]:
    """Return the environments of the selected system that have a feature."""
    names = set()
    for partition in runtime().system.partitions:
        for environment in partition.environs:
            if feature in (*environment.features, *environment.extras):
                names.add(environment.name)
    return sorted(names)


def simple_test_if(values: Sequence[Any]) -> Callable[[type], type]:
    """Return ReFrame's ``simple_test`` if a parameter, or the tool, is there on the selected system.

    Otherwise the class becomes no test: ReFrame would warn of it, and a warning ends a gate.
    """
    if not values:
        return lambda check: check
    decorate: Callable[[type], type] = rfm.simple_test
    return decorate
