"""Guards of the nodes: placement, connections, streams between them (G15, G20, G26)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from iogauge.core.units import format_bytes
from iogauge.guards.agreement import ReportedFigure, Tolerance, settle
from iogauge.guards.cache import MEMORY_ROUNDING
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.site.extras import Node
from iogauge.tools.mpi import Binding

#: Load of a core before the run, at most.
_MOST_LOAD: Final = 0.1

_PLACEMENT: Final = Guard(
    "G15 placement",
    f"tasks per node <= physical cores (unless the scenario wants more), and load of one minute before the run < {_MOST_LOAD:g} "
    "x cores",
    "Bind each task to a core of its own, lower scale.tasks_per_node, or see what else runs on the nodes",
    "a: mpirun bound all tasks of a node to one core",
    "Open MPI 4.1, Slurm 22.05",
    Outcome.WARN,
    limit="`scale.tasks_per_node`",
    more="No two tasks share a core, and no socket has more tasks than it has cores. These two are checked only with Open "
    "MPI's mpirun; a variable makes it report its bindings. The governor is recorded. A figure that misses its reference "
    "while others had more work than the node has cores is CONTAMINATED, not FAIL.",
)


def _most_to_a_core(bindings: Sequence[Binding]) -> int:
    """Return the number of tasks that the busiest core carries at least.

    For each set of cores, count the tasks that are bound only to cores of this set, and divide by
    the size of the set. Tasks that may use a whole socket share no core if they are no more than
    its cores.
    """
    by_host: dict[str, list[frozenset[str]]] = {}
    for binding in bindings:
        by_host.setdefault(binding.host, []).append(binding.cores)
    most = 0
    for tasks in by_host.values():
        for cores in set(tasks):
            inside = sum(task <= cores for task in tasks)
            most = max(most, math.ceil(inside / len(cores)))
    return most


def placement(case: CaseView) -> Finding:
    """Return G15. A launcher may report no bindings, and a scenario may want more tasks than cores."""
    evidence, per_node, bindings = (
        case.evidence,
        case.tasks_per_node,
        case.evidence.bindings,
    )
    cores = case.cores
    complete = bool(cores) and len(cores) == len(evidence.idle) == len(evidence.nodes)
    fewest = min(cores, default=0)
    wanted = case.plan.sweeps_tasks and per_node > fewest
    saw, wrong = ["cores not known"], []
    if complete:
        loads = [look.load1 / n for look, n in zip(evidence.idle, cores, strict=True)]
        saw = [f"{per_node} task(s) on {fewest} core(s)"]
        saw += [f"load before the run {max(loads):.2f} x cores"]
        if per_node > fewest and not wanted:
            wrong.append("lower scale.tasks_per_node")
        if max(loads) >= _MOST_LOAD:
            wrong.append("see what else runs on the nodes")
    if bindings:
        most = _most_to_a_core(bindings)
        saw.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not wanted:
            wrong.append("let the launcher bind each task to a core of its own")
    governors = {str(facts.get("cpu.governor", "")) for facts in evidence.nodes} - {""}
    if governors:
        saw.append(f"governor {', '.join(sorted(governors))}")
    demands = f"load before the run < {_MOST_LOAD:g} x cores"
    if not wanted:
        demands = f"tasks per node <= physical cores, {demands}"
        if bindings:
            demands += ", no core shared by tasks"
    remedy = "; ".join(wrong)
    guard = _PLACEMENT.saying(demands, remedy[:1].upper() + remedy[1:])
    return guard.decide(not wrong, ", ".join(saw))


#: Memory of a node over the declared one, without a remark: 320 GB are written for 320 GiB.
_MOST_MEMORY: Final = 1.1

_NODES: Final = Guard(
    "G15 nodes",
    f"no node has fewer physical cores than the site declares, or more than {_MOST_MEMORY:.0%} of the memory",
    "Write into the partition's extras what the nodes have: node: {cores: N, memory: SIZE}",
    "a: a site copied from another cluster",
    "ext4",
    Outcome.WARN,
    limit="`node.cores`, `node.memory`",
    demands="node.cores physical cores or more, and no more memory than node.memory",
    more="If the job's control group limits its memory, the limit counts.",
)


def as_declared(case: CaseView) -> Finding:
    """Return G15 of the nodes of a case."""
    return declared_node(case.extras.node, case.cores, case.memories)


def declared_node(
    declared: Node, cores: Sequence[int], memories: Sequence[int]
) -> Finding:
    """Return G15 of nodes that told these cores, and bytes of memory."""
    wrong, right = [], []
    least, most = min(cores, default=declared.cores), max(memories, default=0)
    if least < declared.cores:
        wrong.append(
            f"a node has {least} physical core(s), node.cores is {declared.cores}"
        )
        right.append(f"cores: {least}")
    if most > _MOST_MEMORY * declared.memory + MEMORY_ROUNDING:
        found, expected = format_bytes(most), format_bytes(declared.memory)
        wrong.append(f"a node has {found} of memory, node.memory is {expected}")
        right.append(f"memory: {most >> 20} MiB")
    nodes = f"{len(cores)} node(s) told their cores, {len(memories)} their memory"
    remedy = f"Write into the partition's extras: node: {{{', '.join(right)}}}"
    return _NODES.saying(remedy=remedy).unless(
        f"as declared: {nodes}", ", ".join(wrong)
    )


_CONNECTIONS: Final = Guard(
    "G20 connections",
    "no connection to a server is in a bad state, or was during the run",
    "Look at the servers and the network, then run again",
    "a: an OST evicted the client in mid-run, and the data were written anew",
    "Lustre 2.17",
    demands="no eviction, no lost connection, no request that timed out",
    more="No request timed out, and the kernel's log shows no evicted client.",
)
#: What an ordinary user of most sites reads instead.
_HIDDEN: Final = (
    "not visible here: an ordinary user sees no evictions; root does (lctl get_param 'osc.*.state' "
    "'mdc.*.state', dmesg)"
)


def connections(case: CaseView) -> Finding:
    """Return G20: an ordinary user may not be allowed to see any of these; the finding then says so and does not object."""
    changes = case.evidence.changes
    troubles = [
        f"{change.host}: {text}" for change in changes for text in change.troubles
    ]
    watched = sorted({place for change in changes for place in change.watched})
    saw = _HIDDEN
    if watched:
        saw = f"{len(changes)} node(s), as {' and '.join(watched)} say"
    if not troubles:
        return _CONNECTIONS.ok(saw)
    more = f"; {len(troubles)} in all" if len(troubles) > 1 else ""
    return _CONNECTIONS.invalid(f"{troubles[0]}{more}")


#: Share of a core that iperf3 may use: above it the core may be the limit.
_MOST_OF_A_CORE: Final = 0.95
#: Bytes that a node's interface counted, headers included.
_WIRE: Final = Tolerance(0.02)
#: Share of what an interface counted that may be others', beside the headers of small frames (5 %).
_OTHERS: Final = Tolerance(1 - 1 / 1.15)

_STREAMS: Final = Guard(
    "G26 streams",
    "at each end of a stream between nodes, the network interface counts the bytes that the tool reports, and at most 15 % "
    "more",
    "Name the interface of the storage network in extras.interface, and measure when others do not use it",
    "a: the streams took the slow management network",
    "four hosts",
    but="or CONTAMINATED",
    demands="the bytes of the streams on the interface, no others, and a core to spare",
    more=f"No processor limits a stream: iperf3 uses at most {_MOST_OF_A_CORE:.0%} of the cores for which it has threads.",
)


def streams(phase: PhaseView) -> Finding | None:
    """Return G26 for streams of iperf3."""
    every: list[Any] = [out.parameters for out in phase.outputs if out.tool == "iperf3"]
    if not every:
        return None
    figures, cores = [], 0.0
    for parameters in every:
        cores = max(cores, parameters["cores"])
        for wire in parameters["wires"]:
            saw = f"the interface counted {format_bytes(wire.counted)}"
            most = _WIRE.most(f"{saw}: the stream took another way", wire.counted)
            beside = wire.counted - wire.beside
            least = _OTHERS.least(f"{saw}: others used it", beside, shared=True)
            says = f"{wire.turn}, {wire.way} by {wire.host}: iperf3 says {format_bytes(wire.claimed)}"
            figures.append(ReportedFigure(says, wire.claimed, (most, least)))
    fine = (
        f"{len(figures)} end(s) counted what iperf3 says, with {cores:.0%} of its cores"
    )
    finding = settle(_STREAMS, [figures], fine=fine)
    if finding.outcome is Outcome.OK and cores > _MOST_OF_A_CORE:
        guard = _STREAMS.saying(
            f"at most {_MOST_OF_A_CORE:.0%} of each core",
            "Use iperf3 3.16 or later, which has a thread for each connection, and more tasks_per_node",
        )
        return guard.invalid(
            f"iperf3 used {cores:.0%} of its cores: the figure may be the limit of a core"
        )
    return finding
