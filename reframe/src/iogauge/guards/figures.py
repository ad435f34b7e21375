"""Guards of the figures: duration, tail, ceiling, units, bytes, order, spread, tool, environment (G4
to G8, G17, G21, G22).
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from iogauge.core.measurement import Stonewall
from iogauge.core.units import convert, dimension, format_bytes, format_seconds, format_value
from iogauge.core.words import Tier
from iogauge.evidence.fingerprint import fold
from iogauge.evidence.model import SERIES, OverTime
from iogauge.evidence.witness import jobs_at_once
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.origin import Execution
from iogauge.guards.seen import CaseSeen, MetricSeen, PhaseSeen
from iogauge.node import probes
from iogauge.node.probes import is_known, lie_of
from iogauge.plan.case import MOST_SHARE, lower_ceiling
from iogauge.site.extras import DOUBTFUL_LIMIT, generous
from iogauge.tools.fio.output import in_flight

#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS: Final = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND: Final = 10


def beyond(*, operations: int, share: float, tier: Tier) -> Finding:
    """G4: at least ten operations of the shortest repetition lie beyond a percentile of the
    latency: p99 needs 1,000 operations, p99.9 needs 10,000. In tier quick fewer give a remark.
    """
    saw = f"{operations * share:.1f} of {operations} operation(s) lie beyond the percentile"
    remedy = f"Raise limits.phase_seconds {_BEYOND / (operations * share):.3g}-fold"
    otherwise = Outcome.WARN if tier == "quick" else Outcome.INVALID
    return Rule("G4", f"{_BEYOND} or more", remedy).decide(
        operations * share >= _BEYOND, saw, otherwise
    )


def beyond_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency."""
    counts = [phase.operations for phase in seen.tool_phases if phase.operations]
    for metric, (_, quantity) in seen.phase.rates.items():
        if quantity in _TAILS and counts:
            found = beyond(operations=min(counts), share=_TAILS[quantity], tier=seen.case.tier)
            yield dataclasses.replace(found, metric=metric)


def spread(*, samples: Sequence[float], limit: float, tail: bool = False) -> Finding:
    """G17: coefficient of variation (n - 1) over the repetitions is at most ``limits.max_spread``.
    A limit above 50 % gives a remark. If the slowest percent of the requests spread more, you also
    get only a remark.
    """
    rule = Rule(
        "G17",
        f"at most {limit:.0%} over at least 2 repetitions",
        "Others may use the target: repeat at a quiet time, or raise limits.repetitions",
    )
    if len(samples) < 2:
        once = dataclasses.replace(rule, remedy="Raise limits.repetitions")
        return once.warn("one repetition: spread unknown")
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    saw = f"coefficient of variation {cv:.1%} over {len(samples)} repetitions"
    if cv <= limit and limit > DOUBTFUL_LIMIT:
        return Rule("G17", rule.demands).warn(f"{saw}. {generous('max_spread', limit)}")
    return rule.decide(cv <= limit, saw, Outcome.WARN if tail else Outcome.UNSTABLE)


def spread_of(seen: MetricSeen) -> Iterator[Finding]:
    yield spread(
        samples=seen.case.values[seen.name],
        limit=seen.case.extras.limits.max_spread,
        tail=any(metric.tail for metric in seen.case.metrics if metric.name == seen.name),
    )


def drift(
    *, before: Sequence[float], after: Sequence[float], limit: float, tail: bool = False
) -> Finding:
    """G17: the figures without disturbance are the same before and after the disturbance: the
    medians over the repetitions differ by ``limits.max_spread`` at most. A limit above 50 % gives a
    remark. If the slowest percent of the requests differ more, you also get only a remark.
    """
    first, last = statistics.median(before), statistics.median(after)
    off = abs(last - first) / statistics.fmean((first, last))
    rule = Rule(
        "G17",
        f"alone, before and after, at most {limit:.0%} apart",
        "The target changed meanwhile, so the disturber did not cause all of the loss. Repeat at a quiet time, or raise "
        "limits.phase_seconds",
    )
    saw = f"{format_value(first)} before, {format_value(last)} after, {off:.1%} apart"
    if off <= limit and limit > DOUBTFUL_LIMIT:
        return Rule("G17", rule.demands).warn(f"{saw}. {generous('max_spread', limit)}")
    return rule.decide(off <= limit, saw, Outcome.WARN if tail else Outcome.UNSTABLE)


def drift_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G17 for each metric of a phase that repeats an earlier one."""
    case = seen.case
    earlier = (phase for phase in case.plan.repeat if phase.name == seen.phase.again)
    before = {way: name for phase in earlier for name, way in phase.rates.items()}
    tails = {metric.name for metric in case.metrics if metric.tail}
    for name, way in seen.phase.rates.items():
        if way in before:
            found = drift(
                before=case.values[before[way]],
                after=case.values[name],
                limit=case.extras.limits.max_spread,
                tail=name in tails,
            )
            yield dataclasses.replace(found, metric=name)


def steadiness(*, series: Sequence[OverTime]) -> Finding:
    """G17: within a repetition no second is below half of the median, and the level does not change
    by a fifth. The rule applies to scenarios that sample the bandwidth over time.
    """
    saw = []
    for number, one in enumerate(series, 1):
        where = f"repetition {number}: " if len(series) > 1 else ""
        saw += [f"{where}{text}" for text in one.unsteady]
    return Rule(
        "G17",
        "no dip below 50 % of the median, no change of level by 20 %",
        "A change to a lower level may be burst credits that were used up: compare with what was bought",
    ).decide(not saw, "; ".join(saw) or "steady over time", Outcome.WARN)


def steadiness_of(seen: PhaseSeen) -> Iterator[Finding]:
    told = [output.parameters.get(SERIES) for output in seen.outputs]
    series = [one for one in told if isinstance(one, OverTime)]
    if series:
        yield steadiness(series=series)


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed.
#: Below the second number it gets a remark.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}


def duration(*, seconds: Sequence[float], tier: Tier, follows: bool = False) -> Finding:
    """G4: the shortest repetition lasts 30 s in tier daily, 60 s in acceptance. Tier quick demands
    0.02 s, and gives a remark below 30 s. A phase of IO500 that does not write gets remarks only.

    ``follows`` means that the phase is as long as an earlier one left work for it.
    """
    least, wanted = MIN_SECONDS[tier]
    shortest = min(seconds)
    factor = (least if shortest < least else wanted) / shortest if shortest > 0 else float("inf")
    rule = Rule(
        "G4",
        f"{least:g} s in tier {tier}"
        + (f", {wanted:g} s to compare systems" if wanted > least else ""),
        f"Raise limits.case_bytes, limits.case_files or limits.phase_seconds {factor:.3g}-fold "
        "in the settings of your site. Site local has none: describe this machine as a site first",
    )
    saw = f"the shortest repetition lasted {format_seconds(shortest)}"
    if shortest < least and not follows:
        return rule.invalid(saw)
    return rule.decide(shortest >= wanted, saw, Outcome.WARN)


def duration_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.tool_phases and seen.access.direction != "none":
        yield duration(
            seconds=[phase.seconds for phase in seen.tool_phases],
            tier=seen.case.tier,
            follows=seen.phase.follows,
        )


def tail(
    *,
    rank_seconds: Sequence[Sequence[float]],
    stonewalls: Sequence[tuple[Stonewall, float, int]] = (),
    max_imbalance: float = 0.3,
    min_wear_out: float = 0.7,
    min_pairs: float = 0.5,
) -> Finding | None:
    """G5: (max - min) / mean of task times <= 0.3. With a stonewall, wear-out ratio >= 0.7, and the
    fewest transfers of a task divided by the most >= 0.5.

    The wear-out ratio is the bandwidth of the whole phase over the bandwidth up to the stonewall.
    ``stonewalls`` holds (stonewall, bandwidth of the phase in MiB/s, tasks). Returns None if the
    tool reported neither.
    """
    worst = 0.0
    for times in rank_seconds:
        if len(times) > 1 and statistics.fmean(times) > 0:
            worst = max(worst, (max(times) - min(times)) / statistics.fmean(times))
    parts = [f"(max - min) / mean of task times = {worst:.2f}"] if any(rank_seconds) else []
    holds = worst <= max_imbalance
    for wall, phase_mib_s, tasks in stonewalls:
        if wall.mean_task_mib_s:
            ratio = phase_mib_s / (wall.mean_task_mib_s * tasks)
            holds = holds and ratio >= min_wear_out
            parts.append(f"wear-out ratio {ratio:.2f}")
        if wall.min_pairs is not None and wall.max_pairs:
            ratio = wall.min_pairs / wall.max_pairs
            holds = holds and ratio >= min_pairs
            parts.append(f"fewest over most transfers {ratio:.2f}")
    if not parts:
        return None
    return Rule(
        "G5",
        f"imbalance <= {max_imbalance:g}, wear-out ratio >= {min_wear_out:g}, "
        f"fewest over most >= {min_pairs:g}",
        "Look for a slow node, link or storage target",
    ).decide(holds, ", ".join(parts), Outcome.WARN)


def tail_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.tool_phases and seen.access.direction != "none":
        finding = tail(
            rank_seconds=[phase.rank_seconds for phase in seen.tool_phases],
            stonewalls=[
                (phase.stonewall, phase.rates["bw"].value, output.tasks or seen.case.plan.tasks)
                for output, phase in seen.reported
                if phase.stonewall is not None and "bw" in phase.rates
            ],
        )
        if finding is not None:
            yield finding


def ceiling(
    *, value: float, limit: float | None, limited_by: str, unit: str, saturating: bool = True
) -> Finding:
    """G6: a bandwidth is at most 102 % of the smallest of N x client NIC, servers x NIC, devices,
    as declared or as measured. Below 50 % it gets a remark if the scenario saturates the target.
    """
    if limit is None:
        return Rule("G6", "topology in the site's settings").ok("no ceiling declared")
    share = value / limit
    saw = f"{format_value(value)} {unit} is {share:.0%} of the ceiling ({limited_by})"
    demands = f"at most 102 % of {format_value(limit)} {unit}"
    if share > MOST_SHARE:
        if "measured" in limited_by:
            remedy = (
                "The data came from a cache, or the layer carries more than was measured: measure it again "
                "(iogauge run -t ceiling), and see 'iogauge ceilings'"
            )
            return Rule("G6", demands, remedy).invalid(saw)
        remedy = "The data came from a cache, or the topology in the settings is wrong"
        return Rule("G6", demands, remedy).invalid(saw)
    if saturating and share < 0.5:
        remedy = "Less than half of what the topology can carry: look for the bottleneck"
        return Rule("G6", demands, remedy).warn(saw)
    return Rule("G6", demands).ok(saw)


def ceiling_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield the largest sample of each metric against the ceiling of that metric."""
    case, access = seen.case, seen.access
    for metric in case.metrics:
        if metric.name not in seen.phase.rates:
            continue
        plan, usable = case.plan, case.measured.usable
        nodes = seen.phase.on_nodes or plan.nodes
        limit = lower_ceiling(metric, access.direction, case.extras, nodes, plan.servers, usable)
        finding = ceiling(
            value=max(case.values[metric.name]),
            limit=limit.value if limit else None,
            limited_by=limit.limited_by if limit else "",
            unit=metric.unit,
            saturating=access.saturates == dimension(metric.unit),
        )
        yield dataclasses.replace(finding, metric=metric.name)


def measured_ceilings(*, problems: Sequence[str]) -> Finding:
    """G6: each layer that ``ceilings`` declares was measured, the measurement is not too old, and
    no valid figure exceeds it. Otherwise the measurement is not used.
    """
    return Rule(
        "G6",
        "a measured ceiling that holds",
        "Measure the layers again: iogauge run -t ceiling; then see 'iogauge ceilings'",
    ).decide(not problems, "; ".join(problems) or "the measured ceilings hold", Outcome.WARN)


def measured_ceilings_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G6 if the partition declares layers, and the case moves the target's data."""
    moves = any(phase.moves_data for phase in seen.phases)
    if moves and seen.extras.ceilings and (seen.measured.problems or seen.measured.usable):
        yield measured_ceilings(problems=seen.measured.problems)


def unit_sanity(
    *,
    operations_s: float,
    transfer_bytes: int,
    bytes_s: float,
    tolerance: float = 0.01,
    in_flight: tuple[float, int] | None = None,
    latency: bool = False,
) -> Finding:
    """G7: operations per second x transfer size equals bandwidth within 1 %. Operations per second x
    mean latency is at most 110 % of the requests that fio keeps in flight. It is at least 50 % of them if a latency is judged.

    ``in_flight`` holds the two numbers of requests in flight, None if they are unknown. ``latency`` says whether a
    latency is judged. Without one, fewer in flight are those of a busy node: fio waits for a processor between requests.
    """
    least = 0.5 if latency else 0.0
    if in_flight is not None and not least <= in_flight[0] / in_flight[1] <= 1.1:
        return Rule(
            "G7",
            f"ops/s x mean latency {'between 50% and' if latency else 'at most'} 110% of the requests in flight",
            "Rate and latency cannot both be true. Look for another tool of this name",
        ).invalid(
            f"ops/s x mean latency is {in_flight[0]:.3g} request(s) in flight, fio keeps {in_flight[1]}"
        )
    off = abs(operations_s * transfer_bytes - bytes_s) / bytes_s
    return Rule(
        "G7",
        f"|iops x transfer - bandwidth| / bandwidth <= {tolerance:.0%}",
        "The tool's output mixes units or phases: keep it and report it",
    ).decide(
        off <= tolerance,
        f"{format_value(operations_s)} ops/s x {format_bytes(transfer_bytes)} differs from "
        f"{format_bytes(bytes_s)}/s by {off:.2%}",
    )


def unit_sanity_of(seen: PhaseSeen) -> Iterator[Finding]:
    for output, phase in seen.reported:
        if "bw" in phase.rates and phase.operations and phase.transfer_bytes:
            yield unit_sanity(
                in_flight=in_flight(output),
                latency=any(way.startswith("latency") for _, way in seen.phase.rates.values()),
                operations_s=phase.operations / phase.seconds,
                transfer_bytes=phase.transfer_bytes,
                bytes_s=convert(phase.rates["bw"].value, phase.rates["bw"].unit, "B/s"),
            )


#: IOR's warning if tasks see a shared file with different sizes, and what it adds.
_UNLIKE: Final = "inconsistent file size by different tasks"
_OF_SIZE: Final = re.compile(
    rf"WARNING: ({_UNLIKE}|(Expected aggregate file size|Stat\(\) of aggregate file size|"
    r"Using actual aggregate bytes moved) += \d+)\W*"
)


def bytes_moved(
    *,
    expected: int | None,
    reported: Sequence[int | None],
    warnings: Sequence[str] = (),
    read_whole: bool = False,
) -> Finding:
    """G8: all planned bytes moved in every repetition, and the tool gave no warning. IOR warns if
    tasks see a shared file with different sizes. You get a remark if all bytes were read
    afterwards: a client of GlusterFS or NFS may keep a file's size for a moment.

    IOR asks for the size as soon as the file is written. ``read_whole`` tells that all of it was read afterwards.
    """
    unlike = read_whole and any(_UNLIKE in warning for warning in warnings)
    if unlike:
        warnings = [warning for warning in warnings if not _OF_SIZE.fullmatch(warning)]
    wrong = [r for r in reported if expected is not None and r != expected]
    saw = (
        f"{wrong[0] if wrong[0] is not None else 'an unknown number of'} bytes moved"
        if wrong
        else "bytes moved as asked"
    )
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    amount = f"{expected} bytes (N x T x b x s) and " if expected is not None else ""
    rule = Rule("G8", f"{amount}no warning", "Read the tool's output in the stage directory")
    if unlike and not wrong and not warnings:
        return rule.warn(f"{saw}; clients saw the file with different sizes, then read all of it")
    return rule.decide(not wrong and not warnings, saw)


def _read_whole(seen: PhaseSeen) -> bool:
    """Return whether a phase writes bytes that another phase reads, all of them in each repetition."""
    wrote = seen.phase.data_bytes
    return bool(wrote) and any(
        other.access.direction == "read"
        and other.phase.data_bytes == wrote
        and len(other.tool_phases) == len(seen.tool_phases)
        and all(phase.bytes_moved == wrote for phase in other.tool_phases)
        for other in seen.case.phases
        if seen.access.direction == "write"
    )


def bytes_moved_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Apply G8 to reads and writes, and to any phase with an unexpected warning."""
    expected = seen.phase.expected
    warnings = [
        warning
        for output in seen.outputs
        for warning in output.warnings
        if expected is None or not re.search(expected, warning)
    ]
    if seen.moves_data or warnings:
        yield bytes_moved(
            expected=seen.phase.data_bytes,
            reported=[phase.bytes_moved for phase in seen.tool_phases],
            warnings=warnings,
            read_whole=_read_whole(seen),
        )


def read_after_write(
    *,
    reads: Sequence[tuple[int, float]],
    writes: Sequence[tuple[int, float]],
    writes_first: bool = False,
) -> Finding:
    """G21: every read starts after a finished write of its own repetition. If repetitions do not
    write, the preparing write counts. With ``writes_first`` every read starts after all writes.

    ``reads`` holds (repetition, start), ``writes`` (repetition, end), in seconds of one clock. The
    preparing repetition is number 0.
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
    return Rule(
        "G21",
        "all writes of this run have finished before the first read"
        if writes_first
        else "a write of this run that has finished before each read",
        "Let the case write its data itself, before it reads them (phases.tsv has the order)",
    ).decide(
        bool(reads) and not wrong,
        wrong[0] if wrong else f"{len(reads)} read(s), each after a write" if reads else "no read",
    )


def read_after_write_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G21. If one execution writes and reads, its read starts at the end of the execution.

    What is prepared stays for all repetitions: then other writes do not matter.
    """
    if seen.access.direction != "read":
        return
    plan, runs = seen.case.plan, seen.case.evidence.runs
    made = ("write", "metadata")
    prepared = [phase for phase in plan.prepare if phase.access.direction in made]
    writers = {
        phase.within or phase.name
        for phase in prepared or plan.repeat
        if phase.access.direction in made
    }
    name = seen.phase.within or seen.phase.name
    executions = [run for run in runs if run.name == name and run.repetition > 0]
    yield read_after_write(
        reads=[
            (run.repetition, run.ended if name in writers else run.started) for run in executions
        ],
        writes=[(run.repetition, run.ended) for run in runs if run.name in writers],
        writes_first=plan.writes_first,
    )


def tool_integrity(
    *,
    tool: str,
    versions: Mapping[str, Sequence[str]],
    tasks: Sequence[int | None],
    nodes: Sequence[int | None],
    want_tasks: int | None,
    want_nodes: int | None,
    on_hosts: Mapping[str, Sequence[str]] = MappingProxyType({}),
    foreign: str = "",
) -> Finding:
    """G22: every output belongs to its own execution, and all phases ran one version of the tool as planned. The tasks
    and nodes are the planned ones, and PATH leads to one version on all nodes. An output has the planned words (IOR,
    mdtest) or options (fio, IO500),
    this case's directory and repetition, and fio's token. Its dates lie within the execution (2 s).
    The kernel's counts (G8) are not more than the tasks. fio on one node has no more processes than its options say, unless it
    is a script.

    ``versions`` maps each version to the phases that it ran, ``on_hosts`` to the nodes where PATH leads to it. ``tasks`` and ``nodes`` hold the
    numbers in each output, None if the tool does not report them. ``foreign`` says why an output is
    not of its execution, empty if all are.
    """
    several = {version: ", ".join(dict.fromkeys(phases)) for version, phases in versions.items()}
    named = [f"{v} in {several[v]}" if len(several) > 1 else v for v in sorted(several)]
    ran = f"{tool} {'; '.join(named) or 'of unknown version'}"
    wrong_tasks = sorted(
        {t for t in tasks if t is not None and want_tasks is not None} - {want_tasks}
    )
    wrong_nodes = sorted(
        {n for n in nodes if n is not None and want_nodes is not None} - {want_nodes}
    )
    if wrong_tasks:
        ran += f" with {wrong_tasks[0]} task(s)"
    if wrong_nodes:
        ran += f" on {wrong_nodes[0]} node(s)"
    if foreign:
        return Rule(
            "G22",
            "an output of this very execution",
            "Something between the job script and the tool changes its output, or shows an older one. "
            f"Look for a wrapper (type {tool}), and for environment variables that {tool} reads",
        ).invalid(f"{ran}, {foreign}")
    if len(on_hosts) > 1:
        found = "; ".join(f"{v} on {fold(on_hosts[v])}" for v in sorted(on_hosts))
        return Rule(
            "G22",
            "one version on all nodes",
            f"Install one version on all nodes. On each node, 'type {tool}' names the one that PATH leads to",
        ).invalid(f"{tool} {found}")
    return Rule(
        "G22",
        "one version"
        + (f", {want_tasks} task(s)" if want_tasks is not None else "")
        + (f" on {want_nodes} node(s)" if want_nodes is not None else ""),
        "The launcher may belong to another MPI than the tool: run 'iogauge doctor'",
    ).decide(len(versions) == 1 and all(versions) and not wrong_tasks and not wrong_nodes, ran)


def tool_integrity_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G22. Phases without a metric (preparation, a run that is watched) count in each."""
    plan, versions, foreign = seen.case.plan, dict[str, list[str]](), ""
    alone = None if seen.phase.beside else seen.phase.on_nodes
    want_nodes = alone or plan.nodes
    own = []
    for execution in Execution.all_of(seen.case):
        phase, output = execution.phase, execution.output
        if output.tool == seen.tool:
            versions.setdefault(output.version, []).append(phase.name)
        if phase.name == seen.phase.name:
            own.append(output)
        if phase.name == seen.phase.name or not phase.rates:
            foreign = foreign or execution.objection
    for testimony in seen.testimonies:
        told, expected = len(testimony.witnesses), testimony.expected
        # A launcher may cut the lines of several tasks into each other, and makes none of its own.
        if told > expected:
            foreign = foreign or f"which left {told} count(s) of the kernel for {expected} task(s)"
    # A script may start other programs too.
    compiled = not any(f"{probes.SCRIPT}{seen.tool}" in facts for facts in seen.case.evidence.nodes)
    for output, testimony in zip(own, seen.testimonies, strict=False):
        known = compiled and seen.tool == "fio" and testimony.of_tasks
        span = seen.case.span(testimony) if known else None
        jobs = jobs_at_once(seen.case.evidence.processes, span) if span else 0
        if output.tasks and jobs > output.tasks:
            foreign = foreign or f"which had {jobs} processes for its {output.tasks} job(s)"
    on_hosts: dict[str, list[str]] = {}
    for host, told_versions in seen.case.evidence.versions.items():
        if seen.tool in told_versions:
            on_hosts.setdefault(told_versions[seen.tool], []).append(host)
    yield tool_integrity(
        tool=seen.tool,
        versions=versions,
        on_hosts=on_hosts,
        tasks=[output.tasks for output in own],
        nodes=[output.nodes for output in own],
        want_tasks=plan.tasks // plan.nodes * want_nodes,
        want_nodes=want_nodes,
        foreign=foreign,
    )


def environment(
    *, libraries: Sequence[tuple[str, str]], scripts: Mapping[str, str] = MappingProxyType({})
) -> Finding:
    """G22: no preloaded library falsifies time, sync or I/O, and no library that the first task has
    loaded. Any other preloaded library, and a tool that is a script, give a remark.

    ``libraries`` holds (name, source) of the preloaded libraries of all nodes and tools,
    ``scripts`` the first lines of tools that are scripts, by tool.
    """
    lies = [
        f"{name} ({source}), which {lie_of(name)}" for name, source in libraries if lie_of(name)
    ]
    unknown = [f"{name} ({source})" for name, source in libraries if not is_known(name)]
    remarks = [f"preloaded, and unknown here: {', '.join(unknown)}"] if unknown else []
    remarks += [f"{tool} is a script: {line}" for tool, line in scripts.items()]
    rule = Rule(
        "G22",
        "nothing between the tool and the kernel that lies about time, sync or I/O",
        "Remove it from the job's environment: modules, env_vars of the settings, "
        "/etc/ld.so.preload, a wrapper on PATH",
    )
    if lies:
        return rule.invalid("; ".join(lies))
    return rule.decide(not remarks, "; ".join(remarks) or "nothing is preloaded", Outcome.WARN)


def environment_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G22 if any node has something between the tools and the kernel."""
    nodes, start = seen.evidence.nodes, probes.SCRIPT
    libraries = probes.libraries(nodes)
    # A launcher or a program on the way may have preloaded what the job's environment does not name.
    told = {name for name, _ in libraries}
    libraries += [
        (n, "loaded by a task") for n in seen.evidence.loaded if lie_of(n) and n not in told
    ]
    scripts = {
        key.removeprefix(start): str(line)
        for facts in nodes
        for key, line in facts.items()
        if key.startswith(start)
    }
    if libraries or scripts:
        yield environment(libraries=libraries, scripts=scripts)
