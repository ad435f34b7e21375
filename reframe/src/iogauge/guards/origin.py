"""Guards of the origin (G22): whether an output is of the execution that it is judged for (its words, its token, its dates),
and of the tool that was planned; what stands between the tool and the kernel.
"""

from __future__ import annotations

import configparser
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import zip_longest
from pathlib import PurePath
from typing import Any, Final

from iogauge.core.measurement import Moment
from iogauge.evidence.fingerprint import fold
from iogauge.evidence.model import ClockReading
from iogauge.evidence.times import jobs_at_once
from iogauge.guards.finding import Finding
from iogauge.guards.rules import rule
from iogauge.guards.views import SLACK_S, UNHEARD, CaseView, Execution, PhaseView
from iogauge.node import between
from iogauge.node.between import is_known, lie_of
from iogauge.plan.case import DIR, REP, TOKEN, PhasePlan
from iogauge.plan.stage import PhaseRun

#: Zones lie whole quarters of an hour from UTC, 14 hours at most (tzdata).
_ZONES_S: Final = 900
_FARTHEST_S: Final = 14 * 3600

#: Characters of an option's value that fio's servers report (``struct cmd_job_option``, server.h).
_FIO_CUTS_AT: Final = 127
#: Characters of its command that mdtest prints (``VerboseMessage``, mdtest.c).
_MDTEST_CUTS_AT: Final = 1023 - len("Command line used: ")


def _all_of(case: CaseView) -> Iterator[Execution]:
    """Yield every execution of a case that left an output, the warm-up included."""
    for seen in (PhaseView(case, phase) for phase in case.plan.phases):
        yield from seen.executions
        for output in case.evidence.cold.get(seen.phase.name, ()):
            yield Execution(seen, 0, output, UNHEARD)


def objection(one: Execution) -> str:
    """Return why an output is not of its execution; empty if it is."""
    command, output, plan = one.output.command.split(), one.output, one.case.plan
    said = PurePath(command[0]).name if command else output.tool
    # The phase whose execution includes this one. Darshan's log repeats the words of the tool that it watched, an earlier phase.
    phase = next(
        (p for p in plan.phases if p.name == one.seen.phase.within), one.seen.phase
    )
    watched = (
        [p for p in plan.repeat if said in _names(p)]
        if output.tool == "darshan"
        else []
    )
    for candidate in watched or [phase]:
        run = one.run(candidate)
        differs = _differs(one, candidate, run, said) if run else ""
        if not differs:
            break
    number = (
        f"repetition {one.repetition}" if one.repetition else "before the repetitions"
    )
    if run is None:
        wrong = "phases.tsv has no time of this execution"
    elif differs:
        wrong = f"it says {differs}"
    else:
        wrong = _out_of_time(output.moments, run, one.case.evidence.clocks)
    return wrong and f"{one.seen.phase.name}, {number}: {wrong}"


def _differs(one: Execution, phase: PhasePlan, run: PhaseRun, said: str) -> str:
    """Return the first difference between the words of a phase and those of the output."""
    own = (
        (DIR, one.case.evidence.directory),
        (REP, str(one.repetition)),
        (TOKEN, run.token),
    )

    def filled(text: str) -> str:
        for name, value in own:
            text = text.replace(name, value).replace(f"${{{name[1:]}}}", value)
        return re.sub("//+", "/", text)

    output = one.output
    more = phase.verifies.words if phase.verifies and one.repetition == 0 else ()
    if output.tool in ("fio", "io500"):
        jobs: Any = output.parameters["jobs"]
        planned = "".join(one.case.plan.inputs.get(word, "") for word in phase.command)
        given = {word.strip("-").partition("=")[0] for word in more}
        whole = given if output.tool == "fio" else None
        return _other_options(_sections(filled(planned)), jobs, whole)
    if said not in _names(phase):
        return ""
    asked = [*phase.command[_names(phase).index(said) + 1 :], *more]
    words = [filled(word) for word in asked]
    # mdtest quotes its words
    reported = [word.strip("'") for word in output.command.split()[1:]]
    if len(output.command) >= _MDTEST_CUTS_AT and output.tool == "mdtest":
        words = words[: len(reported)]
        words[-1] = words[-1][: len(reported[-1])]
    for want, got in zip_longest(words, reported, fillvalue="nothing"):
        if want != re.sub("//+", "/", got):
            return f"{got!r} instead of {want!r}"
    return ""


def _names(phase: PhasePlan) -> list[str]:
    return [PurePath(word).name for word in phase.command]


def _sections(job_file: str) -> dict[str, dict[str, str | None]]:
    """Return the options of fio's jobs by their names, None for a word without a value."""
    parser = configparser.ConfigParser(
        delimiters="=", allow_no_value=True, interpolation=None
    )
    parser.read_string(job_file)
    return {name: dict(parser[name]) for name in parser.sections()}


def _other_options(
    planned: Mapping[str, Mapping[str, str | None]],
    jobs: Mapping[str, Mapping[str, str]],
    beside: Collection[str] | None,
) -> str:
    """Return how the options of jobs differ from the planned ones; ``beside`` those may be others, any if it is None."""
    for name, options in planned.items():
        of_job, told = f" in job {name}" if len(planned) > 1 else "", jobs.get(name, {})
        for option, want in options.items():
            got = told.get(option, "nothing")
            said = re.sub("//+", "/", got)
            cut = len(got) == _FIO_CUTS_AT and (want or "").startswith(said)
            if want not in (None, said) and not cut:
                return f"{option}={got}{of_job} instead of {option}={want}"
        more = () if beside is None else told.keys() - options.keys() - set(beside)
        if more:
            return f"{min(more)}={told[min(more)]}{of_job} instead of no such option"
    return ""


def _out_of_time(
    moments: Sequence[Moment], run: PhaseRun, clocks: Sequence[ClockReading]
) -> str:
    """Return which of a tool's dates lies outside an execution; empty if none does.

    The nodes' clocks may differ, and may be set during the job. So a date is believed if it lies
    within the execution by any look at a clock, or between two looks. The tool's zone may be another than the job
    script's, as in a container: a local date is believed in any zone.
    """
    if not clocks:
        return "the dates of the execution are unknown: the record of the clocks is missing"
    first = run.started + min(clock.least for clock in clocks) - SLACK_S
    last = run.ended + max(clock.most for clock in clocks) + SLACK_S
    for moment in moments:
        shift = (
            _ZONES_S * math.ceil((moment.seconds - last) / _ZONES_S)
            if moment.local
            else 0
        )
        if not (first <= moment.seconds - shift <= last and abs(shift) <= _FARTHEST_S):
            zone = clocks[0].utc_offset
            printed = moment.seconds - (zone if moment.local else 0)
            return (
                f"{moment.name!r} is {_date(printed, zone)}, and the execution lasted from "
                f"{_date(run.started + clocks[0].most, zone)} to {_date(run.ended + clocks[0].least, zone)}"
            )
    return ""


def _date(seconds: float, utc_offset: int) -> str:
    """Return a date with seconds, and the zone's distance from UTC."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    try:
        zone = timezone(timedelta(seconds=utc_offset))
        return (
            (epoch + timedelta(seconds=seconds))
            .astimezone(zone)
            .isoformat(" ", "seconds")
        )
    except (OverflowError, ValueError):
        return f"{seconds:.0f} s since the epoch"


def tool_integrity(seen: PhaseView) -> Finding:
    """Return G22. Phases without a metric (preparation, a run that is watched) count in each."""
    case, tool, executions = seen.case, seen.tool, list(_all_of(seen.case))
    versions: dict[str, dict[str, None]] = {}
    for one in executions:
        if one.output.tool == tool:
            versions.setdefault(one.output.version, {})[one.seen.phase.name] = None
    named = [
        f"{v} in {', '.join(versions[v])}" if versions.keys() - {v} else v
        for v in versions
    ]
    ran = f"{tool} {'; '.join(sorted(named)) or 'of unknown version'}"
    nodes = (None if seen.phase.beside else seen.phase.on_nodes) or case.plan.nodes
    tasks = case.tasks_per_node * nodes
    own = [one.output for one in executions if one.seen.phase.name == seen.phase.name]
    wrong_tasks = sorted({out.tasks for out in own if out.tasks is not None} - {tasks})
    wrong_nodes = sorted({out.nodes for out in own if out.nodes is not None} - {nodes})
    ran += f" with {wrong_tasks[0]} task(s)" if wrong_tasks else ""
    ran += f" on {wrong_nodes[0]} node(s)" if wrong_nodes else ""
    if foreign := _foreign(seen, executions):
        return rule("G22 tool", "foreign", tool=tool).invalid(f"{ran}, {foreign}")
    on_hosts: dict[str, list[str]] = {}
    for host, told in case.evidence.versions.items():
        if tool in told:
            on_hosts.setdefault(told[tool], []).append(host)
    if len(on_hosts) > 1:
        found = "; ".join(f"{v} on {fold(on_hosts[v])}" for v in sorted(on_hosts))
        return rule("G22 tool", "versions", tool=tool).invalid(f"{tool} {found}")
    pinned = case.plan.stack_versions.get(tool)
    if pinned and {v.removeprefix(f"{tool}-") for v in versions} != {pinned}:
        other = rule("G22 tool", "stack", tool=tool, version=pinned)
        return other.invalid(ran)
    one_version = len(versions) == 1 and all(versions)
    demanded = rule("G22 tool", tasks=tasks, nodes=nodes)
    return demanded.decide(one_version and not wrong_tasks and not wrong_nodes, ran)


def _foreign(seen: PhaseView, executions: Sequence[Execution]) -> str:
    """Return why an output is not of its execution; empty if all are."""
    objections = [
        objection(one)
        for one in executions
        if one.seen.phase.name == seen.phase.name or not one.seen.phase.rates
    ]
    # A script may start other programs too.
    script = any(
        f"{between.SCRIPT}{seen.tool}" in facts for facts in seen.case.evidence.nodes
    )
    for one in seen.executions:
        told, expected = one.testimony.tasks, one.testimony.expected
        # A launcher may cut the lines of several tasks into each other, and makes none of its own.
        if told > expected:
            objections.append(
                f"which left {told} count(s) of the kernel for {expected} task(s)"
            )
        known = not script and seen.tool == "fio" and one.testimony.of_tasks
        span, tasks = one.span if known else None, one.output.tasks
        jobs = jobs_at_once(seen.case.evidence.processes, span) if span else 0
        if tasks and jobs > tasks:
            objections.append(f"which had {jobs} processes for its {tasks} job(s)")
    return next(filter(None, objections), "")


def environment(seen: CaseView) -> Finding | None:
    """Return G22 if any node has something between the tools and the kernel."""
    nodes, start = seen.evidence.nodes, between.SCRIPT
    named = between.libraries(nodes)
    scripts = dict.fromkeys(
        f"{key.removeprefix(start)} is a script: {line}"
        for facts in nodes
        for key, line in facts.items()
        if key.startswith(start)
    )
    lies: list[str] = []
    unknown: dict[str, str] = {}
    for name, source in named:
        lie = lie_of(name)
        if lie:
            lies.append(f"{name} ({source}), which {lie}")
        elif not is_known(name):
            unknown[name] = f"{name} ({source})"
    # A launcher or a program on the way may have preloaded what the job's environment does not name.
    for library in seen.evidence.loaded:
        if library.lie:
            lies.append(f"{library.path} (loaded by a task), which {library.lie}")
            continue
        functions = f": it replaces {', '.join(library.replaces)}"
        what = functions if library.replaces else ""
        name = os.path.basename(library.path)
        unknown[name] = f"{library.path} (loaded by a task{what})"
    if not lies and not unknown and not scripts and not named:
        return None
    preloaded = (
        f"preloaded, and unknown here: {', '.join(unknown.values())}" if unknown else ""
    )
    found = rule("G22 environment")
    if preloaded and not lies and seen.gate:
        return found.invalid(f"{preloaded}; nothing proves what it does")
    doubt = "; ".join(filter(None, [preloaded, *scripts]))
    return found.unless("nothing is preloaded", "; ".join(lies), doubt=doubt)
