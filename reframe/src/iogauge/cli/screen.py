"""What all commands print alike: the console, the table of a session, and its ending."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.console import Console

from iogauge.core.text import visible_lines
from iogauge.core.units import moment
from iogauge.judge.verdict import Verdict
from iogauge.report import outcome
from iogauge.report.endings import Ending, SessionRecords
from iogauge.report.layout import Table, fold
from iogauge.report.outcome import plain
from iogauge.report.ranking import ranked


def time_of(text: str) -> datetime:
    """Return the time that an argument names; raises BadParameter."""
    found = _time(False)(text)
    if found is None:
        raise typer.BadParameter("expected a day or a time")
    return found


def _time(end: bool) -> Callable[[str], datetime | None]:
    def parse(text: str) -> datetime | None:
        try:
            return moment(text, end=end) if text else None
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parse


#: Options that several commands have.
System = Annotated[str, typer.Option(help="System; all if omitted.")]
Name = Annotated[
    str, typer.Option("-n", "--name", help="Case by its name; all if omitted.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        parser=_time(False),
        metavar="TIME",
        help="Only what was measured since this day or time (UTC), or 12h, 7d, 4w ago.",
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        parser=_time(True),
        metavar="TIME",
        help="Until this day or time, as for --since. A day counts to its end.",
    ),
]

#: Characters in a line of a log.
_LOG_COLUMNS: Final = 120


def new_console(err: bool = False) -> Console:
    """Return a console on standard output or error, as wide as the terminal or ``COLUMNS``.

    Without both it is as wide as a log's lines.
    """
    width = None if _width_is_known(err) else _LOG_COLUMNS
    return Console(stderr=err, width=width, highlight=False, emoji=False)


def _width_is_known(err: bool) -> bool:
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() or os.environ.get("COLUMNS", "").isdigit()


def warn(text: str) -> None:
    """Say on standard error what is wrong, or what else is to be known."""
    say(f"iogauge: {text}", err=True)


def slip(text: str) -> typer.Exit:
    """Say what is wrong on the command line, and return the end of the command."""
    warn(text)
    return typer.Exit(2)


@contextlib.contextmanager
def slips(*kinds: type[Exception]) -> Iterator[None]:
    """End the command with 2 at an error that its options cause, with the error's text."""
    try:
        yield
    except kinds as error:
        raise slip(str(error)) from error


def say(text: str, style: str = "", *, err: bool = False) -> None:
    """Print outside text, broken between words at the width of a terminal or ``COLUMNS``.

    A word that is longer, such as a path, stays whole; so does a command, which stands four blanks to the right. In a
    log each line stays whole.
    """
    console = new_console(err)
    lines = visible_lines(text).split("\n")
    if _width_is_known(err):
        lines = [_folded(line, console.width) for line in lines]
    console.print(plain("\n".join(lines)), style=style, soft_wrap=True)


def _folded(line: str, width: int) -> str:
    if line.startswith("    "):
        return line
    return fold(line, width, line[: len(line) - len(line.lstrip())])


def show(view: Table) -> None:
    """Print a table, whose lines are as long as they are."""
    new_console().print(view, crop=False)


def show_ending(records: SessionRecords, end: Ending) -> None:
    """Print the table, the gravest of each target first, the ending, and what was not run."""
    if records:
        show(outcome.table(ranked(records)))
    for line in (f"iogauge: {end}", *end.remarks):
        say(line)
    if any(r.tier == "quick" and r.metrics for r in records):
        say(
            "limits.tier is quick: the phases are short, so the figures are rough, whatever -t chooses. "
            "To compare systems, use a site with limits.tier: daily (docs/sites.md)."
        )
    if any(r.verdict is Verdict.UNREFERENCED for r in records):
        say(
            "UNREFERENCED is no pass: the figures are valid, but there is no reference to compare "
            "them with. Add references to the site's references.yaml (iogauge calibrate proposes them)."
        )
