"""The commands that describe a machine as a site: site new, site add-target."""

from __future__ import annotations

import contextlib
import getpass
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from iogauge.cli.planning import no_site, planned_cases, show_plan
from iogauge.cli.queues import Queue
from iogauge.cli.reporting import write_file
from iogauge.cli.running import write_probe
from iogauge.cli.screen import say, slip
from iogauge.core import processes
from iogauge.core.paths import BUNDLED, project_root
from iogauge.core.units import format_bytes, format_seconds, parse_bandwidth
from iogauge.node import mounts
from iogauge.node.kinds import KINDS
from iogauge.site import folders, programs, settings
from iogauge.workspace import lock, permission
from iogauge_extras.newsite import scheduler, writing
from iogauge_extras.newsite.probe import NodeProbe, look_here, look_through
from iogauge_extras.newsite.scheduler import Slurm
from iogauge_extras.newsite.writing import Described

_Ceiling = Annotated[
    str | None, typer.Option(help="Bandwidth of a client: '100 Gbit/s'.")
]

#: The time limit until the plan says how long the longest case takes, and the least one.
_FIRST_LIMIT, _LEAST_LIMIT_S = "1h", 1800


def _place(name: str, into: Path | None) -> Path:
    """Return the folder of the new site; ends the command if it cannot be one."""
    if not folders.NAME.fullmatch(name) or name in (
        folders.COMMON,
        folders.LOCAL,
    ):
        raise slip(
            f"{name!r} is not a valid name of a site: expected letters, digits, _ and -, a letter first, and "
            f"neither {folders.LOCAL} nor {folders.COMMON}"
        )
    remedy = (
        f"name a folder of your own (mkdir -p DIR && iogauge --sites DIR site new {name}), or make a "
        "repository (--repository DIR)"
    )
    if (
        into is None
        and len(found := folders.site_dirs()) == 1
        and BUNDLED in found[0].parents
    ):
        raise slip(f"there is no folder of your own for the site: {remedy}")
    parent = into / "sites" if into else folders.site_dirs()[0]
    there = next(one for one in (parent, *parent.parents) if os.path.exists(one))
    if not os.access(there, os.W_OK | os.X_OK):
        raise slip(f"{getpass.getuser()} may not write in {there}: {remedy}")
    taken = [
        place
        for one in (parent, *folders.site_dirs())
        if (place := one / name).exists()
    ]
    if taken:
        raise slip(f"{taken[0]} exists: choose another name, or remove that folder")
    return parent / name


def own_directories() -> list[str]:
    """Return, on each storage mount, a directory in which cases of this user may write; none on the root."""
    user = getpass.getuser()
    found: dict[tuple[str, str], str] = {}
    for mount in mounts.of_this_host():
        known, place = KINDS.get(mount.type), (mount.source, mount.root)
        if (
            known is None
            or known.cache == "memory"
            or mount.point == "/"
            or place in found
        ):
            continue
        for path in (
            f"{mount.point}/{user}",
            f"{mount.point}/users/{user}",
            mount.point,
        ):
            with contextlib.suppress(OSError):  # a mount that hangs, or is not allowed
                if os.path.isdir(path) and processes.call_in_time(
                    path, partial(_allowed, path)
                ):
                    found[place] = path
                    break
    return list(found.values())


def _allowed(path: str) -> bool:
    return bool(permission.reason(path)) and os.access(path, os.W_OK | os.X_OK)


def _queue(given: str | None) -> tuple[Slurm | None, Queue | None]:
    """Return the Slurm of this host, and the queue that cases go to; None for this machine alone."""
    try:
        slurm = scheduler.slurm()
    except OSError as error:
        say(f"Slurm is installed, but it does not answer: {error}")
        slurm = None
    names = [queue.name for queue in slurm.queues] if slurm else []
    text = given or (names[0] if names else "none")
    if text == "none":
        return slurm, None
    if slurm is None or text not in names:
        raise slip(
            f"no queue {text!r}; known: {', '.join(names) or 'none, Slurm is not here'}"
        )
    return slurm, slurm.queues[names.index(text)]


def _nodes(queue: Queue | None, given: int | None) -> int:
    """Return the nodes of a case; ends the command if the queue has fewer."""
    if queue is None:
        return 1
    nodes = given or min(4, queue.nodes)
    if nodes > queue.nodes:
        raise slip(
            f"--nodes {nodes}: expected 1 to {queue.nodes}, which {queue.name} has"
        )
    return nodes


def _look(target: str, queue: Queue | None, account: str) -> NodeProbe:
    """Return what a node that cases run on sees; what this host sees if no node answers."""
    here = processes.call_in_time(target, lambda: look_here(target))
    if queue is None:
        return here
    words = [
        "srun",
        "--nodes=1",
        "--ntasks=1",
        "--time=2",
        "--quiet",
        f"--partition={queue.name}",
    ]
    words += ["--immediate=30", *([f"--account={account}"] if account else [])]
    try:
        return look_through(words, target)
    except OSError as error:
        trouble = (
            f"a node of {queue.name}: {error}. Cores and memory come from sinfo. The other facts are "
            f"left out, because {here.host} may differ from a node of the queue"
        )
        stays = {
            key: value for key, value in here.facts.items() if key.startswith("lustre.")
        }
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
        say(f"writing to {target} for half a second, to size the cases")
        return write_probe(target) * nodes
    except (OSError, lock.Occupied) as error:
        say(f"not probed: {error}")
    return parse_bandwidth(ceiling) * nodes if ceiling else 0.0


def _ceiling(seen: NodeProbe, given: str | None) -> tuple[str, bool]:
    """Return the ceiling with its unit, and whether the user said it."""
    nic = seen.nic_bytes_s if seen.remote else None
    if given is None:
        return (f"{nic[0] * 8 / 1e9:g} Gbit/s" if nic else ""), False
    try:
        parse_bandwidth(given)
    except ValueError as error:
        raise slip(f"--ceiling: {error}") from error
    return given, True


def _limit(seconds: float, queue: Queue | None) -> str:
    """Return a time limit of three times the longest case, in minutes, at most the queue's."""
    wanted = max(_LEAST_LIMIT_S, 3 * seconds)
    most = queue.limit_seconds if queue else None
    minutes = math.ceil(min(wanted, most or wanted) / 60)
    return f"{minutes // 60}h{minutes % 60}m" if minutes >= 60 else f"{minutes}m"


def _plan(
    folder: Path,
    text: Callable[[str], str],
    queue: Queue | None,
    tier: str,
    speed: float,
) -> bool:
    """Write the settings, plan the cases, and write the time limit that they need; print the plan.

    ``speed`` is that of a node in bytes/s, or 0. Returns whether all cases fit the target and the time limit.
    """
    file = folder / folders.SETTINGS
    file.write_text(text(_FIRST_LIMIT), encoding="utf-8")
    _, mistakes = settings.read_site(folder)
    if mistakes:
        say("; ".join(map(str, mistakes)))
        return False
    words = [f"--system={folder.name}", "-t", tier]
    cases, unable = planned_cases(words, IOGAUGE_PROBED=str(speed))
    for line in unable:
        say(line)
    longest = max((case.seconds for case in cases), default=0.0)
    limit = _limit(longest, queue)
    file.write_text(text(limit), encoding="utf-8")
    fits = bool(cases) and show_plan(cases)
    say(f"longest case: about {format_seconds(longest)}; time_limit: {limit}")
    most = queue.limit_seconds if queue else None
    if most is not None and longest > most:
        name = queue.name if queue else ""
        ends = f"the queue {name} ends jobs after {format_seconds(most)}"
        say(f"{ends}: make limits.case_bytes in {file} smaller")
        return False
    return fits and not unable


def new(
    name: Annotated[str, typer.Argument(help="Name of the site.")],
    target: Annotated[
        list[str] | None, typer.Option(help="Directory; may be repeated.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="Partition of Slurm, or none.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a case.")] = None,
    account: Annotated[str, typer.Option(help="Account that pays for jobs.")] = "",
    ceiling: _Ceiling = None,
    into: Annotated[
        Path | None,
        typer.Option("--repository", help="Write a repository for the site there."),
    ] = None,
) -> None:
    """Describe this machine as a site: look, write its folder, plan.

    Without --target: your directory on each storage mount. --queue none measures this machine alone. --ceiling is
    the bandwidth of each client's network, or of a local device. What could not be found out is listed.
    """
    into = into.absolute() if into else None
    folder = _place(name, into)
    own = os.environ.get("IOGAUGE_TARGET")
    paths = list(map(os.path.abspath, target or ([own] if own else own_directories())))
    if not paths:
        raise slip("no storage mount has a directory of yours: name one, --target DIR")
    slurm, chosen = _queue(queue)
    count = _nodes(chosen, nodes)
    common = _common(name, slurm, chosen, count, account)
    common |= {"stack": name if into else folders.LOCAL, "claimed": _claimed()}
    targets: list[Described] = []
    for path in paths:
        targets.append(
            _target(path, ceiling, [one.partition for one in targets], common)
        )
    raise typer.Exit(_write(folder, targets, into))


def _claimed() -> str:
    """Return the site that this host belongs to already; empty if to none."""
    every = folders.site_folders(*folders.site_dirs())
    of_host = folders.sites_of_host(every, socket.gethostname())
    return next((one.name for one in of_host if one.name != folders.LOCAL), "")


def _common(
    site: str, slurm: Slurm | None, queue: Queue | None, nodes: int, account: str
) -> dict[str, Any]:
    """Return what all targets of a site have in common."""
    here = programs.machine()
    return {
        "site": site,
        "slurm": slurm if queue else None,
        "queue": queue,
        "nodes": nodes,
        "account": account,
        "features": here.features,
        "mpirun": "mpirun" in here.programs,
        "modules": scheduler.modules(),
        "login": socket.gethostname(),
        "day": time.strftime("%Y-%m-%d"),
    }


def _target(
    path: str, given: str | None, taken: Sequence[str], common: Mapping[str, Any]
) -> Described:
    """Look at a target; ``given`` is its ceiling, ``taken`` are names of other partitions."""
    try:
        if os.path.isdir(path):
            processes.call_in_time(path, partial(permission.reason, path))
    except OSError as error:
        remedy = f"its administrator runs: iogauge site allow {path}"
        raise slip(f"{path}: {error}. Nothing was written; {remedy}") from error
    try:
        seen = _look(path, common["queue"], common["account"])
        if not seen.view.space.bytes_total:
            raise OSError(f"{seen.fstype} keeps no data")
    except OSError as error:
        raise slip(
            f"{path}: {error}. Name a directory on the storage: --target DIR"
        ) from error
    ceiling, said = _ceiling(seen, given)
    name = writing.partition_name(seen)
    name = next(
        n for n in (name, *(f"{name}{k}" for k in range(2, 99))) if n not in taken
    )
    speed = _speed(path, ceiling, common["nodes"])
    known: dict[str, Any] = {
        "path": path,
        "partition": name,
        "seen": seen,
        "speed_bytes_s": speed,
    }
    return Described(ceiling=ceiling, said=said, **known, **common)


def add_target(
    name: Annotated[str, typer.Argument(help="Site that has been described already.")],
    target: Annotated[
        str, typer.Argument(help="Directory to measure; cases write below it.")
    ],
    ceiling: _Ceiling = None,
) -> None:
    """Add a target to a site: a partition with the queue and the scale of its first one."""
    folder = folders.site_dir(name)
    if not folder.is_dir():
        every = folders.site_folders(*folders.site_dirs())
        raise slip(no_site(name, [known.name for known in every]))
    site, mistakes = settings.read_site(folder)
    if mistakes:
        raise slip("; ".join(map(str, mistakes)))
    partitions = site["systems"][0]["partitions"]
    options = dict(
        word.lstrip("-").partition("=")[::2] for word in partitions[0].get("access", ())
    )
    slurm, queue = _queue(options.get("partition", "none"))
    nodes = partitions[0]["extras"].get("scale", {}).get("nodes", 1)
    common = _common(name, slurm, queue, nodes, options.get("account", ""))
    path, taken = os.path.abspath(target), [one["name"] for one in partitions]
    found = _target(path, ceiling, taken, common)
    file = folder / folders.SETTINGS
    before = file.read_text(encoding="utf-8")
    lines = writing.partition_lines(found, str(partitions[0].get("time_limit", "1h")))
    write_file(file, writing.with_partition(before, lines))
    if mistakes := settings.read_site(folder)[1]:
        write_file(file, before)
        raise slip("; ".join(map(str, mistakes)))
    say(f"{file}: partition {found.partition} added. Next: iogauge check {name}")


def _write(folder: Path, targets: Sequence[Described], into: Path | None) -> int:
    """Write the folder, and the repository; say what comes next. Return the exit status."""
    folder.mkdir(parents=True)
    first = targets[0]
    if into:
        lustre = first.seen.view.on_lustre
        writing.write_repository(into, first.site, first.partition, lustre)
    if folder.parent not in folders.site_dirs():
        before = os.environ.get(folders.VARIABLE)
        paths = [str(folder.parent), *([before] if before else [])]
        os.environ[folders.VARIABLE] = os.pathsep.join(paths)
    tier = writing.sizes_of(first)[0].tier
    speed = min(one.speed_bytes_s / one.nodes for one in targets)
    fits = _plan(
        folder, partial(writing.settings_text, targets), first.queue, tier, speed
    )
    say(f"{folder / folders.SETTINGS}: written")
    for one in targets:
        free = format_bytes(one.seen.view.space.bytes_free)
        say(
            f"looked at: {one.seen.host}, {one.seen.cores} cores; {one.path}, {free} free"
        )
    for text in dict.fromkeys(text for one in targets for text in writing.unknown(one)):
        say(f"not found out: {text}")
    if first.slurm is None and (other := scheduler.other_scheduler()):
        say(
            f"not found out: the scheduler of {other}. Write scheduler and access (docs/sites.md)"
        )
    say("next:")
    for command in next_commands(first.site, tier, into, folder.parent):
        say(f"    {command}")
    return 0 if fits else 1


def next_commands(name: str, tier: str, into: Path | None, sites: Path) -> list[str]:
    """Return the commands that follow; ``sites`` is the folder that holds the site's."""
    first = []
    if into:
        built = f"iogauge/ci/build-stack environments/{name} && . ./activate"
        first = [
            f"cd {into} && ./setup && . ./activate",
            f"{built}    # load the MPI's module first",
        ]
    elif (
        places := os.environ.get(folders.VARIABLE)
    ) and sites != project_root() / "site-configs":
        first = [f"export {folders.VARIABLE}={places}    # in every shell"]
    return [
        *first,
        f"iogauge check {name}",
        f"iogauge run --system={name} -t {tier}",
        f"iogauge calibrate --system={name}    # after 20 runs: references",
    ]
