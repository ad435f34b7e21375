"""Guards of the nodes: placement, connections, modes of the client, streams between them (G15, G19,
G20, G24, G26).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iogauge.core.units import format_bytes
from iogauge.evidence.witness import NodeActivity, Testimony, files_changed
from iogauge.guards.cache import MEMORY_ROUNDING
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.seen import CaseSeen, PhaseSeen
from iogauge.node.probes import UNANSWERED
from iogauge.tools.mpi import Binding

#: Share of its half-seconds in which a disturber finishes an operation. It removes its files between.
_ACTIVE: Final = 0.5
#: Files that come and go on the target at least, of all that a disturber makes and removes.
_FEWEST_FILES: Final = 10


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


def placement(
    *,
    tasks_per_node: int,
    cores: Sequence[int],
    load1: Sequence[float],
    governors: Sequence[str] = (),
    bindings: Sequence[Binding] = (),
    oversubscribed: bool = False,
) -> Finding:
    """G15: tasks per node <= physical cores (unless the scenario wants more), and load of one
    minute before the run < 0.1 x cores. No two tasks share a core, and no socket has more tasks
    than it has cores. These two are checked only with Open MPI's mpirun; a variable makes it report
    its bindings. The governor is recorded.

    ``cores`` holds the physical cores of each node, ``load1`` its load of one minute before the
    run. ``governors`` holds the CPU frequency governors that the nodes report. ``bindings`` is
    empty if the launcher reported no binding. ``oversubscribed`` is True if the scenario wants more
    tasks than cores.
    """
    demands = (
        ("tasks per node <= physical cores, " if not oversubscribed else "")
        + "load before the run < 0.1 x cores"
        + (", no core shared by tasks" if bindings and not oversubscribed else "")
    )
    parts = [f"{tasks_per_node} task(s) on {min(cores)} core(s)" if cores else "cores not known"]
    wrong = []
    if cores and tasks_per_node > min(cores) and not oversubscribed:
        wrong.append("lower scale.tasks_per_node")
    if cores and load1:
        busiest = max(load / count for load, count in zip(load1, cores, strict=True))
        parts.append(f"load before the run {busiest:.2f} x cores")
        if busiest >= 0.1:
            wrong.append("see what else runs on the nodes")
    if bindings:
        most = _most_to_a_core(bindings)
        parts.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not oversubscribed:
            wrong.append("let the launcher bind each task to a core of its own")
    if governors:
        parts.append(f"governor {', '.join(sorted(set(governors)))}")
    remedy = "; ".join(wrong)
    rule = Rule("G15", demands, remedy[:1].upper() + remedy[1:])
    return rule.decide(not wrong, ", ".join(parts), Outcome.WARN)


def placement_of(seen: CaseSeen) -> Iterator[Finding]:
    evidence, per_node, cores = seen.evidence, seen.tasks_per_node, seen.cores
    complete = len(cores) == len(evidence.idle) == len(evidence.nodes)
    yield placement(
        tasks_per_node=per_node,
        cores=cores if complete else [],
        load1=[load.load1 for load in evidence.idle] if complete else [],
        governors=[str(n["cpu.governor"]) for n in evidence.nodes if "cpu.governor" in n],
        bindings=evidence.bindings,
        oversubscribed=seen.plan.sweeps_tasks and per_node > min(cores, default=0),
    )


#: Memory of a node over the declared one, without a remark: 320 GB are written for 320 GiB.
_MOST_MEMORY: Final = 1.1


def as_declared(
    *,
    declared_cores: int,
    cores: Sequence[int],
    declared_memory: int,
    memories: Sequence[int],
) -> Finding:
    """G15: no node has fewer physical cores than the site declares, or more than 110 % of the
    memory. If the job's control group limits its memory, the limit counts.

    ``cores`` and ``memories`` hold what the nodes told, in cores and bytes.
    """
    parts, right = [], []
    least, most = min(cores, default=declared_cores), max(memories, default=0)
    if least < declared_cores:
        parts.append(f"a node has {least} physical core(s), node.cores is {declared_cores}")
        right.append(f"cores: {least}")
    if most > _MOST_MEMORY * declared_memory + MEMORY_ROUNDING:
        seen, said = format_bytes(most), format_bytes(declared_memory)
        parts.append(f"a node has {seen} of memory, node.memory is {said}")
        right.append(f"memory: {most >> 20} MiB")
    told = f"{len(cores)} node(s) told their cores, {len(memories)} their memory"
    return Rule(
        "G15",
        "node.cores physical cores or more, and no more memory than node.memory",
        f"Write into the partition's extras: node: {{{', '.join(right)}}}" if right else "",
    ).decide(not parts, ", ".join(parts) or f"as declared: {told}", Outcome.WARN)


def as_declared_of(seen: CaseSeen) -> Iterator[Finding]:
    node = seen.extras.node
    yield as_declared(
        declared_cores=node.cores,
        cores=seen.cores,
        declared_memory=node.memory,
        memories=seen.memories,
    )


def neighbours(*, others: Sequence[str]) -> Finding:
    """G19: no other case of this suite was on the target, as far as the suite's directory on the
    target can be read.

    ``others`` holds the directories of other cases that were seen during this case.
    The other rule of G19 looks for the load of other programs.
    """
    return Rule(
        "G19",
        "one case at a time on a target",
        "Wait for the other session. If partitions share a target, use --exec-policy=serial. "
        "If the session is dead, run: iogauge clean",
    ).decide(
        not others,
        f"{others[0]} was there too" if others else "no other case on the target",
        Outcome.CONTAMINATED,
    )


def neighbours_of(seen: CaseSeen) -> Iterator[Finding]:
    yield neighbours(others=seen.evidence.neighbours)


def exclusive(*, objection: str) -> Finding:
    """G19: the case held the target's lock before it looked at the free space, and until its
    directory was removed. No other case on its first node used the disks of the target meanwhile, unless ``limits.max_foreign``
    is above 50 % or the site names a lock. A case that does not get all this within ``limits.lock_wait`` measures nothing.

    ``objection`` says why the case did not hold the lock, or why that is not known; empty if it
    did.
    """
    return Rule(
        "G19",
        "one case at a time on a target",
        "Run when the other session has ended, or raise limits.lock_wait. If it is dead, run: iogauge clean",
    ).decide(
        not objection,
        objection or "the lock of the target was held throughout",
        Outcome.CONTAMINATED,
    )


def exclusive_of(seen: CaseSeen) -> Iterator[Finding]:
    yield exclusive(objection=seen.evidence.lost)


#: What an ordinary user of most sites is told instead.
_HIDDEN: Final = (
    "not visible here: an ordinary user sees no evictions; root does (lctl get_param 'osc.*.state' "
    "'mdc.*.state', dmesg)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPurpose:
    """A disturber in one execution: seconds from its begin to that of what is measured, and from the end of that to its
    own end; the share of its half-seconds in which it finished an operation. It may have begun ``late_s`` later than it
    was asked to: other nodes have no common clock. ``changed`` are the files that came and went on the target meanwhile if
    it makes files; None if nobody counted them.
    """

    lead_s: float
    after_s: float
    active: float
    late_s: float = 0.0
    changed: int | None = None


def on_purpose(*, executions: Sequence[OnPurpose | None]) -> Finding:
    """G19: a load that the case adds on purpose begins before the measurement and ends after it. It
    finishes an operation in at least half of its half-seconds. Its bytes do not count as load of
    others. If it runs on other nodes, and the job was busy for so long that it may have begun too late, you get a remark.
    If it makes files, the inodes in use change by 10 or more, if the file system tells them.

    ``executions`` holds None for an execution without it.
    """
    rule = Rule(
        "G19",
        f"a disturber from the first to the last measured second, at work in {_ACTIVE:.0%} of its half-seconds",
        "The disturber did not cause this loss. Read fio's output of the job 'disturber' in the stage directory, "
        "and look for a wrapper of fio",
    )
    ran = [execution for execution in executions if execution is not None]
    if missing := len(executions) - len(ran):
        return rule.invalid(f"{missing} of {len(executions)} execution(s) without a disturber")
    lead = min(execution.lead_s for execution in ran)
    after = min(execution.after_s for execution in ran)
    active = min(execution.active for execution in ran)
    saw = (
        f"it began {lead:.2f} s before the measurement, ended {after:.2f} s after it, and was at work in {active:.0%} "
        "of its half-seconds"
    )
    changed = [one.changed for one in ran if one.changed is not None]
    if changed and min(changed) < _FEWEST_FILES:
        return rule.invalid(
            f"{saw}; meanwhile {min(changed)} file(s) came or went on the target, so its own lay elsewhere"
        )
    in_time = lead > 0 and after >= 0 and active >= _ACTIVE
    if in_time and (
        late := max((one.late_s for one in ran if one.late_s >= one.lead_s), default=0.0)
    ):
        return rule.warn(f"{saw}; on its nodes it may have begun up to {late:.2f} s later")
    return rule.decide(in_time, saw)


def on_purpose_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G19 for phases beside which the target is loaded on purpose."""
    if seen.phase.beside is None:
        return
    found: list[OnPurpose | None] = []
    ran = {
        one.repetition: one.ended - one.started
        for one in seen.case.evidence.runs
        if one.name == seen.phase.name
    }
    changed = [_files_of_disturber(seen, testimony) for testimony in seen.testimonies]
    changed += [None] * (len(seen.outputs) - len(changed))
    for repetition, output in enumerate(seen.outputs, 1):
        own = sum(phase.seconds for phase in output.phases)
        if disturber := output.disturber:
            whole = disturber.phase.seconds
            # All that the phase took beside the disturber's own seconds may lie before its begin.
            late = ran.get(repetition, whole) - whole if seen.case.plan.nodes > 1 else 0.0
            found.append(
                OnPurpose(
                    lead_s=disturber.lead_s,
                    after_s=whole - disturber.lead_s - own,
                    active=disturber.active,
                    late_s=late,
                    changed=changed[repetition - 1],
                )
            )
        else:
            found.append(None)
    yield on_purpose(executions=found)


def _files_of_disturber(seen: PhaseSeen, testimony: Testimony) -> int | None:
    """Return how many files came and went on the target beside a phase; None if its disturber makes none, or if nobody counts them."""
    span = seen.case.span(testimony) if seen.phase.beside == "metadata" else None
    return files_changed(seen.case.evidence.activity, span) if span else None


def connections(*, changes: Sequence[NodeActivity]) -> Finding:
    """G20: no connection to a server is in a bad state, or was during the run. No request timed
    out, and the kernel's log shows no evicted client.

    An ordinary user may not be allowed to see any of these. The finding then says so and does not
    object.
    """
    troubles = [f"{change.host}: {text}" for change in changes for text in change.troubles]
    watched = sorted({place for change in changes for place in change.watched})
    saw = f"{len(changes)} node(s), as {' and '.join(watched)} say" if watched else ""
    if troubles:
        saw = troubles[0] + (f"; {len(troubles)} in all" if len(troubles) > 1 else "")
    return Rule(
        "G20",
        "no eviction, no lost connection, no request that timed out",
        "Look at the servers and the network, then run again",
    ).decide(not troubles, saw or _HIDDEN)


def connections_of(seen: CaseSeen) -> Iterator[Finding]:
    yield connections(changes=seen.evidence.changes)


#: Modes of the Lustre client that turn one kind of I/O into another (G24), by their names in a
#: fingerprint.
_MODES: Final = ("hybrid_io", "fast_read", "parallel_dio", "unaligned_dio")


def client_modes(
    *,
    nodes: Sequence[Mapping[str, object]],
    buffered: bool,
    transfer_bytes: int | None,
    direction: str,
) -> Finding:
    """G24: ``hybrid_io``, ``fast_read``, ``parallel_dio``, ``unaligned_dio`` of the Lustre client
    are the same on all nodes. Buffered transfers are smaller than those that ``hybrid_io`` makes
    direct (write 2 MiB, read 8 MiB by default). The modes are recorded, and a change starts a new
    series. If a node did not report its modes in time, you get a remark.

    ``nodes`` holds the nodes' fingerprints. Lustre 2.17 has ``hybrid_io_write_threshold_bytes`` and
    ``hybrid_io_read_threshold_bytes``.
    """
    demands = "one mode on all nodes, and no hybrid I/O under buffered transfers"
    if silent := sum(f"{UNANSWERED}lustre" in node for node in nodes):
        remedy = (
            "Run again; the figure may be one of direct I/O. If it stays so, see what keeps these "
            "nodes from reading /sys/fs/lustre"
        )
        return Rule("G24", demands, remedy).warn(
            f"not answered in time on {silent} of {len(nodes)} node(s): the modes of the Lustre client "
            "are unknown"
        )

    def values(name: str) -> list[str]:
        return sorted({str(node.get(f"tunable.llite.{name}", "unknown")) for node in nodes})

    modes = {name: values(name) for name in _MODES}
    modes = {
        name: settings for name, settings in modes.items() if settings not in ([], ["unknown"])
    }
    if not modes:
        return Rule("G24", demands).ok("no modes of a Lustre client are known")
    for name, settings in modes.items():
        if len(settings) > 1:
            remedy = f"Ask an administrator to set llite.*.{name} to the same value on all nodes"
            saw = f"{name} is {' and '.join(settings)} on different nodes"
            return Rule("G24", demands, remedy).warn(saw)
    limits = [
        limit for limit in values(f"hybrid_io_{direction}_threshold_bytes") if limit.isdecimal()
    ]
    if buffered and transfer_bytes and modes.get("hybrid_io") == ["1"] and limits:
        least = min(map(int, limits))
        if transfer_bytes >= least:
            remedy = "Read the figure as one of direct I/O, or use smaller transfers"
            return Rule("G24", demands, remedy).warn(
                f"buffered transfers of {format_bytes(transfer_bytes)} may be direct "
                f"(hybrid_io from {format_bytes(least)})"
            )
    return Rule("G24", demands).ok(
        ", ".join(f"{name} {settings[0]}" for name, settings in modes.items())
    )


def client_modes_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.moves_data:
        yield client_modes(
            nodes=seen.case.evidence.nodes,
            buffered=not seen.access.o_direct,
            transfer_bytes=max(
                (phase.transfer_bytes or 0 for phase in seen.tool_phases), default=0
            ),
            direction=seen.access.direction,
        )


#: Share of a core that iperf3 may use: above it the core may be the limit.
_MOST_OF_A_CORE: Final = 0.95

#: Share by which what an interface counted may be less than what the tool claims.
_WIRE_TOLERANCE: Final = 0.02

#: Share of what an interface counted that may be others', beside the headers of small frames (5 %).
_MOST_OF_OTHERS: Final = 0.15


def streams(*, wires: Sequence[tuple[str, int, int]], cores: float) -> Finding:
    """G26: at each end of a stream between nodes, the network interface counts the bytes that the
    tool reports, and at most 15 % more. No processor limits a stream: iperf3 uses at most
    95 % of the cores for which it has threads.

    ``wires`` holds (turn and end, bytes as the tool claims, bytes as the interface counted).
    """
    rule = Rule(
        "G26",
        "the bytes of the streams on the interface, no others, and a core to spare",
        "Name the interface of the storage network in extras.interface, and measure when others do not use it",
    )
    for end, claimed, counted in wires:
        saw = f"{end}: iperf3 says {format_bytes(claimed)}, the interface counted {format_bytes(counted)}"
        if counted < (1 - _WIRE_TOLERANCE) * claimed:
            return rule.invalid(f"{saw}: the stream took another way")
        if counted > (1 + _MOST_OF_OTHERS) * claimed:
            return rule.decide(False, f"{saw}: others used it", Outcome.CONTAMINATED)
    if cores > _MOST_OF_A_CORE:
        return Rule(
            "G26",
            f"at most {_MOST_OF_A_CORE:.0%} of each core",
            "Use iperf3 3.16 or later, which has a thread for each connection, and more tasks_per_node",
        ).invalid(f"iperf3 used {cores:.0%} of its cores: the figure may be the limit of a core")
    return rule.ok(f"{len(wires)} end(s) counted what iperf3 says, with {cores:.0%} of its cores")


def streams_of(seen: PhaseSeen) -> Iterator[Finding]:
    outputs = [output for output in seen.outputs if output.tool == "iperf3"]
    if outputs:
        every: list[Any] = [output.parameters for output in outputs]
        yield streams(
            wires=[
                (f"{wire.turn}, {wire.way} by {wire.host}", wire.claimed, wire.counted)
                for parameters in every
                for wire in parameters["wires"]
            ],
            cores=max(parameters["cores"] for parameters in every),
        )
