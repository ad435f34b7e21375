"""Guards of the origin (G22): whether an output is of the execution that it is judged for (its words, its token),
and of the tool that was planned; what stands between the tool and the kernel.
"""

import configparser
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

from iogauge.evidence.fingerprint import fold
from iogauge.guards.finding import Finding, Guard
from iogauge.guards.views import NO_COUNTS, CaseView, Execution, PhaseView
from iogauge.node import between
from iogauge.node.between import is_harmless, lie_of
from iogauge.plan.case import DIR, REP, TOKEN, PhasePlan
from iogauge.plan.stage import PhaseRun

#: Characters of an option's value that fio's servers report (``struct cmd_job_option``, server.h).
_FIO_CUTS_AT = 127
#: Characters of its command that mdtest prints (``VerboseMessage``, mdtest.c).
_MDTEST_CUTS_AT = 1023 - len("Command line used: ")


def _all_of(case: CaseView) -> Iterator[Execution]:
    """Yield every execution of a case that left an output, the warm-up included."""
    for phase in case.plan.phases:
        view = PhaseView(case, phase)
        yield from view.executions
        for output in case.evidence.cold.get(phase.name, ()):
            yield Execution(view, 0, output, NO_COUNTS)


def objection(execution: Execution) -> str:
    """Return why an output is not of its execution; empty if it is."""
    output, plan, planned = execution.output, execution.case.plan, execution.phase.plan
    words = output.command.split()
    program = PurePath(words[0]).name if words else output.tool
    candidates = [phase for phase in plan.phases if phase.name == planned.within]
    candidates = candidates or [planned]
    if output.watched:
        # It repeats the words of the tool that it watched, an earlier phase.
        watched = [phase for phase in plan.repeat if program in _names(phase)]
        candidates = watched or candidates
    wrong = "phases.tsv has no time of this execution"
    for candidate in candidates:
        name = candidate.within or candidate.name
        run = execution.case.evidence.runs.get((execution.repetition, name))
        if run is None:
            continue
        differs = _differs(execution, candidate, run, program)
        if not differs:
            return ""
        wrong = f"it says {differs}"
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
    if "jobs" in output.parameters:
        inputs = execution.case.plan.inputs
        job_file = "".join(inputs.get(word, "") for word in phase.command)
        may_be = None
        if not output.all_options:
            may_be = {word.strip("-").partition("=")[0] for word in more}
        return _other_options(filled(job_file), output.parameters["jobs"], may_be)
    names = _names(phase)
    if program not in names:
        return ""
    asked = [*phase.command[names.index(program) + 1 :], *more]
    words = [filled(word) for word in asked]
    # mdtest quotes its words
    command = re.sub("//+", "/", output.command)
    reported = [word.strip("'") for word in command.split()[1:]]
    if len(output.command) >= _MDTEST_CUTS_AT:
        words = words[: len(reported)]
        words[-1] = words[-1][: len(reported[-1])]
    for want, got in zip_longest(words, reported, fillvalue="nothing"):
        if want != got:
            return f"{got!r} instead of {want!r}"
    return ""


def _names(phase: PhasePlan) -> list[str]:
    return [PurePath(word).name for word in phase.command]


def _other_options(job_file: str, jobs: Any, may_be: Collection[str] | None) -> str:
    """Return how the options that jobs had differ from those of a job file.

    Options ``may_be`` there beside them, any if it is None. A word without a value agrees with any value.
    """
    planned = configparser.ConfigParser(
        delimiters="=", allow_no_value=True, interpolation=None
    )
    planned.read_string(job_file)
    for name in planned.sections():
        options, reported = planned[name], jobs.get(name, {})
        for option, want in options.items():
            got = re.sub("//+", "/", reported.get(option, "nothing"))
            cut = len(got) >= _FIO_CUTS_AT and want and want.startswith(got)
            if want not in (None, got) and not cut:
                return f"{option}={got} instead of {option}={want}, in job {name}"
        for option in sorted(reported.keys() - options.keys()):
            if may_be is not None and option not in may_be:
                return f"{option}={reported[option]} instead of no such option, in job {name}"
    return ""


_TOOL = Guard(
    name="G22 tool",
    must="every output belongs to its own execution, and all phases ran one version of the tool as planned",
    remedy="The launcher may belong to another MPI than the tool: run 'iogauge check'",
    against="a: mpirun of another MPI started each task as a run of its own",
    seen_on="ext4, GlusterFS, NFS, Lustre 2.17",
    more="The tasks and nodes are the planned ones, and PATH leads to one version on all nodes. It is the version of the "
    "Spack stack, if the case has one. An output has the planned words (IOR, mdtest) or options (fio, IO500), this case's directory and repetition, and fio's token.",
)


def tool_integrity(phase: PhaseView) -> Finding:
    """Return G22. Phases without a metric (preparation, a run that is watched) count in each."""
    case, tool, executions = phase.case, phase.tool, list(_all_of(phase.case))
    versions: dict[str, str] = {}
    tasks_seen, nodes_seen = set[int | None](), set[int | None]()
    for execution in executions:
        if execution.output.tool == tool:
            versions.setdefault(execution.output.version, execution.phase.plan.name)
        if execution.phase.plan.name == phase.plan.name:
            tasks_seen.add(execution.output.tasks)
            nodes_seen.add(execution.output.nodes)
    named = "; ".join(f"{name} in {versions[name]}" for name in sorted(versions))
    if len(versions) == 1:
        named = "".join(versions)
    ran = f"{tool} {named or 'of unknown version'}"
    nodes, tasks = case.plan.nodes, case.tasks_per_node * case.plan.nodes
    wrong = [f" with {count} task(s)" for count in tasks_seen - {None, tasks}]
    wrong += [f" on {count} node(s)" for count in nodes_seen - {None, nodes}]
    ran += "".join(wrong)
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
    return guard.decide(len(versions) == 1 and all(versions) and not wrong, ran)


def _foreign(phase: PhaseView, executions: Sequence[Execution]) -> str:
    """Return why an output is not of its execution; empty if all are."""
    for execution in executions:
        of_phase = execution.phase.plan.name == phase.plan.name
        if of_phase or not execution.phase.plan.rates:
            wrong = objection(execution)
            if wrong:
                return wrong
    return ""


_ENVIRONMENT = Guard(
    name="G22 environment",
    must="no library that is preloaded in the job or in its tasks falsifies time, sync or I/O",
    remedy="Remove it from the job's environment: modules, env_vars of the settings, /etc/ld.so.preload, a wrapper on PATH",
    against="b: libfaketime under another file name in LD_PRELOAD",
    seen_on="ext4",
    but="or a remark",
    demands="nothing between the tool and the kernel that lies about time, sync or I/O",
    more="Any library of another name than the known ones gives a remark, and is INVALID in a gate. The tasks of the first node "
    "tell by their own environment what is preloaded.",
)


def environment(case: CaseView) -> Finding | None:
    """Return G22 if any node has something between the tools and the kernel."""
    evidence, unknown = case.evidence, dict[str, str]()
    found = between.libraries(evidence.nodes.values())
    # A launcher or a program on the way may have preloaded what the job's environment does not name.
    for name, source in between.libraries(evidence.loaded):
        found.append((name, f"{source} of a task"))
    for name, source in found:
        lie = lie_of(name)
        if lie:
            return _ENVIRONMENT.invalid(f"{name} ({source}), which {lie}")
        if not is_harmless(name):
            unknown.setdefault(name, f"{name} ({source})")
    if not unknown:
        return None
    saw = f"preloaded, and unknown here: {', '.join(unknown.values())}"
    if case.gate:
        return _ENVIRONMENT.invalid(f"{saw}; nothing proves what it does")
    return _ENVIRONMENT.warn(saw)
