"""Guards of the nodes: placement, connections, streams between them (G15, G20, G26)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from iogauge.core.units import format_bytes
from iogauge.guards.agreement import WIRE, ReportedFigure, Tolerance, settle
from iogauge.guards.cache import MEMORY_ROUNDING
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
from iogauge.guards.views import CaseView, PhaseView
from iogauge.site.extras import Node
from iogauge.tools.mpi import Binding


def _most_to_a_core(bindings: Sequence[Binding]) -> int:
    """Return the number of tasks that the busiest core carries at least.

    For each set of cores, count the tasks that are bound only to cores of this set, and divide by
    the size of the set. Tasks that may use a whole socket share no core if they are no more than
    its cores.
    """
    by_host: dict[str, list[frozenset[str]]] = {}
    for binding in bindings:
        by_host.setdefault(binding.host, []).append(binding.cores)
    return max(
        math.ceil(sum(task <= cores for task in tasks) / len(cores))
        for tasks in by_host.values()
        for cores in set(tasks)
    )


def placement(seen: CaseView) -> Finding:
    """Return G15. A launcher may report no bindings, and a scenario may want more tasks than cores."""
    evidence, per_node, bindings = (
        seen.evidence,
        seen.tasks_per_node,
        seen.evidence.bindings,
    )
    told = seen.cores
    complete = bool(told) and len(told) == len(evidence.idle) == len(evidence.nodes)
    oversubscribed = seen.plan.sweeps_tasks and per_node > min(told, default=0)
    parts, wrong = ["cores not known"], []
    if complete:
        busiest = max(
            load.load1 / n for load, n in zip(evidence.idle, told, strict=True)
        )
        parts = [f"{per_node} task(s) on {min(told)} core(s)"]
        parts += [f"load before the run {busiest:.2f} x cores"]
        if per_node > min(told) and not oversubscribed:
            wrong.append("lower scale.tasks_per_node")
        if busiest >= 0.1:
            wrong.append("see what else runs on the nodes")
    if bindings:
        most = _most_to_a_core(bindings)
        parts.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not oversubscribed:
            wrong.append("let the launcher bind each task to a core of its own")
    governors = sorted(
        {str(n["cpu.governor"]) for n in evidence.nodes if "cpu.governor" in n}
    )
    if governors:
        parts.append(f"governor {', '.join(governors)}")
    remedy = "; ".join(wrong)
    demanded = rule(
        "G15 placement",
        cores="" if oversubscribed else "tasks per node <= physical cores, ",
        bound=", no core shared by tasks" if bindings and not oversubscribed else "",
        wrong=remedy[:1].upper() + remedy[1:],
    )
    return demanded.decide(not wrong, ", ".join(parts))


#: Memory of a node over the declared one, without a remark: 320 GB are written for 320 GiB.
_MOST_MEMORY: Final = 1.1


def as_declared(seen: CaseView) -> Finding:
    return declared_node(seen.extras.node, seen.cores, seen.memories)


def declared_node(
    declared: Node, cores: Sequence[int], memories: Sequence[int]
) -> Finding:
    """Return G15 of nodes that told these cores, and bytes of memory."""
    parts, right = [], []
    least, most = min(cores, default=declared.cores), max(memories, default=0)
    if least < declared.cores:
        parts.append(
            f"a node has {least} physical core(s), node.cores is {declared.cores}"
        )
        right.append(f"cores: {least}")
    if most > _MOST_MEMORY * declared.memory + MEMORY_ROUNDING:
        seen, said = format_bytes(most), format_bytes(declared.memory)
        parts.append(f"a node has {seen} of memory, node.memory is {said}")
        right.append(f"memory: {most >> 20} MiB")
    told = f"{len(cores)} node(s) told their cores, {len(memories)} their memory"
    demanded = rule("G15 nodes", right=", ".join(right))
    return demanded.unless(f"as declared: {told}", ", ".join(parts))


#: What an ordinary user of most sites is told instead.
_HIDDEN: Final = (
    "not visible here: an ordinary user sees no evictions; root does (lctl get_param 'osc.*.state' "
    "'mdc.*.state', dmesg)"
)


def connections(seen: CaseView) -> Finding:
    """Return G20: an ordinary user may not be allowed to see any of these; the finding then says so and does not object."""
    changes = seen.evidence.changes
    troubles = [
        f"{change.host}: {text}" for change in changes for text in change.troubles
    ]
    watched = sorted({place for change in changes for place in change.watched})
    saw = (
        f"{len(changes)} node(s), as {' and '.join(watched)} say"
        if watched
        else _HIDDEN
    )
    more = f"; {len(troubles)} in all" if len(troubles) > 1 else ""
    return rule("G20 connections").unless(
        saw, *(f"{trouble}{more}" for trouble in troubles)
    )


#: Share of a core that iperf3 may use: above it the core may be the limit.
_MOST_OF_A_CORE: Final = 0.95

#: Share of what an interface counted that may be others', beside the headers of small frames (5 %).
_MOST_OF_OTHERS: Final = Tolerance(1 - 1 / 1.15)


def streams(seen: PhaseView) -> Finding | None:
    every: list[Any] = [o.parameters for o in seen.outputs if o.tool == "iperf3"]
    if not every:
        return None
    claims = []
    for wire in (wire for parameters in every for wire in parameters["wires"]):
        saw = f"the interface counted {format_bytes(wire.counted)}"
        words = (
            WIRE.most(f"{saw}: the stream took another way", wire.counted),
            _MOST_OF_OTHERS.least(
                f"{saw}: others used it", wire.counted - wire.beside, shared=True
            ),
        )
        end = f"{wire.turn}, {wire.way} by {wire.host}"
        claimed = format_bytes(wire.claimed)
        claims.append(
            ReportedFigure(f"{end}: iperf3 says {claimed}", wire.claimed, words)
        )
    cores = max(parameters["cores"] for parameters in every)
    fine = (
        f"{len(claims)} end(s) counted what iperf3 says, with {cores:.0%} of its cores"
    )
    finding = settle("G26 streams", [claims], fine=fine)
    if finding.saw == fine and cores > _MOST_OF_A_CORE:
        return rule("G26 streams", "cores", most=_MOST_OF_A_CORE).invalid(
            f"iperf3 used {cores:.0%} of its cores: the figure may be the limit of a core"
        )
    return finding
