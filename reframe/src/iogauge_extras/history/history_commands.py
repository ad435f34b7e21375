"""Commands over the history: calibrate, and the trend of status."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from iogauge.cli.screen import Name, Since, System, say, slips
from iogauge.core import paths
from iogauge.core.text import visible_lines
from iogauge.records.query import Choice


def propose_references(
    system: System = "",
    name: Name = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; may be repeated; all if omitted.")
    ] = None,
    since: Since = None,
    write: Annotated[
        bool, typer.Option("--write", help="Change references.yaml.")
    ] = False,
    lower: Annotated[
        str | None, typer.Option(help="Allow softer references, for this reason.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    from iogauge_extras.history import proposal  # with what reads and writes sites

    with slips(ValueError):
        choice = Choice(system=system, name=name, since=since)
        folder, metrics = paths.history_dir(), metric or ()
        fine = proposal.calibrate(
            folder, choice, metrics, lower, write=write, say=_tell
        )
    raise typer.Exit(0 if fine else 1)


def _tell(text: str) -> None:
    """Print a line; a diff, which has several, as it is."""
    say(text) if "\n" not in text else typer.echo(visible_lines(text))


def show_trend(*words: Any) -> int:
    """Print which metrics have become worse, see :func:`iogauge_extras.history.shown.show_trend`; return the exit status."""
    from iogauge_extras.history import shown

    return shown.show_trend(*words)
