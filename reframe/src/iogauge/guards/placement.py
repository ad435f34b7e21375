"""Guards of the nodes: placement, connections (G15, G20)."""

import math
from collections.abc import Sequence

from iogauge.core.units import format_bytes
from iogauge.guards.cache import MEMORY_ROUNDING
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView
from iogauge.site.extras import Node
from iogauge.tools.mpi import Binding

_PLACEMENT = Guard(
    name="G15 placement",
    must="tasks per node <= physical cores (unless the scenario wants more), and no two tasks share a core",
    remedy="Bind each task to a core of its own, or lower scale.tasks_per_node",
    against="a: mpirun bound all tasks of a node to one core",
    seen_on="Open MPI 4.1, Slurm 22.05",
    otherwise=Outcome.WARN,
    limit="`scale.tasks_per_node`",
    more="No socket has more tasks than it has cores. Bindings are checked only with Open MPI's mpirun; a variable makes it "
    "report them. A figure that misses its reference while others kept the node's processors at work is CONTAMINATED, not FAIL.",
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
    bindings, per_node = case.evidence.bindings, case.tasks_per_node
    fewest = min(case.cores, default=0)
    wanted = case.plan.sweeps_tasks and per_node > fewest
    saw, wrong = ["cores not known"], []
    if fewest:
        saw = [f"{per_node} task(s) on {fewest} core(s)"]
        if per_node > fewest and not wanted:
            wrong.append("lower scale.tasks_per_node")
    if bindings:
        most = _most_to_a_core(bindings)
        saw.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not wanted:
            wrong.append("let the launcher bind each task to a core of its own")
    guard = _PLACEMENT.saying(remedy="; ".join(wrong).capitalize())
    return guard.decide(not wrong, ", ".join(saw))


#: Memory of a node over the declared one, without a remark: 320 GB are written for 320 GiB.
_MOST_MEMORY = 1.1

_NODES = Guard(
    name="G15 nodes",
    must=f"no node has fewer physical cores than the site declares, or more than {_MOST_MEMORY:.0%} of the memory",
    remedy="Write into the partition's extras what the nodes have: node: {cores: N, memory: SIZE}",
    against="a: a site copied from another cluster",
    seen_on="ext4",
    otherwise=Outcome.WARN,
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
    remedy = f"Write into the partition's extras: node: {{{', '.join(right)}}}"
    fine = f"{len(cores)} node(s) told their cores, {len(memories)} their memory"
    return _NODES.saying(remedy=remedy).unless(fine, ", ".join(wrong))


_CONNECTIONS = Guard(
    name="G20 connections",
    must="the kernel's log shows no eviction by a server, and no lost connection",
    remedy="Look at the servers and the network, then run again",
    against="a: an OST evicted the client in mid-run, and the data were written anew",
    seen_on="Lustre 2.17",
    demands="no eviction and no lost connection",
    more="An ordinary user sees the kernel's log where the site lets him (kernel.dmesg_restrict 0).",
)
#: What an ordinary user of most sites reads instead.
_HIDDEN = "not visible here: an ordinary user sees no evictions; root does (dmesg)"


def connections(case: CaseView) -> Finding:
    """Return G20: an ordinary user may not be allowed to see any of these; the finding then says so and does not object."""
    troubles = list[str]()
    for change in case.evidence.activity:
        troubles += [f"{change.host}: {text}" for text in change.troubles]
    saw = _HIDDEN
    if any(change.watched for change in case.evidence.activity):
        saw = "as the kernel's log says"
    if case.plan.checks_all and troubles:
        # The failure is what such a case measures, and all its data are compared afterwards.
        return _CONNECTIONS.warn("; ".join(troubles))
    return _CONNECTIONS.unless(saw, *troubles)
