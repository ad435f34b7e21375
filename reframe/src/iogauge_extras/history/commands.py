"""Commands over the history: calibrate, and the trend of status."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated

import typer

from iogauge.cli.screen import drawn, new_console
from iogauge.core import paths
from iogauge.core.text import visible_lines
from iogauge.report.outcome import plain


def propose_references(
    system: Annotated[str, typer.Option(help="System; all with records if omitted.")] = "",
    name: Annotated[
        str, typer.Option("-n", "--name", help="Case by its name; all if omitted.")
    ] = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; may be repeated; all if omitted.")
    ] = None,
    since: Annotated[str, typer.Option(help="Only runs since this day or time (UTC).")] = "",
    runs: Annotated[int | None, typer.Option(help="Only this many newest runs.")] = None,
    coverage: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Share of healthy runs that meet the bound.")
    ] = 0.99,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Confidence in this share.")
    ] = 0.95,
    write: Annotated[bool, typer.Option("--write", help="Change references.yaml.")] = False,
    lower: Annotated[
        str | None, typer.Option(help="Allow softer references, for this reason.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    # Imported here because numpy and polars start slowly.
    from iogauge.report.history_table import moment
    from iogauge_extras.history import proposal
    from iogauge_extras.history.runs import RunChoice

    console = new_console()
    try:
        fine = proposal.calibrate(
            paths.history_dir(),
            RunChoice(
                system=system,
                name=name,
                metrics=tuple(metric or ()),
                since=moment(since) if since else None,
                newest=runs,
            ),
            proposal.Settings(coverage=coverage, confidence=confidence, lower=lower),
            write=write,
            say=lambda text: console.print(plain(text), soft_wrap=True),
        )
    except ValueError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if fine else 1)


def show_trend(
    system: str,
    name: str,
    since: datetime | None,
    baseline: int,
    false_alarms: float,
    offline: bool,
    as_json: bool,
    wide: bool,
) -> int:
    """Print which metrics have become worse: ``iogauge status --trend``. Return the exit status, 1 for an alarm.

    Raises ValueError for an option that makes no sense.
    """
    from iogauge_extras.history import shown

    question = shown.Question(
        system=system,
        name=name,
        since=since,
        baseline=baseline,
        false_alarms=false_alarms,
        offline=offline,
        as_json=as_json,
    )
    return shown.show_trend(new_console(), paths.history_dir(), question, partial(drawn, wide))
