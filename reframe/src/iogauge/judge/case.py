"""From what a job left to the verdict of its case: asks the guards and decides each metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from iogauge.core.measurement import Metric, Reference, ToolOutputError
from iogauge.core.units import format_value
from iogauge.core.words import Tier
from iogauge.evidence import model
from iogauge.guards import nodes
from iogauge.guards.catalogue import OF_CASE, OF_LAYOUT, OF_METRIC, OF_PHASE, Guard, Seen
from iogauge.guards.finding import Finding
from iogauge.guards.seen import CaseSeen, MetricSeen
from iogauge.judge.verdict import MetricVerdict, Verdict, check_samples, decide_metric, worst
from iogauge.plan.case import CasePlan, access_of
from iogauge.plan.cost import ceiling_reference
from iogauge.site.extras import PartitionExtras


def _ask(guards: Sequence[Guard[Seen]], seen: Seen) -> list[Finding]:
    return [finding for guard in guards for finding in guard.speak(seen)]


def findings_of(case: CaseSeen) -> list[Finding]:
    """All findings of a case: those of the whole case first, then those of each metric."""
    findings = _ask(OF_CASE, case)
    layouts = [finding for layout in case.layouts for finding in _ask(OF_LAYOUT, layout)]
    findings += dict.fromkeys(layouts)  # each repetition says the same, unless it differs
    of_metric: dict[str, list[Finding]] = {}
    for phase in case.phases:
        said = _ask(OF_PHASE, phase)
        for name in phase.phase.rates:
            of_metric[name] = [finding for finding in said if finding.metric in (None, name)]
    # What cannot be believed of the sources cannot be believed of what follows from them.
    for name, computed in case.plan.computed.items():
        of_metric[name] = [finding for source in computed.sources for finding in of_metric[source]]
    for name, said in of_metric.items():
        own = [*said, *_ask(OF_METRIC, MetricSeen(case, name))]
        findings += [dataclasses.replace(finding, metric=name) for finding in own]
    return findings


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
    findings = findings_of(CaseSeen(plan, evidence, extras, tier, metrics, values))
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
