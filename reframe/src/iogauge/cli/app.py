"""The ``iogauge`` command: the list of its commands."""

import getpass
import os
import pkgutil
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from iogauge.cli.screen import slip
from iogauge.core import processes, registry
from iogauge.core.text import did_you_mean, visible
from iogauge.records import names
from iogauge.session import current
from iogauge.site import folders

#: The commands in the order of the help, and the function of each in this package. Without one it is of an extra.
COMMANDS: Final = {
    "run": "running:run",
    "bench": "running:bench",
    "check": "check:check",
    "report": "reporting:show_report",
    "explain": "results:explain_word",
    "clean": "site:clean",
    **dict.fromkeys(("status", "alarm", "calibrate", "compare", "probe"), ""),
    "history": "results:show_history",
    "site": "site:describe",
}

#: Commands below a command.
_BELOW: Final = {
    "history": {"prune": ""},
    "site": {"allow": "site:allow", "new": "", "collecting": "", "ceilings": ""},
}


class _Commands(TyperGroup):
    """Commands by their names. The module of each is imported when it is called, and all of them for the help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None if there is none of the name."""
        if cmd_name not in COMMANDS:
            return None
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        place = COMMANDS[cmd_name]
        if cmd_name not in _BELOW:
            _add(group, cmd_name, place)
            return typer.main.get_command(group)
        alone = cmd_name == "history"
        group.callback(invoke_without_command=alone, no_args_is_help=not alone)(
            _function(cmd_name, place)
        )
        for name, below in _BELOW[cmd_name].items():
            _add(group, name, below)
        return typer.main.get_command(group)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take each case's name as one word."""
        return super().parse_args(ctx, names.joined(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; for a slip say what was meant perhaps."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}{did_you_mean(args[0], COMMANDS)}.")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
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


def _function(name: str, place: str = "") -> Callable[..., None]:
    """Return the function of a command; raises :class:`registry.Missing`."""
    if not place:
        return registry.load("iogauge_commands", name)
    command: Callable[..., None] = pkgutil.resolve_name(f"iogauge.cli.{place}")
    return command


def _add(group: typer.Typer, name: str, place: str) -> None:
    """Add a command, or one that says that its extra is not there."""
    passes, needs_words = name in ("run", "bench"), name in ("explain", "compare")
    try:
        command = _function(name, place)
    except registry.Missing as error:
        missing, passes, needs_words = error, True, False

        def command() -> None:
            """Not installed here."""
            raise slip(str(missing))

    group.command(
        name,
        context_settings={
            # What the command does not know is passed on to ReFrame.
            "allow_extra_args": passes,
            "ignore_unknown_options": passes,
        },
        no_args_is_help=needs_words,
    )(command)


@app.callback()
def common(
    context: typer.Context,
    sites: Annotated[
        list[Path] | None,
        typer.Option(
            help=f"Folder of folders of sites, searched before those of ${folders.VARIABLE}. May be repeated.",
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
    processes.hear_children()
    try:
        os.environ["PWD"] = (
            os.getcwd()
        )  # what started this command may have passed on its own
    except FileNotFoundError as error:
        raise slip("the current directory was removed: cd to another one") from error
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        text = f"{error.strerror}: set TMPDIR to a directory that you may write to"
        raise slip(text) from error
    try:
        getpass.getuser()
    except (OSError, KeyError):  # ReFrame does not run without a name
        os.environ["LOGNAME"] = f"uid{os.getuid()}"
    named = [str(folder.absolute()) for folder in sites or ()]
    if named:
        if os.environ.get(folders.VARIABLE):
            named.append(os.environ[folders.VARIABLE])
        os.environ[folders.VARIABLE] = os.pathsep.join(named)
    if context.invoked_subcommand is None:
        _function("status")(brief=True)
