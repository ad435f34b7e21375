"""The latencies of md-workbench.

Written against the md-workbench of IOR 4.0.0 and 4.1.0+dev (``src/md-workbench.c``). Each task makes
objects in its own directories. In the timed phase it takes objects of another task in turn: it stats
one, reads it, removes it, and makes another. The latencies are those of all tasks together; a
quantile is the smallest time that so many operations did not exceed.
"""

from __future__ import annotations

import re
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.parsing import COMPLAINT, excerpt, local_moment, unique

#: Operations on each object, in the order in which they are done.
OPERATIONS: Final = ("stat", "read", "delete", "create")
#: What is printed of each operation's latencies.
_QUANTILES: Final = ("min", "p25", "p50", "p75", "p90", "p99", "max")

_ARGS: Final = re.compile(r"(?m)^Args: (\S+)(.*)$")
_NODEMAP: Final = re.compile(r"(?m)^Nodemap: ([01]{1,1000000})\s*$")
_START: Final = re.compile(
    r"(?m)^MD-Workbench total objects: \d{1,18} .*\(version: (\S{1,40})\) time: (\S+ \S+)\s*$"
)
_END: Final = re.compile(r"(?m)^Total runtime: \d{1,9}s time: (\S+ \S+)\s*$")
_PHASE: Final = re.compile(r"(?m)^(precreate|benchmark|cleanup) process (.*)$")
#: The seconds of the longest task, then in any order the objects, their rate and the errors.
_FIGURES: Final = re.compile(
    r"max:(\d{1,9}\.\d\d)s (?=.*\bobjects:(\d{1,18})\b)(?=.*\brate:(\d{1,15}\.\d) obj/s)(?=.*\((\d{1,18}) errs)"
)
#: What the digits of seconds and of a rate may leave out.
_HUNDREDTH_S: Final = 0.01
_ROUNDED: Final = 0.1
_TIME: Final = r"(\d\.\d{4}e[+-]\d{2})s"
_LATENCIES: Final = re.compile(rf"\b(\w+)\({', '.join([_TIME] * len(_QUANTILES))}\)")


def parse(text: str) -> ToolOutput:
    """Parse what md-workbench printed: phases ``precreate``, ``benchmark`` and ``cleanup``.

    ``rates`` has ``rate``, objects in a second. Of ``benchmark`` it also has ``stat_p50``,
    ``read_p99`` and so on, in microseconds. ``parameters`` has ``shift``, the ranks between a task and
    the one whose objects it took. Raises :class:`ToolOutputError` if a phase is missing, or if an
    operation failed.
    """
    if not text.strip():
        raise ToolOutputError(
            "md-workbench printed nothing: it failed before its first phase"
        )
    args, started, ended = _ARGS.findall(text), _START.findall(text), _END.findall(text)
    if not len(args) == len(started) == len(ended) == 1:
        raise ToolOutputError(
            f"md-workbench: {len(started)} starts and {len(ended)} ends of a run, expected 1 of each: it is "
            f"cut off; last line {excerpt(text.rstrip().splitlines()[-1])!r}"
        )
    found = _PHASE.findall(text)
    if [name for name, _ in found] != ["precreate", "benchmark", "cleanup"]:
        names = ", ".join(name for name, _ in found) or "none"
        raise ToolOutputError(
            f"md-workbench: expected precreate, benchmark and cleanup, found {names}"
        )
    words = re.findall(r'"([^"]*)"', args[0][1])
    offsets = [int(word[3:]) for word in words if re.fullmatch(r"-O=\d{1,9}", word)]
    nodemap = _NODEMAP.search(text)
    return ToolOutput(
        tool="md-workbench",
        version=started[0][0],
        phases=tuple(_latency_phase(name, line) for name, line in found),
        tasks=len(nodemap[1]) if nodemap else None,
        command=" ".join([args[0][0], *words]),
        warnings=unique(COMPLAINT.findall(text)),
        parameters={"shift": offsets[0]} if len(offsets) == 1 else {},
        moments=(
            local_moment("start", started[0][1], "md-workbench"),
            local_moment("end", ended[0], "md-workbench"),
        ),
    )


def _latency_phase(name: str, line: str) -> Phase:
    figures = _FIGURES.match(line)
    longest_s, count, rate, errors = (
        map(float, figures.groups()) if figures else [0.0] * 4
    )
    if not rate or not count:
        raise ToolOutputError(
            f"md-workbench: {name}: expected seconds, objects and a rate above 0, found {excerpt(line)}"
        )
    total_s, objects = count / rate, int(count)
    if abs(total_s - longest_s) > _HUNDREDTH_S + _ROUNDED / rate * total_s:
        raise ToolOutputError(
            f"md-workbench: {name}: {objects} objects at {rate} objects/s take {total_s:.2f} s, but its longest "
            f"task took {longest_s} s; the output is damaged"
        )
    if errors:
        raise ToolOutputError(f"md-workbench: {name}: {errors:.0f} operations failed")
    rates = {"rate": Quantity(rate, "ops/s")}
    if name == "benchmark":
        times = {match[1]: match.groups()[1:] for match in _LATENCIES.finditer(line)}
        if missing := [operation for operation in OPERATIONS if operation not in times]:
            said = excerpt(line, width=400)
            raise ToolOutputError(f"md-workbench: no latencies of {missing[0]}: {said}")
        for operation in OPERATIONS:
            for quantile, seconds in zip(_QUANTILES, times[operation], strict=True):
                if (
                    float(seconds) > 0
                ):  # its clock cannot tell less than a microsecond from none
                    rates[f"{operation}_{quantile}"] = Quantity(
                        float(seconds) * 1e6, "us"
                    )
    done = objects * (len(OPERATIONS) if name == "benchmark" else 1)
    return Phase(name, rates, total_s, operations=done)
