"""Guards of the nodes: placement, load of others, connections, modes of the client (G15, G18 to G20, G24)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.evidence.changes import Change
from iogauge.guards.finding import Finding, Outcome, finding_of
from iogauge.tools.mpi import Binding


def _most_to_a_core(bindings: Sequence[Binding]) -> int:
    """Tasks that some core carries at least: within each set of cores, tasks bound to no others over its size.

    Tasks that may use a whole socket share no core as long as they are no more than its cores.
    """
    by_host: dict[str, list[frozenset[str]]] = {}
    for one in bindings:
        by_host.setdefault(one.host, []).append(one.cores)
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
    """G15: each task has a physical core to itself, on nodes that were idle before. Else a remark.

    ``cores`` are the physical cores and ``load1`` the load of one minute before the run, a value a node;
    ``governors`` what the nodes say of their frequency, which is recorded. ``bindings`` as the launcher
    reported them, empty where it did not. ``oversubscribed``: more tasks than cores are the purpose.
    """
    demands = (
        ("tasks per node <= physical cores, " if not oversubscribed else "")
        + "load before the run < 0.1 x cores"
        + (", no core shared by tasks" if bindings and not oversubscribed else "")
    )
    seen = [f"{tasks_per_node} task(s) on {min(cores)} core(s)" if cores else "cores not known"]
    wrong = []
    if cores and tasks_per_node > min(cores) and not oversubscribed:
        wrong.append("lower scale.tasks_per_node")
    if cores and load1:
        busiest = max(load / count for load, count in zip(load1, cores, strict=True))
        seen.append(f"load before the run {busiest:.2f} x cores")
        if busiest >= 0.1:
            wrong.append("see what else runs on the nodes")
    if bindings:
        most = _most_to_a_core(bindings)
        seen.append(f"{len(bindings)} task(s) bound, at most {most} to a core")
        if most > 1 and not oversubscribed:
            wrong.append("let the launcher bind each task to a core of its own")
    if governors:
        seen.append(f"governor {', '.join(sorted(set(governors)))}")
    remedy = "; ".join(wrong)
    return finding_of(
        "G15",
        not wrong,
        ", ".join(seen),
        demands,
        remedy[:1].upper() + remedy[1:],
        Outcome.WARN,
    )


def neighbours(*, others: Sequence[str]) -> Finding:
    """G19, in part: no other case of this suite was on the target while this one ran.

    ``others`` are the directories of cases that were seen. What other programs load the target with is for
    :func:`foreign_load`.
    """
    return finding_of(
        "G19",
        not others,
        f"{others[0]} was there too" if others else "no other case on the target",
        "one case at a time on a target",
        "Wait for the other session, or use --exec-policy=serial where partitions share a target; "
        "if it is dead: iogauge clean",
        Outcome.CONTAMINATED,
    )


def exclusive(*, objection: str) -> Finding:
    """G19, in part: the case had the target's lock, from before it looked until its directory was removed.

    ``objection`` says why it had not, or why that is not known; empty: it had.
    """
    return finding_of(
        "G19",
        not objection,
        objection or "the lock of the target was held throughout",
        "one case at a time on a target",
        "Run when the other has ended, or wait longer: limits.lock_wait; if it is dead: iogauge clean",
        Outcome.CONTAMINATED,
    )


#: Bytes on a node that are nobody's load: journals, logs, what the system itself writes now and then.
FOREIGN_BYTES: Final = 64 << 20


def foreign_load(
    *,
    changes: Sequence[Change],
    own_read: int | None,
    own_written: int | None,
    max_share: float = 0.1,
) -> Finding:
    """G19: at most a tenth of the bytes that were moved meanwhile are somebody else's.

    ``changes`` is what the nodes counted between the first and the last phase that is judged, for everybody
    on them; ``own_read`` and ``own_written`` what the tool says that it moved, None where it does not say.
    A node that moved less had caches. Where a server keeps accounts of jobs that can be read here, those
    decide for it. Other clients' load is not seen otherwise. Less than 64 MiB is not looked at.
    """
    demands = f"at most {max_share:.0%} of the bytes moved by others"
    remedy = "Run when others do not use the target, or ask for nodes of your own"
    # Containers of one kernel over one mount count the same bytes.
    distinct = list({change.cache_id: change for change in changes}.values())
    told = []
    worst = 0.0

    def weigh(foreign: int, total: int, who: str) -> None:
        nonlocal worst
        share = foreign / total if total and foreign >= FOREIGN_BYTES else 0.0
        worst = max(worst, share)
        told.append(f"{who} moved {format_bytes(foreign)} of {format_bytes(total)} ({share:.0%})")

    foreign = total = 0
    unknown = []
    for way, own, moved in (
        ("read", own_read, [change.bytes_read for change in distinct]),
        ("written", own_written, [change.bytes_written for change in distinct]),
    ):
        seen = [count for count in moved if count is not None]
        if own is not None and seen and len(seen) == len(moved):
            total += sum(seen)
            foreign += max(0, sum(seen) - own)
        else:
            unknown.append(way)
    if len(unknown) < 2:
        weigh(foreign, total, f"others on {len(distinct)} node(s)")
        told += [f"what was {way} cannot be compared" for way in unknown]
    accounts = [
        (change.jobs_own, change.jobs_foreign)
        for change in distinct
        if change.jobs_own is not None and change.jobs_foreign is not None
    ]
    if accounts:
        theirs = sum(foreign for _, foreign in accounts)
        weigh(theirs, theirs + sum(own for own, _ in accounts), "other jobs, as the servers say,")
    return finding_of(
        "G19",
        worst <= max_share,
        "; ".join(told) or "nothing was counted that the tool's bytes can be compared with",
        demands,
        remedy,
        Outcome.CONTAMINATED,
    )


def connections(*, changes: Sequence[Change]) -> Finding:
    """G20: no connection to a server was lost, no client evicted, no request timed out meanwhile.

    An ordinary user may not be allowed to see any of it; then that is said, and nothing is objected.
    """
    troubles = [f"{change.host}: {text}" for change in changes for text in change.troubles]
    watched = sorted({place for change in changes for place in change.watched})
    saw = f"{len(changes)} node(s), as {' and '.join(watched)} say" if watched else ""
    if troubles:
        saw = troubles[0] + (f"; {len(troubles)} in all" if len(troubles) > 1 else "")
    return finding_of(
        "G20",
        not troubles,
        saw or "not visible here (osc.*.state and the kernel's log need root)",
        "no eviction, no lost connection, no request that timed out",
        "Look at the servers and the network, then run again",
    )


#: Modes of the Lustre client that make one kind of I/O into another (G24), as in a fingerprint.
_MODES: Final = ("hybrid_io", "fast_read", "parallel_dio", "unaligned_dio")


def client_modes(
    *,
    nodes: Sequence[Mapping[str, object]],
    buffered: bool,
    transfer_bytes: int | None,
    direction: str,
) -> Finding:
    """G24: all nodes do I/O in the same way, and buffered I/O is what it is called. Else a remark.

    ``nodes`` are the nodes' fingerprints. With ``hybrid_io`` a Lustre client (2.17) makes buffered
    transfers direct that are as large as ``hybrid_io_write_threshold_bytes`` (2 MiB) or
    ``hybrid_io_read_threshold_bytes`` (8 MiB).
    """
    demands = "one mode on all nodes, and no hybrid I/O under buffered transfers"

    def values(name: str) -> list[str]:
        return sorted({str(node.get(f"tunable.llite.{name}", "unknown")) for node in nodes})

    known = {name: values(name) for name in _MODES}
    known = {name: seen for name, seen in known.items() if seen not in ([], ["unknown"])}
    if not known:
        return Finding("G24", Outcome.OK, "no modes of a Lustre client are known", demands)
    for name, seen in known.items():
        if len(seen) > 1:
            return Finding(
                "G24",
                Outcome.WARN,
                f"{name} is {' and '.join(seen)} on different nodes",
                demands,
                f"Let an administrator set llite.*.{name} alike on all nodes",
            )
    limits = [
        limit for limit in values(f"hybrid_io_{direction}_threshold_bytes") if limit.isdecimal()
    ]
    if buffered and transfer_bytes and known.get("hybrid_io") == ["1"] and limits:
        least = min(map(int, limits))
        if transfer_bytes >= least:
            return Finding(
                "G24",
                Outcome.WARN,
                f"buffered transfers of {format_bytes(transfer_bytes)} may be direct "
                f"(hybrid_io from {format_bytes(least)})",
                demands,
                "Read the figure as one of direct I/O, or use smaller transfers",
            )
    saw = ", ".join(f"{name} {seen[0]}" for name, seen in known.items())
    return Finding("G24", Outcome.OK, saw, demands)
