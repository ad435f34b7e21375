"""Commands over the history: calibrate, and the trend of status."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from iogauge.cli.screen import Name, Since, System, new_console, slips
from iogauge.core import paths
from iogauge.report.outcome import plain


def propose_references(
    system: System = "",
    name: Name = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; may be repeated; all if omitted.")
    ] = None,
    since: Since = None,
    write: Annotated[bool, typer.Option("--write", help="Change references.yaml.")] = False,
    lower: Annotated[
        str | None, typer.Option(help="Allow softer references, for this reason.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    # Imported here because numpy and polars start slowly.
    from iogauge_extras.history import proposal
    from iogauge_extras.history.runs import RunChoice

    console = new_console()
    with slips(ValueError):
        fine = proposal.calibrate(
            paths.history_dir(),
            RunChoice(system=system, name=name, metrics=tuple(metric or ()), since=since),
            proposal.Settings(lower=lower),
            write=write,
            say=lambda text: console.print(plain(text), soft_wrap=True),
        )
    raise typer.Exit(0 if fine else 1)


def show_trend(*words: Any) -> int:
    """Print which metrics have become worse, see :func:`iogauge_extras.history.shown.show_trend`; return the exit status."""
    from iogauge_extras.history import shown

    return shown.show_trend(*words)
