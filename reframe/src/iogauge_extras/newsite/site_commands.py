"""The command that describes a machine as a site: site new."""

import getpass
import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.queues import Queue
from iogauge.cli.running import write_speed
from iogauge.cli.screen import say, slip
from iogauge.core import processes
from iogauge.core.paths import BUNDLED, project_root
from iogauge.core.units import format_bytes, parse_bandwidth
from iogauge.site import folders, programs
from iogauge.workspace import lock, permission
from iogauge_extras.newsite import found, writing
from iogauge_extras.newsite.found import Site, Slurm, Target


def new(
    name: Annotated[str, typer.Argument(help="Name of the site.")],
    target: Annotated[
        list[str] | None, typer.Option(help="Directory; may be repeated.")
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="Partition of Slurm, or none.")
    ] = None,
    ceiling: Annotated[
        str, typer.Option(help="Bandwidth of a client: '100 Gbit/s'.")
    ] = "",
    into: Annotated[
        Path | None,
        typer.Option("--repository", help="Write a repository for the site there."),
    ] = None,
) -> None:
    """Describe this machine as a site: look, and write its folder.

    --queue none measures this machine alone. --ceiling is the bandwidth of each client's network, or of a
    local device. What could not be found out is listed.
    """
    into = into.absolute() if into else None
    folder = _place(name, into)
    paths = target or list(filter(None, [os.environ.get("IOGAUGE_TARGET")]))
    if not paths:
        raise slip("no target is named: --target DIR, a directory on the storage")
    try:
        if ceiling:
            parse_bandwidth(ceiling)
    except ValueError as error:
        raise slip(f"--ceiling: {error}") from error
    slurm, chosen = _queue(queue)
    targets: list[Target] = []
    for path in paths:
        seen = _target(os.path.abspath(path), ceiling)
        taken = [other.partition for other in targets]
        seen.partition = writing.partition_name(seen, taken)
        targets.append(seen)
    here = programs.machine()
    modules, modules_system = found.modules()
    stack, claimed = folders.LOCAL, ""
    if into:
        stack = name
    other = folders.site_of_this_host()
    if other and other.name != folders.LOCAL:
        claimed = other.name
    site = Site(
        name=name,
        stack=stack,
        claimed=claimed,
        host=socket.gethostname(),
        day=time.strftime("%Y-%m-%d"),
        slurm=slurm,
        queue=chosen,
        features=tuple(here.features),
        mpirun="mpirun" in here.programs,
        modules=modules,
        modules_system=modules_system,
        targets=tuple(targets),
    )
    _write(site, folder, into)


def _place(name: str, into: Path | None) -> Path:
    """Return the folder of the new site; ends the command if it cannot be one."""
    if not folders.NAME.fullmatch(name) or name in (folders.COMMON, folders.LOCAL):
        raise slip(
            f"{name!r} is not a valid name of a site: expected letters, digits, _ and -, a letter first, and "
            f"neither {folders.LOCAL} nor {folders.COMMON}"
        )
    remedy = (
        f"name a folder of your own (mkdir -p DIR && iogauge --sites DIR site new {name}), or make a "
        "repository (--repository DIR)"
    )
    known = folders.site_dirs()
    parent = into / "sites" if into else known[0]
    if into is None and len(known) == 1 and BUNDLED in parent.parents:
        raise slip(f"there is no folder of your own for the site: {remedy}")
    there = next(place for place in (parent, *parent.parents) if place.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise slip(f"{getpass.getuser()} may not write in {there}: {remedy}")
    for place in (parent, *known):
        taken = place / name
        if taken.exists():
            raise slip(f"{taken} exists: choose another name, or remove that folder")
    return parent / name


def _queue(given: str | None) -> tuple[Slurm | None, Queue]:
    """Return the Slurm of this host, and the queue that cases go to; no Slurm for this machine alone."""
    slurm = None
    try:
        slurm = found.slurm()
    except OSError as error:
        say(f"Slurm is installed, but it does not answer: {error}")
    known = slurm.queues if slurm else ()
    if given == "none" or (given is None and not known):
        return None, found.this_machine()
    for queue in known:
        if given in (None, queue.name):
            return slurm, queue
    names = ", ".join(queue.name for queue in known)
    raise slip(f"no queue {given!r}; known: {names or 'none, Slurm is not here'}")


def _target(path: str, ceiling: str) -> Target:
    """Look at a target, and find out what bounds it; ``ceiling`` is the user's word."""
    try:
        seen = processes.call_in_time(path, partial(found.target, path))
    except permission.NotAllowed as error:
        remedy = f"its administrator runs: iogauge site allow {path}"
        raise slip(f"{path}: {error}. Nothing was written; {remedy}") from error
    except OSError as error:
        remedy = "Name a directory on the storage: --target DIR"
        raise slip(f"{path}: {error}. {remedy}") from error
    seen.ceiling = ceiling
    seen.source = "whoever ran `iogauge site new`"
    gbit, interface = found.network(seen.facts)
    if seen.remote and gbit and not ceiling:
        seen.ceiling = f"{gbit:g} Gbit/s"
        seen.source = f"network interface {interface} of {socket.gethostname()}, as its kernel reports it"
    say(f"writing to {path} for half a second, to size the cases")
    try:
        seen.speed_bytes_s = write_speed(path)
    except (OSError, lock.Occupied) as error:
        say(f"its speed is not measured: {error}")
        if seen.ceiling:
            seen.speed_bytes_s = parse_bandwidth(seen.ceiling)
    return seen


def _write(site: Site, folder: Path, into: Path | None) -> None:
    """Write the folder, and the repository; say what was not found out, and what comes next."""
    folder.mkdir(parents=True)
    file = folder / folders.SETTINGS
    file.write_text(writing.settings_text(site), encoding="utf-8")
    first = site.targets[0]
    if into:
        lustre = first.view.on_lustre
        writing.write_repository(into, site.name, first.partition, lustre)
    say(f"{file}: written")
    for target in site.targets:
        free = format_bytes(target.view.space.bytes_free)
        say(f"looked at: {site.host}; {target.path}, {free} free")
    for text in dict.fromkeys(found.unknown(site)):
        say(f"not found out: {text}")
    say("next:")
    for command in _next_commands(site, folder, into):
        say(f"    {command}")


def _next_commands(site: Site, folder: Path, into: Path | None) -> list[str]:
    """Return the commands that follow."""
    commands = []
    if into:
        built = f"iogauge/ci/build-stack environments/{site.name} && . ./activate"
        commands.append(f"cd {into} && ./setup && . ./activate")
        commands.append(f"{built}    # load the MPI's module first")
    elif folder.parent != project_root() / "site-configs":
        places = os.environ.get(folders.VARIABLE, str(folder.parent))
        commands.append(f"export {folders.VARIABLE}={places}    # in every shell")
    commands.append(f"iogauge check {site.name}")
    commands.append(f"iogauge run --system={site.name} -t quick")
    system = f"--system={site.name}"
    commands.append(f"iogauge calibrate {system}    # after 20 runs: references")
    if into:
        commands.append(
            "crontab -l | cat - nightly.crontab | crontab -    # every night: run and alarm"
        )
    return commands
