"""The base class of all judged cases: measured cases, and cases that are computed from records.

Two programs decide. :func:`iogauge.judge.verdict.decide_metric` decides PASS. ``_hand_over`` gives
ReFrame the same median and the same bounds, so that ReFrame's report agrees.
``_nothing_passes_unproven`` fails a case that ReFrame would pass and the verdict does not.

A scenario defines these attributes, until a phase of ReFrame's pipeline:

=========================  ==========  ==============================================================
attribute                  until       meaning
=========================  ==========  ==============================================================
``valid_systems``          init        partitions, by features (``vocabulary.PARTITION``) or by name
``needs``                  class body  the environment's feature (``vocabulary.ENVIRONMENT``); empty: any
``tags``                   init        kinds of runs that include the case (``vocabulary.TAGS``)
``variants``               class body  forms of the command; the first is ``sound``
``flaw``                   class body  flaw of the published form
``promise()``              setup       metrics, each with unit and direction; the plan of a scale may have fewer
``declared()``             setup       defaults of what ``-S`` sets, if not those of every case
``plan()``                 setup       what the job does (measured cases only)
``standing_references()``  run         references without a site's (measured cases only)
``sources()``              setup       cases whose records are operands (derived cases only)
``formulas()``             sanity      computations over the operands (derived cases only)
=========================  ==========  ==============================================================
"""

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast, get_args

import reframe as rfm
import reframe.core.builtins as builtins
import reframe.core.runtime as runtime
import reframe.utility.sanity as sn
from reframe.core.exceptions import PerformanceError, ReframeFatalError, SanityError
from reframe.core.logging import getperflogger
from reframe.utility import nodelist_abbrev

from iogauge.core import paths, vocabulary
from iogauge.core.measurement import Metric
from iogauge.core.text import visible, visible_lines
from iogauge.core.vocabulary import Fingerprint, Value
from iogauge.evidence import fingerprint, model
from iogauge.judge.verdict import Judgement, MetricVerdict, Verdict
from iogauge.plan.case import CasePlan
from iogauge.plan.script import shell_command
from iogauge.records import journal, selected
from iogauge.records.record import SCHEMA, FindingRecord, MetricRecord, Record
from iogauge.session.current import confirms, current, gate_marks, is_gate, suite
from iogauge.site import reference_notes
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import References
from iogauge.site.topology import Ceiling

# ReFrame reads and sets its deprecated alias `variables` in each instance. Each time it reads the sources of the whole stack
# for a warning, which nobody sees: 60 % of the time of a listing with many cases.
rfm.RunOnlyRegressionTest.var_space["variables"].field._op = 0


class JudgedCheck(rfm.RunOnlyRegressionTest):
    """A case with a verdict, references and a record; a subclass obtains the figures."""

    # ``-S`` sets these in every check. ReFrame warns of a check without them, and a warning ends a
    # gate. So computed cases have them too.

    #: Nodes of the job; 0: as the partition's ``scale`` says.
    #: :type: int
    nodes = builtins.variable(int, value=0)

    #: Tasks on each node; 0: as the partition's ``scale`` says.
    #: :type: int
    tasks_per_node = builtins.variable(int, value=0)

    #: Repetitions inside the job; 0: as the partition's ``limits`` say.
    #: :type: int
    repetitions = builtins.variable(int, value=0)

    #: Proof that a run must give: ``quick``, ``daily``, ``acceptance``; empty: as in ``limits``.
    #: :type: str
    tier = builtins.variable(str, value="")

    #: Form of the command: ``sound``, or ``published`` as in a document (see docs/checks.md).
    #: :type: str
    variant = builtins.variable(str, value="", loggable=True)

    #: Verdict of the case and its reason; also in ReFrame's report.
    #: :type: str
    verdict = builtins.variable(str, value="", loggable=True)
    verdict_reason = builtins.variable(str, value="", loggable=True)
    #: Kind of a refusal before the case ran, as in ``vocabulary``; also in ReFrame's report.
    #: :type: str
    refusal = builtins.variable(str, value="", loggable=True)

    sourcesdir = None
    #: Jobs of ``--ci-generate`` run one after the other: they would wait for each other's lock.
    ci_extras = {"gitlab": {"resource_group": "iogauge"}}
    valid_systems = [f"+{vocabulary.TARGET}"]
    #: Feature that the environment must have.
    needs: str = ""
    #: Forms of the command that the scenario has.
    variants: tuple[str, ...] = ("sound",)
    #: The flaw of the published form.
    flaw: str = ""

    _extras: PartitionExtras
    _references: References
    _overridden: dict[str, object]
    _judgement: Judgement | None
    #: What the job left; None of a case that was not measured.
    _evidence: model.Evidence | None = None
    #: The node whose turn it is.
    _turn: tuple[str, ...] = ()
    #: Values of the warm-up, recorded but not judged, by metric.
    _cold: Mapping[str, float] = MappingProxyType({})

    # What a scenario defines.

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that the scenario measures at any scale, each in one unit; references may name no others."""
        raise TypeError(f"{type(self).__name__} must define promise()")

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return a metric's values by name of its parts in each round, in the order of measuring; empty without parts."""
        return ()

    # What a scenario may use.

    @property
    def site(self) -> PartitionExtras:
        """Return the partition's extras, validated."""
        return self._extras

    @property
    def pinned(self) -> tuple[str, ...]:
        """Return the nodes of ReFrame's ``--distribute``, or that whose turn it is; empty if the scheduler chooses."""
        return tuple(getattr(self, ".nid", self._turn))

    # The pipeline.

    @builtins.run_after("init")
    def _select_environments(self) -> None:
        if self.needs:
            self.valid_prog_environs = [f"+{self.needs}"]

    # Of hooks that are always last the first one is the last: the listing is told what the tag has left.

    @builtins.run_after("init", always_last=True)
    def _tell_the_listing(self) -> None:
        """Note what the case asks for, before ReFrame's options change it."""
        if selected.LISTING not in os.environ:
            return
        fitting = runtime.valid_sysenv_comb(
            self.valid_systems, self.valid_prog_environs
        )
        selected.note(
            selected.NotedCase(
                hash=self.hashcode,
                case=self.display_name,
                check=type(self).__name__,
                derived="derived" in self.tags,
                systems=tuple(self.valid_systems),
                environments=tuple(self.valid_prog_environs),
                runs_on=tuple(
                    place.fullname for place, fits in fitting.items() if fits
                ),
                values={
                    **{
                        name: (getattr(self, name),)
                        for name in type(self).param_space.params
                    },
                    "tier": get_args(vocabulary.Tier),
                    "variant": self.variants,
                },
            )
        )

    @builtins.run_after("init", always_last=True)
    def _tag_published_figures(self) -> None:
        """Tag the case if a partition of this system has a published reference of it.

        A tag is of a case on all its partitions: selected by it, the case is only on those that have such a reference.
        """
        check, system = type(self).__name__, runtime.runtime().system
        data = References.of_site(system.name).data
        stated = reference_notes.published(data, check)
        places = []
        for partition in system.partitions:
            if partition.fullname not in stated or "target" not in partition.extras:
                continue
            extras = PartitionExtras.of_partition(partition.extras).for_check(check)
            defaults = {"$partition": partition.fullname, "variant": "sound"}
            defaults["tier"] = extras.limits.tier
            index = data[check].get("$index", ("$partition",))
            values = [getattr(self, part, None) or defaults.get(part) for part in index]
            if reference_notes.look_up(data[check], values):
                places.append(partition.fullname)
        if places:
            self.tags.add(vocabulary.PUBLISHED_FIGURE)
            if vocabulary.PUBLISHED_FIGURE in selected.values(sys.argv, "-t", "--tag"):
                fitting = runtime.valid_sysenv_comb(
                    self.valid_systems, self.valid_prog_environs
                )
                mine = [place.fullname for place in fitting if place.fullname in places]
                self.valid_systems = mine or self.valid_systems

    def disable_hook(self, hook_name: str) -> None:
        """Refuse ReFrame's ``--disable-hook`` for every hook of this suite.

        Hooks of a scenario count too: without them the case would measure something else under the
        same name.
        """
        ours = [kind for kind in type(self).__mro__ if issubclass(kind, JudgedCheck)]
        if any(hook_name in vars(kind) for kind in ours):
            raise ReframeFatalError(
                f"iogauge: --disable-hook={hook_name} leaves out what decides the verdict: not allowed"
            )
        super().disable_hook(hook_name)

    def _declare_references(self) -> None:
        """Read and check the site's references of this check; raises ReferencesError."""
        name = type(self).__name__
        self._references = References.of_site(self.current_system.name)
        self._references.check(name, self.promise())

    @builtins.run_before("performance")
    def _hand_over(self) -> None:
        """Give ReFrame the medians, and the references that the verdict used."""
        if self.is_dry_run():
            return
        if self._judgement is None:
            raise PerformanceError(
                "nothing was proven: run without --skip-sanity-check"
            )
        scope: dict[str, Any] = {}
        for decided in self._judgement.metrics:
            metric = decided.metric
            reference = decided.reference
            self.perf_variables[metric.name] = sn.make_performance_function(
                sn.defer(decided.median), metric.unit
            )
            if reference is None or decided.verdict not in (
                Verdict.PASS,
                Verdict.FAIL,
            ):
                continue
            bounds: Any = (
                reference.value,
                reference.lower,
                reference.upper,
                reference.unit,
            )
            if reference.xfail:
                bounds = builtins.xfail(reference.xfail, bounds)
            scope[metric.name] = bounds
        references: Any = {}
        if scope:
            references[self.current_partition.fullname] = scope
        self.reference = references

    @builtins.run_after("performance")
    def _show_what_is_no_pass(self) -> None:
        if self.is_dry_run():
            self.skip("nothing is measured by a dry run")
        if self._judgement is None:
            return
        # ReFrame's table of metrics calls what has no reference a pass.
        for decided in self._judgement.metrics:
            key = f"{self.current_partition.fullname}:{decided.metric.name}"
            if decided.verdict is not Verdict.PASS and key in self._perfvalues:
                self._perfvalues[key][-1] = decided.verdict.value
        verdict = self._judgement.verdict
        if verdict in (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED):
            message = self._message(verdict, self._judgement.headline)
            if is_gate():
                raise PerformanceError(message)
            self._log_performance()
            self.skip(message)

    def _log_performance(self) -> None:
        """Write the case's lines into ReFrame's performance log, which leaves skipped cases out."""
        place = (self, self.current_partition, self.current_environ)
        task = SimpleNamespace(testcase=place, result="skip", succeeded=True)
        multiline = runtime.runtime().get_option("logging/0/perflog_multiline")
        getperflogger(self).log_result(logging.INFO, task, multiline=multiline)

    @builtins.run_before("cleanup")
    def _nothing_passes_unproven(self) -> None:
        if self.is_dry_run():
            return
        verdict = "nothing"
        if self._judgement is not None:
            verdict = self._judgement.verdict.value
        if verdict != Verdict.PASS.value:
            raise SanityError(
                f"ReFrame would pass this case, but its verdict is {verdict}"
            )

    # Helpers.

    @property
    def _open_name(self) -> tuple[str, str, str, str]:
        where = (self.current_partition.name, self.current_environ.name)
        return (type(self).__name__, *where, self.display_name)

    def _refuse(self, reason: str, kind: str = "") -> None:
        """Record a case that was not measured as ERROR, and fail it."""
        judgement = Judgement(Verdict.ERROR, reason)
        self._judgement = judgement
        self.refusal = kind
        if not self.is_dry_run():
            self._record(judgement)
        raise SanityError(self._message(Verdict.ERROR, reason))

    @staticmethod
    def _message(verdict: Verdict, reason: str) -> str:
        """Return the message for ReFrame, in which tools may have put any characters."""
        return visible_lines(f"{verdict.value}: {reason}")

    def _record(self, judgement: Judgement) -> None:
        self.verdict = judgement.verdict.value
        self.verdict_reason = visible(judgement.reason)
        run = current()
        run.open_cases.discard(self._open_name)
        run.undecided.pop(self._open_name, None)
        try:
            self._append(judgement, run.name)
        except journal.NotRecorded as error:
            run.failed += 1
            raise SanityError(
                visible_lines(
                    f"{error}; it was {judgement.verdict.value}: {judgement.reason}"
                )
            ) from error
        if judgement.verdict is Verdict.PASS:
            run.passed += 1
        elif not judgement.failed_as_expected:
            run.failed += 1

    def _fingerprint(
        self, judgement: Judgement, commands: Sequence[str], inputs: Mapping[str, str]
    ) -> Fingerprint:
        """Facts of the nodes, the software and the commands that the case was measured with."""
        nodes: Sequence[Mapping[str, Value]] = ()
        hosts, file_systems, kinds = [], [], []
        layouts: Mapping[str, str] = {}
        evidence = self._evidence
        if evidence is not None:
            nodes = [*evidence.nodes.values()]
            for view in evidence.views:
                hosts.append(view.host)
                # A file system that is made for one job is another one in each.
                if not self._extras.target.of_job:
                    file_systems.append(view.uuid)
            if evidence.passed_on:
                layouts = evidence.passed_on.facts
            for outputs in evidence.outputs.values():
                for output in outputs:
                    if "data_type" in output.parameters:
                        kinds.append(str(output.parameters["data_type"]))
        of_case = fingerprint.of_case(
            hosts=hosts,
            file_systems=file_systems,
            layouts=layouts,
            tools=judgement.tools,
            commands=commands,
            inputs=inputs,
            repetitions=self.repetitions,
            stack=self.current_environ.extras.get("installed"),
            session=current().name,
            data_types=kinds,
        )
        return fingerprint.merge(nodes) | of_case

    def _layout(self) -> dict[str, Any] | None:
        """Return the layouts of the case's files, as the record keeps them, or None on no Lustre."""
        if self._evidence is None:
            return None
        return model.layout_of_record(self._evidence.striping)

    def _ceiling(self, metric: Metric) -> Ceiling | None:
        """Return the most that the topology can carry of a metric, or None without such a limit."""
        return None

    def _append(self, judgement: Judgement, session_name: str) -> None:
        """Add the case to the history; raises :class:`iogauge.records.journal.NotRecorded`."""
        extras: PartitionExtras | None = getattr(self, "_extras", None)
        plan: CasePlan | None = getattr(self, "_plan", None)
        commands: list[str] = []
        inputs: Mapping[str, str] = {}
        if plan is not None:
            commands = [shell_command(phase.command) for phase in plan.phases]
            inputs = plan.inputs
        price, pinned = None, None
        if extras is not None and extras.price:
            price = extras.price.model_dump()
        if self.pinned:
            pinned = nodelist_abbrev(self.pinned)
        parameters = {}
        for name in type(self).param_space.params:
            # Not what --repeat and its like add: how often it is measured makes no other case of it.
            if not name.startswith("."):
                parameters[name] = getattr(self, name)
        marks = cast(dict[str, Any], gate_marks())
        record = Record.new(
            form=SCHEMA,
            session=session_name,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            gate=is_gate(),
            **marks,
            system=self.current_system.name,
            partition=self.current_partition.name,
            environment=self.current_environ.name,
            check=type(self).__name__,
            case=self.display_name,
            hash=self.hashcode,
            verdict=judgement.verdict,
            reason=judgement.reason,
            confirms=confirms() or None,
            expected=judgement.failed_as_expected,
            tier=self.tier,
            variant=self.variant,
            nodes=self.nodes,
            tasks_per_node=self.tasks_per_node,
            repetitions=self.repetitions,
            parameters=parameters,
            pinned=pinned,
            overridden=getattr(self, "_overridden", {}),
            price=price,
            target=self.current_partition.extras.get("target"),
            layout=self._layout(),
            tools=judgement.tools,
            stack=self.current_environ.extras.get("installed"),
            suite=suite(),
            busy=judgement.busy or None,
            load=judgement.load,
            commands=commands,
            metrics=tuple(self._metric_record(m) for m in judgement.metrics),
            findings=tuple(map(FindingRecord.of, judgement.findings)),
        )
        record = record.with_fingerprint(self._fingerprint(judgement, commands, inputs))
        file = paths.history_dir() / self.current_system.name / f"{session_name}.jsonl"
        journal.append(file, record.to_line())

    def _metric_record(self, decided: MetricVerdict) -> MetricRecord:
        metric = decided.metric
        return MetricRecord.of(
            decided,
            limit=self._ceiling(metric),
            cold=self._cold.get(metric.name),
            rounds=self.rounds(metric),
        )
