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

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import reframe.core.builtins as builtins
from pydantic import ValidationError
from reframe.core.backends import getlauncher
from reframe.core.exceptions import SanityError
from reframe.utility.typecheck import Duration

from iogauge.cases import job_files, sweep
from iogauge.cases.judged import JudgedCheck
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric, Reference, ToolOutput, ToolOutputError
from iogauge.core.paths import history_dir
from iogauge.core.units import format_bytes, format_seconds, parse_bytes
from iogauge.core.vocabulary import Tier
from iogauge.evidence import model
from iogauge.judge.verdict import Judgement, Verdict
from iogauge.plan import bounds
from iogauge.plan.bounds import MetricBounds
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.stage import JobOrder, PlannedCase
from iogauge.records import node_turns
from iogauge.records.record import short_name
from iogauge.session import life
from iogauge.session.current import confirms, current, is_gate, say
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
    #: Directories that may have the target's lock.
    _locks: tuple[str, ...]
    _evidence: model.Evidence | None
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
        if self._evidence is None:
            return ()
        return self._evidence.outputs.get(phase, ())

    def need_nodes(self, why: str) -> None:
        """Raise ValueError on a single node."""
        if self.nodes < 2:
            raise ValueError(
                f"nodes is {self.nodes}: expected two or more, because {why}; set scale.nodes"
            )

    def case(
        self, tool: str, repeat: Sequence[PhasePlan], held_bytes: int, files: int
    ) -> CasePlan:
        """Return the plan of a case at this scale; a scenario replaces other fields that differ from their defaults."""
        return CasePlan(
            tool=tool,
            repetitions=self.repetitions,
            tasks=self.total_tasks,
            nodes=self.nodes,
            repeat=repeat,
            held_bytes=held_bytes,
            files=files,
        )

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
        self._judgement, self._evidence = None, None
        current().open_cases.add(self._open_name)
        try:
            extras = PartitionExtras.of_partition(self.current_partition.extras)
            self._extras = extras.for_check(type(self).__name__, self.tier)
            self._locks = extras.target.locks(
                [extras.target for extras in sweep.of_partitions().values()]
            )
            self._declare_references()
        except (ValidationError, ReferencesError) as error:
            self._refuse(str(error), vocabulary.OF_SITE)
        self.max_pending_time = f"{self._extras.limits.queue_wait:.0f}s"
        if self.local:
            self._refuse("local is set: a case runs where its partition says")
        try:
            self._override(self.declared())
            self._take_turn()
            self._check_variables()
            self.num_tasks = self.total_tasks
            self.num_tasks_per_node = self.tasks_per_node
            if self.own_processes:
                self.num_tasks, self.num_tasks_per_node = self.nodes, 1
                most = self.own_processes * self.tasks_per_node
                self.num_cpus_per_task = min(most, self.site.node.cores)
            plan = self.plan()
            installed = self.current_environ.extras.get(INSTALLED, {})
            self._plan = dataclasses.replace(
                plan, stack_versions=installed.get("versions", {})
            )
        except ValueError as error:
            self._refuse(
                f"this scenario cannot be run at this scale: {error}",
                vocabulary.OF_SCALE,
            )

    def _override(self, declared: dict[str, Any]) -> None:
        """Set unset variables to their defaults; remember the others that differ from them."""
        if self.pinned:
            self.nodes = self.nodes or len(self.pinned)
            if self.nodes != len(self.pinned):
                self._refuse(
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

    def _take_turn(self) -> None:
        """Choose the node of a case on one node, if the site lets nodes take turns."""
        nodes = self.site.in_turn
        if not nodes or self.pinned or self.nodes != 1:
            return
        place = self.current_partition.fullname
        own = (current().name, confirms())
        self._turn = (node_turns.node_in_turn(history_dir(), place, nodes, own),)
        if self.site.hosts:
            self._extras = self.site.model_copy(update={"hosts": self._turn})
        else:
            self.job.pin_nodes = list(self._turn)

    def _check_variables(self) -> None:
        """Refuse values of variables that no scenario can have."""
        words = {"tier": get_args(Tier), "variant": self.variants}
        for name, allowed in words.items():
            value = getattr(self, name)
            if value not in allowed:
                text = f"{name} is {value!r}: expected {' or '.join(allowed)}"
                self._refuse(text)
        counts = ("nodes", "tasks_per_node", "repetitions")
        for name in (*counts, *self._overridden):
            value = getattr(self, name)
            if isinstance(value, int) and not (name in counts) <= value < 1 << 60:
                text = (
                    f"{name} is {str(value)[:30]}: expected 1 or more, less than 2^60"
                )
                self._refuse(text)

    @builtins.run_before("run")
    def _write_job(self) -> None:
        try:
            self._fill_stage()
        except OSError as error:
            where = error.filename or self.stagedir
            self._refuse(
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
            job=self.job,
            plan=plan,
            extras=extras,
            per_node=self.tasks_per_node,
            locks=self._locks,
            bind=self.variant != "published",
        )
        order = files.order(current().name, self.case_name)
        planned = self._cost(order)
        job_files.write_inputs(stage, planned, plan)
        self.keep_files.extend(plan.inputs)
        if planned.refused:
            self._refuse(
                f"nothing could fail: {'; '.join(planned.refused)}",
                vocabulary.OF_REFERENCE,
            )
        try:
            launch = files.launch(stage)
            self.extra_resources = files.resources(self.current_partition)
        except ValueError as error:
            self._refuse(str(error))
        loaded = [self.current_partition.local_env, self.current_environ]
        lines = files.lines(launch, order, loaded)
        self.job.launcher = getlauncher("local")()
        self.prerun_cmds, self.executable, self.executable_opts = lines
        if not self.is_dry_run():
            self._note_start()
            name = short_name(self.display_name)
            self._progress = life.Watched(
                name, stage, self.job, plan, planned.cost.seconds
            )
            life.screen().add(self._progress)

    def _cost(self, order: JobOrder) -> PlannedCase:
        """Return what the case costs, what that rests on, and which references prove little or nothing."""
        plan, extras = self._plan, self._extras
        try:
            references, unreferenced = self._find_references()
        except ReferencesError as error:
            self._refuse(str(error), vocabulary.OF_SITE)
        rests_on: set[str] = set()

        def bytes_s(phase: PhasePlan) -> float:
            speed = bounds.speed(phase, plan, extras, references)
            rests_on.add(speed.source)
            return speed.bytes_s

        cost = plan.footprint(bytes_s, extras.limits.phase_seconds)
        doubts: list[str] = []
        refused: list[str] = []
        for metric, doubt in self._doubts(references, unreferenced):
            kind = doubts
            if doubt.refused:
                kind = refused
            kind.append(f"{metric}: {doubt}")
        return PlannedCase(
            order=order,
            name=self.display_name,
            check=type(self).__name__,
            partition=self.current_partition.fullname,
            cost=cost,
            rests_on=tuple(sorted(rests_on)),
            doubts=tuple(doubts),
            refused=tuple(refused),
        )

    def _note_start(self) -> None:
        """Track the places to clean up after the case, and the case until it is decided."""
        session = current()
        session.note_signals()
        session.undecided[self._open_name] = self._never_decided
        target = self._extras.target
        if not target.of_job:
            session.track(target.path)
        for place in self._locks:
            session.track(place)

    @builtins.sanity_function
    def _judge(self) -> bool:
        from iogauge.evidence import collect  # a listing judges nothing
        from iogauge.judge import decide

        try:
            owner = (current().name, self.case_name)
            job = self.job
            # For its own children ReFrame keeps a killing signal apart from the exit status.
            status, killed = job.exitcode, getattr(job, "signal", None)
            if killed is not None:
                status = 128 + killed
            evidence = collect.collect(
                Path(self.stagedir), self._plan, status, owner, job.state
            )
            self._evidence = evidence
            references, unreferenced = self._find_references()
            judgement = decide.judge(
                self._plan,
                evidence,
                self._metrics,
                references,
                self._extras,
                cast(Tier, self.tier),
                unreferenced,
                self.standing_references(),
                reference_notes.recorded(self._references.data, type(self).__name__),
                is_gate(),
            )
        except (ToolOutputError, ReferencesError) as error:
            why = self._waited_too_long() or error
            self._refuse(f"{why}{self._flaw()}")
        self._judgement = judgement
        if not (evidence.refused or evidence.occupied or evidence.mismatch):
            cold = model.rates_of(self._plan, evidence.cold)
            self._cold = {name: values[0].value for name, values in cold.items()}
        self._record(judgement)
        if judgement.verdict in (Verdict.INVALID, Verdict.ERROR):
            raise SanityError(
                self._message(judgement.verdict, f"{judgement.reason}{self._flaw()}")
            )
        return True

    # Helpers.

    @property
    def _metrics(self) -> tuple[Metric, ...]:
        """Return the metrics that the plan measures, of those that the scenario promises at any scale."""
        planned = set(self._plan.computed)
        for phase in self._plan.repeat:
            planned.update(phase.rates)
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

    def _doubts(
        self, references: Mapping[str, Reference], unreferenced: str
    ) -> list[tuple[str, Doubt]]:
        """Return what the ceilings say against the references of this case, by metric."""
        from iogauge.judge import decide

        plan, extras, metrics = self._plan, self._extras, self._metrics
        standing = self.standing_references()
        _, doubts = decide.references_of(
            plan, metrics, references, extras, unreferenced, standing
        )
        return doubts

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
        reason = self._progress.waits_for or "it gave none"
        return (
            f"the job waited {most} in the queue and was cancelled (limits.queue_wait); the scheduler's reason: "
            f"{reason}. Run: iogauge check {self.current_system.name}"
        )

    def _flaw(self) -> str:
        """Return the flaw of the published form, to be added to the reason of a verdict."""
        if self.variant != "published":
            return ""
        return f" [published form: {self.flaw}]"

    def _never_decided(self, silent: str) -> None:
        """Record a case whose job ended without evidence, or that the run did not wait for."""
        ended = f"the job ended as {self.job.state}"
        if self.job.time_limit:
            ended += f", time limit {self.job.time_limit:.0f} s"
        if not self.job.state:
            ended = "the job never started (ReFrame's details of the failures say why)"
        if current().ended_by:
            ended = f"{current().ended_by} told the session to end"
        reason = f"run: {ended}, before the case was decided"
        if silent:
            reason += f"; {silent}"
        judgement = Judgement(Verdict.ERROR, reason)
        say(f"iogauge: ERROR: {self.display_name}: {judgement.reason}")
        self._record(judgement)

    def _ceiling(self, metric: Metric) -> Ceiling | None:
        return MetricBounds.of(self._plan, metric, self._extras).ceiling


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
