"""Two jobs of fio at the same time: their files, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from iogauge.core.measurement import Disturber, ToolOutput, ToolOutputError
from iogauge.tools.fio.options import FioJob
from iogauge.tools.fio.output import parse_json

#: Seconds for which a disturber runs before and after the measured job.
LEAD_S: Final = 1
#: The same on different nodes: their servers do not begin at the same moment.
APART_LEAD_S: Final = 3


def disturbed_pair(
    measured: FioJob, disturber: FioJob, lead_s: int
) -> tuple[FioJob, FioJob]:
    """Return a job and its disturber, which begins ``lead_s`` seconds before it, and ends as much after it."""
    longer = replace(disturber, runtime_s=measured.runtime_s + 2 * lead_s)
    return replace(measured, delay_s=lead_s), longer


def side_by_side(*pair: FioJob) -> str:
    """Return the text of two jobs at the same time on one node, each with a report of its own.

    A job that works on files of a layout job comes first: ``$jobnum`` counts over all jobs of the file.
    """
    first, second = sorted(pair, key=lambda job: job.metadata)
    return f"{first.job_file()}{second.job_file()}new_group=1\n"


def parse_disturbed(
    text: str, measured: str, disturber: str, name: str, apart: str = ""
) -> ToolOutput:
    """Parse the output of two jobs that ran at the same time; ``measured`` and ``disturber`` are their names.

    The phase of the measured job gets ``name``, and its options are those of ``parameters``. The other becomes the
    output's disturber. On one node its lead is the difference of both starts if fio tells them. Else it is the delay that
    fio was asked for, before which it starts no job. ``apart`` is the output of a disturber on other nodes. Two servers
    have no common clock, but their clients have: that of the first node, in whole seconds. The lead is the delay that
    fio was asked for, and the time between the dates of both clients. The second by which they may be cut is taken off.
    Raises :class:`ToolOutputError` as :func:`parse_json`, and if a job is missing.
    """
    names = {measured: name, disturber: disturber}
    outputs = [parse_json(text, names)]
    if apart:
        outputs.append(parse_json(apart, names))
    output, other = outputs[0], outputs[-1]
    phases = {phase.name: phase for out in outputs for phase in out.phases}
    own_names = [phase.name for phase in output.phases]
    if set(phases) != {name, disturber} or name not in own_names:
        raise ToolOutputError(
            f"fio JSON: phases {sorted(phases)}, expected {sorted((name, disturber))}"
        )
    lead, starts = float(LEAD_S), output.parameters["starts"]
    assert isinstance(starts, dict)
    if apart:
        lead = APART_LEAD_S + _began(output) - _began(other) - 1
    elif len(starts) == 2:
        lead = starts[measured] - starts[disturber]
    jobs: Any = {}
    for out in outputs:
        jobs |= out.parameters["jobs"]
    own, beside = jobs[measured], phases[disturber]
    processes = int(jobs[disturber].get("numjobs", "1")) * (other.nodes or 1)
    half_seconds: Any = other.parameters["half_seconds"]
    share = half_seconds[disturber] / (2 * beside.seconds * processes)
    parameters = {**output.parameters, **own, "jobs": jobs}
    parameters["engine"] = own.get("ioengine", "psync")
    return replace(
        output,
        tasks=_sum([out.tasks for out in outputs]),
        nodes=_sum([out.nodes for out in outputs]),
        parameters=parameters,
        phases=(phases[name],),
        warnings=tuple(chain.from_iterable(out.warnings for out in outputs)),
        moments=tuple(chain.from_iterable(out.moments for out in outputs)),
        totals={"write": sum(phase.bytes_moved or 0 for phase in phases.values())},
        disturber=Disturber(beside, lead, share),
    )


def _began(output: ToolOutput) -> float:
    """Return when a client began, in seconds since the epoch."""
    return next(m.seconds for m in output.moments if m.name == "timestamp")


def _sum(counts: Sequence[int | None]) -> int | None:
    if None in counts:
        return None
    return sum(filter(None, counts))
