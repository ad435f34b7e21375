"""The scenario that writes and creates on all clients while a part of the storage is taken away and brought back."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

from iogauge.cases.storage import StorageCheck
from iogauge.core import untrusted
from iogauge.core.measurement import (
    Metric,
    Phase,
    Quantity,
    Reference,
    ToolOutput,
    ToolOutputError,
    Unsettled,
)
from iogauge.plan.case import AGENT, DIR, Access, CasePlan, PhasePlan
from iogauge_extras.loads.blocks import BLOCK_BYTES
from iogauge_extras.loads.client_stream import (
    BATCH,
    CHECKED,
    PARTS,
    STALLED_S,
    STEP_S,
    UNENDED,
    WRITTEN,
    Checked,
    StreamPlan,
    Written,
)

#: The file with the plan of the streams.
_PLAN = "stream.json"
#: Share of the old bandwidth at which the target counts as recovered, and the seconds for which it must hold.
_RECOVERED = 0.95
_HOLDS_S = 5.0
#: A measurement is positive: so little stands for nothing.
_NOTHING = 1e-6

_METRICS = (
    Metric("outage_s", "s", "less", tail=True),
    Metric("outage_median_s", "s", "less"),
    Metric("recovery_s", "s", "less", tail=True),
    Metric("succeeded", "1"),
    Metric("before_bw", "MiB/s"),
    Metric("meanwhile_bw", "MiB/s"),
    Metric("rebuild_bw", "MiB/s"),
    Metric("after_bw", "MiB/s"),
)
_INTACT = Metric("intact", "1")

#: Files that a client makes in a second at most.
_FILES_S = 40

_Report = TypeVar("_Report", Written, Checked)


def _reports(
    texts: Mapping[str, str], kind: type[_Report], clients: int
) -> list[_Report]:
    """Return the reports of all clients, by host; raises ToolOutputError."""
    found: dict[str, _Report] = {}
    try:
        for text in texts.values():
            report = kind.from_json(untrusted.parse_json(text))
            found[report.host] = report
    except (ValueError, TypeError) as error:
        raise ToolOutputError(f"failover: a report is damaged: {error}") from error
    if len(found) != clients:
        raise ToolOutputError(
            f"failover: reports of {len(found)} client(s), expected {clients}"
        )
    return [found[host] for host in sorted(found)]


def _output(reports: Sequence[Written] | Sequence[Checked], phase: Phase) -> ToolOutput:
    """Return an output of one phase."""
    return ToolOutput(
        tool="failover",
        version="1",
        phases=(phase,),
        tasks=len(reports),
        nodes=len(reports),
        command=" ".join(reports[0].words),
    )


def _mean(rates: Sequence[float], begin_s: float, end_s: float) -> float:
    """Return the mean of the steps that begin between two times; without any, nothing counts as a millionth."""
    steps = rates[round(begin_s / STEP_S) : round(end_s / STEP_S)]
    return max(_NOTHING, statistics.fmean(steps or [0.0]))


def _failure(reports: Sequence[Written]) -> tuple[float, float]:
    """Return when the failure began and was mended: as long as the site's command ran, else the longest outage.

    Raises ToolOutputError if the command did not end well, or nothing was taken away.
    """
    for report in reports:
        if report.marks:
            begin, end, status = report.marks
            if status == UNENDED:
                raise ToolOutputError(
                    f"failover: the site's command ran for more than {end - begin:.0f} s, and may run still: raise "
                    "limits.phase_seconds"
                )
            if status:
                raise ToolOutputError(
                    f"failover: the site's command ended with status {status}: read write.1.err in the stage directory"
                )
            return begin, end
    begin, outage_s = max((report.gap for report in reports), key=lambda gap: gap[1])
    if outage_s < STALLED_S and not any(report.errors for report in reports):
        raise ToolOutputError(
            f"failover: no command ran to its end, no call failed, and the longest outage was {outage_s:.1f} s: nothing was "
            "taken away"
        )
    return begin, begin + outage_s


def parse_stream(texts: Mapping[str, str], clients: int) -> ToolOutput:
    """Return the reports of the streams as one phase; raises ToolOutputError.

    Its rates are the metrics. ``outage_s`` is the longest time without an acknowledgement on any client,
    ``outage_median_s`` the median of all clients. ``recovery_s`` is the time from the failure until the bandwidth is 95 %
    of that before for five seconds. ``succeeded`` is the share of calls without an error. The bandwidths are those of all
    clients together: until the failure, until it is mended, until the recovery, and after it.
    """
    reports = _reports(texts, Written, clients)
    rates: list[float] = []
    for step in zip_longest(*(report.steps for report in reports), fillvalue=0):
        rates.append(sum(step) / STEP_S / 2**20)
    seconds = len(rates) * STEP_S
    failed_s, mended_s = _failure(reports)
    gaps = [report.gap[1] for report in reports]
    worst = reports[gaps.index(max(gaps))]
    stalled_s, outage_s = worst.gap
    before = _mean(rates, 1.0, failed_s)
    recovered_s = max(mended_s, stalled_s + outage_s)
    marks = {"fails": failed_s, "mended": mended_s, "as before": recovered_s}
    notes = {
        "outage_s": f"on {worst.host}, after {stalled_s:.1f} s; it failed after {failed_s:.1f} s"
    }
    unsettled = {}
    while _mean(rates, recovered_s, recovered_s + _HOLDS_S) < _RECOVERED * before:
        recovered_s += STEP_S
        marks["as before"] = recovered_s
        if recovered_s + _HOLDS_S > seconds:
            why = f"not {_RECOVERED:.0%} of {before:.0f} MiB/s again within {seconds - failed_s:.0f} s: raise limits.phase_seconds"
            notes["recovery_s"] = why
            unsettled["recovery_s"] = Unsettled(math.inf, why)
            for name in ("rebuild_bw", "after_bw"):
                unsettled[name] = Unsettled(_NOTHING, why)
            del marks["as before"]
            break
    calls, errors = 0, list[str]()
    for report in reports:
        calls += sum(report.steps) // BLOCK_BYTES + report.created
        errors += [f"{report.host}: {error}" for error in report.errors]
    values = (
        outage_s,
        statistics.median(gaps),
        max(STEP_S, recovered_s - failed_s),
        calls / (calls + len(errors)),
        before,
        _mean(rates, failed_s, mended_s),
        _mean(rates, mended_s, max(recovered_s, mended_s + _HOLDS_S)),
        _mean(rates, recovered_s, seconds),
    )
    quantities = {}
    for metric, value in zip(_METRICS, values, strict=True):
        quantities[metric.name] = Quantity(value, metric.unit)
    phase = Phase(
        "write",
        quantities,
        max(report.seconds for report in reports),
        bytes_moved=sum(report.bytes for report in reports),
    )
    seen = [f"{len(errors)} error(s) seen by programs", *errors[:1]]
    notes["succeeded"] = "; ".join(seen)
    return replace(
        _output(reports, phase),
        notes=notes,
        parameters={"bandwidths": rates, "marks": marks},
        unsettled=unsettled,
    )


def parse_check(texts: Mapping[str, str], clients: int) -> ToolOutput:
    """Return what the clients found of each other's data as one phase; wrong data are warnings. Raises ToolOutputError."""
    reports = _reports(texts, Checked, clients)
    blocks = sum(report.blocks for report in reports)
    every = blocks + sum(report.files for report in reports)
    wrong = sum(len(report.wrong) for report in reports)
    warnings = []
    for report in reports:
        if report.wrong:
            warnings.append(
                f"{len(report.wrong)} of {report.blocks} blocks and {report.files} files that {report.of} had acknowledged "
                f"with fsync are wrong, as {report.host} reads them: {', '.join(report.wrong[:3])}"
            )
    if not blocks:
        raise ToolOutputError("failover: nothing was acknowledged")
    phase = Phase(
        "read",
        {_INTACT.name: Quantity(max(_NOTHING, 1 - wrong / every), "1")},
        max(report.seconds for report in reports),
        bytes_moved=blocks * BLOCK_BYTES,
    )
    return replace(
        _output(reports, phase),
        notes={_INTACT.name: f"{every} blocks and files, {wrong} wrong"},
        parameters={"shift": int(all(one.of != one.host for one in reports))},
        warnings=tuple(warnings),
    )


class FailoverCheck(StorageCheck):
    """A verified stream and creates on each node, while the site's command, or somebody, lets a part of the storage fail.

    Afterwards each node reads what the next one acknowledged; on one node its page cache is emptied before.
    """

    def promise(self) -> tuple[Metric, ...]:
        """Return the outages, the recovery, the errors, the bandwidths, and the share of the data that is there."""
        return (*_METRICS, _INTACT)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one task a node, and one failure."""
        return {**super().declared(), "tasks_per_node": 1, "repetitions": 1}

    def standing_references(self) -> dict[str, Reference]:
        """Return the reference of the data: all that was acknowledged is there."""
        reference = Reference(1.0, 0.0, None, "1", "what fsync promises")
        return {_INTACT.name: reference}

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the bandwidth of all clients over time, by the second; with the outage the seconds of what happened."""
        found: list[Mapping[str, float]] = []
        for output in self.outputs_of("write"):
            rates: Any = output.parameters["bandwidths"]
            marks: Any = output.parameters["marks"]
            if metric.name == "before_bw":
                found.append({f"{n * STEP_S:g}": rate for n, rate in enumerate(rates)})
            elif metric.name == "outage_s":
                found.append(marks)
        return found

    def plan(self) -> CasePlan:
        """Write for the time of the limits; raises ValueError if it leaves no room around the failure."""
        failover, limits, clients = self.site.failover, self.site.limits, self.nodes
        assert failover  # a partition without it has no case
        seconds = limits.phase_seconds
        batches = limits.case_bytes // BLOCK_BYTES // clients // PARTS // BATCH
        # Beside them a client has a file of data, a directory, and a batch that is late.
        more = BATCH + 2
        files = min(int(_FILES_S * seconds), limits.case_files // clients - more)
        least_s = failover.after + 2 * _HOLDS_S
        if seconds < least_s or min(batches, files) < 1:
            raise ValueError(
                f"expected limits.phase_seconds of {least_s:g} s or more, and for each of {clients} client(s) "
                f"{PARTS * BATCH} MiB of case_bytes and {more + 1} of case_files; set cases.{type(self).__name__}"
            )
        stream = StreamPlan(
            seconds=seconds,
            after=failover.after,
            blocks=batches * BATCH,
            files=files,
            command=failover.command,
        )
        write = PhasePlan(
            name="write",
            command=[AGENT, "failover", "write", DIR, _PLAN],
            launch="tasks",
            parse=lambda printed: parse_stream(printed.files, clients),
            folder=WRITTEN,
            rates={metric.name: ("write", metric.name) for metric in _METRICS},
            access=Access(direction="write", fsync=True),
            pauses=True,
        )
        access = Access(direction="read", evict=True)
        if clients > 1:
            access = Access(direction="read", task_offset=1)
        check = replace(
            write,
            name="check",
            command=[AGENT, "failover", "check", DIR],
            parse=lambda printed: parse_check(printed.files, clients),
            folder=CHECKED,
            rates={_INTACT.name: ("read", _INTACT.name)},
            access=access,
            pauses=False,
            follows=True,
        )
        held = stream.blocks * PARTS * BLOCK_BYTES * clients
        plan = self.case("failover", [write, check], held, (files + more) * clients)
        inputs = {_PLAN: json.dumps(stream.to_json())}
        # A command of the site lets the storage fail once.
        return replace(
            plan, inputs=inputs, checks_all=True, warm_up=False, repetitions=1
        )
