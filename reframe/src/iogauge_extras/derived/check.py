"""Base classes of metrics that are computed from the records of other cases and judged like
measurements: curves, pairs, a partition against its baseline, file systems of several sizes.

Such a case has no job: ReFrame starts ``true`` locally. In the sanity stage it reads the newest
valid records of its operands from the history and computes. Reference, verdict and record then
follow as in every case. A metric that cannot be computed never passes. It is INVALID if its
operands were measured and are not valid. It is UNREFERENCED (skipped, and a failure in a gate) if
they have not been measured yet.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import reframe.core.builtins as builtins
from pydantic import ValidationError
from reframe.core.exceptions import SanityError
from reframe.core.runtime import runtime

from iogauge.cases.fio import span_of_boxes
from iogauge.cases.judged import JudgedCheck
from iogauge.core import paths
from iogauge.core.measurement import Metric
from iogauge.core.units import dimension
from iogauge.core.words import POINTS
from iogauge.guards.finding import Finding, Outcome
from iogauge.judge.case import Judgement, doubtful
from iogauge.judge.verdict import MetricVerdict, Verdict, decide_metric, worst
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record
from iogauge.session.current import current, is_gate
from iogauge.site.extras import PartitionExtras, doubt_of_bounds
from iogauge.site.references import ReferencesError
from iogauge.site.topology import Servers, name_of_size
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

_BANDWIDTHS: Final = ("write_bw", "read_bw")


@dataclass(frozen=True, slots=True)
class Formula:
    """A metric, its computation, and the points that are missing in it.

    ``compute`` raises :class:`iogauge_extras.derived.derive.NotComputable`.
    """

    metric: Metric
    compute: Callable[[], Derived]
    left_out: tuple[LeftOut, ...]


def newest_records(folder: Path, source: Source, oldest: float) -> Iterator[Record]:
    """Yield a system's records that a source may hold, newest first.

    Reads files changed since ``oldest`` (seconds since the epoch).

    Reads one file at a time and skips damaged lines. Raises OSError for a file that cannot be read.
    """
    files = [(file.stat().st_mtime, file) for file in folder.glob("*.jsonl")]
    for written, file in sorted(files, reverse=True):
        if written < oldest:
            return
        for values in reversed(list(journal.read(file))):
            if isinstance(values, dict) and source.may_hold(values):
                with contextlib.suppress(TypeError, ValueError):
                    yield Record.from_json(values)


class DerivedCheck(JudgedCheck):
    """Metrics computed from other cases' records; a subclass names the cases and the formulas."""

    #: Age in days from which a record is no operand; 0: 30 days.
    #: :type: int
    max_age_days = builtins.variable(int, value=0)

    local = True
    executable = "true"
    tags = {"derived", "weekly", "acceptance"}

    _used: dict[str, tuple[Point, ...]]

    # What a scenario defines.

    def sources(self) -> tuple[Source, ...]:
        """Return the cases whose records are operands."""
        raise TypeError(f"{type(self).__name__} must define sources()")

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Return the formulas over each source's operands; raises NotComputable without any."""
        raise TypeError(f"{type(self).__name__} must define formulas()")

    def declared(self) -> dict[str, Any]:
        """Return the default of the age from which records are too old."""
        return {"max_age_days": 30}

    # What a scenario may use.

    def source(self, check: str, partition: str, **more: Any) -> Source:
        """Return a source: a check's cases on a partition, in this environment and tier."""
        return Source(
            check=check,
            partition=partition,
            environment=self.current_environ.name,
            tier=self.tier_of(check),
            **more,
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
            self._refuse(Verdict.ERROR, str(error))
        if self.pinned:
            self._refuse(
                Verdict.ERROR,
                "nothing is measured here that --distribute could pin to a node: exclude it, -T derived",
            )
        self._overridden = {
            name: value
            for name, default in self.declared().items()
            if (value := getattr(self, name)) and value != default
        }
        for variable, value in self.declared().items():
            setattr(self, variable, getattr(self, variable) or value)
        if self.max_age_days < 1:
            self._refuse(Verdict.ERROR, f"max_age_days is {self.max_age_days}: expected 1 or more")
        self.tier = self.sources()[0].tier
        self._point_to_references()

    @builtins.sanity_function
    def _judge(self) -> bool:
        try:
            judgement = self._derive()
        except NotMeasured as error:
            judgement = Judgement((), (), Verdict.UNREFERENCED, str(error))
        except NotComputable as error:
            judgement = Judgement((), (), Verdict.INVALID, str(error))
        except (ReferencesError, OSError) as error:
            self._refuse(Verdict.ERROR, str(error))
        self._judgement = judgement
        self._record(judgement)
        message = self._said(judgement.verdict, judgement.reason)
        if judgement.verdict in (Verdict.INVALID, Verdict.ERROR):
            raise SanityError(message)
        if not judgement.metrics:  # ReFrame has nothing to show, and would call it a pass
            if is_gate():
                raise SanityError(message)
            self.skip(message)
        return True

    # Helpers.

    def _derive(self) -> Judgement:
        """Read the operands, compute the metrics, and judge them."""
        sources = self.sources()
        self._await(sources)
        oldest = time.time() - self.max_age_days * 86400
        folder = paths.history_dir() / self.current_system.name
        operands = [
            derive.newest_points(newest_records(folder, source, oldest), source, oldest)
            for source in sources
        ]
        formulas = self.formulas(*operands)
        metrics = {formula.metric.name: formula.metric for formula in formulas}
        promised = {metric.name: metric for metric in self.promise()}
        references, unreferenced = self._references.resolve(
            self, list((promised | metrics).values()), self._overridden
        )
        decided: list[MetricVerdict] = []
        findings: list[Finding] = []
        verdicts: list[tuple[Verdict, str, str]] = []
        for formula in formulas:
            metric = formula.metric
            lacking = ", ".join(map(str, formula.left_out))
            try:
                derived = formula.compute()
            except NotComputable as error:
                waiting = any(not left.measured for left in formula.left_out)
                saw = f"{error}; left out: {lacking}" if lacking else str(error)
                outcome = Outcome.WARN if waiting else Outcome.INVALID
                findings.append(self._finding(outcome, f"not computed: {saw}", metric))
                verdict = Verdict.UNREFERENCED if waiting else Verdict.INVALID
                verdicts.append((verdict, metric.name, f"{saw}. {self._remedy(sources, waiting)}"))
                continue
            self._used[metric.name] = derived.used
            reference = references.get(metric.name)
            if reference and (doubt := doubt_of_bounds(reference)):
                findings.append(doubtful(metric.name, doubt))
            metric_verdict = decide_metric(
                metric, (derived.value,), findings, reference, unreferenced
            )
            reason = metric_verdict.reason
            if lacking:
                findings.append(self._finding(Outcome.WARN, f"left out: {lacking}", metric))
                reason += f", left out: {lacking}"
            decided.append(metric_verdict)
            verdicts.append((metric_verdict.verdict, metric.name, reason))
        for name in sorted(references.keys() - metrics):
            reason = "has a reference, and cannot be computed: not a metric of all operands"
            findings.append(self._finding(Outcome.INVALID, reason, promised[name]))
            verdicts.append((Verdict.INVALID, name, reason))
        verdict = worst([verdict for verdict, _, _ in verdicts])
        return Judgement(tuple(decided), tuple(findings), verdict, _summary(verdicts, verdict))

    def _await(self, sources: Sequence[Source]) -> None:
        """Raise NotMeasured if this run has selected operands that it has not decided yet."""
        places = [(source.check, source.partition, source.environment) for source in sources]
        selected = current().open_cases
        waiting = sorted(name for *place, name in selected if tuple(place) in places)
        if waiting:
            raise NotMeasured(
                f"this run has not decided {', '.join(waiting)} yet: run again with -t derived"
            )

    def _finding(self, outcome: Outcome, saw: str, metric: Metric) -> Finding:
        return Finding(
            POINTS,
            outcome,
            saw,
            f"a valid record of every point, at most {self.max_age_days} days old, in tier {self.tier}, "
            "with nothing overridden",
            metric=metric.name,
        )

    def _remedy(self, sources: Sequence[Source], waiting: bool) -> str:
        """Return the remedy for points that lack a valid value."""
        commands = [
            f"reframe -c checks/ -r -n '^{source.check}\\b' -p '^{source.environment}$' "
            f"--system={self.current_system.name}:{source.partition}"
            for source in sources
        ]
        return f"{'Run first' if waiting else 'Find out why, and run'}: {' and '.join(commands)}"

    def _metric_record(self, decided: MetricVerdict) -> MetricRecord:
        used = [asdict(point) for point in self._used[decided.metric.name]]
        return replace(super()._metric_record(decided), derived_from=used)


def _summary(verdicts: Sequence[tuple[Verdict, str, str]], verdict: Verdict) -> str:
    """Return the reasons of the metrics that decided the verdict; equal reasons appear once."""
    by_reason: dict[str, list[str]] = {}
    for of_metric, name, reason in verdicts:
        if of_metric is verdict:
            by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


class CurveCheck(DerivedCheck):
    """Metrics of a curve: bandwidth, or operations, over the points of a sweep."""

    #: Name of the check whose cases are the points, and the parameter that varies.
    points_of: str
    varied: str
    #: Name of the sweep in the partition's extras.
    sweep_name: str
    #: Metrics of that check that are read: directions, and then the rest of the name and the unit.
    ways: tuple[str, ...] = ("write", "read")
    measured: tuple[str, str] = ("bw", "MiB/s")
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
            self.source(
                self.points_of,
                self.current_partition.name,
                varied=self.varied,
                expected=self.expected(),
                metrics=tuple(
                    Metric(f"{way}_{self.measured[0]}", self.measured[1]) for way in self.ways
                ),
                fixed={name: getattr(self, name) for name in self.fixed_parameters},
                alike=self.alike,
            ),
        )

    def promise(self) -> tuple[Metric, ...]:
        """Return each quantity of each direction."""
        return tuple(metric for metric, _, _ in self._metrics())

    def _metrics(self) -> Iterator[tuple[Metric, Callable[[Sequence[Point]], Derived], str]]:
        for quantity, (compute, unit) in self.quantities.items():
            for way in self.ways:
                yield Metric(f"{way}_{quantity}", unit), compute, f"{way}_{self.measured[0]}"

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compute each quantity of each direction."""
        (points,) = operands
        return [
            Formula(metric, _of(compute, points.points[rate]), points.without(rate))
            for metric, compute, rate in self._metrics()
        ]


def _of(
    compute: Callable[[Sequence[Point]], Derived], points: Sequence[Point]
) -> Callable[[], Derived]:
    return lambda: compute(points)


class SpeedupCheck(CurveCheck):
    """The best point of a sweep against the first declared point."""

    ways = ("write",)

    def promise(self) -> tuple[Metric, ...]:
        """Return the speedup, and the point that gives it."""
        return (Metric("write_speedup", "1"), Metric(f"best_{self.varied}", "1"))

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare the best point with the first, and name the best."""
        (operand,) = operands
        points, left_out = operand.points["write_bw"], operand.without("write_bw")
        first = self.expected()[0]
        faster, where = self.promise()
        return [
            Formula(faster, lambda: derive.speedup(points, first), left_out),
            Formula(where, lambda: derive.best_x(points), left_out),
        ]


class PairsCheck(DerivedCheck):
    """Ratios of two cases of a check on a partition."""

    #: Name of the check, and the parameter that distinguishes the two cases.
    points_of: str
    varied: str
    #: By name of the ratio: the parameter's value in the numerator, and in the denominator.
    pairs: Mapping[str, tuple[str, str]]

    def _cases(self) -> list[str]:
        """Return the parameter's values in any pair, each once."""
        return list(dict.fromkeys(value for pair in self.pairs.values() for value in pair))

    def sources(self) -> tuple[Source, ...]:
        """Return every case that a pair names."""
        here = self.current_partition.name
        return tuple(
            self.source(self.points_of, here, fixed={self.varied: value}) for value in self._cases()
        )

    def promise(self) -> tuple[Metric, ...]:
        """Return every ratio of each bandwidth."""
        return tuple(
            Metric(f"{bandwidth.removesuffix('_bw')}_{name}", "1")
            for name in self.pairs
            for bandwidth in _BANDWIDTHS
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compute every ratio of each bandwidth."""
        operand_of = dict(zip(self._cases(), operands, strict=True))
        missing = [value for value, side in operand_of.items() if not side.metrics]
        if missing:
            waiting = any(not operand_of[value].left_out for value in missing)
            kind = NotMeasured if waiting else NotComputable
            raise kind(
                f"{self.points_of} has no valid record with {self.varied} {', '.join(missing)}. "
                f"{self._remedy(self.sources()[:1], waiting)}"
            )

        def ratio(above: str, below: str, bandwidth: str) -> Callable[[], Derived]:
            sides = [operand_of[value].points[bandwidth] for value in (above, below)]
            return lambda: derive.ratio(*(derive.best_of(side, "more") for side in sides))

        return [
            Formula(
                Metric(f"{bandwidth.removesuffix('_bw')}_{name}", "1"),
                ratio(above, below, bandwidth),
                (*operand_of[above].without(bandwidth), *operand_of[below].without(bandwidth)),
            )
            for name, (above, below) in self.pairs.items()
            for bandwidth in _BANDWIDTHS
        ]


def _partition_extras() -> dict[str, PartitionExtras]:
    """Return the extras of the selected system's partitions by name."""
    return {
        partition.name: PartitionExtras.of_partition(partition.extras)
        for partition in runtime().system.partitions
        if "target" in partition.extras
    }


def baseline_checks() -> list[str]:
    """Return the checks that partitions of the selected system compare with a baseline."""
    extras = _partition_extras().values()
    return sorted(
        {check for partition in extras if partition.baseline for check in partition.baseline.checks}
    )


def sizes(check: str) -> dict[str, dict[str, int]]:
    """Return the sizes of the file systems that a check is compared over, by their baseline.

    They belong to a partition that declares other sizes of itself, or to a baseline and to all
    partitions that compare the check with it. Fewer than three sizes make no curve.
    """
    every = _partition_extras()
    families: dict[str, dict[str, int]] = {}
    for name, extras in every.items():
        other = extras.baseline
        if other and check in other.checks and other.partition in every:
            members = families.setdefault(other.partition, {})
            for member in (other.partition, name):
                parts = every[member].topology
                if parts and parts.size:
                    members[member] = parts.size
    for name, extras in every.items():
        if extras.sizes and check in extras.sizes.checks:
            assert extras.topology and extras.topology.size  # the extras refuse sizes without
            others = {name_of_size(name, count): count for count in extras.sizes.counts}
            present = {other: count for other, count in others.items() if other in every}
            families[name] = {name: extras.topology.size, **present}
    return {name: found for name, found in families.items() if len(set(found.values())) > 2}


def sized_checks() -> list[str]:
    """Return the checks that the selected system compares over file systems of several sizes."""
    return [check for check in baseline_checks() if sizes(check)]


#: Ends of a metric's name in a comparison, with their direction.
_COMPARED: Final[dict[str, Literal["more", "less"]]] = {
    "_time_ratio": "less",
    "_ratio": "more",
    "_scale_out": "more",
}


#: Ends of a metric's name over several sizes, with their formulas.
_OVER_SIZES: Final = {"_fit": derive.fit, "_scale_out": derive.scale_out}


class BaselineCheck(DerivedCheck):
    """A check on this partition against the same check on its baseline.

    A subclass makes ``check`` a parameter.
    """

    check: str

    @builtins.run_after("init")
    def _select_environments(self) -> None:
        """Select the environments shared with the baseline, or all of this partition."""
        environments = {p.name: {e.name for e in p.environs} for p in runtime().system.partitions}
        chosen: set[str] = set()
        for name, extras in _partition_extras().items():
            if extras.baseline and self.check in extras.baseline.checks:
                # ReFrame hides the other partition if --system names this one.
                both = environments[name] & environments.get(extras.baseline.partition, set())
                chosen |= both or environments[name]
        self.valid_prog_environs = sorted(chosen)

    @property
    def _baseline(self) -> str:
        assert self.site.baseline is not None
        return self.site.baseline.partition

    def sources(self) -> tuple[Source, ...]:
        """Return all cases of the check here, and all on the baseline."""
        here = self.current_partition.name
        return (self.source(self.check, here), self.source(self.check, self._baseline))

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of the reference file that have the form of a comparison.

        The metrics that both sides have are known only after their records are read.
        """
        named = leaves(self._references.data.get(type(self).__name__))
        return tuple(
            Metric(name, "1", "less" if _bounds_above(named[name]) else better)
            for name in sorted(named)
            if (better := next((b for end, b in _COMPARED.items() if name.endswith(end)), None))
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare the best case here with the best there, for every metric that both sides have."""
        this, other = operands
        for side, source in zip(operands, self.sources(), strict=True):
            if not side.metrics:
                lacking = ", ".join(map(str, side.left_out))
                kind = NotComputable if lacking else NotMeasured
                raise kind(
                    f"{source.check} has {lacking or 'no record'} on {source.partition} in environment "
                    f"{source.environment}, tier {source.tier}. "
                    f"{self._remedy([source], not lacking)}"
                )
        names = [name for name in this.metrics if this.metrics[name] == other.metrics.get(name)]
        if not names:
            raise NotComputable(
                f"{self.check} has no metric in common: here {', '.join(this.metrics)}; on "
                f"{self._baseline} {', '.join(other.metrics)}"
            )
        return [formula for name in names for formula in self._compare(name, this, other)]

    def _compare(self, name: str, this: Operands, other: Operands) -> Iterator[Formula]:
        metric = this.metrics[name]
        left_out = (*this.without(name), *other.without(name))

        def of_best(compute: Callable[[Point, Point], Derived]) -> Callable[[], Derived]:
            sides = (this.points[name], other.points[name])
            return lambda: compute(*(derive.best_of(side, metric.better) for side in sides))

        yield Formula(Metric(f"{name}_ratio", "1", metric.better), of_best(derive.ratio), left_out)
        if dimension(metric.unit) not in ("bandwidth", "operations"):
            return
        yield Formula(
            Metric(f"{name}_time_ratio", "1", "less"), of_best(derive.time_ratio), left_out
        )
        beside = _partition_extras().get(self._baseline)
        here, there = self.site.topology, beside and beside.topology
        if here and here.servers and there and there.servers:
            counts = (here.servers.count, there.servers.count)
            yield Formula(
                Metric(f"{name}_scale_out", "1"),
                of_best(lambda a, b: derive.scale_out_against(a, b, *counts)),
                left_out,
            )


class SizesCheck(DerivedCheck):
    """A check over file systems of several sizes: a baseline, and those that are compared with it.

    A subclass makes ``check`` a parameter. The point of a size is the best case there.
    """

    check: str

    @builtins.run_after("init")
    def _select_places(self) -> None:
        """Select the baselines, in the environments that all sizes share."""
        families, system = sizes(self.check), runtime().system
        environments = {p.name: {e.name for e in p.environs} for p in system.partitions}
        shared = [
            set.intersection(*(environments[n] for n in names)) for names in families.values()
        ]
        self.valid_systems = [f"{system.name}:{name}" for name in families]
        self.valid_prog_environs = sorted(set().union(*shared))

    @property
    def _sizes(self) -> dict[str, int]:
        return sizes(self.check)[self.current_partition.name]

    def sources(self) -> tuple[Source, ...]:
        """Return all cases of the check on each file system."""
        return tuple(self.source(self.check, partition) for partition in self._sizes)

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics of the reference file that have the form of a curve over sizes."""
        names = leaves(self._references.data.get(type(self).__name__))
        return tuple(
            Metric(name, "1") for name in sorted(names) if name.endswith(tuple(_OVER_SIZES))
        )

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compute each quantity of each rate that all sizes have."""
        for side, source in zip(operands, self.sources(), strict=True):
            if not side.metrics:
                lacking = ", ".join(map(str, side.left_out))
                raise (NotComputable if lacking else NotMeasured)(
                    f"{source.check} has {lacking or 'no record'} on {source.partition} in environment "
                    f"{source.environment}, tier {source.tier}. "
                    f"{self._remedy([source], not lacking)}"
                )
        first, *others = operands
        rates = [
            metric
            for name, metric in first.metrics.items()
            if dimension(metric.unit) in ("bandwidth", "operations")
            and all(side.metrics.get(name) == metric for side in others)
        ]
        return [
            Formula(
                Metric(f"{metric.name}{end}", "1"),
                self._of_best(compute, metric, operands),
                tuple(left for side in operands for left in side.without(metric.name)),
            )
            for metric in rates
            for end, compute in _OVER_SIZES.items()
        ]

    def _of_best(
        self,
        compute: Callable[[Sequence[Point]], Derived],
        metric: Metric,
        operands: Sequence[Operands],
    ) -> Callable[[], Derived]:
        def computed() -> Derived:
            best = [derive.best_of(side.points[metric.name], metric.better) for side in operands]
            counts = self._sizes.values()
            return compute([replace(p, x=float(x)) for p, x in zip(best, counts, strict=True)])

        return computed


class BoxScalingCheck(DerivedCheck):
    """Random reads from all servers against those from one box of them.

    A subclass sets ``block`` and ``tasks``, as of the reads.
    """

    block: str
    tasks: int

    @property
    def _servers(self) -> Servers:
        assert self.site.topology and self.site.topology.servers  # the partitions have boxes
        return self.site.topology.servers

    def _demand(self, operands: Sequence[Operands]) -> None:
        """Raise NotComputable or NotMeasured for a span without a valid record."""
        for side, source in zip(operands, self.sources(), strict=True):
            if "read_iops" not in side.metrics:
                raise (NotComputable if side.left_out else NotMeasured)(
                    f"RandomRead has no valid record of span {source.fixed['span']}. "
                    f"{self._remedy([source], not side.left_out)}"
                )

    def sources(self) -> tuple[Source, ...]:
        """Return the reads from all servers, and those from one box."""
        here = self.current_partition.name
        alike = {"block": self.block, "tasks": self.tasks}
        return tuple(
            self.source("RandomRead", here, fixed={**alike, "span": span})
            for span in ("all", "one-box")
        )

    def promise(self) -> tuple[Metric, ...]:
        """Return the share of what as many boxes would do if each did as much as the first."""
        return (Metric("read_iops_scale_out", "1"),)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Compare all boxes with one."""
        self._demand(operands)
        every, box = operands
        servers = self._servers

        def compute() -> Derived:
            most, one = (derive.best_of(side.points["read_iops"], "more") for side in operands)
            return derive.scale_out_against(most, one, servers.count, servers.per_box or 1)

        left_out = (*every.without("read_iops"), *box.without("read_iops"))
        return [Formula(self.promise()[0], compute, left_out)]


class BoxCurveCheck(BoxScalingCheck):
    """Random reads over the number of boxes that hold the files, from one to all."""

    def sources(self) -> tuple[Source, ...]:
        """Return the reads from all boxes, and those from each smaller number of them."""
        here = self.current_partition.name
        alike = {"block": self.block, "tasks": self.tasks}
        spans = ["all", *(span_of_boxes(number) for number in range(1, self._servers.boxes))]
        return tuple(
            self.source("RandomRead", here, fixed={**alike, "span": span}) for span in spans
        )

    def promise(self) -> tuple[Metric, ...]:
        """Return how well a straight line through the origin describes the operations."""
        return (Metric("read_iops_fit", "1"),)

    def formulas(self, *operands: Operands) -> Sequence[Formula]:
        """Fit the line through all numbers of boxes."""
        self._demand(operands)
        numbers = (self._servers.boxes, *range(1, self._servers.boxes))

        def compute() -> Derived:
            best = [derive.best_of(side.points["read_iops"], "more") for side in operands]
            return derive.fit([replace(p, x=float(x)) for p, x in zip(best, numbers, strict=True)])

        left_out = tuple(left for side in operands for left in side.without("read_iops"))
        return [Formula(self.promise()[0], compute, left_out)]


def leaves(entry: object) -> dict[str, list[Any]]:
    """Return the references of each metric in a check's entry of the reference file, at any depth."""
    found: dict[str, list[Any]] = {}
    if isinstance(entry, dict):
        for name, value in entry.items():
            if isinstance(value, list) and name != "$index":
                found.setdefault(name, []).append(value)
            for inner, values in leaves(value).items():
                found.setdefault(inner, []).extend(values)
    return found


def _bounds_above(of_metric: Sequence[Any]) -> bool:
    """Return whether the references of a ratio have an upper bound alone, as those of latencies."""
    return all(len(leaf) == 4 and leaf[1] is None and leaf[2] is not None for leaf in of_metric)
