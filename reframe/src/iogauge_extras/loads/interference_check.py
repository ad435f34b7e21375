"""One load beside another, with fio: a stream and a storm of metadata, on one node or on different nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from iogauge.cases.fio import LAID_OUT, WRITE_BW, FioCheck, OneNodeFioCheck
from iogauge.core.measurement import Metric, Quantity, ToolOutput
from iogauge.core.words import FIO_METADATA
from iogauge.plan.case import REP, Access, CasePlan, Computed, PhasePlan, Printed
from iogauge.tools.fio.options import FioJob, layout_job, metadata_job
from iogauge_extras.loads.two_jobs import (
    APART_LEAD_S,
    LEAD_S,
    disturbed_pair,
    parse_disturbed,
    side_by_side,
)

#: Files that a process of a storm makes before it removes them, at most. fio counts no removal: they must take less than
#: half a second also where a process removes a hundred files in a second, or the storm would seem to stand still (G19).
_STORM_FILES: Final = 32
#: Phases of a repetition, and so the ends of the metrics' names.
_ALONE, _DISTURBED, _AGAIN = "alone", "disturbed", "again"
_DISTURBER: Final = "disturber"
Load = Literal["stream", "metadata"]


class _Loads(OneNodeFioCheck):
    """A load alone, beside the other, and alone again; a subclass says on which nodes."""

    needs = FIO_METADATA
    measured: Load
    transfer = 1 << 20
    #: Seconds for which the disturber runs before and after.
    lead_s: int = LEAD_S

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's quantity of each metric, whose name has no end yet."""
        if self.measured == "stream":
            return {WRITE_BW: "bw"}
        return {
            Metric("create_warm_p50", "us", "less"): "latency_p50",
            Metric("create_warm_p99", "us", "less", tail=True): "latency_p99",
        }

    def promise(self) -> tuple[Metric, ...]:
        """Return each quantity alone, disturbed and alone again, and the disturbed one over both others."""
        found = []
        for metric in self.quantities():
            for phase in (_ALONE, _DISTURBED, _AGAIN):
                found.append(replace(metric, name=f"{metric.name}_{phase}"))
            found.append(replace(metric, name=f"{metric.name}_ratio", unit="1"))
        return tuple(found)

    @property
    def _other(self) -> Load:
        """Return the load that disturbs the measured one."""
        if self.measured == "stream":
            return "metadata"
        return "stream"

    def _nodes_of(self, load: Load) -> int:
        """Return on how many nodes a load runs."""
        return 1

    def _on(self, phase: PhasePlan, load: Load) -> PhasePlan:
        """Return the phase of a load on its nodes."""
        return phase

    def _beside(
        self, phase: PhasePlan, measured: FioJob, other: FioJob
    ) -> tuple[PhasePlan, Any]:
        """Return the phase of the measured job with the disturber beside it, and the texts of their job files."""
        raise TypeError(f"{type(self).__name__} must define _beside()")

    def _jobs(self, streams: int) -> tuple[FioJob, dict[str, FioJob]]:
        """Return the layout and both loads by name, with the stream on so many nodes; raises ValueError if the limits are too small."""
        tasks, seconds = self.tasks_per_node, self.site.limits.phase_seconds
        file_bytes = self.share_of_file(self.transfer, tasks * streams)
        layout = layout_job(file_bytes=file_bytes, numjobs=tasks)
        files = min(_STORM_FILES, self.share_of_files(tasks * self.nodes))
        storm = metadata_job(
            "filecreate", files=files, numjobs=tasks, runtime_s=seconds
        )
        return layout, {
            "stream": replace(layout, block_bytes=self.transfer, runtime_s=seconds),
            "metadata": replace(
                storm, endless=True, filename_format=f"storm.{storm.filename_format}"
            ),
        }

    def plan(self) -> CasePlan:
        """Lay the stream's files out once; then measure alone, disturbed, and alone again."""
        streams, storms = self._nodes_of("stream"), self._nodes_of("metadata")
        layout, jobs = self._jobs(streams)
        own, other = jobs[self.measured], jobs[self._other]
        access = LAID_OUT
        beside: Literal["write", "metadata"] = "metadata"
        if self.measured == "metadata":
            access, beside = Access(direction="metadata"), "write"
        phases: dict[str, PhasePlan] = {}
        computed: dict[str, Computed] = {}
        for name in (_DISTURBED, _ALONE, _AGAIN):
            rates = {f"{m.name}_{name}": rate for m, rate in self.quantities().items()}
            phase = self.fio_phase(replace(own, name=name), rates, access)
            phases[name] = self._on(phase, self.measured)
        for metric in self.quantities():
            sources = tuple(f"{metric.name}_{name}" for name in phases)
            ratio = Computed(sources=sources, compute=_over_both)
            computed[f"{metric.name}_ratio"] = ratio
        pair = disturbed_pair(
            replace(own, name=_DISTURBED), replace(other, name=_DISTURBER), self.lead_s
        )
        disturbed, texts = self._beside(phases[_DISTURBED], *pair)
        lasts_s = own.runtime_s + 2 * self.lead_s
        disturbed = replace(disturbed, beside=beside, lasts_s=lasts_s)
        prepared = self._on(
            self.fio_phase(layout, {}, LAID_OUT, repeated=False), "stream"
        )
        held = layout.bytes_total * streams
        case = self.fio_case(
            jobs=[layout, *(replace(own, name=name) for name in (_ALONE, _AGAIN))],
            prepare=[replace(prepared, data_bytes=held)],
            repeat=[phases[_ALONE], disturbed, replace(phases[_AGAIN], again=_ALONE)],
            warm_up=False,
            held_bytes=held,
            files=self.tasks_per_node * (streams + jobs["metadata"].files * storms),
            computed=computed,
        )
        return replace(case, inputs={**case.inputs, **texts})

    def _parse(self, printed: Printed) -> ToolOutput:
        text = printed.result + printed.stdout + printed.stderr
        apart, kind = printed.files.get("fio.txt", ""), "write"
        if self.measured == "metadata":
            kind = "create"
        return parse_disturbed(text, _DISTURBED, _DISTURBER, kind, apart)


class InterferenceCheck(_Loads):
    """A stream and a metadata storm of fio: one of them alone, beside the other, and alone again.

    A subclass sets ``measured``: ``stream``, sequential writes with O_DIRECT, or ``metadata``, creates of empty files.
    The other disturbs it. Each has as many processes as tasks. One fio runs both, so that one clock times both.
    """

    own_processes = 2

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, with half of the tasks: the other half disturbs them."""
        declared = super().declared()
        return {**declared, "tasks_per_node": max(1, declared["tasks_per_node"] // 2)}

    def _beside(
        self, phase: PhasePlan, measured: FioJob, other: FioJob
    ) -> tuple[PhasePlan, Any]:
        text = side_by_side(measured, other)
        return replace(phase, parse=self._parse), {f"{_DISTURBED}.fio": text}


class InterferenceApartCheck(_Loads):
    """The loads of :class:`InterferenceCheck` on different nodes: what one costs the other across the servers.

    A stream is measured on half of the nodes, rounded up, and the storm runs on the others. Creates are measured on the
    first node, because fio merges no percentiles of several nodes, and the stream runs on the others.
    """

    on_all_nodes = True
    fio_case = FioCheck.fio_case
    lead_s = APART_LEAD_S

    def _nodes_of(self, load: Load) -> int:
        first: int = 1
        if self.measured == "stream":
            first = self.nodes - self.nodes // 2
        if load == self.measured:
            return first
        rest: int = self.nodes - first
        return rest

    def _words(self, load: Load) -> list[str]:
        """Return the first and the last node of a load, counted from 1."""
        if load == self.measured:
            return ["1", str(self._nodes_of(load))]
        return [str(self.nodes - self._nodes_of(load) + 1), str(self.nodes)]

    def _on(self, phase: PhasePlan, load: Load) -> PhasePlan:
        command = [*self._words(load), *phase.command]
        return replace(
            phase, launch="parts", command=command, on_nodes=self._nodes_of(load)
        )

    def _beside(
        self, phase: PhasePlan, measured: FioJob, other: FioJob
    ) -> tuple[PhasePlan, Any]:
        folder = f"{_DISTURBER}.{REP}"
        words = [*self._words(self._other), f"{_DISTURBER}.fio", f"{folder}/fio.txt"]
        phase = replace(
            phase, command=[*phase.command, *words], parse=self._parse, folder=folder
        )
        return phase, {f"{job.name}.fio": job.job_file() for job in (measured, other)}

    def plan(self) -> CasePlan:
        """Plan as on one node; raises ValueError on one."""
        self.need_nodes("the loads run on different nodes")
        return super().plan()


def _over_both(disturbed: Quantity, alone: Quantity, again: Quantity) -> Quantity:
    return Quantity(2 * disturbed.value / (alone.value + again.value), "1")
