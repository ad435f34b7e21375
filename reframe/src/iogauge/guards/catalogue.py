"""Which guards the judge asks, and when: of a case, and of each phase.

Findings come in the order of these lines. The job itself applies the other guards, before it writes a byte: see
:mod:`iogauge.job.looking` and :mod:`iogauge.job.target`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from iogauge.guards import (
    cache,
    clock,
    contents,
    expected,
    figures,
    moved,
    origin,
    others,
    placement,
    preflight,
    striping,
)
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import CaseView, PhaseView

View = TypeVar("View")

#: Functions that return their findings about a view of the evidence, if they apply.
Guards = Sequence[Callable[[View], Finding | Iterator[Finding] | None]]

OF_CASE: Guards[CaseView] = (
    preflight.identity_of,
    others.exclusive,
    others.neighbours,
    origin.environment,
    placement.placement,
    placement.as_declared,
    others.foreign_load,
    placement.connections,
    preflight.quota_of,
    preflight.health_of,
    expected.of_case,
    contents.verification,
    contents.unchanged,
    contents.stored,
    striping.layout,
    striping.coverage,
    figures.spread,
)

#: A finding holds for each metric of the phase, or only for the metric that it names. It also holds
#: for metrics that are computed from these.
OF_PHASE: Guards[PhaseView] = (
    cache.client_cache,
    cache.server_cache,
    contents.data_entropy,
    moved.storage,
    cache.write_back,
    figures.duration,
    figures.beyond,
    clock.seconds_witnessed,
    figures.tail,
    figures.steadiness,
    others.foreign_files,
    figures.bytes_moved,
    moved.bytes_witnessed,
    origin.tool_integrity,
    figures.ceiling,
)


def guards() -> dict[str, Guard]:
    """Return all guards by name, in the order of their numbers."""
    found = {}
    modules = (
        cache,
        clock,
        contents,
        figures,
        moved,
        placement,
        origin,
        others,
        expected,
        preflight,
        striping,
    )
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Guard):
                found[value.name] = value
    return dict(sorted(found.items(), key=lambda item: int(item[1].number[1:])))
