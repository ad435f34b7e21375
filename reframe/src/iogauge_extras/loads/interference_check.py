"""One load beside another, with fio: a stream and a storm of metadata, on one node or on different nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from iogauge.cases.fio import (
    LAID_OUT,
    WRITE_BW,
    FioCheck,
    OneNodeFioCheck,
    parse_fio,
)
from iogauge.cases.storage import StorageCheck
from iogauge.core.measurement import Metric, Quantity, ToolOutput
from iogauge.core.units import format_bytes
from iogauge.core.words import FIO_METADATA
from iogauge.plan.case import REP, Access, CasePlan, Computed, PhasePlan, Printed
from iogauge.tools.fio.options import (
    FioJob,
    layout_job,
    metadata_job,
)
from iogauge_extras.loads.beside import (
    APART_LEAD_S,
    LEAD_S,
    disturbed_jobs,
    disturbed_pair,
    parse_apart,
    parse_disturbed,
)

#: Files that a process of a storm makes before it removes them, at most. fio counts no removal: they must take less than
#: half a second also where a process removes a hundred files in a second, or the storm would seem to stand still (G19).
_STORM_FILES: Final = 32
#: Phases of a repetition, and so the ends of the metrics' names.
_ALONE, _DISTURBED, _AGAIN = "alone", "disturbed", "again"


def loads(check: StorageCheck, transfer: int, nodes: int = 1) -> dict[str, FioJob]:
    """Return the layout and both loads of a check by name; raises ValueError if the limits are too small.

    The stream writes in requests of ``transfer`` bytes, on so many ``nodes``.
    """
    limits, tasks = check.site.limits, check.tasks_per_node
    file_bytes = limits.case_bytes // (tasks * nodes) // transfer * transfer
    files = min(_STORM_FILES, limits.case_files // (tasks * check.nodes))
    if file_bytes < transfer or files < 1:
        raise ValueError(
            f"limits.case_bytes is {limits.case_bytes} and limits.case_files {limits.case_files}: expected "
            f"{format_bytes(transfer * tasks * nodes)} and {tasks * check.nodes} file(s) at least for {tasks} "
            "task(s) on each node"
        )
    seconds = limits.phase_seconds
    layout = layout_job(file_bytes=file_bytes, numjobs=tasks)
    storm = metadata_job("filecreate", files=files, numjobs=tasks)
    return {
        "layout": layout,
        "stream": replace(layout, block_bytes=transfer, runtime_s=seconds),
        "metadata": replace(
            storm,
            runtime_s=seconds,
            endless=True,
            filename_format=f"storm.{storm.filename_format}",
        ),
    }


class _Loads:
    """What both forms have in common: what is measured, and its ratio to the same alone."""

    needs = FIO_METADATA
    measured: Literal["stream", "metadata"]
    transfer: int

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
        return tuple(
            replace(metric, name=f"{metric.name}_{end}", unit=unit)
            for metric in self.quantities()
            for end, unit in (
                *((phase, metric.unit) for phase in (_ALONE, _DISTURBED, _AGAIN)),
                ("ratio", "1"),
            )
        )

    @property
    def _other(self) -> Literal["stream", "metadata"]:
        """Return the load that disturbs."""
        return "metadata" if self.measured == "stream" else "stream"

    @property
    def _kind(self) -> Literal["write", "create"]:
        """Return fio's phase of what is measured."""
        return "write" if self.measured == "stream" else "create"

    @property
    def _how(self) -> Access:
        if self.measured == "stream":
            return Access(direction="write", o_direct=True, fsync=True)
        return Access(direction="metadata")

    def _ratios(self) -> dict[str, Computed]:
        """Return what is disturbed over the mean of both others."""
        return {
            f"{metric.name}_ratio": Computed(
                sources=tuple(f"{metric.name}_{n}" for n in (_DISTURBED, _ALONE, _AGAIN)),
                compute=_over_both,
            )
            for metric in self.quantities()
        }


class InterferenceCheck(_Loads, OneNodeFioCheck):
    """A stream and a metadata storm of fio: one of them alone, beside the other, and alone again.

    A subclass sets ``measured``: ``stream``, sequential writes with O_DIRECT, or ``metadata``, creates of empty files.
    The other disturbs it. Each has as many processes as tasks. One fio runs both, so that one clock times both.
    """

    own_processes = 2

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, with half of the tasks: the other half disturbs them."""
        declared = super().declared()
        return {**declared, "tasks_per_node": max(1, declared["tasks_per_node"] // 2)}

    def _phase(self, name: str, job: FioJob) -> PhasePlan:
        """Return a phase with its own metrics."""
        rates = {f"{metric.name}_{name}": rate for metric, rate in self.quantities().items()}
        phase = self.fio_phase(replace(job, name=name), rates, self._how)
        return replace(phase, again=_ALONE if name == _AGAIN else None, data_bytes=None)

    def plan(self) -> CasePlan:
        """Lay the stream's files out once; then measure alone, disturbed, and alone again."""
        jobs = loads(self, self.transfer)
        own = jobs[self.measured]
        both = disturbed_jobs(
            replace(own, name=_DISTURBED), replace(jobs[self._other], name="disturber")
        )

        def parse(printed: Printed) -> ToolOutput:
            text = printed.result + printed.stdout + printed.stderr
            return parse_disturbed(text, _DISTURBED, "disturber", self._kind)

        disturbed = replace(
            self._phase(_DISTURBED, own),
            parse=parse,
            beside="write" if self._other == "stream" else "metadata",
            lasts_s=own.runtime_s + 2 * LEAD_S,
        )
        case = self.fio_case(
            jobs=[jobs["layout"], *(replace(own, name=name) for name in (_ALONE, _AGAIN))],
            prepare=[self.fio_phase(jobs["layout"], {}, LAID_OUT, repeated=False)],
            repeat=[self._phase(_ALONE, own), disturbed, self._phase(_AGAIN, own)],
            warm_up=False,
            held_bytes=jobs["layout"].bytes_total,
            files=self.tasks_per_node * (1 + jobs["metadata"].files),
            computed=self._ratios(),
        )
        return replace(case, inputs={**case.inputs, f"{_DISTURBED}.fio": both})


class InterferenceApartCheck(_Loads, FioCheck):
    """The loads of :class:`InterferenceCheck` on different nodes: what one costs the other across the servers.

    A stream is measured on half of the nodes, rounded up, and the storm runs on the others. Creates are measured on the
    first node, because fio merges no percentiles of several nodes, and the stream runs on the others.
    """

    on_all_nodes = True

    def _on(self, load: str) -> tuple[int, int]:
        """Return the first and the last node of a load, counted from 1."""
        last = self.nodes - self.nodes // 2 if self.measured == "stream" else 1
        return (1, last) if load == self.measured else (last + 1, self.nodes)

    def _phase(self, name: str, *parts: tuple[str, str, str]) -> PhasePlan:
        """Return a phase of jobs side by side; each part is a load, its job file and its output."""
        words = [
            word
            for load, job, output in parts
            for word in (*map(str, self._on(load)), f"{job}.fio", output)
        ]
        return PhasePlan(
            name=name,
            command=words,
            launch="parts",
            parse=parse_fio,
            rates={},
            access=LAID_OUT,
            output=parts[0][2],
        )

    def _measured_phase(self, name: str, *others: tuple[str, str, str]) -> PhasePlan:
        first, last = self._on(self.measured)
        return replace(
            self._phase(name, (self.measured, name, f"fio-{name}.{REP}.json"), *others),
            rates={
                f"{metric.name}_{name}": (self._kind, rate)
                for metric, rate in self.quantities().items()
            },
            access=self._how,
            on_nodes=last - first + 1,
            again=_ALONE if name == _AGAIN else None,
        )

    def plan(self) -> CasePlan:
        """Lay the stream's files out once; then measure alone, disturbed, and alone again."""
        self.need_nodes("the loads run on different nodes")
        first, last = self._on("stream")
        streams = last - first + 1
        jobs = loads(self, self.transfer, streams)
        own = jobs[self.measured]
        pair = disturbed_pair(
            replace(own, name=_DISTURBED), replace(jobs[self._other], name="disturber")
        )
        beside = f"disturber.{REP}"

        def parse(printed: Printed) -> ToolOutput:
            text = printed.result + printed.stdout + printed.stderr
            other_text = printed.files.get("fio.txt", "")
            return parse_apart(text, other_text, _DISTURBED, "disturber", self._kind)

        disturbed = replace(
            self._measured_phase(_DISTURBED, (self._other, "disturber", f"{beside}/fio.txt")),
            parse=parse,
            folder=beside,
            beside="metadata" if self.measured == "stream" else "write",
            lasts_s=own.runtime_s + 2 * APART_LEAD_S,
        )
        layout = replace(
            self._phase("layout", ("stream", "layout", "fio-layout.0.json")),
            data_bytes=jobs["layout"].bytes_total * streams,
            on_nodes=streams,
        )
        return self.fio_case(
            jobs=[jobs["layout"], *(replace(own, name=name) for name in (_ALONE, _AGAIN)), *pair],
            prepare=[layout],
            repeat=[self._measured_phase(_ALONE), disturbed, self._measured_phase(_AGAIN)],
            warm_up=False,
            held_bytes=jobs["layout"].bytes_total * streams,
            files=self.tasks_per_node * (streams + jobs["metadata"].files * (self.nodes - streams)),
            computed=self._ratios(),
        )


def _over_both(disturbed: Quantity, alone: Quantity, again: Quantity) -> Quantity:
    return Quantity(2 * disturbed.value / (alone.value + again.value), "1")
