"""Base classes of metrics that are computed from the records of other cases and judged like
measurements: curves, pairs, a partition against its baseline, file systems of several sizes.

Such a case has no job: ReFrame starts ``true`` locally. In the sanity stage it reads the newest
valid records of its operands from the history and computes. Reference, verdict and record then
follow as in every case. A metric that cannot be computed never passes. It is INVALID if its
operands were measured and are not valid. It is UNREFERENCED (skipped, and a failure in a gate) if
they have not been measured yet.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import reframe.core.builtins as builtins
from pydantic import ValidationError
from reframe.core.exceptions import SanityError

from iogauge.cases.judged import JudgedCheck
from iogauge.core import paths, vocabulary
from iogauge.core.measurement import Metric
from iogauge.core.vocabulary import POINTS
from iogauge.guards.finding import Finding, Outcome
from iogauge.judge.verdict import (
    Judgement,
    MetricVerdict,
    Verdict,
    decide_metric,
    worst,
)
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record
from iogauge.session.current import current, is_gate
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import ReferencesError
from iogauge_extras.derived import derive
from iogauge_extras.derived.derive import (
    Derived,
    LeftOut,
    NotComputable,
    NotMeasured,
    Operands,
    Point,
    Source,
)

#: Age in days from which a record is no operand.
MAX_AGE_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Formula:
    """A metric, and its computation from points of the operands' metric ``rate``.

    The points of one source are a curve. Of several sources the best point of each counts; ``of`` numbers those that
    do, all if it is empty. ``compute`` raises :class:`iogauge_extras.derived.derive.NotComputable`.
    """

    metric: Metric
    rate: str
    compute: Callable[[Sequence[Point]], Derived]
    of: tuple[int, ...] = ()

    def sides(self, operands: Sequence[Operands]) -> Sequence[Operands]:
        """Return the operands that count."""
        return [operands[n] for n in self.of] or operands

    def derived(self, operands: Sequence[Operands]) -> Derived:
        """Return the computed value; raises NotComputable."""
        sides = self.sides(operands)
        points = [side.of(self.rate)[0] for side in sides]
        if len(sides) == 1:
            return self.compute(points[0])
        return self.compute(
            [derive.best_of(one, sides[0].metrics[self.rate]) for one in points]
        )

    def lacking(self, operands: Sequence[Operands]) -> list[LeftOut]:
        """Return the points that are missing in it."""
        lacking: list[LeftOut] = []
        for side in self.sides(operands):
            lacking += side.of(self.rate)[1]
        return lacking


@dataclass(slots=True)
class _Decided:
    """What was decided about each metric so far."""

    metrics: list[MetricVerdict] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    #: Names of metrics by verdict and reason.
    reasons: dict[tuple[Verdict, str], list[str]] = field(default_factory=dict)

    def add(self, verdict: Verdict, metric: Metric, reason: str) -> None:
        """Take a metric's verdict."""
        self.reasons.setdefault((verdict, reason), []).append(metric.name)

    def judgement(self) -> Judgement:
        """Return the worst verdict, with the reasons of the metrics that have it."""
        verdict = worst([verdict for verdict, _ in self.reasons])
        parts = []
        for (decided, reason), names in self.reasons.items():
            if decided is verdict:
                parts.append(f"{', '.join(names)}: {reason}")
        text = "; ".join(parts)
        return Judgement(verdict, text, tuple(self.findings), tuple(self.metrics))


def newest_records(folder: Path, check: str, oldest: float) -> Iterator[Record]:
    """Yield a system's records of a check, newest first, from files changed since ``oldest`` (seconds since the epoch).

    Skips damaged lines. Raises OSError for a file that cannot be read.
    """
    files = [(file.stat().st_mtime, file) for file in folder.glob("*.jsonl")]
    for written, file in sorted(files, reverse=True):
        if written < oldest:
            return
        for record in reversed(list(journal.read_whole(file))):
            if isinstance(record, Record) and record.check == check:
                yield record


class DerivedCheck(JudgedCheck):
    """Metrics computed from other cases' records; a subclass names the cases and the formulas."""

    local = True
    executable = "true"
    tags = {"derived", "weekly", "acceptance"}

    _used: dict[str, tuple[Point, ...]]

    # What a scenario defines.

    def sources(self) -> tuple[Source, ...]:
        """Return the cases whose records are operands."""
        raise TypeError(f"{type(self).__name__} must define sources()")

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Return the formulas over the sources; raises NotComputable without any."""
        raise TypeError(f"{type(self).__name__} must define formulas()")

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of all formulas, if these follow from the scenario alone."""
        return tuple(formula.metric for formula in self.formulas())

    # What a scenario may use.

    def source(self, check: str, partition: str) -> Source:
        """Return a source: a check's cases on a partition, in this environment and tier."""
        return Source(
            check=check,
            partition=partition,
            environment=self.current_environ.name,
            tier=self.tier_of(check),
        )

    def tier_of(self, check: str) -> str:
        """Return the tier of this run, or the tier that this partition declares for a check."""
        if self.tier:
            return str(self.tier)
        extras = PartitionExtras.of_partition(self.current_partition.extras)
        return extras.for_check(check).limits.tier

    # The pipeline.

    @builtins.run_after("setup")
    def _declare(self) -> None:
        self._judgement, self._used = None, {}
        try:
            self._extras = PartitionExtras.of_partition(self.current_partition.extras)
            self._declare_references()
        except (ValidationError, ReferencesError) as error:
            self._refuse(str(error), vocabulary.OF_SITE)
        if self.pinned:
            self._refuse(
                "nothing is measured here that --distribute could pin to a node: exclude it, -T derived",
            )
        self._overridden = {}
        self.tier = self.sources()[0].tier

    @builtins.sanity_function
    def _judge(self) -> bool:
        try:
            judgement = self._derive()
        except NotMeasured as error:
            judgement = Judgement(Verdict.UNREFERENCED, str(error))
        except NotComputable as error:
            judgement = Judgement(Verdict.INVALID, str(error))
        except (ReferencesError, OSError) as error:
            self._refuse(str(error))
        self._judgement = judgement
        self._record(judgement)
        message = self._message(judgement.verdict, judgement.reason)
        if judgement.verdict in (Verdict.INVALID, Verdict.ERROR):
            raise SanityError(message)
        if (
            not judgement.metrics
        ):  # ReFrame has nothing to show, and would call it a pass
            if is_gate():
                raise SanityError(message)
            self.skip(message)
        return True

    # Helpers.

    def _derive(self) -> Judgement:
        """Read the operands, compute the metrics, and judge them."""
        sources = self.sources()
        self._await(sources)
        oldest = time.time() - MAX_AGE_DAYS * 86400
        folder = paths.history_dir() / self.current_system.name
        declared = self.current_partition.extras.get("target", {}).get("uuid")
        operands = []
        for source in sources:
            here = source.partition == self.current_partition.name
            records = newest_records(folder, source.check, oldest)
            uuid = declared if here else None
            operands.append(derive.newest_points(records, source, oldest, uuid))
        self._demand(operands)
        formulas = self.formulas(*operands)
        metrics = {formula.metric.name: formula.metric for formula in formulas}
        promised = {metric.name: metric for metric in self.promise()}
        references, unreferenced = self._references.resolve(
            self, list((promised | metrics).values()), self._overridden
        )
        decided = _Decided()
        for formula in formulas:
            try:
                derived = formula.derived(operands)
            except NotComputable as error:
                self._not_computed(decided, formula, operands, str(error))
                continue
            self._used[formula.metric.name] = derived.used
            reference = references.get(formula.metric.name)
            metric = decide_metric(
                formula.metric,
                (derived.value,),
                decided.findings,
                reference,
                unreferenced,
            )
            reason, lacking = metric.reason, formula.lacking(operands)
            if lacking:
                left_out = f"left out: {_listed(lacking)}"
                finding = self._finding(Outcome.WARN, left_out, formula.metric)
                decided.findings.append(finding)
                reason += f", {left_out}"
            decided.metrics.append(metric)
            decided.add(metric.verdict, formula.metric, reason)
        for name in sorted(references.keys() - metrics):
            reason = (
                "has a reference, and cannot be computed: not a metric of all operands"
            )
            finding = self._finding(Outcome.INVALID, reason, promised[name])
            decided.findings.append(finding)
            decided.add(Verdict.INVALID, promised[name], reason)
        return decided.judgement()

    def _not_computed(
        self,
        decided: _Decided,
        formula: Formula,
        operands: Sequence[Operands],
        why: str,
    ) -> None:
        """Decide a metric that cannot be computed: it waits for points that were not measured, or it is INVALID."""
        lacking = formula.lacking(operands)
        waiting = any(not left.measured for left in lacking)
        outcome, verdict = Outcome.INVALID, Verdict.INVALID
        if waiting:
            outcome, verdict = Outcome.WARN, Verdict.UNREFERENCED
        if lacking:
            why = f"{why}; left out: {_listed(lacking)}"
        finding = self._finding(outcome, f"not computed: {why}", formula.metric)
        decided.findings.append(finding)
        remedy = self._remedy(self.sources(), waiting)
        decided.add(verdict, formula.metric, f"{why}. {remedy}")

    def _await(self, sources: Sequence[Source]) -> None:
        """Raise NotMeasured if this run has selected operands that it has not decided yet."""
        places = {(s.check, s.partition, s.environment) for s in sources}
        waiting = []
        for *place, name in current().open_cases:
            if tuple(place) in places:
                waiting.append(name)
        if waiting:
            names = ", ".join(sorted(waiting))
            raise NotMeasured(
                f"this run has not decided {names} yet: run again with -t derived"
            )

    def _finding(self, outcome: Outcome, saw: str, metric: Metric) -> Finding:
        return Finding(
            POINTS,
            outcome,
            saw,
            f"a valid record of every point, at most {MAX_AGE_DAYS} days old, in tier {self.tier}, "
            "with nothing overridden",
            metric=metric.name,
        )

    def _demand(self, operands: Sequence[Operands]) -> None:
        """Raise NotComputable or NotMeasured if a source has no valid record."""
        for side, source in zip(operands, self.sources(), strict=True):
            if side.metrics:
                continue
            lacking = _listed(side.of("")[1])
            refusal: type[NotComputable] = NotComputable
            if not lacking:
                refusal, lacking = NotMeasured, "no record"
            where = f"{source.partition} in environment {source.environment}, tier {source.tier}"
            for name, value in source.fixed.items():
                where += f", {name} {value}"
            remedy = self._remedy([source], refusal is NotMeasured)
            raise refusal(f"{source.check} has {lacking} on {where}. {remedy}")

    def _remedy(self, sources: Sequence[Source], waiting: bool) -> str:
        """Return the remedy for points that lack a valid value."""
        commands = []
        for source in sources:
            commands.append(
                f"reframe -c checks/ -r -n '^{source.check}\\b' -p '^{source.environment}$' "
                f"--system={self.current_system.name}:{source.partition}"
            )
        what = "Find out why, and run"
        if waiting:
            what = "Run first"
        return f"{what}: {' and '.join(commands)}"

    def _metric_record(self, decided: MetricVerdict) -> MetricRecord:
        used = [asdict(point) for point in self._used[decided.metric.name]]
        record = super()._metric_record(decided)
        return record.model_copy(update={"derived_from": used})


def _listed(left_out: Iterable[LeftOut]) -> str:
    return ", ".join(map(str, left_out))


class CurveCheck(DerivedCheck):
    """Metrics of a curve: bandwidth over the points of a sweep."""

    #: Name of the check whose cases are the points, and the parameter that varies.
    points_of: str
    varied: str
    #: Name of the sweep in the partition's extras.
    sweep_name: str
    #: Directions whose bandwidth is read.
    ways: tuple[str, ...] = ("write", "read")
    #: Keys of a record in which all points must agree.
    alike: tuple[str, ...] = ("nodes", "tasks_per_node")
    #: Computed quantities: name, formula, unit.
    quantities: Mapping[str, tuple[Callable[[Sequence[Point]], Derived], str]]
    #: Parameters of that check that do not vary.
    fixed_parameters: tuple[str, ...] = ()

    def expected(self) -> tuple[float, ...]:
        """Return the points that this partition declares, in its order."""
        return tuple(getattr(self.site.sweeps, self.sweep_name))

    def sources(self) -> tuple[Source, ...]:
        """Return the points of the sweep on this partition."""
        return (
            replace(
                self.source(self.points_of, self.current_partition.name),
                varied=self.varied,
                expected=self.expected(),
                metrics=tuple(Metric(f"{way}_bw", "MiB/s") for way in self.ways),
                fixed={name: getattr(self, name) for name in self.fixed_parameters},
                alike=self.alike,
            ),
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Return each quantity of each direction."""
        found = []
        for quantity, (compute, unit) in self.quantities.items():
            for way in self.ways:
                metric = Metric(f"{way}_{quantity}", unit)
                found.append(Formula(metric, f"{way}_bw", compute))
        return found


class SpeedupCheck(CurveCheck):
    """The best point of a sweep against the first declared point."""

    ways = ("write",)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare the best point with the first, and name the best."""
        against_first = partial(derive.speedup, first=self.expected()[0])
        return [
            Formula(Metric("write_speedup", "1"), "write_bw", against_first),
            Formula(Metric(f"best_{self.varied}", "1"), "write_bw", derive.best_x),
        ]


class PairsCheck(DerivedCheck):
    """Ratios of cases of a check on a partition, all against the same one."""

    #: Name of the check, and the parameter that distinguishes the cases.
    points_of: str
    varied: str
    #: The parameter's value in the denominator, and in the numerators by name of the ratio.
    against: str
    pairs: Mapping[str, str]

    def sources(self) -> tuple[Source, ...]:
        """Return the case of the denominator, and those of the numerators."""
        here = self.current_partition.name
        found = []
        for value in (self.against, *self.pairs.values()):
            source = self.source(self.points_of, here)
            found.append(replace(source, fixed={self.varied: value}))
        return tuple(found)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Return every ratio of each bandwidth."""
        found = []
        for number, name in enumerate(self.pairs, 1):
            for way in ("write", "read"):
                metric = Metric(f"{way}_{name}", "1")
                sides = (number, 0)
                found.append(Formula(metric, f"{way}_bw", derive.ratio, sides))
        return found
