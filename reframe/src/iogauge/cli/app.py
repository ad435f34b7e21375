"""The ``iogauge`` command: the list of its commands."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from iogauge.cli import ready, reporting, results, running, site
from iogauge.cli.screen import slip, slips
from iogauge.core import processes, registry
from iogauge.core.text import did_you_mean, visible
from iogauge.records import names
from iogauge.session import current
from iogauge.site import folders

#: Options that a command does not know are passed on to ReFrame.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


#: Commands that mean nothing without a word: alone they show their help.
_ASKS = ("compare", "window")


class _Commands(TyperGroup):
    """Commands by their names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take ``list`` for what it means, and each case's name as one word."""
        words = names.joined(args)
        known = {*self.commands, "list"}
        first = next((word for word in words if word in known), "")
        if first == "list":
            place = words.index("list")
            words[place : place + 1] = ["run", "-l"]
        return super().parse_args(ctx, words)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; for a slip say what was meant perhaps."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(
                f"No such command {args[0]!r}{did_you_mean(args[0], [*self.commands, 'list'])}."
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # no boxes; paragraphs fold at the width of the terminal
    help="Storage benchmarks through ReFrame that pass only on a proven measurement.",
)


def _show_version(asked: bool) -> None:
    if asked:
        reframe = f"ReFrame-HPC {version('ReFrame-HPC')}"
        text = (
            f"iogauge {current.suite()} ({reframe}, Python {platform.python_version()})"
        )
        typer.echo(visible(text))
        raise typer.Exit


def _told(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that says which extra it lacks, and ends with 2."""

    @functools.wraps(command)
    def tell(*words: Any, **options: Any) -> None:
        with slips(registry.Missing):
            command(*words, **options)

    return tell


def _add(group: typer.Typer, name: str, passes_on: bool = False) -> None:
    """Add the command of an extra, or one that says that the extra is not there."""
    settings = _PASS_ON if passes_on else None
    try:
        command = _told(registry.load("iogauge_commands", name))
        group.command(name, context_settings=settings, no_args_is_help=name in _ASKS)(
            command
        )
    except registry.Missing as error:
        missing = error

        def command() -> None:
            """Not installed here."""
            raise missing

        group.command(name, context_settings=_PASS_ON)(_told(command))


@app.callback()
def common(
    context: typer.Context,
    sites: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder that contains folders of sites; may be repeated. It is searched before those "
            f"of ${folders.VARIABLE} and before the published ones.",
        ),
    ] = None,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the versions, and exit.",
        ),
    ] = False,
) -> None:
    """Put folders of sites in front of the search path, for this command and what it starts."""
    processes.open_streams()
    try:
        os.environ["PWD"] = (
            os.getcwd()
        )  # what started this command may have passed on its own
    except FileNotFoundError as error:
        raise slip("the current directory was removed: cd to another one") from error
    named = [str(folder.absolute()) for folder in sites or ()]
    before = os.environ.get(folders.VARIABLE)
    if named:
        os.environ[folders.VARIABLE] = os.pathsep.join(
            [*named, *([before] if before else [])]
        )
    if context.invoked_subcommand is None:
        _told(registry.load("iogauge_commands", "status"))(brief=True)


app.command(context_settings=_PASS_ON)(running.run)
app.command("check")(ready.check)
app.command("report")(_told(reporting.show_report))
app.command("explain", no_args_is_help=True)(results.explain_word)
app.command()(site.clean)
app.command("history")(results.show_history)

for _name in ("status", "alarm", "calibrate", "compare"):
    _add(app, _name)
_add(app, "window", passes_on=True)

site_commands = typer.Typer(no_args_is_help=True, help="Describe a machine as a site.")
site_commands.command("allow")(site.allow)
site_commands.command("paths")(site.show_paths)
for _name in ("new", "add-target", "collecting", "ceilings"):
    _add(site_commands, _name)
app.add_typer(site_commands, name="site")
