"""Commands about targets and the places of sites: clean, site allow, site paths."""

from __future__ import annotations

import os
import shlex
from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from iogauge.cli.screen import say, warn
from iogauge.core import processes
from iogauge.core.paths import project_root
from iogauge.core.text import visible_lines
from iogauge.session.current import Janitor
from iogauge.site import machine
from iogauge.workspace import permission


def clean(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Session directories.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what may be alive.")
    ] = False,
) -> None:
    """Remove what interrupted sessions left on the targets.

    Without paths: the directories of dead sessions, and their locks. Stage directories are removed after a week. On a target, only directories with iogauge's marker
    are removed.
    """
    janitor = Janitor(dry_run, everything, say)
    if paths:
        janitor.clean_directories(paths)
    else:
        janitor.clean_targets(target or [], machine.target_path())
    raise typer.Exit(1 if janitor.failed else 0)


def allow(
    directory: Annotated[
        str, typer.Argument(help="Directory in which cases may write.")
    ],
    user: Annotated[
        list[str] | None, typer.Option(help="User; may be repeated.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Group; may be repeated.")
    ] = None,
    expires: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Last day, YYYY-MM-DD."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing file.")
    ] = False,
) -> None:
    """Allow a directory as a target. For administrators and owners.

    Writes a file .iogauge-allowed into it, valid for the file system that is mounted there now.
    Without that file cases write only in directories of the caller.
    """
    path = os.path.abspath(directory)
    last = expires.date() if expires else None
    try:
        marker = processes.call_in_time(
            path,
            partial(
                permission.allow,
                path,
                tuple(user or ()),
                tuple(group or ()),
                last,
                replace,
            ),
        )
    except OSError as error:
        warn(str(error))
        raise typer.Exit(1) from error
    file = os.path.join(path, permission.MARKER)
    say(f"{file} allows {marker.meaning()}")
    typer.echo(visible_lines(marker.to_yaml()), nl=False)
    if strangers := permission.unknown(marker):
        names = ", ".join(strangers)
        warn(
            f"{names}: not known on this host; if that is a slip, write it anew with --replace"
        )
    say(f"iogauge writes below {path}/iogauge and nowhere else. Undo: rm {file}")


def show_paths() -> None:
    """Print the variables with which ReFrame finds sites and checks: eval "$(iogauge site paths)"."""
    paths = {"RFM_CONFIG_PATH": "site-configs", "RFM_CHECK_SEARCH_PATH": "checks"}
    for variable, folder in paths.items():
        typer.echo(
            visible_lines(
                f"export {variable}={shlex.quote(str(project_root() / folder))}"
            )
        )
