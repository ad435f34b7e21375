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
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import NO_COUNTS, SLACK_S, CaseView, Execution, PhaseView
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
    for phase in case.plan.phases:
        view = PhaseView(case, phase)
        yield from view.executions
        for output in case.evidence.cold.get(phase.name, ()):
            yield Execution(view, 0, output, NO_COUNTS)


def objection(execution: Execution) -> str:
    """Return why an output is not of its execution; empty if it is."""
    output, plan, planned = execution.output, execution.case.plan, execution.view.phase
    words = output.command.split()
    program = PurePath(words[0]).name if words else output.tool
    candidates = [phase for phase in plan.phases if phase.name == planned.within]
    candidates = candidates or [planned]
    if output.tool == "darshan":
        # Its log repeats the words of the tool that it watched, an earlier phase.
        watched = [phase for phase in plan.repeat if program in _names(phase)]
        candidates = watched or candidates
    wrong = "phases.tsv has no time of this execution"
    for candidate in candidates:
        run = execution.run(candidate)
        if run is None:
            continue
        differs = _differs(execution, candidate, run, program)
        wrong = f"it says {differs}"
        if not differs:
            clocks = execution.case.evidence.clocks
            wrong = _out_of_time(output.moments, run, clocks)
            break
    if not wrong:
        return ""
    when = "before the repetitions"
    if execution.repetition:
        when = f"repetition {execution.repetition}"
    return f"{planned.name}, {when}: {wrong}"


def _differs(
    execution: Execution, phase: PhasePlan, run: PhaseRun, program: str
) -> str:
    """Return the first difference between the words of a phase and those of the output."""
    own = {
        DIR: execution.case.evidence.directory,
        REP: str(execution.repetition),
        TOKEN: run.token,
    }

    def filled(text: str) -> str:
        for name, value in own.items():
            text = text.replace(name, value).replace(f"${{{name[1:]}}}", value)
        return re.sub("//+", "/", text)

    output, more = execution.output, list[str]()
    if phase.verifies and execution.repetition == 0:
        more = [*phase.verifies.words]
    if output.tool in ("fio", "io500"):
        jobs: Any = output.parameters["jobs"]
        inputs = execution.case.plan.inputs
        planned = "".join(inputs.get(word, "") for word in phase.command)
        beside = None
        if output.tool == "fio":
            beside = {word.strip("-").partition("=")[0] for word in more}
        return _other_options(_sections(filled(planned)), jobs, beside)
    names = _names(phase)
    if program not in names:
        return ""
    asked = [*phase.command[names.index(program) + 1 :], *more]
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
        of_job = f" in job {name}" if len(planned) > 1 else ""
        reported = jobs.get(name, {})
        for option, want in options.items():
            got = reported.get(option, "nothing")
            shown = re.sub("//+", "/", got)
            cut = len(got) == _FIO_CUTS_AT and (want or "").startswith(shown)
            if want not in (None, shown) and not cut:
                return f"{option}={got}{of_job} instead of {option}={want}"
        if beside is None:
            continue
        more = reported.keys() - options.keys() - set(beside)
        for option in sorted(more):
            return f"{option}={reported[option]}{of_job} instead of no such option"
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
        zone, shift, printed = clocks[0].utc_offset, 0, moment.seconds
        if moment.local:
            shift = _ZONES_S * math.ceil((moment.seconds - last) / _ZONES_S)
            printed -= zone
        in_time = first <= moment.seconds - shift <= last
        if not in_time or abs(shift) > _FARTHEST_S:
            began = _date(run.started + clocks[0].most, zone)
            ended = _date(run.ended + clocks[0].least, zone)
            return (
                f"{moment.name!r} is {_date(printed, zone)}, and the execution lasted from "
                f"{began} to {ended}"
            )
    return ""


def _date(seconds: float, utc_offset: int) -> str:
    """Return a date with seconds, and the zone's distance from UTC."""
    try:
        zone = timezone(timedelta(seconds=utc_offset))
        date = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
        return date.astimezone(zone).isoformat(" ", "seconds")
    except (OverflowError, ValueError):
        return f"{seconds:.0f} s since the epoch"


_TOOL: Final = Guard(
    "G22 tool",
    "every output belongs to its own execution, and all phases ran one version of the tool as planned",
    "The launcher may belong to another MPI than the tool: run 'iogauge check'",
    "a: mpirun of another MPI started each task as a run of its own",
    "ext4, GlusterFS, NFS, Lustre 2.17",
    more="The tasks and nodes are the planned ones, and PATH leads to one version on all nodes. It is the version of the "
    "Spack stack, if the case has one. An output has the planned words (IOR, mdtest) or options (fio, IO500), this case's directory and repetition, and fio's token. Its dates lie "
    f"within the execution ({SLACK_S:g} s). The kernel's counts (G8) are not more than the tasks. fio on one node has no more "
    "processes than its options say, unless it is a script.",
)


def tool_integrity(phase: PhaseView) -> Finding:
    """Return G22. Phases without a metric (preparation, a run that is watched) count in each."""
    case, tool, executions = phase.case, phase.tool, list(_all_of(phase.case))
    versions: dict[str, dict[str, None]] = {}
    for execution in executions:
        if execution.output.tool == tool:
            of_version = versions.setdefault(execution.output.version, {})
            of_version[execution.view.phase.name] = None
    named = sorted(versions)
    if len(versions) > 1:
        named = [f"{version} in {', '.join(versions[version])}" for version in named]
    ran = f"{tool} {'; '.join(named) or 'of unknown version'}"
    nodes = case.plan.nodes
    if not phase.phase.beside:
        nodes = phase.phase.on_nodes or nodes
    tasks = case.tasks_per_node * nodes
    own = [
        execution.output
        for execution in executions
        if execution.view.phase.name == phase.phase.name
    ]
    wrong_tasks = sorted({out.tasks for out in own if out.tasks is not None} - {tasks})
    wrong_nodes = sorted({out.nodes for out in own if out.nodes is not None} - {nodes})
    if wrong_tasks:
        ran += f" with {wrong_tasks[0]} task(s)"
    if wrong_nodes:
        ran += f" on {wrong_nodes[0]} node(s)"
    foreign = _foreign(phase, executions)
    if foreign:
        guard = _TOOL.saying(
            "an output of this very execution",
            "Something between the job script and the tool changes its output, or shows an older one. Look for a wrapper "
            f"(type {tool}), and for environment variables that {tool} reads",
        )
        return guard.invalid(f"{ran}, {foreign}")
    on_hosts: dict[str, list[str]] = {}
    for host, found in case.evidence.versions.items():
        if tool in found:
            on_hosts.setdefault(found[tool], []).append(host)
    if len(on_hosts) > 1:
        guard = _TOOL.saying(
            "one version on all nodes",
            f"Install one version on all nodes. On each node, 'type {tool}' names the one that PATH leads to",
        )
        found_on = [f"{text} on {fold(on_hosts[text])}" for text in sorted(on_hosts)]
        return guard.invalid(f"{tool} {'; '.join(found_on)}")
    pinned = case.plan.stack_versions.get(tool)
    if pinned and {name.removeprefix(f"{tool}-") for name in versions} != {pinned}:
        guard = _TOOL.saying(
            f"{tool} {pinned}, which this case's Spack stack has",
            f"PATH leads to another {tool}, or the stack is not installed as a whole. Run 'spack install' in its environment, "
            "then ci/stack",
        )
        return guard.invalid(ran)
    guard = _TOOL.saying(f"one version, {tasks} task(s) on {nodes} node(s)")
    known = len(versions) == 1 and all(versions)
    return guard.decide(known and not wrong_tasks and not wrong_nodes, ran)


def _foreign(phase: PhaseView, executions: Sequence[Execution]) -> str:
    """Return why an output is not of its execution; empty if all are."""
    for execution in executions:
        of_phase = execution.view.phase.name == phase.phase.name
        if of_phase or not execution.view.phase.rates:
            wrong = objection(execution)
            if wrong:
                return wrong
    # A script may start other programs too.
    name = f"{between.SCRIPT}{phase.tool}"
    script = any(name in facts for facts in phase.case.evidence.nodes)
    for execution in phase.executions:
        lines, expected = execution.counts.tasks, execution.counts.expected
        # A launcher may cut the lines of several tasks into each other, and makes none of its own.
        if lines > expected:
            return f"which left {lines} count(s) of the kernel for {expected} task(s)"
        span, jobs = execution.span, execution.output.tasks
        if script or phase.tool != "fio" or not execution.counts.of_tasks:
            continue
        if span and jobs:
            processes = jobs_at_once(phase.case.evidence.processes, span)
            if processes > jobs:
                return f"which had {processes} processes for its {jobs} job(s)"
    return ""


_ENVIRONMENT: Final = Guard(
    "G22 environment",
    "no preloaded library falsifies time, sync or I/O, and no library that the first task has loaded",
    "Remove it from the job's environment: modules, env_vars of the settings, /etc/ld.so.preload, a wrapper on PATH",
    "b: libfaketime under another file name in LD_PRELOAD",
    "ext4",
    but="or a remark",
    demands="nothing between the tool and the kernel that lies about time, sync or I/O",
    more="A library is known by its own name and by the functions of the C library that it replaces, not by its file's name. "
    "Any other preloaded library gives a remark, and is INVALID in a gate. A tool that is a script gives a remark.",
)


def environment(case: CaseView) -> Finding | None:
    """Return G22 if any node has something between the tools and the kernel."""
    named = between.libraries(case.evidence.nodes)
    unknown, doubts = dict[str, str](), list[str]()
    for name, source in named:
        lie = lie_of(name)
        if lie:
            return _ENVIRONMENT.invalid(f"{name} ({source}), which {lie}")
        if not is_known(name):
            unknown[name] = f"{name} ({source})"
    # A launcher or a program on the way may have preloaded what the job's environment does not name.
    for library in case.evidence.loaded:
        where = f"{library.path} (loaded by a task"
        if library.lie:
            return _ENVIRONMENT.invalid(f"{where}), which {library.lie}")
        if library.replaces:
            where += f": it replaces {', '.join(library.replaces)}"
        unknown[os.path.basename(library.path)] = f"{where})"
    if unknown:
        doubts.append(f"preloaded, and unknown here: {', '.join(unknown.values())}")
        if case.gate:
            return _ENVIRONMENT.invalid(f"{doubts[0]}; nothing proves what it does")
    doubts += _scripts(case)
    if not named and not doubts:
        return None
    doubt = "; ".join(doubts)
    return _ENVIRONMENT.unless("nothing is preloaded", doubt=doubt)


def _scripts(case: CaseView) -> list[str]:
    """Return in words which tools are scripts, each once."""
    found = dict[str, None]()
    for facts in case.evidence.nodes:
        for key, line in facts.items():
            if key.startswith(between.SCRIPT):
                found[f"{key.removeprefix(between.SCRIPT)} is a script: {line}"] = None
    return list(found)
