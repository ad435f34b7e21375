"""The lines of a job script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from iogauge.plan.case import DIR, REP, CasePlan, PhasePlan
from iogauge.plan.stage import (
    FACTS,
    PINNED,
    PINS,
    SPREAD,
    VIEW,
    evict_stem,
    look_phase,
)

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def shell_word(word: str) -> str:
    """Quote a word for a shell script; only ``$IOG_DIR`` and ``$IOG_REP`` are expanded."""
    if _PLAIN.fullmatch(word):
        return word
    parts = re.split(r"(\$IOG_DIR|\$IOG_REP)", word)
    if len(parts) == 1:
        return shlex.quote(word)
    text = "".join(
        f"${{{part[1:]}}}"
        if part in (DIR, REP) and re.match("[A-Za-z0-9_]", after)
        else part
        if part in (DIR, REP)
        else re.sub(r'([\\"`$])', r"\\\1", part)
        for part, after in zip(parts, [*parts[1:], ""], strict=True)
    )
    return f'"{text}"'


def shell_command(words: Sequence[str]) -> str:
    """Return the command line of words, see :func:`shell_word`."""
    return " ".join(shell_word(word) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start processes in a job: ``run_tasks`` starts all tasks, ``each_node`` one a node.

    ``run_tasks`` is a command line. ``agent`` are the words that start the agent, ``witness`` is
    the path of witness.sh. ``restore`` is the directory of saved settings, ``interface`` the
    network interface for fio's servers.
    """

    run_tasks: str
    each_node: Sequence[str]
    agent: Sequence[str]
    witness: str
    restore: str = ""
    interface: str | None = None


def _phase_lines(phase: PhasePlan, launch: Launch, directory: str) -> list[str]:
    """Return lines of the job script that run one phase on the files of a directory."""
    if phase.within is not None:
        return []
    lines, more = [], ""
    if phase.access.evict:
        words = [*launch.each_node, *launch.agent, "evict", directory, evict_stem(phase.name, REP)]
        lines.append(f"iog_phase evict-{phase.name} {shell_command(words)}")
    if phase.verifies is not None:
        lines.append(f"iog_verify {shell_command(phase.verifies.words)}")
        more = ' "${IOG_VERIFY[@]}"'
    if phase.launch == "agent":
        words = [*launch.agent, *phase.command, launch.restore]
        return [*lines, f"iog_phase {phase.name} {shell_command(words)}"]
    if phase.launch == "nodes":
        start = [*launch.each_node, *launch.agent]
        words = [*launch.agent, *phase.command, launch.interface or "", *start]
        return [*lines, f"iog_phase {phase.name} {shell_command(words)}"]
    asked = ["--", *launch.agent] if phase.asks else []
    command = shell_command([*phase.command, *asked]) + more
    if phase.launch == "tasks" and launch.run_tasks:
        command = f"{launch.run_tasks} {_witnessed(phase, launch)}{command}"
    elif phase.launch in ("tasks", "once"):
        command = f"{_witnessed(phase, launch)}{command}"
    function = "iog_client" if phase.launch == "clients" else "iog_phase"
    before, after = _looks(phase, launch) if phase.on_servers else ([], [])
    return [*before, *lines, f"{function} {phase.name} {command}", *after]


def _witnessed(phase: PhasePlan, launch: Launch) -> str:
    words = ["sh", launch.witness, *(["--sync", DIR] if phase.syncs else [])]
    return f"{shell_command(words)} " if phase.witnessed else ""


def _looks(phase: PhasePlan, launch: Launch) -> tuple[list[str], list[str]]:
    """Return lines that look at all nodes before and after a phase of fio's servers."""
    words = [*launch.each_node, "sh", launch.witness, "--look"]
    before, after = (
        [f"iog_phase {look_phase(when, phase.name)} {shell_command(words)}"]
        for when in ("before", "after")
    )
    return (before, after) if phase.witnessed else ([], [])


def _with_samples(phases: Sequence[tuple[PhasePlan, list[str]]], plan: CasePlan) -> list[str]:
    """Return the lines of phases, and a sample of the contents after the last write and read."""
    last = {phase.access.direction: phase for phase, _ in phases if plan.sampled}
    lines = []
    for phase, own in phases:
        lines += own
        way = phase.access.direction
        if way in ("write", "read") and last.get(way) is phase:
            lines.append(f"iog_sample {way} {shell_word(plan.directory)}")
    return lines


def _striping_lines(plan: CasePlan, launch: Launch) -> list[str]:
    """Return lines that request the layout before the first write."""
    before, where = [], plan.directory
    if plan.writes_first:
        before.append(f"mkdir {shell_word(where)} || exit 1")
    if plan.layout is not None:
        before.append(
            f"iog_phase setstripe {shell_command(['lfs', 'setstripe', *plan.layout.arguments(), where])}"
        )
    if plan.pins is not None:
        words = [*launch.agent, "pin", PINS, where, f"{PINNED}.{REP}"]
        before.append(f"iog_phase pin {shell_command(words)}")
    if plan.mdts:
        words = [*launch.agent, SPREAD, str(plan.mdts), where]
        before.append(f"iog_phase {SPREAD} {shell_command(words)}")
    return before


def job_functions(plan: CasePlan, launch: Launch, notes_layouts: bool = False) -> list[str]:
    """Return shell functions: ``iog_prepare``, ``iog_case``; ``iog_write`` if writes go first.

    ``notes_layouts`` means that the files' layouts are noted after the last write.
    """
    before = _striping_lines(plan, launch)

    def lines(phases: Sequence[PhasePlan], holds_first_write: bool) -> list[str]:
        start = before if holds_first_write else []
        each = [(phase, _phase_lines(phase, launch, plan.directory)) for phase in phases]
        writing = [own for phase, own in each if phase.access.direction == "write"]
        if notes_layouts and holds_first_write and writing:
            writing[-1].append(f"iog_layouts {shell_word(plan.directory)}")
        out = _with_samples(each, plan)
        return [f"    {line}" for line in [*start, *out]]

    start, first, last = (
        f"iog_phase {out} {shell_command([*launch.each_node, *launch.agent, 'facts', DIR, out])}"
        for out in FACTS
    )
    prepare = [f"    {start}"]
    if plan.restores:
        words = [*launch.agent, "restore", launch.restore]
        prepare.append(f"    iog_at_close {shell_command(words)}")
    if plan.nodes > 1:
        words = [*launch.each_node, *launch.agent, "view", DIR, VIEW]
        prepare.append(f"    iog_phase view {shell_command(words)}")
    if any(phase.launch == "clients" for phase in plan.phases):
        words = [str(plan.nodes), launch.interface or "", *launch.each_node]
        prepare.append(f"    iog_servers {shell_command(words)}")
    if plan.prepare:
        prepare += lines(plan.prepare, True)
    begin = [f'    [ "$IOG_REP" != 1 ] || {first}']
    end = [f'    [ "$IOG_REP" != {plan.repetitions} ] || {last}']
    functions = ["iog_prepare() {", *prepare, "}"]
    if plan.writes_first:
        writes, reads = plan.passes
        functions += ["iog_write() {", *begin, *lines(writes, True), "}"]
        return [*functions, "iog_case() {", *lines(reads, False), *end, "}"]
    if not plan.prepare:
        begin.append("    iog_reset")
    return [*functions, "iog_case() {", *begin, *lines(plan.repeat, not plan.prepare), *end, "}"]
