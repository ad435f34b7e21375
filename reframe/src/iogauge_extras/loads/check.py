"""Base classes of the scenarios that load storage without MPI, with fio: sequential writes and reads, a filled target, latency
over queue depth. Three more: bandwidth over hours, one load beside another, random reads of samples.

Each process writes its own file, or its own part of a file that all share, and reads it again, on one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import reframe.core.builtins as builtins

from iogauge.cases.fio import (
    CHECKED_BYTES,
    DIRECTORY,
    LAID_OUT,
    LAYOUT_CHECKED,
    READ_BW,
    READ_IOPS,
    WRITE_BW,
    FioCheck,
    FioRandomReadCheck,
    OneNodeFioCheck,
    parse_fio,
)
from iogauge.cases.fio_sequential import FioSequentialCheck
from iogauge.cases.storage import StorageCheck
from iogauge.core import untrusted
from iogauge.core.measurement import Metric, Quantity, ToolOutput, ToolOutputError
from iogauge.core.units import format_bytes, format_seconds, parse_bytes
from iogauge.core.words import FIO_METADATA
from iogauge.evidence.model import SERIES
from iogauge.plan.case import DIR, REP, Access, CasePlan, Computed, PhasePlan, Printed, Verification
from iogauge.plan.stage import FILL
from iogauge.tools.fio.options import (
    APART_LEAD_S,
    LEAD_S,
    MISMATCH,
    FioJob,
    disturbed_jobs,
    disturbed_pair,
    layout_job,
    metadata_job,
    random_read_job,
    verification,
)
from iogauge.tools.fio.output import parse_apart, parse_disturbed
from iogauge_extras.loads.series import Series, with_series

#: Nothing is measured.
_UNTIMED: Final = Access(direction="none")


class FillLevelCheck(FioSequentialCheck):
    """Write and read as in every sequential check, on a target that is filled up to a level before.

    A subclass sets ``fill``, the level in percent; 0 means the target as found. The files that fill it lie in the case's
    directory, and go with it.
    """

    fill: int
    o_direct = True
    #: Beside them lie the files that fill the target, at which no sample of the contents looks.
    below = "files"

    def plan(self) -> CasePlan:
        """Fill the target once, and write new files in each repetition."""
        case, most = super().plan(), self.site.limits.fill_bytes
        # The files of the repetition before go, not those that fill the target: new ones must find room again.
        again = 'rm -rf "$1" && mkdir "$1"'
        fresh = PhasePlan(
            name="fresh",
            command=["sh", "-c", again, "sh", case.directory],
            launch="once",
            parse=None,
            rates={},
            access=_UNTIMED,
        )
        case = replace(case, repeat=[fresh, *case.repeat])
        if not self.fill:
            return case
        if most is None:
            raise ValueError(
                f"sweeps.fill_levels has {self.fill}, and limits.fill_bytes is not set: filling needs the site's "
                "permission. Set it to the bytes that may be taken, or leave the level out"
            )
        words = [FILL, str(self.fill), str(most), str(case.held_bytes), f"{DIR}/{FILL}"]
        fill = PhasePlan(
            name=FILL,
            command=words,
            launch="agent",
            parse=parse_filled,
            rates={},
            access=_UNTIMED,
        )
        files = case.files + 1 + -(-most // _FILL_FILE_BYTES)
        return replace(case, prepare=[fill], fill_bytes=most, files=files)


#: Bytes of each file that fills the target, see :mod:`iogauge_extras.loads.filling`.
_FILL_FILE_BYTES: Final = 1 << 30


def parse_filled(printed: Printed) -> ToolOutput:
    """Return what the agent says of the fill, as a parameter; raises :class:`ToolOutputError`."""
    try:
        filled: Any = untrusted.parse_json(printed.result)
        level, share, taken = int(filled["level"]), float(filled["fill"]), int(filled["bytes"])
    except (ValueError, TypeError, KeyError) as error:
        raise ToolOutputError(f"{FILL}: not the fill of a target: {error}") from error
    return ToolOutput(
        "target", "", (), parameters={"filled": {"level": level, "fill": share, "bytes": taken}}
    )


class QueueDepthCheck(FioRandomReadCheck):
    """Small random reads or writes with so many requests of each process in flight.

    A subclass sets ``access`` (``read``, ``write``) and ``depth``.
    """

    block = "4KiB"
    access: Literal["read", "write"]
    depth: int

    def quantities(self) -> Mapping[Metric, str]:
        """Return operations per second, and how long the median and the slowest requests took."""
        latencies = {
            Metric(f"{self.access}_{name}", "us", "less", tail=name != "p50"): f"latency_{name}"
            for name in ("p50", "p99", "p999")
        }
        return {Metric(f"{self.access}_iops", "ops/s"): "iops", **latencies}

    def timed_job(self, file_bytes: int) -> FioJob:
        """Return the random read of every check with more in flight, or a write in its place."""
        return replace(
            super().timed_job(file_bytes),
            name=f"rand{self.access}",
            pattern="randread" if self.access == "read" else "randwrite",
            engine="libaio",
            iodepth=self.depth,
            sync=False,
            fsync_at_end=self.access == "write",
            percentiles=True,
        )


class EnduranceCheck(FioCheck):
    """A long sequential write with O_DIRECT, over and over in the same files, and its series in time.

    It lasts for ``limits.phase_seconds``: a site declares hours for the check. A subclass sets
    ``transfer``, the bytes of a request.
    """

    transfer: int

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's mean, and what the counters of the first node make of it."""
        return {
            WRITE_BW: "bw",
            Metric("write_best_minute", "MiB/s"): "best_minute",
            Metric("write_worst_minute", "MiB/s"): "worst_minute",
            Metric("write_longest_dip", "s", "less", tail=True): "dip",
        }

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that have a quantity."""
        return tuple(self.quantities())

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, on all nodes of the scale."""
        return {**super().declared(), "nodes": self.site.scale.nodes}

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the mean of each minute of each repetition, by the seconds at which it begins."""
        if metric.name != "write_bw" or self._evidence is None:
            return ()
        found: list[dict[str, float]] = []
        for output in self._evidence.outputs.get("write", ()):
            series = output.parameters.get(SERIES)
            if isinstance(series, Series):
                mean = output.phases[0].rates["bw"].value / series.mean
                size = round(series.window_s / series.step_s)
                starts = range(0, len(series.windows), size)
                found.append({f"{n * series.step_s:g}": mean * series.windows[n] for n in starts})
        return found

    def plan(self) -> CasePlan:
        """Lay the files out, so that no write allocates, and write for the time of the limits."""
        case_bytes = self.site.limits.case_bytes
        file_bytes = case_bytes // self.total_tasks // self.transfer * self.transfer
        if file_bytes < self.transfer:
            enough = format_bytes(self.transfer * self.total_tasks)
            raise ValueError(
                f"limits.case_bytes is {case_bytes}: less than a transfer of {self.transfer} bytes for each "
                f"of {self.total_tasks} task(s); expected {enough} or more"
            )
        wanted_s = self.repetitions * self.site.limits.phase_seconds
        if wanted_s > self._time_limit_s:
            raise ValueError(
                f"{self.repetitions} repetition(s) of limits.phase_seconds take "
                f"{format_seconds(wanted_s)}, but the partition's time_limit is "
                f"{format_seconds(self._time_limit_s)}: raise it, or shorten the case"
            )
        layout = layout_job(directory=DIRECTORY, file_bytes=file_bytes, numjobs=self.tasks_per_node)
        job = replace(
            layout,
            name="write",
            block_bytes=self.transfer,
            runtime_s=self.site.limits.phase_seconds,
        )
        rates = {metric.name: quantity for metric, quantity in self.quantities().items()}
        access = Access(direction="write", o_direct=True, fsync=True)
        return self.fio_case(
            jobs=[layout, job],
            prepare=[self.fio_phase(layout, {}, LAID_OUT, repeated=False, verifies=LAYOUT_CHECKED)],
            repeat=[replace(self.fio_phase(job, rates, access), series=with_series)],
            # Its start is a small part of it.
            warm_up=False,
            held_bytes=layout.bytes_total * self.nodes,
            files=self.total_tasks,
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
    layout = layout_job(directory=DIRECTORY, file_bytes=file_bytes, numjobs=tasks)
    storm = metadata_job("filecreate", directory=DIRECTORY, files=files, numjobs=tasks)
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


class InterferenceCheck(OneNodeFioCheck):
    """A stream and a metadata storm of fio: one of them alone, beside the other, and alone again.

    A subclass sets ``measured``: ``stream``, sequential writes with O_DIRECT, or ``metadata``, creates of empty files.
    The other disturbs it. Each has as many processes as tasks. One fio runs both, so that one clock times both.
    """

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

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, with half of the tasks: the other half disturbs them."""
        declared = super().declared()
        return {**declared, "tasks_per_node": max(1, declared["tasks_per_node"] // 2)}

    @builtins.run_after("setup")
    def _one_process_a_node(self) -> None:
        self.num_tasks = self.num_tasks_per_node = 1
        self.num_cpus_per_task = min(2 * self.tasks_per_node, self.site.node.cores)

    def _phase(self, name: str, job: FioJob) -> PhasePlan:
        """Return a phase with its own metrics."""
        stream = self.measured == "stream"
        access = (
            Access(direction="write", o_direct=True, fsync=True)
            if stream
            else Access(direction="metadata")
        )
        rates = {f"{metric.name}_{name}": rate for metric, rate in self.quantities().items()}
        phase = self.fio_phase(replace(job, name=name), rates, access)
        return replace(phase, again=_ALONE if name == _AGAIN else None, data_bytes=None)

    def plan(self) -> CasePlan:
        """Lay the stream's files out once; then measure alone, disturbed, and alone again."""
        jobs = loads(self, self.transfer)
        other: Literal["metadata", "stream"] = "metadata" if self.measured == "stream" else "stream"
        own = jobs[self.measured]
        both = disturbed_jobs(replace(own, name=_DISTURBED), replace(jobs[other], name="disturber"))

        def parse(printed: Printed) -> ToolOutput:
            text = printed.result + printed.stdout + printed.stderr
            kind = "write" if self.measured == "stream" else "create"
            return parse_disturbed(text, _DISTURBED, "disturber", kind)

        disturbed = replace(
            self._phase(_DISTURBED, own),
            parse=parse,
            beside="write" if other == "stream" else "metadata",
            lasts_s=own.runtime_s + 2 * LEAD_S,
        )
        case = self.fio_case(
            jobs=[jobs["layout"], *(replace(own, name=name) for name in (_ALONE, _AGAIN))],
            prepare=[self.fio_phase(jobs["layout"], {}, LAID_OUT, repeated=False)],
            repeat=[self._phase(_ALONE, own), disturbed, self._phase(_AGAIN, own)],
            warm_up=False,
            held_bytes=jobs["layout"].bytes_total,
            files=self.tasks_per_node * (1 + jobs["metadata"].files),
            computed={
                f"{metric.name}_ratio": Computed(
                    sources=tuple(f"{metric.name}_{n}" for n in (_DISTURBED, _ALONE, _AGAIN)),
                    compute=_over_both,
                )
                for metric in self.quantities()
            },
        )
        return replace(case, inputs={**case.inputs, f"{_DISTURBED}.fio": both})


class InterferenceApartCheck(FioCheck):
    """The loads of :class:`InterferenceCheck` on different nodes: what one costs the other across the servers.

    A stream is measured on half of the nodes, rounded up, and the storm runs on the others. Creates are measured on the
    first node, because fio merges no percentiles of several nodes, and the stream runs on the others.
    """

    needs = FIO_METADATA
    measured: Literal["stream", "metadata"]
    transfer: int

    quantities = InterferenceCheck.quantities
    promise = InterferenceCheck.promise

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, on all nodes of the scale."""
        return {**super().declared(), "nodes": self.site.scale.nodes}

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
        stream, (first, last) = self.measured == "stream", self._on(self.measured)
        access = Access(direction="write", o_direct=True, fsync=True)
        kind = "write" if stream else "create"
        return replace(
            self._phase(name, (self.measured, name, f"fio-{name}.{REP}.json"), *others),
            rates={
                f"{metric.name}_{name}": (kind, rate) for metric, rate in self.quantities().items()
            },
            access=access if stream else Access(direction="metadata"),
            on_nodes=last - first + 1,
            again=_ALONE if name == _AGAIN else None,
        )

    def plan(self) -> CasePlan:
        """Lay the stream's files out once; then measure alone, disturbed, and alone again."""
        if self.nodes < 2:
            raise ValueError(
                "nodes is 1: expected two or more, because the loads run on different nodes; set scale.nodes"
            )
        first, last = self._on("stream")
        streams = last - first + 1
        jobs = loads(self, self.transfer, streams)
        other: Literal["metadata", "stream"] = "metadata" if self.measured == "stream" else "stream"
        own = jobs[self.measured]
        pair = disturbed_pair(replace(own, name=_DISTURBED), replace(jobs[other], name="disturber"))
        beside = f"disturber.{REP}"

        def parse(printed: Printed) -> ToolOutput:
            text = printed.result + printed.stdout + printed.stderr
            kind = "write" if self.measured == "stream" else "create"
            other_text = printed.files.get("fio.txt", "")
            return parse_apart(text, other_text, _DISTURBED, "disturber", kind)

        disturbed = replace(
            self._measured_phase(_DISTURBED, (other, "disturber", f"{beside}/fio.txt")),
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
            computed={
                f"{metric.name}_ratio": Computed(
                    sources=tuple(f"{metric.name}_{n}" for n in (_DISTURBED, _ALONE, _AGAIN)),
                    compute=_over_both,
                )
                for metric in self.quantities()
            },
        )


def _over_both(disturbed: Quantity, alone: Quantity, again: Quantity) -> Quantity:
    return Quantity(2 * disturbed.value / (alone.value + again.value), "1")


#: Large files of a data set.
_SHARDS: Final = 8


class SampleReadCheck(FioCheck):
    """Random reads of samples from a few large files, which all processes of all nodes read.

    A subclass sets ``sample``, the size of a read as text with a unit. The first node lays the
    files out, all of them at once.
    """

    sample: str

    def promise(self) -> tuple[Metric, ...]:
        """Return samples per second, and the bandwidth of the reads."""
        return (READ_IOPS, READ_BW)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, on all nodes of the scale."""
        return {**super().declared(), "nodes": self.site.scale.nodes}

    def plan(self) -> CasePlan:
        """Lay the files out once, then read for the time of the limits."""
        sample, limits = parse_bytes(self.sample), self.site.limits
        step = max(sample, 1 << 20)
        file_bytes = limits.case_bytes // _SHARDS // step * step
        if file_bytes < step:
            raise ValueError(
                f"limits.case_bytes is {limits.case_bytes}: less than {step} bytes for each of {_SHARDS} "
                f"files; expected {format_bytes(step * _SHARDS)} or more"
            )
        layout = layout_job(
            directory=DIRECTORY,
            file_bytes=file_bytes,
            numjobs=_SHARDS,
            checksum_bytes=CHECKED_BYTES,
        )
        read = random_read_job(
            directory=DIRECTORY,
            block_bytes=sample,
            file_bytes=file_bytes,
            numjobs=self.tasks_per_node,
            runtime_s=limits.phase_seconds,
        )
        layout = replace(layout, in_common=True)
        read = replace(read, files=_SHARDS, in_common=True)
        return self.fio_case(
            jobs=[layout, read],
            prepare=[self.fio_phase(layout, {}, LAID_OUT, repeated=False, on_all=False)],
            repeat=[
                self.fio_phase(
                    read,
                    {READ_IOPS.name: "iops", READ_BW.name: "bw"},
                    Access(direction="read", o_direct=True),
                    verifies=Verification(verification(CHECKED_BYTES), MISMATCH),
                )
            ],
            held_bytes=layout.bytes_total,
            files=_SHARDS,
        )
