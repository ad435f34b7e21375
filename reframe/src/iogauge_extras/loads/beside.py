"""Two jobs of fio at the same time: their files, and what they print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from iogauge.core.measurement import Disturber, Phase, ToolOutput, ToolOutputError
from iogauge.tools.fio.options import FioJob
from iogauge.tools.fio.output import parse_json

#: Seconds for which a disturber runs before and after the measured job.
LEAD_S: Final = 1
#: The same on different nodes: their servers do not begin at the same moment.
APART_LEAD_S: Final = 3


def disturbed_pair(
    measured: FioJob, disturber: FioJob, lead_s: int = APART_LEAD_S
) -> tuple[FioJob, FioJob]:
    """Return a job and its disturber, which begins ``lead_s`` seconds before it, and ends as much after it."""
    longer = replace(disturber, runtime_s=measured.runtime_s + 2 * lead_s)
    return replace(measured, delay_s=lead_s), longer


def disturbed_jobs(measured: FioJob, disturber: FioJob) -> str:
    """Return the text of two jobs at the same time on one node, each with a report of its own.

    The disturber begins :data:`LEAD_S` before the measured job, and ends as much after it. A job that works on files of a layout job comes first: ``$jobnum`` counts over all jobs of the file.
    """
    pair = disturbed_pair(measured, disturber, LEAD_S)
    first, second = sorted(pair, key=lambda job: job.metadata)
    return f"{first.job_file()}{second.job_file()}new_group=1\n"


def parse_disturbed(text: str, measured: str, disturber: str, name: str) -> ToolOutput:
    """Parse the output of two jobs that ran at the same time; the arguments are their names.

    The phase of the measured job gets ``name``, and its options are those of ``parameters``. The other becomes the
    output's disturber. Its lead is the difference of both starts if fio tells them. Else it is the delay that fio
    was asked for, before which it starts no job. Raises :class:`ToolOutputError` as :func:`parse_json`, and if a
    job is missing.
    """
    output = parse_json(text, {measured: name, disturber: disturber})
    phases = {phase.name: phase for phase in output.phases}
    if set(phases) != {name, disturber}:
        raise ToolOutputError(
            f"fio JSON: phases {sorted(phases)}, expected {sorted((name, disturber))}"
        )
    jobs: Any = output.parameters["jobs"]
    starts: Any = output.parameters["starts"]
    lead = starts[measured] - starts[disturber] if len(starts) == 2 else float(LEAD_S)
    own = {**jobs[measured], "engine": jobs[measured].get("ioengine", "psync")}
    return replace(
        output,
        parameters={**output.parameters, **own},
        phases=(phases[name],),
        totals={"write": sum(phase.bytes_moved or 0 for phase in phases.values())},
        disturber=_disturber(output, phases[disturber], lead),
    )


def _disturber(output: ToolOutput, phase: Phase, lead_s: float) -> Disturber:
    """Return what a job of the phase's name did in an output, and the share of half-seconds in which it worked."""
    told: Any = output.parameters
    processes = int(told["jobs"][phase.name].get("numjobs", "1")) * (output.nodes or 1)
    windows = 2 * phase.seconds * processes
    return Disturber(phase, lead_s, told["half_seconds"][phase.name] / windows)


def parse_apart(text: str, beside: str, measured: str, disturber: str, name: str) -> ToolOutput:
    """Parse the outputs of two jobs that ran at the same time on different nodes, as :func:`parse_disturbed`.

    Two servers have no common clock, but their clients have: that of the first node, in whole seconds. The lead is
    the delay that fio was asked for, and the time between the dates of both clients. The second by which they may
    be cut is taken off.
    """
    output, other = parse_json(text, {measured: name}), parse_json(beside, {disturber: disturber})
    if [phase.name for phase in (*output.phases, *other.phases)] != [name, disturber]:
        raise ToolOutputError(
            f"fio JSON: phases {[phase.name for phase in (*output.phases, *other.phases)]}, expected one of each job"
        )
    (phase,) = other.phases
    began, beside_began = (
        next(one.seconds for one in out.moments if one.name == "timestamp")
        for out in (output, other)
    )
    lead = APART_LEAD_S + began - beside_began - 1
    jobs: Any = [out.parameters["jobs"] for out in (output, other)]
    both = (*output.phases, phase)
    return replace(
        output,
        tasks=None
        if None in (output.tasks, other.tasks)
        else (output.tasks or 0) + (other.tasks or 0),
        nodes=(output.nodes or 0) + (other.nodes or 0),
        parameters={**output.parameters, "jobs": jobs[0] | jobs[1]},
        warnings=(*output.warnings, *other.warnings),
        moments=(*output.moments, *other.moments),
        totals={"write": sum(one.bytes_moved or 0 for one in both)},
        disturber=_disturber(other, phase, lead),
    )
