"""The base class of every scenario.

A scenario says which metrics it promises (:meth:`StorageCheck.promise`) and what it will do
(:meth:`StorageCheck.plan`). The base class does the rest, in ReFrame's pipeline:

=============  ==========================================================================================
setup          extras and references validated, sizes taken from the site, plan made
run            job script written; the job looks at the target before it writes
sanity         outputs parsed, guards run, verdict decided and recorded; INVALID and ERROR fail here
performance    metrics and references handed to ReFrame, which fails what the verdict calls FAIL
=============  ==========================================================================================

Whatever is neither PASS nor a failure is shown as skipped with its verdict, and fails where the run is a
gate: nothing but PASS ends in OK.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.utility.sanity as sn
from pydantic import ValidationError
from reframe.core.backends import getlauncher
from reframe.core.exceptions import PerformanceError, ReframeFatalError, SanityError
from reframe.utility import nodelist_abbrev
from reframe.utility.typecheck import Duration

from iogauge.core import paths, processes, words
from iogauge.core.measurement import Metric, Reference, ToolOutputError
from iogauge.core.paths import JOB_FILES, LIBRARY
from iogauge.core.text import visible, visible_lines
from iogauge.core.words import Tier
from iogauge.evidence import collect, fingerprint, model
from iogauge.judge.case import Judgement, judge
from iogauge.judge.verdict import MetricVerdict, Verdict
from iogauge.plan import cost as plan_cost
from iogauge.plan.case import CasePlan, access_of
from iogauge.plan.cost import Cost, metric_ceiling
from iogauge.plan.launchers import (
    binding_options,
    host_options,
    job_options,
    per_node_launcher,
    placing_options,
    reporting_variables,
)
from iogauge.plan.script import Launch, job_functions, shell_command, shell_word
from iogauge.plan.stage import HOSTFILE, PINS
from iogauge.records import journal
from iogauge.records.record import FindingRecord, MetricRecord, PriceRecord, Record
from iogauge.session import current
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import References, ReferencesError
from iogauge.workspace.directory import session_dir

#: Room asked of a resource manager, over what a case holds: file systems keep some for themselves.
_CAPACITY_FACTOR = 1.25


class StorageCheck(rfm.RunOnlyRegressionTest):
    """One access pattern on one target; sized by the partition's extras."""

    #: Nodes of the job; 0: as many as the partition's ``scale`` says.
    #: :type: int
    nodes = builtins.variable(int, value=0)

    #: Tasks on each node; 0: as many as the partition's ``scale`` says.
    #: :type: int
    tasks_per_node = builtins.variable(int, value=0)

    #: Repetitions inside the job; 0: as many as the partition's ``limits`` say.
    #: :type: int
    repetitions = builtins.variable(int, value=0)

    #: How much a run must prove: ``quick``, ``daily``, ``acceptance``; empty: as the ``limits`` say.
    #: :type: str
    tier = builtins.variable(str, value="")

    #: ``yes``: all repetitions write before the first one reads; ``no``; empty: as the ``limits`` say.
    #: :type: str
    writes_first = builtins.variable(str, value="")

    #: Form of the command: ``sound``, or ``published`` where a document printed another (see docs/checks.md).
    #: :type: str
    variant = builtins.variable(str, value="", loggable=True)

    #: Verdict of the case, and its reason; in ReFrame's report as in ours.
    #: :type: str
    verdict = builtins.variable(str, value="", loggable=True)
    verdict_reason = builtins.variable(str, value="", loggable=True)

    local = False
    exclusive_access = True
    sourcesdir = None
    valid_systems = [f"+{words.TARGET}"]
    #: Feature that the environment must have.
    needs: str = ""
    #: Forms of the command that the scenario has.
    variants: tuple[str, ...] = ("sound",)
    #: What is wrong with the published form.
    flaw: str = ""

    _extras: PartitionExtras
    _plan: CasePlan
    _references: References
    _overridden: dict[str, object]
    _judgement: Judgement | None
    _evidence: model.Evidence | None
    _cold: dict[str, float]

    # What a scenario defines.

    def promise(self) -> tuple[Metric, ...]:
        """Metrics that the scenario measures at the scale at hand, each in one unit."""
        raise TypeError(f"{type(self).__name__} must define promise()")

    def plan(self) -> CasePlan:
        """What the scenario will do at the scale at hand."""
        raise TypeError(f"{type(self).__name__} must define plan()")

    # What a scenario may use.

    @property
    def site(self) -> PartitionExtras:
        """The partition's extras, validated."""
        return self._extras

    @property
    def total_tasks(self) -> int:
        """Tasks of the job over all nodes."""
        return int(self.nodes * self.tasks_per_node)

    @property
    def pinned(self) -> tuple[str, ...]:
        """Nodes that ReFrame's ``--distribute`` pins the case to; none: those that the scheduler gives."""
        return tuple(getattr(self, ".nid", ()))

    @property
    def case_name(self) -> str:
        """Name of the case's directory on the target."""
        where = f"{self.current_partition.name}-{self.current_environ.name}"
        return f"{type(self).__name__}-{self.hashcode}-{where}"

    @property
    def _open_name(self) -> tuple[str, str, str, str]:
        where = (self.current_partition.name, self.current_environ.name)
        return (type(self).__name__, *where, self.display_name)

    # The pipeline.

    @builtins.run_after("init")
    def _select_environments(self) -> None:
        if self.needs:
            self.valid_prog_environs = [f"+{self.needs}"]

    @builtins.run_after("setup")
    def _size(self) -> None:
        self._judgement, self._evidence = None, None
        current.current().open_cases.add(self._open_name)
        try:
            extras = PartitionExtras.of_partition(self.current_partition.extras)
            self._extras = extras.for_check(type(self).__name__, self.tier)
            self._references = References.of_site(self.current_system.name)
            self._references.check(type(self).__name__, self.promise_all())
        except (ValidationError, ReferencesError) as error:
            self._refuse(Verdict.ERROR, str(error))
        if self.local:
            self._refuse(Verdict.ERROR, "local is set: a case runs where its partition says")
        try:
            declared = self.declared()
        except ValueError as error:
            self._refuse(Verdict.ERROR, f"this scenario cannot be run at this scale: {error}")
        if self.pinned:
            self.nodes = self.nodes or len(self.pinned)
            if self.nodes != len(self.pinned):
                self._refuse(
                    Verdict.ERROR,
                    f"nodes is {self.nodes}, and --distribute pins the case to {self.pinned[0]}: leave nodes alone",
                )
        self._overridden = {
            name: value
            for name, known in declared.items()
            if (value := getattr(self, name)) and value != known
        }
        for name, value in declared.items():
            if not getattr(self, name):
                setattr(self, name, value)
        for name, allowed in (
            ("tier", ("quick", "daily", "acceptance")),
            ("variant", self.variants),
            ("writes_first", ("yes", "no", "")),
        ):
            if getattr(self, name) not in allowed:
                self._refuse(
                    Verdict.ERROR,
                    f"{name} is {getattr(self, name)!r}: expected {' or '.join(allowed)}",
                )
        for name in ("nodes", "tasks_per_node", "repetitions", *self._overridden):
            value = getattr(self, name)
            least = 1 if name in ("nodes", "tasks_per_node", "repetitions") else value
            if isinstance(value, int) and not least <= value < 1 << 60:
                self._refuse(
                    Verdict.ERROR,
                    f"{name} is {str(value)[:30]}: expected 1 or more, less than 2^60",
                )
        self.num_tasks = self.total_tasks
        self.num_tasks_per_node = self.tasks_per_node
        path = self._references.path_for(type(self).__name__)
        if path:
            self.reference = {"$ref": str(path)}
        try:
            self._plan = self.plan()
        except ValueError as error:
            self._refuse(Verdict.ERROR, f"this scenario cannot be run at this scale: {error}")

    def declared(self) -> dict[str, Any]:
        """Variables that a run may set otherwise (``-S``), and what the site or the scenario declares."""
        scale, limits = self._extras.scale, self._extras.limits
        return {
            "nodes": scale.nodes,
            "tasks_per_node": scale.tasks_per_node,
            "repetitions": limits.repetitions,
            "tier": limits.tier,
            "variant": "sound",
        }

    def promise_all(self) -> tuple[Metric, ...]:
        """Metrics that the scenario may measure at any scale; references may name no others."""
        return self.promise()

    def standing_references(self) -> dict[str, Reference]:
        """What a metric must meet by the nature of the scenario, where the site has no reference for it."""
        return {}

    def probes(self, metric: Metric) -> Mapping[str, float]:
        """Values by name of the parts that a metric was measured over, for the record; none: it has no parts."""
        return {}

    def disable_hook(self, hook_name: str) -> None:
        """Refuse ReFrame's ``--disable-hook`` for the hooks that decide; others may be left out."""
        if hook_name in vars(StorageCheck):
            raise ReframeFatalError(
                f"iogauge: --disable-hook={hook_name} leaves out what decides the verdict: not allowed"
            )
        super().disable_hook(hook_name)

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
        target, name = self._extras.target, current.current().name
        limits, plan, stage = self._extras.limits, self._plan, Path(self.stagedir)
        directory = os.path.join(session_dir(target.path, name), self.case_name)
        # ReFrame sets it only after the hooks of this stage.
        self.job.time_limit = self.time_limit or self.current_partition.time_limit
        case: dict[str, Any] = {
            "target": target.path,
            "type": target.type,
            "source": target.source,
            "striping": target.striped_by,
            "targets": self._extras.topology.targets if self._extras.topology else None,
            "restore": str(paths.state_dir() / "restore"),
            "session": name,
            "host": socket.gethostname(),
            "process": processes.named(os.getpid()),
            "case": self.case_name,
            "lock": target.lock_place,
            # What is waited is part of the job's time: half of it is left for the case.
            "lock_wait_s": min(limits.lock_wait, self._time_limit_s / 2),
            "lock_lease_s": limits.lock_lease,
            "held_bytes": plan.held_bytes,
            "files": plan.most_files,
            "pieces": plan.pieces,
            "pins": plan.pins.to_json() if plan.pins else None,
            "max_fill": limits.max_fill,
            "keep_free": limits.keep_free,
            "max_of_free": limits.max_of_free,
            "removals_per_second": limits.removals_per_second,
            "time_limit_s": self.job.time_limit or 0,
        }
        try:
            references, _ = self._find_references()
        except ReferencesError as error:
            self._refuse(Verdict.ERROR, str(error))
        speeds = {
            phase.name: plan_cost.speed(phase, plan, self._extras, references)
            for phase in plan.phases
            if phase.data_bytes is not None
        }
        footprint = plan.footprint(lambda phase: speeds[phase.name].bytes_s, limits.phase_seconds)
        for stale in stage.iterdir():  # --dont-restage: what an earlier run left is no evidence
            if stale.is_symlink() or not stale.is_dir():
                stale.unlink()
        (stage / "case.json").write_text(json.dumps(case, indent=2), encoding="utf-8")
        (stage / "footprint.json").write_text(
            json.dumps(
                {
                    **case,
                    "name": self.display_name,
                    "partition": self.current_partition.fullname,
                    "written_bytes": footprint.written_bytes,
                    "read_bytes": footprint.read_bytes,
                    "passing_files": plan.passing_files,
                    "nodes": footprint.nodes,
                    "node_minutes": footprint.node_minutes,
                    "seconds": footprint.seconds,
                    "rests_on": sorted({speed.source for speed in speeds.values()}),
                    "check": type(self).__name__,
                    "budget": self._extras.budget.model_dump() if self._extras.budget else None,
                }
            ),
            encoding="utf-8",
        )
        for file, text in plan.inputs.items():
            (stage / file).write_text(text, encoding="utf-8")
        if plan.pins is not None:
            (stage / PINS).write_text(json.dumps(plan.pins.to_json()), encoding="utf-8")
        library = LIBRARY
        try:
            functions = job_functions(plan, self._launch(library))
        except ValueError as error:
            self._refuse(Verdict.ERROR, str(error))
        by_tasks = any(phase.launch == "tasks" for phase in plan.phases)
        reported = reporting_variables(self.job.launcher.registered_name) if by_tasks else {}
        capacity = f"{math.ceil(_CAPACITY_FACTOR * plan.held_bytes / 2**30)}GiB"
        self.extra_resources = {name: {"capacity": capacity} for name in self._extras.resources}
        job = self.job
        job.time_limit = self.time_limit or self.current_partition.time_limit
        given = [*job.sched_access, *job.options, *job.cli_options]
        options = job_options(job.scheduler.registered_name, plan.most_files, job.time_limit, given)
        job.options += options
        warned = [option.partition("@")[2] for option in options if "@" in option]
        self.job.launcher = getlauncher("local")()
        served = any(phase.launch == "clients" for phase in plan.phases)
        agent = shell_command([*_agent(library), "open", "case.json"])
        self.prerun_cmds = [
            # Daemons that mpirun starts on hosts by itself have another PATH.
            *(["export OMPI_MCA_mca_base_env_list=PATH"] if self._extras.hosts else []),
            *(f"export {name}={value}" for name, value in reported.items()),
            f"export IOG_DIR={_directory_word(directory)}",
            f". {shell_word(str(JOB_FILES / 'job.sh'))}",
            *(f"IOG_WARNED={seconds}" for seconds in warned),
            *([f". {shell_word(str(JOB_FILES / 'fio_servers.sh'))}"] if served else []),
            *functions,
            f"iog_open {agent}",
            *(["iog_prepare"] if functions[0].startswith("iog_prepare") else []),
        ]
        self.executable = "iog_repeat"
        counts = [str(plan.first_repetition), str(plan.repetitions)]
        if plan.writes_first:
            self.prerun_cmds.append(shell_command(["iog_repeat", *counts, "iog_write"]))
        self.executable_opts = [*counts, "iog_case"]
        if self.is_dry_run():
            return
        cost = Cost(footprint.nodes * footprint.seconds, footprint.written_bytes, 1)
        over = current.current().spend(self.current_partition.fullname, cost, self._extras.budget)
        if over:
            self._refuse(Verdict.ERROR, over)
        current.current().undecided[self._open_name] = self._never_decided
        for place in target.places:
            current.current().track(place)

    def _launch(self, library: Path) -> Launch:
        """What starts processes in the job; writes the host file where the site names hosts.

        Raises ValueError for a launcher that cannot do it.
        """
        launcher, name = self.job.launcher, self.job.launcher.registered_name
        hosts = self._extras.hosts[: self.nodes]
        if hosts:
            if len(hosts) < self.nodes:
                raise ValueError(
                    f"extras.hosts names {len(hosts)} host(s), the case needs {self.nodes}: name more"
                )
            text = "".join(f"{host} slots={self.tasks_per_node}\n" for host in hosts)
            (Path(self.stagedir) / HOSTFILE).write_text(text, encoding="utf-8")
            launcher.options += host_options(name, hosts)
        # ReFrame sets these only after the hooks of this stage, and launchers read them from the job.
        self.job.num_tasks = self.num_tasks
        self.job.num_tasks_per_node = self.num_tasks_per_node
        self.job.num_cpus_per_task = self.num_cpus_per_task
        if self.nodes > 1:
            # Readers are shifted by whole nodes, which takes tasks that fill one node after the other.
            launcher.options += placing_options(name, self.tasks_per_node, self._plan.cyclic)
        if self.variant != "published":  # a document's words are its own
            cores = self._extras.node.cores
            launcher.options += binding_options(name, self.tasks_per_node, cores)
        return Launch(
            run_tasks=launcher.run_command(self.job),
            each_node=per_node_launcher(name, self.nodes, hosts),
            agent=_agent(library),
            account=str(JOB_FILES / "fetched.sh"),
            restore=str(paths.state_dir() / "restore"),
            interface=self._extras.interface,
        )

    @builtins.sanity_function
    def _judge(self) -> bool:
        try:
            owner = (current.current().name, self.case_name)
            job = self.job
            # Of its own children ReFrame keeps a killing signal apart from the exit status.
            killed = getattr(job, "signal", None)
            status = job.exitcode if killed is None else 128 + killed
            found = collect.collect(Path(self.stagedir), self._plan, status, owner, job.state)
            self._evidence = found
            references, unreferenced = self._find_references()
            judgement = judge(
                self._plan,
                found,
                self.promise(),
                references,
                self._extras,
                self._tier,
                unreferenced,
                self.standing_references(),
            )
        except (ToolOutputError, ReferencesError) as error:
            self._refuse(Verdict.ERROR, f"{error}{self._flaw()}")
        self._judgement = judgement
        cold = {} if found.refused or found.occupied else model.rates_of(self._plan, found.cold)
        self._cold = {name: quantities[0].value for name, quantities in cold.items()}
        self._record(judgement)
        if judgement.verdict in (Verdict.INVALID, Verdict.ERROR):
            raise SanityError(self._said(judgement.verdict, f"{judgement.reason}{self._flaw()}"))
        return True

    @builtins.run_before("performance")
    def _hand_over(self) -> None:
        """Give ReFrame the medians and the very references that the verdict used."""
        if self.is_dry_run():
            return
        if self._judgement is None:
            raise PerformanceError("nothing was proven: run without --skip-sanity-check")
        scope: dict[str, Any] = {}
        for decided in self._judgement.metrics:
            metric, reference = decided.metric, decided.reference
            self.perf_variables[metric.name] = sn.make_performance_function(
                sn.defer(decided.median), metric.unit
            )
            if reference is not None and decided.verdict in (Verdict.PASS, Verdict.FAIL):
                bounds = (reference.value, reference.lower, reference.upper, reference.unit)
                scope[metric.name] = (
                    builtins.xfail(reference.xfail, bounds) if reference.xfail else bounds
                )
        references: Any = {self.current_partition.fullname: scope} if scope else {}
        self.reference = references

    @builtins.run_after("performance")
    def _show_what_is_no_pass(self) -> None:
        if self.is_dry_run() or self._judgement is None:
            return
        verdict = self._judgement.verdict
        if verdict in (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED):
            message = self._said(verdict, self._judgement.headline)
            if current.is_gate():
                raise PerformanceError(message)
            self.skip(message)

    @builtins.run_before("cleanup")
    def _nothing_passes_unproven(self) -> None:
        if self.is_dry_run():
            return
        if self._judgement is None or self._judgement.verdict is not Verdict.PASS:
            verdict = "nothing" if self._judgement is None else self._judgement.verdict.value
            raise SanityError(f"ReFrame would pass this case, but its verdict is {verdict}")

    # Helpers.

    def _find_references(self) -> tuple[dict[str, Reference], str]:
        """References of the run at hand, and why a metric may have none.

        In a tier whose sizes the site declares, but that is not the case's usual one, what stands in the file
        holds only where ``$index`` names the tier; the ceiling holds in any tier.
        """
        foreign = dict(self._overridden)
        if self.tier in self._extras.tiers and type(self).__name__ not in self._references.checks:
            foreign.pop("tier", None)
        return self._references.resolve(self, self.promise(), foreign)

    @property
    def _time_limit_s(self) -> float:
        """Seconds that the job may take, as ReFrame will ask for them."""
        limit: float = Duration(self.time_limit or self.current_partition.time_limit)
        return limit

    @property
    def _tier(self) -> Tier:
        tier: Any = self.tier
        return tier  # type: ignore[no-any-return]

    def _flaw(self) -> str:
        """What a reader should know of the published form, after the reason of its verdict."""
        return f" [published form: {self.flaw}]" if self.variant == "published" else ""

    def _refuse(self, verdict: Verdict, reason: str) -> None:
        """Record a case that was not measured, and fail it."""
        judgement = Judgement((), (), verdict, reason)
        self._judgement = judgement
        if not self.is_dry_run():
            self._record(judgement)
        raise SanityError(self._said(verdict, reason))

    @staticmethod
    def _said(verdict: Verdict, reason: str) -> str:
        """What ReFrame prints, and writes into its reports: tools and file systems say what they like."""
        return visible_lines(f"{verdict.value}: {reason}")

    def _never_decided(self, silent: str) -> None:
        """Record a case whose job ended without evidence, or that the run did not wait for."""
        limit = f", time limit {self.job.time_limit:.0f} s" if self.job.time_limit else ""
        reason = f"run: the job ended as {self.job.state}{limit}, before the case was decided"
        reason += f"; {silent}" if silent else ""
        judgement = Judgement((), (), Verdict.ERROR, reason)
        print(
            visible_lines(f"iogauge: ERROR: {self.display_name}: {judgement.reason}"),
            file=sys.stderr,
        )
        self._record(judgement)

    def _record(self, judgement: Judgement) -> None:
        self.verdict, self.verdict_reason = judgement.verdict.value, visible(judgement.reason)
        run = current.current()
        run.open_cases.discard(self._open_name)
        run.undecided.pop(self._open_name, None)
        try:
            self._append(judgement, run.name)
        except journal.NotRecorded as error:
            run.failed += 1
            raise SanityError(
                visible_lines(f"{error}; it was {judgement.verdict.value}: {judgement.reason}")
            ) from error
        if judgement.verdict is Verdict.PASS:
            run.passed += 1
        elif not judgement.failed_as_expected:
            run.failed += 1

    def _append(self, judgement: Judgement, session_name: str) -> None:
        """Add the case to the history; raises :class:`iogauge.records.journal.NotRecorded`."""
        plan: CasePlan | None = getattr(self, "_plan", None)
        price, marks = self._price_record(), cast(dict[str, Any], current.gate_marks())
        record = Record(
            session=session_name,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            gate=current.is_gate(),
            **marks,
            system=self.current_system.name,
            partition=self.current_partition.name,
            environment=self.current_environ.name,
            check=type(self).__name__,
            case=self.display_name,
            hash=self.hashcode,
            verdict=judgement.verdict,
            reason=judgement.reason,
            confirms=current.confirms() or None,
            expected=judgement.failed_as_expected,
            tier=self.tier,
            variant=self.variant,
            nodes=self.nodes,
            tasks_per_node=self.tasks_per_node,
            repetitions=self.repetitions,
            # Not what --repeat and its like add: how often it is measured makes no other case of it.
            parameters={
                name: getattr(self, name)
                for name in type(self).param_space.params
                if not name.startswith(".")
            },
            pinned=nodelist_abbrev(self.pinned) if self.pinned else None,
            overridden=getattr(self, "_overridden", {}),
            price=PriceRecord(**price) if price else None,
            target=self.current_partition.extras.get("target"),
            tools=judgement.tools,
            stack=self.current_environ.extras.get("installed"),
            commands=[shell_command(p.command) for p in plan.phases] if plan else [],
            metrics=tuple(self._metric_record(m) for m in judgement.metrics),
            findings=tuple(map(FindingRecord.of, judgement.findings)),
        )
        record = record.with_fingerprint(self._fingerprint(judgement, record.commands))
        file = paths.history_dir() / self.current_system.name / f"{session_name}.jsonl"
        journal.append(file, record.to_line())

    def _fingerprint(self, judgement: Judgement, commands: Sequence[str]) -> dict[str, words.Value]:
        """Facts of the nodes, the software and the commands that the case was measured with."""
        seen: model.Evidence | None = getattr(self, "_evidence", None)
        outputs = [one for outs in seen.outputs.values() for one in outs] if seen else []
        kinds = [one.parameters["data_type"] for one in outputs if "data_type" in one.parameters]
        of_case = fingerprint.of_case(
            hosts=[view.host for view in seen.views] if seen else [],
            tools=judgement.tools,
            commands=commands,
            stack=self.current_environ.extras.get("installed"),
            session=current.current().name,
            data_types=[str(kind) for kind in kinds],
        )
        return fingerprint.merge(seen.nodes if seen else ()) | of_case

    def _price_record(self) -> dict[str, Any] | None:
        extras: PartitionExtras | None = getattr(self, "_extras", None)
        return extras.price.model_dump() if extras and extras.price else None

    def _metric_record(self, decided: MetricVerdict) -> MetricRecord:
        metric = decided.metric
        limit = metric_ceiling(
            metric,
            access_of(self._plan, metric.name).direction,
            self._extras,
            self.nodes,
            self._plan.servers,
        )
        return MetricRecord.of(
            decided,
            ceiling=limit.value if limit else None,
            ceiling_from=limit.limited_by if limit else None,
            cold=self._cold.get(metric.name),
            probes=self.probes(metric),
        )


def _agent(library: Path) -> list[str]:
    """Words that start the agent on a node."""
    return ["env", f"PYTHONPATH={library.parent}", sys.executable, "-m", "iogauge.job.agent"]


def _directory_word(directory: str) -> str:
    """The case's directory as a shell word; a variable in front is expanded, and must be set."""
    variable, slash, rest = directory.partition("/")
    if not variable:
        return shell_word(directory)
    return f'"${{{variable[1:]}:?is not set in this job}}"{slash}{shell_word(rest)}'
