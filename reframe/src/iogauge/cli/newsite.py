"""``iogauge site new``: look at the machine, ask, write a site's folder, and plan its cases."""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.running import planned_cases, write_probe
from iogauge.cli.screen import new_console
from iogauge.cli.site import show_plan
from iogauge.core import deadline
from iogauge.core.paths import BUNDLED
from iogauge.core.text import visible_lines
from iogauge.core.units import format_bytes, format_seconds, parse_bandwidth
from iogauge.report.table import plain
from iogauge.site import folders, machine, settings, survey, writing
from iogauge.site.survey import NodeSeen, Queue, Slurm
from iogauge.site.writing import Answers, Found
from iogauge.workspace import lock, permission

#: The time limit until the plan says how long the longest case takes, and the least one.
_FIRST_LIMIT, _LEAST_LIMIT_S = "1h", 1800


def _fail(message: str) -> typer.Exit:
    typer.echo(visible_lines(f"iogauge: {message}"), err=True)
    return typer.Exit(2)


def _say(text: str) -> None:
    new_console().print(plain(text), soft_wrap=True)


def _answer(given: str | None, ask: bool, question: str, default: str) -> str:
    """Return an option's value, else the answer to a question, else the default."""
    if given is not None:
        return given
    if ask:
        said = str(typer.prompt(question, default=default or "none"))
        return "" if said == "none" else said
    return default


def _place(name: str, into: Path | None) -> Path:
    """Return the folder of the new site; ends the command if it cannot be one."""
    if not re.fullmatch(r"[A-Za-z_][\w-]*", name, re.ASCII) or name in (
        folders.COMMON,
        folders.LOCAL,
    ):
        raise _fail(
            f"{name!r} is no name of a site: expected letters, digits, _ and -, a letter in front, and "
            f"neither {folders.LOCAL} nor {folders.COMMON}"
        )
    if into is None and len(found := folders.site_dirs()) == 1 and BUNDLED in found[0].parents:
        raise _fail(
            "there is no folder of your own for the site: name one (iogauge --sites DIR site new "
            f"{name}), or make a repository (--repository DIR)"
        )
    parent = into / "sites" if into else folders.site_dirs()[0]
    taken = [place for one in (parent, *folders.site_dirs()) if (place := one / name).exists()]
    if taken:
        raise _fail(f"{taken[0]} exists: choose another name, or remove that folder")
    return parent / name


def _queue(given: str | None, ask: bool) -> tuple[Slurm | None, Queue | None]:
    """Return the Slurm of this host, and the queue that cases go to; None for this machine alone."""
    try:
        slurm = survey.slurm()
    except OSError as error:
        _say(f"Slurm is here and does not answer: {error}")
        slurm = None
    names = [queue.name for queue in slurm.queues] if slurm else []
    default = names[0] if names else ""
    text = _answer(given, ask and bool(names), f"Queue ({', '.join(names)}; none)", default)
    if text in ("", "none"):
        return slurm, None
    if slurm is None or text not in names:
        raise _fail(f"no queue {text!r}; known: {', '.join(names) or 'none, Slurm is not here'}")
    return slurm, slurm.queues[names.index(text)]


def _nodes(queue: Queue | None, given: int | None, ask: bool) -> int:
    """Return the nodes of a case; ends the command if the queue has fewer."""
    if queue is None:
        return 1
    text = _answer(
        str(given) if given else None,
        ask,
        f"Nodes of a case (of {queue.nodes})",
        str(min(4, queue.nodes)),
    )
    if not text.isdigit() or not 1 <= int(text) <= queue.nodes:
        raise _fail(
            f"nodes: {text!r}; expected a number from 1 to {queue.nodes}, which {queue.name} has"
        )
    return int(text)


def _look(target: str, queue: Queue | None, account: str) -> NodeSeen:
    """Return what a node that cases run on sees; what this host sees if no node answers."""
    here = deadline.call(target, lambda: survey.look_here(target))
    if queue is None:
        return here
    words = ["srun", "--nodes=1", "--ntasks=1", "--time=2", "--quiet", f"--partition={queue.name}"]
    words += ["--immediate=30", *([f"--account={account}"] if account else [])]
    try:
        return survey.look_through(words, target)
    except OSError as error:
        trouble = (
            f"a node of {queue.name}: {error}. Its cores and memory are those of sinfo; what the "
            f"others are was not looked at from {here.host}, which may differ"
        )
        stays = {key: value for key, value in here.facts.items() if key.startswith("lustre.")}
        return replace(
            here,
            cores=queue.cores or here.cores,
            memory_bytes=queue.memory_bytes or here.memory_bytes,
            facts=stays,
            troubles=(*here.troubles, trouble),
        )


def _speed(target: str, ceiling: str, nodes: int) -> float:
    """Return the bytes/s that a case may reach: of its nodes' ceilings, else as a probe writes."""
    try:
        _say(f"writing to {target} for half a second, to size the cases")
        return write_probe(target) * nodes
    except (OSError, lock.Occupied) as error:
        _say(f"not probed: {error}")
    return parse_bandwidth(ceiling) * nodes if ceiling else 0.0


def _ceiling(seen: NodeSeen, given: str | None, ask: bool) -> tuple[str, bool]:
    """Return the ceiling with its unit, and whether the user said it."""
    remote = writing.is_remote(seen.view.mount.type if seen.view.mount else "")
    nic = seen.nic_bytes_s if remote else None
    default = f"{nic[0] * 8 / 1e9:g} Gbit/s" if nic else ""
    what = "Network of each client node" if remote else "Most that the device under it can carry"
    text = _answer(given, ask, f"{what} (100 Gbit/s, 3 GB/s; none)", default)
    if text:
        try:
            parse_bandwidth(text)
        except ValueError as error:
            raise _fail(f"ceiling: {error}") from error
    return text, text != default


def _limit(seconds: float, queue: Queue | None) -> str:
    """Return a time limit of three times the longest case, in minutes, at most the queue's."""
    wanted = max(_LEAST_LIMIT_S, 3 * seconds)
    most = queue.limit_seconds if queue else None
    minutes = math.ceil(min(wanted, most or wanted) / 60)
    return f"{minutes // 60}h{minutes % 60}m" if minutes >= 60 else f"{minutes}m"


def _plan(folder: Path, text: Callable[[str], str], queue: Queue | None, tier: str) -> bool:
    """Write the settings, plan the cases, and write the time limit that they need; print the plan.

    Returns whether every case fits its target and the longest one the time limit.
    """
    file = folder / folders.SETTINGS
    file.write_text(text(_FIRST_LIMIT), encoding="utf-8")
    _, mistakes = settings.read_site(folder)
    for mistake in mistakes:
        _say(str(mistake))
    if mistakes:
        return False
    cases, unable = planned_cases([f"--system={folder.name}", "-t", tier])
    for line in unable:
        _say(line)
    longest = max((case.seconds for case in cases), default=0.0)
    limit = _limit(longest, queue)
    file.write_text(text(limit), encoding="utf-8")
    fits = bool(cases) and show_plan(new_console(), cases, False)
    _say(f"longest case: about {format_seconds(longest)}; time_limit: {limit}")
    most = queue.limit_seconds if queue else None
    if most is not None and longest > most:
        _say(
            f"the queue {queue.name if queue else ''} ends jobs after {format_seconds(most)}: make "
            f"limits.case_bytes in {file} smaller"
        )
        return False
    return fits and not unable


def new(
    name: Annotated[str, typer.Argument(help="Name of the site: of its folder and its system.")],
    target: Annotated[
        str | None, typer.Option(help="Directory to measure; cases write below it.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="Slurm's partition; none measures this machine alone.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a case.")] = None,
    account: Annotated[str | None, typer.Option(help="Account that jobs are charged to.")] = None,
    ceiling: Annotated[
        str | None,
        typer.Option(
            help="Bandwidth of each client's network, or of a local device: '100 Gbit/s'."
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            "--repository",
            help="Write a repository for the site there: pipeline, Spack environment, README.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take defaults.")] = False,
) -> None:
    """Describe this machine as a site: look, ask at most five questions, write its folder, plan.

    Without a terminal nothing is asked. What could not be found out is listed.
    """
    into = into.absolute() if into else None
    folder = _place(name, into)
    ask = sys.stdin.isatty() and not yes
    path = os.path.abspath(_answer(target, ask, "Directory to measure", machine.target_path()))
    slurm, chosen = _queue(queue, ask)
    account = _answer(account, ask and chosen is not None, "Account for jobs (none)", "")
    count = _nodes(chosen, nodes, ask)
    try:
        seen = _look(path, chosen, account)
    except OSError as error:
        raise _fail(f"{path}: {error}. Name a directory on the storage: --target DIR") from error
    rate, said = _ceiling(seen, ceiling, ask)
    here = machine.machine()
    found = Found(
        seen=seen,
        slurm=slurm if chosen else None,
        features=here.features,
        mpirun="mpirun" in here.programs,
        speed_bytes_s=_speed(path, rate, count),
        login=socket.gethostname(),
        day=time.strftime("%Y-%m-%d"),
    )
    answers = Answers(
        name=name, target=path, queue=chosen, nodes=count, account=account, ceiling=rate, said=said
    )
    raise typer.Exit(_write(folder, answers, found, into))


def _write(folder: Path, answers: Answers, found: Found, into: Path | None) -> int:
    """Write the folder, and the repository; say what comes next. Return the exit status."""
    folder.mkdir(parents=True)
    if into:
        partition = writing.partition_name(found.seen)
        writing.write_repository(into, answers.name, partition, found.seen.view.on_lustre)
    if folder.parent not in folders.site_dirs():
        before = os.environ.get(folders.VARIABLE)
        paths = [str(folder.parent), *([before] if before else [])]
        os.environ[folders.VARIABLE] = os.pathsep.join(paths)
    tier = writing.sizes_of(found, answers.nodes)[0].tier
    fits = _plan(
        folder, lambda limit: writing.settings_text(answers, found, limit), answers.queue, tier
    )
    _say(f"{folder / folders.SETTINGS}: written")
    free = format_bytes(found.seen.view.space.bytes_free)
    _say(f"looked at: {found.seen.host}, {found.seen.cores} cores; {answers.target}, {free} free")
    for text in writing.unknown(answers, found):
        _say(f"not found out: {text}")
    if found.slurm is None and (other := survey.other_scheduler()):
        _say(f"not found out: the scheduler of {other}. Write scheduler and access (docs/sites.md)")
    try:
        permission.reason(answers.target)
    except OSError as error:
        _say(f"may not be written in yet: {error}")
        fits = False
    _say("next:")
    for command in next_commands(answers.name, tier, into):
        _say(f"    {command}")
    return 0 if fits else 1


def next_commands(name: str, tier: str, into: Path | None) -> list[str]:
    """Return the commands that follow."""
    first = [f"cd {into} && ./setup && . ./activate"] if into else []
    return [
        *first,
        "iogauge validate",
        f"iogauge run --system={name} -t {tier}",
        f"iogauge calibrate --system={name}    # after 20 runs: references",
    ]
