"""Points of a sweep, as the partitions of the selected system declare them.

ReFrame asks for the values of a parameter when a check is loaded, before any partition is at hand: a sweep's
parameter takes the points of all partitions, and every case then runs on those that declare its point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import reframe as rfm
from reframe.core.runtime import runtime

from iogauge.site.extras import PartitionExtras


def _extras(needs: Sequence[str]) -> dict[str, PartitionExtras]:
    """Extras by full name of the partition; only partitions that have all the features."""
    return {
        partition.fullname: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras and set(needs) <= set(partition.features)
    }


def _declared(name: str, needs: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    return {where: getattr(extras.sweeps, name) for where, extras in _extras(needs).items()}


def points(name: str, *needs: str) -> list[Any]:
    """All points of a sweep on the selected system, ascending; empty where no partition has it."""
    return sorted({point for points in _declared(name, needs).values() for point in points})


def partitions(name: str, point: object, *needs: str) -> list[str]:
    """Partitions, as ``system:partition``, that declare a point."""
    return [where for where, points in _declared(name, needs).items() if point in points]


def partitions_of(holds: Callable[[PartitionExtras], Any]) -> list[str]:
    """Partitions, as ``system:partition``, of whose extras something holds."""
    return [where for where, extras in _extras(()).items() if holds(extras)]


def simple_test_if(values: Sequence[Any]) -> Callable[[type], type]:
    """ReFrame's ``simple_test`` where a parameter has values on the selected system; else the class is no test.

    A parameter without values would be a warning, which ends a run that is a gate.
    """
    return rfm.simple_test if values else lambda check: check
