"""Base classes of the scenarios that measure the layers below the file system: ceilings.

They write nothing to the target. Their cases still hold its lock, so that no other case is at work. A site allows
each layer by ``ceilings`` in a partition's extras.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from iogauge.cases.fio import OneNodeFioCheck
from iogauge.cases.storage import StorageCheck
from iogauge.core import words
from iogauge.core.measurement import (
    Metric,
    Phase,
    Quantity,
    Reference,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.units import format_bytes
from iogauge.plan.case import REP, Access, CasePlan, PhasePlan
from iogauge.tools.fio.options import TOKEN, arguments, duration
from iogauge.tools.fio.output import parse_json
from iogauge_extras.ceilings import iperf3

#: Timed, and nothing of it on the target.
_ELSEWHERE: Final = Access(direction="elsewhere")

#: The file with the plan of the streams.
_STREAMS: Final = "streams.json"

#: Requests in flight on a device that is read as fast as it can.
_DEVICE_DEPTH: Final = 32


class NetworkCeilingCheck(StorageCheck):
    """Streams of iperf3 between the nodes, each pair alone.

    A pair has as many connections as tasks on a node.
    """

    needs = words.IPERF
    own_processes = 1

    def promise(self) -> tuple[Metric, ...]:
        """Return the median of the pairs, and the slowest over it."""
        return (Metric(iperf3.PAIR_MEDIAN, "MiB/s"), Metric(iperf3.PAIR_SLOWEST, "1"))

    def standing_references(self) -> dict[str, Reference]:
        """Return the reference of the slowest pair: ``limits.max_deviation`` below the median."""
        return self.all_alike(iperf3.PAIR_SLOWEST)

    def probes(self, metric: Metric) -> Mapping[str, float]:
        """Return the median of every pair's rates, in MiB/s."""
        if metric.name != iperf3.PAIR_MEDIAN:
            return {}
        return _medians(self.outputs_of(iperf3.PHASE), "pairs")

    def plan(self) -> CasePlan:
        """Measure all pairs, or as many as the time of a phase allows; a turn takes a second or more."""
        nodes, seconds = self.nodes, int(self.site.limits.phase_seconds)
        self.need_nodes("streams go from one to another")
        distances = iperf3.distances_within(nodes, seconds)
        if not distances:
            raise ValueError(
                f"limits.phase_seconds is {seconds} s: {nodes} turns take a second or more each; set "
                f"cases.{type(self).__name__}.phase_seconds to {nodes} s or more"
            )
        planned = iperf3.StreamPlan(
            nodes=nodes,
            distances=distances,
            seconds=seconds // (nodes * distances),
            connections=self.tasks_per_node,
        )
        output = f"{iperf3.PHASE}.{REP}.json"

        deviation = self.site.limits.max_deviation
        phase = PhasePlan(
            name=iperf3.PHASE,
            command=["streams", _STREAMS, output],
            launch="nodes",
            parse=lambda printed: iperf3.parse(printed.result, planned, deviation),
            rates={
                metric.name: (iperf3.PHASE, metric.name) for metric in self.promise()
            },
            access=_ELSEWHERE,
            output=output,
        )
        return self.case(
            "iperf3",
            [phase],
            inputs={_STREAMS: json.dumps(planned.to_json())},
            warm_up=False,
            held_bytes=0,
            files=0,
        )


def _medians(outputs: Sequence[ToolOutput], key: str) -> dict[str, float]:
    """Return the median of each rate by its name, over the outputs of all repetitions."""
    rates: dict[str, list[float]] = {}
    for output in outputs:
        of_output: Any = output.parameters[key]
        for name, rate in of_output.items():
            rates.setdefault(name, []).append(rate)
    return {name: statistics.median(values) for name, values in rates.items()}


DEVICES_BW: Final = Metric("devices_bw", "MiB/s")
DEVICES_SLOWEST: Final = Metric("devices_slowest", "1")


class DeviceCeilingCheck(OneNodeFioCheck):
    """Reads of the target's block devices by fio, past the file system and the page cache, all devices at once.

    fio runs with ``--readonly``, which refuses every job that writes.
    """

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidth of all devices, and the slowest over their median."""
        return (DEVICES_BW, DEVICES_SLOWEST)

    def standing_references(self) -> dict[str, Reference]:
        """Return the reference of the slowest device: ``limits.max_deviation`` below the median."""
        return self.all_alike(DEVICES_SLOWEST.name)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one task: fio has a process for each device."""
        return {**super().declared(), "tasks_per_node": 1}

    def probes(self, metric: Metric) -> Mapping[str, float]:
        """Return the median of every device's rates, in MiB/s."""
        if metric != DEVICES_BW:
            return {}
        return _medians(self.outputs_of("devices"), "devices")

    def plan(self) -> CasePlan:
        """Read all devices from their beginnings for the time that the limits give."""
        devices: tuple[str, ...] = ()
        if self.site.ceilings:
            devices = self.site.ceilings.devices
        if not devices or self.total_tasks != 1:
            raise ValueError(
                f"ceilings.devices names {len(devices)} device(s), tasks_per_node is {self.tasks_per_node}: "
                "expected a device and one task; name the target's devices, and leave tasks_per_node alone"
            )
        options = ["ioengine=libaio", f"iodepth={_DEVICE_DEPTH}", "direct=1", "rw=read"]
        seconds = duration(self.site.limits.phase_seconds)
        options += ["bs=1m", "time_based=1", f"runtime={seconds}"]
        lines: list[str] = []
        for number, device in enumerate(devices):
            lines += [f"[device{number}]", f"description={TOKEN}"]
            lines += [f"filename={device}", *options]
        output = f"fio-devices.{REP}.json"
        phase = PhasePlan(
            name="devices",
            command=["fio", "--readonly", *arguments("devices.fio", output)],
            parse=lambda printed: _of_devices(
                devices, printed.result + printed.stdout + printed.stderr
            ),
            rates={metric.name: ("devices", metric.name) for metric in self.promise()},
            access=_ELSEWHERE,
            output=output,
            of_devices=True,
        )
        case = self.fio_case(
            jobs=[], repeat=[phase], warm_up=False, held_bytes=0, files=0
        )
        return replace(case, inputs={"devices.fio": "\n".join(lines) + "\n"})


def _of_devices(devices: tuple[str, ...], text: str) -> ToolOutput:
    """Return fio's report of all devices as one phase; raises ToolOutputError."""
    names = {f"device{number}": device for number, device in enumerate(devices)}
    output = parse_json(text, names)
    rates = {phase.name: phase.rates["bw"].value for phase in output.phases}
    if set(rates) != set(devices):
        raise ToolOutputError(
            f"fio JSON: {', '.join(rates)}, expected {', '.join(devices)}"
        )
    together, slowest = sum(rates.values()), min(rates, key=lambda name: rates[name])
    phase = Phase(
        "devices",
        {
            DEVICES_BW.name: Quantity(together, "MiB/s"),
            DEVICES_SLOWEST.name: Quantity(
                rates[slowest] / statistics.median(rates.values()), "1"
            ),
        },
        max(phase.seconds for phase in output.phases),
        bytes_moved=sum(phase.bytes_moved or 0 for phase in output.phases),
    )
    said = f"{len(rates)} device(s), slowest is {slowest}: {format_bytes(rates[slowest] * 2**20)}/s"
    return replace(
        output,
        phases=(phase,),
        parameters={**output.parameters, "devices": rates},
        notes={DEVICES_SLOWEST.name: said},
    )
