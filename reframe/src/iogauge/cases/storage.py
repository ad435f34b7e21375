"""The base class of every measured scenario.

A scenario gives its metrics (:meth:`JudgedCheck.promise`) and its plan (:meth:`StorageCheck.plan`).
The base class does the rest, in ReFrame's pipeline:

=============  ====================================================================================
setup          extras and references validated, sizes taken from the site, plan made
run            job script written; the job looks at the target before it writes
sanity         outputs parsed, guards run, verdict decided and recorded; INVALID and ERROR fail here
performance    metrics and references handed to ReFrame, which fails what the verdict calls FAIL
=============  ====================================================================================

A verdict that is neither PASS nor a failure is shown as skipped, and fails in a gate: nothing but
PASS ends in OK.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import reframe.core.builtins as builtins
from pydantic import ValidationError
from reframe.core.backends import getlauncher
from reframe.core.exceptions import SanityError
from reframe.utility.typecheck import Duration

from iogauge.cases import job_files
from iogauge.cases.judged import JudgedCheck
from iogauge.core import registry
from iogauge.core.measurement import Metric, Reference, ToolOutput, ToolOutputError
from iogauge.core.units import format_bytes, format_seconds, parse_bytes
from iogauge.core.words import Tier
from iogauge.evidence import collect, model
from iogauge.judge.decide import Judgement, judge, references_of
from iogauge.judge.verdict import Verdict
from iogauge.plan import bounds
from iogauge.plan.bounds import NOTHING_MEASURED, MeasuredCeilings, MetricBounds
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.stage import PlannedCase
from iogauge.records.record import short_name
from iogauge.session import life
from iogauge.session.current import current, is_gate, say
from iogauge.site import reference_notes
from iogauge.site.doubts import Doubt
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import ReferencesError
from iogauge.site.settings import INSTALLED
from iogauge.site.topology import Ceiling

#: Variables of ReFrame that change what runs between the tool and the kernel, and their defaults.
_OF_REFRAME: Final[Mapping[str, object]] = {
    "env_vars": {},
    "modules": [],
    "postrun_cmds": [],
}


class StorageCheck(JudgedCheck):
    """An access pattern on a target; the partition's extras set its sizes."""

    local = False
    exclusive_access = True

    #: Processes for each task, if the tool starts its processes itself: the job is one task on each node then.
    own_processes: int = 0

    _plan: CasePlan
    _evidence: model.Evidence | None
    _measured: MeasuredCeilings
    _progress: life.Watched | None = None

    # What a scenario defines.

    def plan(self) -> CasePlan:
        """Return the plan of the case at the current scale."""
        raise TypeError(f"{type(self).__name__} must define plan()")

    def declared(self) -> dict[str, Any]:
        """Return the site's or scenario's defaults of variables that a run may set (``-S``)."""
        scale, limits = self._extras.scale, self._extras.limits
        return {
            "nodes": scale.nodes,
            "tasks_per_node": scale.tasks_per_node,
            "repetitions": limits.repetitions,
            "tier": limits.tier,
            "variant": "sound",
        }

    def standing_references(self) -> dict[str, Reference]:
        """Return references that follow from the scenario, for metrics the site gives none for."""
        return {}

    # What a scenario may use.

    def all_alike(self, *shares: str) -> dict[str, Reference]:
        """Return references of shares of a median: at most ``limits.max_deviation`` below 1."""
        least = -self.site.limits.max_deviation
        alike = Reference(1.0, least, None, "1", "limits.max_deviation")
        return dict.fromkeys(shares, alike)

    def outputs_of(self, phase: str) -> Sequence[ToolOutput]:
        """Return the outputs of a phase; none before there is evidence."""
        return self._evidence.outputs.get(phase, ()) if self._evidence else ()

    def need_nodes(self, why: str) -> None:
        """Raise ValueError on a single node."""
        if self.nodes < 2:
            raise ValueError(
                f"nodes is {self.nodes}: expected two or more, because {why}; set scale.nodes"
            )

    def case(self, tool: str, repeat: Sequence[PhasePlan], **more: Any) -> CasePlan:
        """Return the plan of a case at this scale."""
        scale = {
            "repetitions": self.repetitions,
            "tasks": self.total_tasks,
            "nodes": self.nodes,
        }
        return CasePlan(tool=tool, repeat=repeat, **{**scale, **more})

    @property
    def total_tasks(self) -> int:
        """Return the number of tasks of the job over all nodes."""
        return int(self.nodes * self.tasks_per_node)

    @property
    def case_name(self) -> str:
        """Return the name of the case's directory on the target."""
        where = f"{self.current_partition.name}-{self.current_environ.name}"
        return f"{type(self).__name__}-{self.hashcode}-{where}"

    # The pipeline.

    @builtins.run_after("setup")
    def _size(self) -> None:
        self._judgement, self._evidence, self._measured = None, None, NOTHING_MEASURED
        current().open_cases.add(self._open_name)
        try:
            extras = PartitionExtras.of_partition(self.current_partition.extras)
            self._extras = extras.for_check(type(self).__name__, self.tier)
            self._declare_references()
        except (ValidationError, ReferencesError) as error:
            self._refuse(Verdict.ERROR, str(error))
        self.max_pending_time = f"{self._extras.limits.queue_wait:.0f}s"
        if self.local:
            self._refuse(
                Verdict.ERROR, "local is set: a case runs where its partition says"
            )
        try:
            self._override(self.declared())
            self._check_variables()
            self.num_tasks = self.total_tasks
            self.num_tasks_per_node = self.tasks_per_node
            if self.own_processes:
                self.num_tasks, self.num_tasks_per_node = self.nodes, 1
                most = self.own_processes * self.tasks_per_node
                self.num_cpus_per_task = min(most, self.site.node.cores)
            plan = self.plan().in_pool(self._extras.target.pool)
            installed = self.current_environ.extras.get(INSTALLED, {})
            self._plan = dataclasses.replace(
                plan, stack_versions=installed.get("versions", {})
            )
        except ValueError as error:
            self._refuse(
                Verdict.ERROR, f"this scenario cannot be run at this scale: {error}"
            )

    def _override(self, declared: dict[str, Any]) -> None:
        """Set unset variables to their defaults; remember the others that differ from them."""
        if self.pinned:
            self.nodes = self.nodes or len(self.pinned)
            if self.nodes != len(self.pinned):
                self._refuse(
                    Verdict.ERROR,
                    f"nodes is {self.nodes}, and --distribute pins the case to {self.pinned[0]}: leave nodes alone",
                )
        self._overridden = {}
        for name, default in {**declared, **_OF_REFRAME}.items():
            value = getattr(self, name)
            if value and value != default:
                self._overridden[name] = value
        for name, value in declared.items():
            if not getattr(self, name):
                setattr(self, name, value)

    def _check_variables(self) -> None:
        """Refuse values of variables that no scenario can have."""
        words = {
            "tier": get_args(Tier),
            "variant": self.variants,
            "writes_first": ("yes", "no", ""),
        }
        for name, allowed in words.items():
            if (value := getattr(self, name)) not in allowed:
                text = f"{name} is {value!r}: expected {' or '.join(allowed)}"
                self._refuse(Verdict.ERROR, text)
        counts = ("nodes", "tasks_per_node", "repetitions")
        for name in (*counts, *self._overridden):
            value = getattr(self, name)
            if isinstance(value, int) and not (name in counts) <= value < 1 << 60:
                text = (
                    f"{name} is {str(value)[:30]}: expected 1 or more, less than 2^60"
                )
                self._refuse(Verdict.ERROR, text)

    @builtins.run_before("run")
    def _write_job(self) -> None:
        try:
            self._fill_stage()
        except OSError as error:
            where = error.filename or self.stagedir
            self._refuse(
                Verdict.ERROR,
                f"{where}: the job was not written: {error.strerror}: make room there, or set IOGAUGE_HOME to "
                "another directory",
            )

    def _fill_stage(self) -> None:
        """Write the job's lines and all files that it reads; raises OSError."""
        plan, extras, stage = self._plan, self._extras, Path(self.stagedir)
        # ReFrame sets these only after the hooks of this stage, and launchers read them from the job.
        self.job.time_limit = self.time_limit or self.current_partition.time_limit
        self.job.num_tasks = self.num_tasks
        self.job.num_tasks_per_node = self.num_tasks_per_node
        self.job.num_cpus_per_task = self.num_cpus_per_task
        files = job_files.JobFiles(
            self.job, plan, extras, self.tasks_per_node, self.variant != "published"
        )
        order = files.order(current().name, self.case_name)
        try:
            references, unreferenced = self._find_references()
        except ReferencesError as error:
            self._refuse(Verdict.ERROR, str(error))
        speeds = {
            phase.name: bounds.speed(phase, plan, extras, references)
            for phase in plan.phases
            if phase.sized_bytes is not None
        }
        footprint = plan.footprint(
            lambda phase: speeds[phase.name].bytes_s, extras.limits.phase_seconds
        )
        doubts = self._doubts(references, unreferenced)
        planned = PlannedCase(
            order=order,
            name=self.display_name,
            check=type(self).__name__,
            partition=self.current_partition.fullname,
            written_bytes=footprint.written_bytes,
            read_bytes=footprint.read_bytes,
            passing_files=plan.passing_files,
            nodes=footprint.nodes,
            node_minutes=footprint.node_minutes,
            seconds=footprint.seconds,
            rests_on=tuple(sorted({speed.source for speed in speeds.values()})),
            timed=plan.timed_seconds(extras.limits.phase_seconds),
            doubts=tuple(
                f"{metric}: {doubt}" for metric, doubt in doubts if not doubt.refused
            ),
            refused=tuple(
                f"{metric}: {doubt}" for metric, doubt in doubts if doubt.refused
            ),
        )
        job_files.write_inputs(stage, planned, plan)
        self.keep_files.extend(plan.inputs)
        if planned.refused:
            self._refuse(
                Verdict.ERROR, f"nothing could fail: {'; '.join(planned.refused)}"
            )
        try:
            launch = files.launch(stage)
            self.extra_resources = files.resources(self.current_partition)
        except ValueError as error:
            self._refuse(Verdict.ERROR, str(error))
        loaded = [self.current_partition.local_env, self.current_environ]
        lines = files.lines(launch, order, loaded)
        self.job.launcher = getlauncher("local")()
        self.prerun_cmds, self.executable, self.executable_opts = lines
        if not self.is_dry_run():
            self._note_start()
            name, steps = short_name(self.display_name), life.steps(plan)
            self._progress = life.Watched(
                name, stage, self.job, steps, footprint.seconds
            )
            life.screen().add(self._progress)

    def _note_start(self) -> None:
        """Track the places to clean up after the case, and the case until it is decided."""
        session = current()
        session.note_signals()
        session.undecided[self._open_name] = self._never_decided
        for place in self._extras.target.places:
            session.track(place)

    @builtins.sanity_function
    def _judge(self) -> bool:
        try:
            owner = (current().name, self.case_name)
            job = self.job
            # For its own children ReFrame keeps a killing signal apart from the exit status.
            killed = getattr(job, "signal", None)
            status = job.exitcode if killed is None else 128 + killed
            evidence = collect.collect(
                Path(self.stagedir), self._plan, status, owner, job.state
            )
            self._evidence = evidence
            references, unreferenced = self._find_references()
            self._measured = self._look_at_ceilings()
            judgement = judge(
                self._plan,
                evidence,
                self._metrics,
                references,
                self._extras,
                cast(Tier, self.tier),
                unreferenced,
                self.standing_references(),
                reference_notes.recorded(self._references.data, type(self).__name__),
                self._measured,
                is_gate(),
            )
        except (ToolOutputError, ReferencesError) as error:
            why = self._waited_too_long() or error
            self._refuse(Verdict.ERROR, f"{why}{self._flaw()}")
        self._judgement = judgement
        cold = (
            {}
            if evidence.refused or evidence.occupied or evidence.mismatch
            else model.rates_of(self._plan, evidence.cold)
        )
        self._cold = {name: quantities[0].value for name, quantities in cold.items()}
        self._record(judgement)
        if judgement.verdict in (Verdict.INVALID, Verdict.ERROR):
            raise SanityError(
                self._said(judgement.verdict, f"{judgement.reason}{self._flaw()}")
            )
        return True

    # Helpers.

    @property
    def _metrics(self) -> tuple[Metric, ...]:
        """Return the metrics that the plan measures, of those that the scenario promises at any scale."""
        planned = {name for phase in self._plan.repeat for name in phase.rates}
        planned |= self._plan.computed.keys()
        return tuple(metric for metric in self.promise() if metric.name in planned)

    def _find_references(self) -> tuple[dict[str, Reference], str]:
        """Return the references of this run, and why a metric may have none.

        A tier may have sizes of its own without being the case's default. References then hold only
        if ``$index`` names the tier. The ceiling holds in any tier.
        """
        foreign = dict(self._overridden)
        if (
            self.tier in self._extras.tiers
            and type(self).__name__ not in self._references.checks
        ):
            foreign.pop("tier", None)
        return self._references.resolve(self, self._metrics, foreign)

    def _look_at_ceilings(self) -> MeasuredCeilings:
        """Return the partition's measured ceilings; none if it declares no layer."""
        if self._extras.ceilings is None:
            return NOTHING_MEASURED
        system, partition = self.current_system.name, self.current_partition.name
        try:
            known: MeasuredCeilings = registry.load(
                "iogauge_answers", "ceilings.of_partition"
            )(system, partition, self._extras.ceilings)
            return known
        except registry.Missing as error:
            return MeasuredCeilings(problems=(str(error),))
        except OSError as error:
            text = f"{error.filename}: the history cannot be read: {error.strerror}"
            return MeasuredCeilings(problems=(text,))

    def _doubts(
        self, references: Mapping[str, Reference], unreferenced: str
    ) -> list[tuple[str, Doubt]]:
        """Return what the ceilings say against the references of this case, by metric."""
        plan, extras, metrics = self._plan, self._extras, self._metrics
        standing = self.standing_references()
        return references_of(plan, metrics, references, extras, unreferenced, standing)[
            1
        ]

    @property
    def _time_limit_s(self) -> float:
        """Return the seconds that the job may take, as ReFrame will request them."""
        limit: float = Duration(self.time_limit or self.current_partition.time_limit)
        return limit

    def _waited_too_long(self) -> str:
        """Return why the job was cancelled before it began; empty if it began."""
        if self._progress is None or self._progress.began():
            return ""
        if not (self.job.state or "").startswith("CANCELLED"):
            return ""
        most = format_seconds(self._extras.limits.queue_wait)
        said = self._progress.waits_for or "it gave none"
        return (
            f"the job waited {most} in the queue and was cancelled (limits.queue_wait); the scheduler's reason: "
            f"{said}. Run: iogauge check {self.current_system.name}"
        )

    def _flaw(self) -> str:
        """Return the flaw of the published form, to be added to the reason of a verdict."""
        return f" [published form: {self.flaw}]" if self.variant == "published" else ""

    def _never_decided(self, silent: str) -> None:
        """Record a case whose job ended without evidence, or that the run did not wait for."""
        limit = (
            f", time limit {self.job.time_limit:.0f} s" if self.job.time_limit else ""
        )
        ended = f"the job ended as {self.job.state}{limit}"
        if not self.job.state:
            ended = "the job never started (ReFrame's details of the failures say why)"
        if signal_name := current().ended_by:
            ended = f"{signal_name} told the session to end"
        reason = f"run: {ended}, before the case was decided"
        reason += f"; {silent}" if silent else ""
        judgement = Judgement((), (), Verdict.ERROR, reason)
        say(f"iogauge: ERROR: {self.display_name}: {judgement.reason}")
        self._record(judgement)

    def _ceiling(self, metric: Metric) -> Ceiling | None:
        return MetricBounds.of(self._plan, metric, self._extras).lowest(
            self._measured.usable
        )


def share_of_bytes(check: StorageCheck, size: str) -> int:
    """Return the bytes of each process, whole requests; raises ValueError if they do not fit.

    ``limits.case_bytes`` is for all nodes of the site's scale.
    """
    block, limits = parse_bytes(size), check.site.limits
    shares = max(check.nodes, check.site.scale.nodes) * check.tasks_per_node
    each = int(limits.case_bytes // shares // block * block)
    if each < 2 * block:
        raise ValueError(
            f"limits.case_bytes is {format_bytes(limits.case_bytes)}: less than two requests of {size} for each "
            f"of {shares} task(s). Raise it to {format_bytes(2 * block * shares)} or lower the tasks"
        )
    return each
