"""Which guards speak of which phase, and the verdicts that follow. Joins evidence, guards and verdict."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePath
from types import MappingProxyType

from iogauge.core.measurement import Metric, Reference, ToolOutput, ToolOutputError
from iogauge.core.units import convert, dimension, format_value
from iogauge.core.words import Tier
from iogauge.evidence import model
from iogauge.evidence.changes import own_bytes
from iogauge.guards import cache, nodes, preflight, striping
from iogauge.guards import figures as guards_figures
from iogauge.guards.figures import (
    bytes_moved,
    duration,
    read_after_write,
    tail,
    tool_integrity,
    unit_sanity,
)
from iogauge.guards.finding import Finding
from iogauge.judge.verdict import MetricVerdict, Verdict, check_samples, decide_metric, worst
from iogauge.node.mounts import Traits, traits
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan, access_of
from iogauge.plan.cost import ceiling_reference, metric_ceiling
from iogauge.site.extras import PartitionExtras


def _seen_offset(access: Access, plan: CasePlan, outputs: Sequence[ToolOutput]) -> int | None:
    """The shift of readers in nodes that was asked for, if the tool says in every output that it did it.

    IOR: ``reorderTasks`` and ``taskPerNodeOffset``, with as many tasks on each node. mdtest: the line
    "Shifting ranks by N", N in ranks.
    """
    if access.task_offset is None:
        return None
    per_node = plan.tasks // plan.nodes
    for output in outputs:
        said = output.parameters
        if output.tool == "ior":
            even = said.get("clients per node") == per_node
            seen = said.get("taskPerNodeOffset") if said.get("reorderTasks") and even else None
        else:
            shift = said.get("shift")
            seen = shift // per_node if isinstance(shift, int) and shift % per_node == 0 else None
        if seen != access.task_offset:
            return None
    return access.task_offset


def _unlike(phase: PhasePlan, plan: CasePlan, output: ToolOutput) -> str:
    """How what a tool says it ran with differs from what was asked; empty: not at all, or it does not say.

    IOR and mdtest repeat their command line, fio the options of its job file. What the job script fills in may
    be anything.
    """
    words = next((p for p in plan.phases if p.name == phase.within), phase).command
    names = [PurePath(word).name for word in words]
    if output.command and output.tool in names:
        asked = words[names.index(output.tool) + 1 :]
        said = [word.strip("'") for word in output.command.split()[1:]]  # mdtest quotes them
        for want, found in zip_longest(asked, said, fillvalue=""):
            pattern = (
                re.escape(want).replace(re.escape(DIR), r"\S+").replace(re.escape(REP), r"\d+")
            )
            if not re.fullmatch(pattern, found):
                return (
                    f"which says {found or 'nothing'!r} where {want or 'nothing'!r} was asked for"
                )
    if output.tool != "fio":
        return ""
    for name in words:
        for line in plan.inputs.get(name, "").splitlines():
            option, equals, want = line.partition("=")
            found = str(output.parameters.get(option, "nothing"))
            if equals and "$" not in want and found != want:
                return f"which says {option}={found} where {option}={want} was asked for"
    return ""


def _phase_findings(
    phase: PhasePlan,
    plan: CasePlan,
    evidence: model.Evidence,
    extras: PartitionExtras,
    tier: Tier,
) -> list[Finding]:
    """Findings that speak of all metrics of one phase."""
    outputs = evidence.outputs[phase.name]
    wanted = sorted({name for name, _ in phase.rates.values()})
    reported = [
        (output, one)
        for output in outputs
        for name in wanted
        for one in model.tool_phases(output, name, phase.samples)
    ]
    tool_phases = [one for _, one in reported]
    access, limits = phase.access, extras.limits
    known = traits(extras.target.type, extras.target.cache, extras.target.honours_o_direct)
    if any(view.cached_below for view in evidence.views):
        known = Traits("opaque", False)
    findings: list[Finding | None] = []
    per_node = (phase.data_bytes or 0) // plan.nodes
    if access.direction == "read" or access.task_offset is not None:
        findings.append(
            cache.client_cache(
                nodes=plan.nodes,
                task_offset=_seen_offset(access, plan, outputs),
                o_direct=access.o_direct,
                traits=known,
                bytes_per_node=per_node,
                node_memory=extras.node.memory,
                memory_factor=limits.memory_factor,
                evictions=evidence.evictions.get(phase.name, ()),
                expected_evictions=plan.repetitions * plan.nodes if access.evict else 0,
                data_bytes=phase.data_bytes or 1,
                fetched=evidence.fetched.get(phase.name, ()),
                page_caches=len({view.cache_id for view in evidence.views}),
            )
        )
    if access.direction == "read":
        findings.append(
            read_after_write(**_order(phase, plan, evidence), writes_first=plan.writes_first)
        )
        servers = extras.topology.servers if extras.topology else None
        findings.append(
            cache.server_cache(
                total_bytes=max((p.bytes_moved or 0 for p in tool_phases), default=0),
                server_memory=servers.memory * (plan.servers or servers.count)
                if servers and servers.memory
                else None,
            )
        )
    if access.direction in ("read", "write"):
        findings.append(
            nodes.client_modes(
                nodes=evidence.nodes,
                buffered=not access.o_direct,
                transfer_bytes=max((p.transfer_bytes or 0 for p in tool_phases), default=0),
                direction=access.direction,
            )
        )
    if access.direction in ("read", "write") and any("bw" in one.rates for one in tool_phases):
        findings.append(
            cache.data_entropy(
                compressing=_compressing(evidence, extras),
                tool=outputs[0].tool if outputs else plan.tool,
                parameters=[output.parameters for output in outputs],
            )
        )
    if access.direction == "metadata":
        findings.append(preflight.storage(traits=known))
    if access.direction == "write":
        findings.append(
            cache.write_back(
                fsync=access.fsync,
                o_direct=access.o_direct,
                traits=known,
                bytes_per_node=per_node,
                node_memory=extras.node.memory,
                memory_factor=limits.memory_factor,
            )
        )
    if tool_phases and access.direction != "none":
        findings.append(duration(seconds=[p.seconds for p in tool_phases], tier=tier))
        findings.append(
            tail(
                rank_seconds=[p.rank_seconds for p in tool_phases],
                stonewalls=[
                    (p.stonewall, p.rates["bw"].value, output.tasks or plan.tasks)
                    for output, p in reported
                    if p.stonewall is not None and "bw" in p.rates
                ],
            )
        )
    for one in tool_phases:
        if "bw" in one.rates and one.operations and one.transfer_bytes:
            findings.append(
                unit_sanity(
                    operations_s=one.operations / one.seconds,
                    transfer_bytes=one.transfer_bytes,
                    bytes_s=convert(one.rates["bw"].value, one.rates["bw"].unit, "B/s"),
                )
            )
    warnings = [
        warning
        for output in outputs
        for warning in output.warnings
        if phase.expected is None or not re.search(phase.expected, warning)
    ]
    if access.direction in ("read", "write") or warnings:
        findings.append(
            bytes_moved(
                expected=phase.data_bytes,
                reported=[p.bytes_moved for p in tool_phases],
                warnings=warnings,
            )
        )
    findings.append(
        tool_integrity(
            tool=outputs[0].tool if outputs else plan.tool,
            versions=[output.version for output in outputs],
            tasks=[output.tasks for output in outputs],
            nodes=[output.nodes for output in outputs],
            want_tasks=plan.tasks,
            want_nodes=plan.nodes,
            unlike=next(filter(None, (_unlike(phase, plan, output) for output in outputs)), ""),
        )
    )
    return [finding for finding in findings if finding is not None]


def findings_of(
    plan: CasePlan,
    evidence: model.Evidence,
    metrics: Sequence[Metric],
    values: Mapping[str, Sequence[float]],
    extras: PartitionExtras,
    tier: Tier,
) -> list[Finding]:
    """All findings of a case: those of the whole case first, then those of each metric."""
    findings = [
        preflight.identity(
            declared_type=extras.target.type,
            declared_source=extras.target.source,
            views=evidence.views,
        ),
        nodes.exclusive(objection=evidence.lost),
        nodes.neighbours(others=evidence.neighbours),
        *_node_findings(plan, evidence, extras),
        *_striping_findings(plan, evidence, extras),
    ]
    by_name = {metric.name: metric for metric in metrics}
    own_of: dict[str, list[Finding]] = {}
    for phase in plan.repeat:
        of_phase = _phase_findings(phase, plan, evidence, extras, tier)
        for name in phase.rates:
            metric = by_name[name]
            own = [dataclasses.replace(finding, metric=name) for finding in of_phase]
            limit = metric_ceiling(metric, phase.access.direction, extras, plan.nodes, plan.servers)
            own.append(
                dataclasses.replace(
                    guards_figures.ceiling(
                        value=max(values[name]),
                        limit=limit.value if limit else None,
                        limited_by=limit.limited_by if limit else "",
                        unit=metric.unit,
                        saturating=phase.access.saturates == dimension(metric.unit),
                    ),
                    metric=name,
                )
            )
            own_of[name] = own
    for name, computed in plan.computed.items():
        # What cannot be believed of the sources cannot be believed of what follows from them.
        own_of[name] = [
            dataclasses.replace(f, metric=name)
            for source in computed.sources
            for f in own_of[source]
        ]
    for name, own in own_of.items():
        spread = guards_figures.spread(samples=values[name], limit=extras.limits.max_spread)
        findings += [*own, dataclasses.replace(spread, metric=name)]
    return findings


def _striping_findings(
    plan: CasePlan, evidence: model.Evidence, extras: PartitionExtras
) -> list[Finding]:
    """Whether the files lie where the case asked for them; nothing where it asked for no layout."""
    if not plan.striped:
        return []
    targets = evidence.opened.targets if evidence.opened else ()
    active = [target.index for target in targets if target.active]
    declared = extras.topology.targets if extras.topology else None
    findings = [preflight.health(targets=targets, declared=declared)]
    for seen in evidence.striping:
        wanted = sorted(set(seen.placed.values())) if plan.pins else active
        findings += [
            striping.layout(
                request=plan.layout, placed=seen.placed, files=seen.files, active=len(active)
            ),
            striping.coverage(files=seen.files, targets=wanted, shared=plan.shared_file),
        ]
        if plan.shared_file and seen.files:
            one = seen.files[0]
            findings.append(
                striping.stripes_against_size(
                    file_bytes=plan.held_bytes // (plan.executions if plan.writes_first else 1),
                    stripe_bytes=one.stripe_bytes,
                    stripe_count=one.stripe_count,
                )
            )
    return list(dict.fromkeys(findings))  # each repetition says the same, unless it differs


def _compressing(evidence: model.Evidence, extras: PartitionExtras) -> str:
    """What makes data smaller on their way, as the site declares or a node saw; empty: nothing."""
    if extras.target.compresses is not None:
        return "a target that compresses, as its site declares" if extras.target.compresses else ""
    seen = (node.get("mount.compresses") for node in evidence.nodes)
    return next((str(reason) for reason in seen if reason), "")


def _order(
    phase: PhasePlan, plan: CasePlan, evidence: model.Evidence
) -> dict[str, list[tuple[int, float]]]:
    """Starts of a phase's executions that are judged, and ends of the executions that write (G21).

    One execution that writes and reads does so in this order: its read begins when it has ended.
    """
    writers = {
        p.within or p.name for p in plan.phases if p.access.direction in ("write", "metadata")
    }
    name = phase.within or phase.name
    mine = [run for run in evidence.runs if run.name == name and run.repetition > 0]
    return {
        "reads": [(r.repetition, r.ended if name in writers else r.started) for r in mine],
        "writes": [(r.repetition, r.ended) for r in evidence.runs if r.name in writers],
    }


def _node_findings(
    plan: CasePlan, evidence: model.Evidence, extras: PartitionExtras
) -> list[Finding]:
    """Whether the nodes were idle, ours alone, and kept their connections."""
    # Where all writes come first, the warm-up of what reads lies among what is judged.
    among = plan.passes[-1] if plan.writes_first else ()
    read, written = own_bytes(
        output
        for phase in plan.repeat
        if phase.within is None and phase.access.direction != "none"
        for output in (
            *evidence.outputs[phase.name],
            *(evidence.cold.get(phase.name, ()) if phase in among else ()),
        )
    )
    cores = [n for node in evidence.nodes if isinstance(n := node.get("cpu.cores"), int)]
    known = len(cores) == len(evidence.idle) == len(evidence.nodes)
    per_node = plan.tasks // plan.nodes
    return [
        nodes.placement(
            tasks_per_node=per_node,
            cores=cores if known else [],
            load1=[load.load1 for load in evidence.idle] if known else [],
            governors=[str(n["cpu.governor"]) for n in evidence.nodes if "cpu.governor" in n],
            bindings=evidence.bindings,
            oversubscribed=plan.sweeps_tasks and per_node > min(cores, default=0),
        ),
        nodes.foreign_load(
            changes=evidence.changes,
            own_read=read,
            own_written=written,
            max_share=extras.limits.max_foreign,
        ),
        nodes.connections(changes=evidence.changes),
    ]


def _notes(plan: CasePlan, evidence: model.Evidence, metric: str) -> list[str]:
    """What the outputs say of a metric beside its value, each once."""
    found = [
        output.notes[rate]
        for phase in plan.repeat
        for name, (_, rate) in phase.rates.items()
        if name == metric
        for output in evidence.outputs[phase.name]
        if rate in output.notes
    ]
    return list(dict.fromkeys(found))


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """Everything decided about one case; no metrics where nothing could be measured."""

    metrics: tuple[MetricVerdict, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
    reason: str
    tools: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The medians, and the first words of the reason: one line for ReFrame's screen."""
        figures = ", ".join(
            f"{m.metric.name} {format_value(m.median)} {m.metric.unit}"
            for m in self.metrics
            if m.median is not None
        )
        reason = self.reason.split("; demanded")[0] if not figures else self.reason.split("; ")[0]
        return f"{figures}: {reason}" if figures else reason

    @property
    def failed_as_expected(self) -> bool:
        """Every metric that failed was expected to."""
        failed = [m for m in self.metrics if m.verdict is Verdict.FAIL]
        return (
            self.verdict is Verdict.FAIL
            and bool(failed)
            and all(m.failed_as_expected for m in failed)
        )


def _summary(metrics: Sequence[MetricVerdict], verdict: Verdict) -> str:
    return "; ".join(f"{m.metric.name}: {m.reason}" for m in metrics if m.verdict is verdict)


def judge(
    plan: CasePlan,
    evidence: model.Evidence,
    metrics: Sequence[Metric],
    references: Mapping[str, Reference],
    extras: PartitionExtras,
    tier: Tier,
    unreferenced: str = "",
    standing: Mapping[str, Reference] = MappingProxyType({}),
) -> Judgement:
    """Verdict of a case from all that its job left; raises :class:`ToolOutputError` for an ERROR.

    ``standing`` references hold by the nature of the scenario, where the site has none. ``unreferenced`` says
    why a metric may have no reference: then the ceiling does not stand in for one.
    """
    if evidence.refused:
        return Judgement(
            (), (), Verdict.INVALID, "refused before a byte was written: " + evidence.refused[0]
        )
    if evidence.occupied:
        waited = nodes.exclusive(objection=evidence.occupied)
        return Judgement((), (waited,), Verdict.CONTAMINATED, f"nothing was measured: {waited}")
    values = check_samples(metrics, model.rates_of(plan, evidence.outputs), plan.samples)
    findings = findings_of(plan, evidence, metrics, values, extras, tier)
    decided = []
    for metric in metrics:
        reference = references.get(metric.name) or standing.get(metric.name)
        if reference is None and not unreferenced:
            access = access_of(plan, metric.name)
            reference = ceiling_reference(metric, access, extras, plan.nodes, plan.servers)
        one = decide_metric(metric, values[metric.name], findings, reference, unreferenced)
        notes = "; ".join(_notes(plan, evidence, metric.name))
        decided.append(dataclasses.replace(one, reason=f"{one.reason}: {notes}") if notes else one)
    verdict = worst([m.verdict for m in decided])
    if verdict is Verdict.ERROR:
        raise ToolOutputError("the scenario promises no metric")
    versions = {f"{o.tool} {o.version}" for outs in evidence.outputs.values() for o in outs}
    return Judgement(
        tuple(decided),
        tuple(findings),
        verdict,
        _summary(decided, verdict),
        tuple(sorted(versions)),
    )
