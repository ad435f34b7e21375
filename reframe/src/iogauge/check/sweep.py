"""Points of a sweep, as the partitions of the selected system declare them.

ReFrame needs the values of a parameter when it loads a check, before it has chosen a partition. A
sweep's parameter therefore takes the points of all partitions. Every case runs on the partitions
that declare its point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import reframe as rfm
from reframe.core.runtime import runtime

from iogauge.site.extras import PartitionExtras


def _extras(needs: Sequence[str]) -> dict[str, PartitionExtras]:
    """Return extras by full name of the partition, for partitions that have all the features."""
    return {
        partition.fullname: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras and set(needs) <= set(partition.features)
    }


def _declared(name: str, needs: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    return {where: getattr(extras.sweeps, name) for where, extras in _extras(needs).items()}


def points(name: str, *needs: str) -> list[Any]:
    """Return all points of a sweep on the selected system, ascending; empty if none has it."""
    declared = _declared(name, needs).values()
    return sorted({point for of_partition in declared for point in of_partition})


def partitions(name: str, point: object, *needs: str) -> list[str]:
    """Return the partitions, as ``system:partition``, that declare a point."""
    return [where for where, declared in _declared(name, needs).items() if point in declared]


def partitions_of(holds: Callable[[PartitionExtras], Any]) -> list[str]:
    """Return the partitions, as ``system:partition``, whose extras meet a condition."""
    return [where for where, extras in _extras(()).items() if holds(extras)]


def simple_test_if(values: Sequence[Any]) -> Callable[[type], type]:
    """Return ReFrame's ``simple_test`` if a parameter has values on the selected system.

    Otherwise the class becomes no test: ReFrame would warn of it, and a warning ends a gate.
    """
    return rfm.simple_test if values else lambda check: check
