"""Commands about targets and who may write there: clean, site allow."""

import os
from functools import partial
from typing import Annotated

import typer

from iogauge.cli.screen import say, slips, warn
from iogauge.core import processes
from iogauge.core.text import visible_lines
from iogauge.session.current import Janitor
from iogauge.site import machine
from iogauge.workspace import permission


def describe() -> None:
    """Describe a machine as a site."""


def clean(
    target: Annotated[
        list[str] | None, typer.Option(help="Target; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what may be alive.")
    ] = False,
) -> None:
    """Remove what interrupted sessions left on the targets.

    That is the directories of dead sessions, and their locks. Stage directories are removed after a week. On a target, only
    directories with iogauge's marker are removed.
    """
    janitor = Janitor(dry_run, everything, say)
    with slips(OSError):
        here = machine.target_path()
    janitor.clean_targets(target or [], here)
    raise typer.Exit(int(janitor.failed))


def allow(
    directory: Annotated[
        str, typer.Argument(help="Directory in which cases may write.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing file.")
    ] = False,
) -> None:
    """Allow a directory as a target, for all who can write there. For administrators and owners.

    Writes a file .iogauge-allowed into it, valid for the file system that is mounted there now.
    Without that file cases write only in directories of the caller.
    """
    path = os.path.abspath(directory)
    try:
        marker = processes.call_in_time(path, partial(permission.allow, path, replace))
    except OSError as error:
        warn(str(error))
        raise typer.Exit(1) from error
    file = os.path.join(path, permission.MARKER)
    say(f"{file} allows {marker.meaning()}")
    typer.echo(visible_lines(marker.to_yaml()), nl=False)
    say(f"iogauge writes below {path}/iogauge and nowhere else. Undo: rm {file}")
