"""Guards of the figures: duration, tail, ceiling, units, bytes, spread, order, tool (G4 to G8, G17, G21, G22)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from iogauge.core.measurement import Stonewall
from iogauge.core.units import format_bytes, format_seconds, format_value
from iogauge.core.words import Tier
from iogauge.guards.finding import Finding, Outcome, finding_of

#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed, below
#: the second it is remarked upon.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}


def duration(*, seconds: Sequence[float], tier: Tier) -> Finding:
    """G4: a phase must last long enough; the shortest repetition counts."""
    least, wanted = MIN_SECONDS[tier]
    shortest = min(seconds)
    outcome = (
        Outcome.INVALID if shortest < least else Outcome.WARN if shortest < wanted else Outcome.OK
    )
    factor = (least if shortest < least else wanted) / shortest if shortest > 0 else float("inf")
    return Finding(
        "G4",
        outcome,
        f"the shortest repetition lasted {format_seconds(shortest)}",
        f"{least:g} s in tier {tier}"
        + (f", {wanted:g} s to compare systems" if wanted > least else ""),
        f"Raise limits.case_bytes, limits.case_files or limits.phase_seconds {factor:.3g}-fold",
    )


def tail(
    *,
    rank_seconds: Sequence[Sequence[float]],
    stonewalls: Sequence[tuple[Stonewall, float, int]] = (),
    max_imbalance: float = 0.3,
    min_wear_out: float = 0.7,
    min_pairs: float = 0.5,
) -> Finding | None:
    """G5: the tasks must finish together. A straggler is reported, it does not make the figure invalid.

    Per-task times: (max - min) / mean <= 0.3. Stonewalled: bandwidth of the whole phase over bandwidth up
    to the stonewall >= 0.7, and fewest over most pairs >= 0.5. ``stonewalls`` holds (stonewall,
    bandwidth of the phase in MiB/s, tasks). None where the tool reported neither.
    """
    worst = 0.0
    for times in rank_seconds:
        if len(times) > 1 and statistics.fmean(times) > 0:
            worst = max(worst, (max(times) - min(times)) / statistics.fmean(times))
    seen = [f"(max - min) / mean of task times = {worst:.2f}"] if any(rank_seconds) else []
    holds = worst <= max_imbalance
    for wall, phase_mib_s, tasks in stonewalls:
        if wall.mean_task_mib_s:
            ratio = phase_mib_s / (wall.mean_task_mib_s * tasks)
            holds = holds and ratio >= min_wear_out
            seen.append(f"wear-out ratio {ratio:.2f}")
        if wall.min_pairs is not None and wall.max_pairs:
            ratio = wall.min_pairs / wall.max_pairs
            holds = holds and ratio >= min_pairs
            seen.append(f"fewest over most transfers {ratio:.2f}")
    if not seen:
        return None
    return finding_of(
        "G5",
        holds,
        ", ".join(seen),
        f"imbalance <= {max_imbalance:g}, wear-out ratio >= {min_wear_out:g}, "
        f"fewest over most >= {min_pairs:g}",
        "Look for a slow node, link or storage target",
        Outcome.WARN,
    )


def ceiling(
    *, value: float, limit: float | None, limited_by: str, unit: str, saturating: bool = True
) -> Finding:
    """G6: nothing is faster than its parts: B <= 1.02 x ceiling.

    Below half of it is remarked upon, where the scenario drives the target to that limit.
    """
    if limit is None:
        return Finding("G6", Outcome.OK, "no ceiling declared", "topology in the site's settings")
    share = value / limit
    saw = f"{format_value(value)} {unit} is {share:.0%} of the ceiling ({limited_by})"
    demands = f"at most 102 % of {format_value(limit)} {unit}"
    if share > 1.02:
        remedy = "The data came from a cache, or the topology in the settings is wrong"
        return Finding("G6", Outcome.INVALID, saw, demands, remedy)
    if saturating and share < 0.5:
        remedy = "Less than half of what the topology can carry: look for the bottleneck"
        return Finding("G6", Outcome.WARN, saw, demands, remedy)
    return Finding("G6", Outcome.OK, saw, demands)


def unit_sanity(
    *, operations_s: float, transfer_bytes: int, bytes_s: float, tolerance: float = 0.01
) -> Finding:
    """G7: operations/s times transfer size must be the bandwidth, within 1 %."""
    off = abs(operations_s * transfer_bytes - bytes_s) / bytes_s
    return finding_of(
        "G7",
        off <= tolerance,
        f"{format_value(operations_s)} ops/s x {format_bytes(transfer_bytes)} differs from "
        f"{format_bytes(bytes_s)}/s by {off:.2%}",
        f"|iops x transfer - bandwidth| / bandwidth <= {tolerance:.0%}",
        "The tool's output mixes units or phases: keep it and report it",
    )


def bytes_moved(
    *, expected: int | None, reported: Sequence[int | None], warnings: Sequence[str] = ()
) -> Finding:
    """G8: the tool must have moved N x T x b x s bytes in every repetition, without a warning."""
    wrong = [r for r in reported if expected is not None and r != expected]
    saw = (
        f"{wrong[0] if wrong[0] is not None else 'an unknown number of'} bytes moved"
        if wrong
        else "bytes moved as asked"
    )
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    return finding_of(
        "G8",
        not wrong and not warnings,
        saw,
        (f"{expected} bytes (N x T x b x s) and " if expected is not None else "") + "no warning",
        "Read the tool's output in the stage directory",
    )


def spread(*, samples: Sequence[float], limit: float) -> Finding:
    """G17: the coefficient of variation (sample standard deviation over mean) is at most the limit."""
    demands = f"at most {limit:.0%} over at least 2 repetitions"
    remedy = "Others may use the target: repeat at a quiet time, or raise limits.repetitions"
    if len(samples) < 2:
        return Finding("G17", Outcome.WARN, "one repetition: spread unknown", demands, remedy)
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    return finding_of(
        "G17",
        cv <= limit,
        f"coefficient of variation {cv:.1%} over {len(samples)} repetitions",
        demands,
        remedy,
        Outcome.UNSTABLE,
    )


def read_after_write(
    *,
    reads: Sequence[tuple[int, float]],
    writes: Sequence[tuple[int, float]],
    writes_first: bool = False,
) -> Finding:
    """G21: what is read was written before, by this run and in the same repetition.

    ``reads`` are (repetition, seconds of one clock at which it started), ``writes`` (repetition, seconds
    at which it had finished). What the preparing repetition 0 has written stands for all, unless a
    repetition writes by itself. A write that goes on while the data are read is none. ``writes_first``: all
    repetitions were to write before the first one reads.
    """
    last = max((ended for _, ended in writes), default=0.0)
    wrong = []
    for repetition, started in reads:
        own = [ended for number, ended in writes if number == repetition]
        ended = own or [ended for number, ended in writes if number == 0]
        if not ended:
            wrong.append(f"repetition {repetition} reads what this run did not write")
        elif min(ended) > started:
            wrong.append(f"repetition {repetition} reads before its data were written")
        elif writes_first and last > started:
            wrong.append(f"repetition {repetition} reads before all repetitions have written")
    return finding_of(
        "G21",
        bool(reads) and not wrong,
        wrong[0] if wrong else f"{len(reads)} read(s), each after a write" if reads else "no read",
        "all writes of this run have finished before the first read"
        if writes_first
        else "a write of this run that has finished before each read",
        "Let the case write its data itself, before it reads them (phases.tsv has the order)",
    )


def tool_integrity(
    *,
    tool: str,
    versions: Sequence[str],
    tasks: Sequence[int | None],
    nodes: Sequence[int | None],
    want_tasks: int | None,
    want_nodes: int | None,
    unlike: str = "",
) -> Finding:
    """G22: one version of the tool ran, on as many tasks and nodes as asked. None: the tool is silent.

    ``unlike``: how the words that it says it ran with differ from those that were asked for.
    """
    seen = f"{tool} {', '.join(sorted(set(versions))) or 'of unknown version'}"
    wrong_tasks = sorted(
        {t for t in tasks if t is not None and want_tasks is not None} - {want_tasks}
    )
    wrong_nodes = sorted(
        {n for n in nodes if n is not None and want_nodes is not None} - {want_nodes}
    )
    if wrong_tasks:
        seen += f" with {wrong_tasks[0]} task(s)"
    if wrong_nodes:
        seen += f" on {wrong_nodes[0]} node(s)"
    if unlike:
        return Finding(
            "G22",
            Outcome.INVALID,
            f"{seen}, {unlike}",
            "the words that were asked for",
            "Something between the job script and the tool changes its words: look for a wrapper (type "
            f"{tool}), and for variables of the environment that {tool} reads",
        )
    return finding_of(
        "G22",
        len(set(versions)) == 1 and all(versions) and not wrong_tasks and not wrong_nodes,
        seen,
        "one version"
        + (f", {want_tasks} task(s)" if want_tasks is not None else "")
        + (f" on {want_nodes} node(s)" if want_nodes is not None else ""),
        "The launcher may belong to another MPI than the tool: run 'iogauge doctor'",
    )
