"""From the evidence to the verdict of a case: apply the guards and decide each metric."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from iogauge.core.measurement import Metric, Reference, ToolOutputError, Unsettled
from iogauge.core.vocabulary import Tier
from iogauge.evidence import model
from iogauge.guards import contents, others
from iogauge.guards.catalogue import (
    OF_CASE,
    OF_PHASE,
    Guards,
    View,
)
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.views import CaseView
from iogauge.judge.verdict import (
    Judgement,
    Verdict,
    check_samples,
    decide_metric,
    needed,
    worst,
)
from iogauge.plan.bounds import MetricBounds
from iogauge.plan.case import CasePlan
from iogauge.site.doubts import Doubt
from iogauge.site.extras import PartitionExtras

#: Name, in place of a guard's number, of the findings about the reference itself.
REFERENCE: Final = "reference"


def _ask(guards: Guards[View], view: View) -> list[Finding]:
    """Return what the guards find in a view, in their order."""
    findings = list[Finding]()
    for ask in guards:
        answer = ask(view)
        if isinstance(answer, Finding):
            findings.append(answer)
        elif answer is not None:
            findings += answer
    return findings


def findings_of(case: CaseView) -> list[Finding]:
    """Return all findings of a case: those of the whole case first, then those of each metric."""
    # Repetitions with equal findings count once.
    findings = list(dict.fromkeys(_ask(OF_CASE, case)))
    of_metric: dict[str, list[Finding]] = {}
    for phase in case.phases:
        of_phase = _ask(OF_PHASE, phase)
        for name in phase.plan.rates:
            of_metric[name] = [
                finding for finding in of_phase if finding.metric in (None, name)
            ]
    # If a source is not believed, neither is a metric that is computed from it.
    for name, computed in case.plan.computed.items():
        of_metric[name] = []
        for source in computed.sources:
            of_metric[name] += of_metric[source]
    for name, own in of_metric.items():
        findings += [dataclasses.replace(finding, metric=name) for finding in own]
    return findings


def _notes(
    plan: CasePlan, evidence: model.Evidence, metric: str
) -> tuple[str, Unsettled | None]:
    """Return the notes of the outputs about a metric, each once, and the first thing that they leave open about it."""
    notes, unsettled = dict[str, None](), None
    for phase in plan.repeat:
        if metric not in phase.rates:
            continue
        _, rate = phase.rates[metric]
        for output in evidence.outputs[phase.name]:
            if rate in output.notes:
                notes[output.notes[rate]] = None
            unsettled = unsettled or output.unsettled.get(rate)
    return "; ".join(notes), unsettled


def _busy(case: CaseView, metric: str) -> str:
    """Return which node was busy with the work of others while a metric was measured; empty if none was."""
    sources = {metric}
    if metric in case.plan.computed:
        sources.update(case.plan.computed[metric].sources)
    for phase in case.phases:
        if phase.busy and not sources.isdisjoint(phase.plan.rates):
            return phase.busy
    return ""


def references_of(
    plan: CasePlan,
    metrics: Sequence[Metric],
    references: Mapping[str, Reference],
    extras: PartitionExtras,
    unreferenced: str = "",
    standing: Mapping[str, Reference] = MappingProxyType({}),
) -> tuple[dict[str, Reference], list[tuple[str, Doubt]]]:
    """Return what each metric is compared with (the site's reference, a standing one, the ceiling), and what its ceiling
    says against that.

    Arguments as for :func:`judge`. A metric without a reference has no key.
    """
    used: dict[str, Reference] = {}
    doubts = []
    for metric in metrics:
        name, bounds = metric.name, MetricBounds.of(plan, metric, extras)
        reference = references.get(name) or standing.get(name)
        if reference is None and not unreferenced:
            reference = bounds.reference
        if reference is None:
            continue
        used[name] = reference
        doubt = bounds.doubt(reference)
        if doubt:
            doubts.append((name, doubt))
    return used, doubts


def doubtful(metric: str, doubt: Doubt) -> Finding:
    """Return a doubt about a metric's reference as a finding, which no number can clear."""
    outcome = Outcome.INVALID if doubt.refused else Outcome.WARN
    return Finding(REFERENCE, outcome, doubt.saw, doubt.demands, doubt.remedy, metric)


def judge(
    plan: CasePlan,
    evidence: model.Evidence,
    metrics: Sequence[Metric],
    references: Mapping[str, Reference],
    extras: PartitionExtras,
    tier: Tier,
    unreferenced: str = "",
    standing: Mapping[str, Reference] = MappingProxyType({}),
    recorded: Collection[str] = (),
    gate: bool = False,
) -> Judgement:
    """Return the verdict of a case; raises :class:`ToolOutputError` if it is an ERROR.

    ``standing`` references follow from the scenario itself and are used if the site has none.
    ``unreferenced`` says why a metric may have no reference; the ceiling then does not replace it.
    ``recorded`` names metrics that need no reference, if another metric of the case has one.
    """
    if evidence.refused:
        reason = f"refused before a byte was written: {evidence.refused[0]}"
        return Judgement(Verdict.INVALID, reason)
    ended = CaseView(plan, evidence, extras, tier, metrics, {}, gate)
    if evidence.occupied:
        waited = others.exclusive(ended)
        reason = f"nothing was measured: {waited}"
        return Judgement(Verdict.CONTAMINATED, reason, (waited,))
    wrong = contents.verification(ended)
    if evidence.mismatch and wrong:
        return Judgement(Verdict.INVALID, str(wrong), (wrong,))
    rates = model.rates_of(plan, evidence.outputs)
    values = check_samples(metrics, rates, plan.samples)
    findings = findings_of(dataclasses.replace(ended, values=values))
    used, beside = references_of(
        plan, metrics, references, extras, unreferenced, standing
    )
    findings += [doubtful(name, doubt) for name, doubt in beside]
    decided = []
    for metric in metrics:
        name = metric.name
        notes, unsettled = _notes(plan, evidence, name)
        judged = decide_metric(
            metric,
            values[name],
            findings,
            used.get(name),
            unreferenced,
            unsettled=unsettled,
            busy=_busy(ended, name),
        )
        if notes:
            reason = f"{judged.reason}: {notes}"
            judged = dataclasses.replace(judged, reason=reason, notes=notes)
        decided.append(judged)
    verdict = worst([m.verdict for m in needed(decided, recorded)])
    if verdict is Verdict.ERROR:
        raise ToolOutputError("the scenario promises no metric")
    versions = set[str]()
    for outputs in evidence.outputs.values():
        versions.update(f"{out.tool} {out.version}" for out in outputs if out.phases)
    text = "; ".join(
        f"{m.metric.name}: {m.reason}" for m in decided if m.verdict is verdict
    )
    return Judgement(
        verdict,
        text,
        tuple(findings),
        tuple(decided),
        tools=tuple(sorted(versions)),
        busy=ended.busy,
        load=ended.load,
    )
