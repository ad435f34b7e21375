"""Commands that show what was measured: explain, status, calibrate, history, trend."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding

from iogauge.cli.screen import Wide, drawn, new_console
from iogauge.core import paths
from iogauge.core.text import visible, visible_lines
from iogauge.judge.verdict import Verdict
from iogauge.report.outcome import SessionRecords
from iogauge.report.table import plain

if TYPE_CHECKING:
    from iogauge.report.history_table import RecordChoice


def explain_word(
    words: Annotated[
        list[str], typer.Argument(help="Guard, verdict, check, or word of docs/glossary.md.")
    ],
) -> None:
    """Say what a guard (G12), a verdict (UNSTABLE) or a check (FioRandomRead) means and what to do."""
    from iogauge.cli.explain import explain

    console = new_console()
    try:
        for line in explain(" ".join(words)):
            view = Padding(plain(line.lstrip()), (0, 0, 0, 2 * line.startswith("  ")), expand=False)
            console.print(view)
    except LookupError as error:
        typer.echo(visible_lines(f"iogauge: {error.args[0]}"), err=True)
        raise typer.Exit(2) from error


def show_status(
    system: Annotated[str, typer.Option(help="System; all if omitted.")] = "",
    since: Annotated[
        str, typer.Option(help="Only cases measured since this day or time (UTC), or 7d, 4w ago.")
    ] = "30d",
    wide: Wide = False,
) -> None:
    """Show the last 14 runs of every case, and a sentence for each problem, the newest first."""
    from iogauge.alarm.collect import collect  # with SciPy and polars
    from iogauge.report import status
    from iogauge.report.history_table import moment

    console = new_console()
    try:
        cases = status.read(paths.history_dir(), system, moment(since) if since else None)
    except (ValueError, TypeError, OSError) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if not cases:
        console.print(plain(f"no case was measured since {since or 'ever'}: {paths.history_dir()}"))
        return
    console.print(status.table(cases, wide), soft_wrap=True)
    console.print(plain(status.legend()))
    newest = sorted((case.newest for case in cases), key=lambda record: record.time)
    alarm = collect(paths.history_dir(), SessionRecords(newest), gate=False)
    times = {(case.where, case.case): case.newest.time for case in cases}
    for trouble in sorted(
        alarm.troubles,
        key=lambda trouble: times.get((trouble.where, trouble.case), ""),
        reverse=True,
    ):
        time = times.get((trouble.where, trouble.case), "")[:16].replace("T", " ")
        console.print(plain(f"{time} {trouble.sentence}"))
    console.print(plain(f"iogauge: {alarm.ending}"), soft_wrap=True)


def propose_references(
    system: Annotated[str, typer.Option(help="System; all with records if omitted.")] = "",
    name: Annotated[
        str, typer.Option("-n", "--name", help="Regular expression, found in the case's name.")
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
        str | None, typer.Option(help="Reason to make references softer; needed for that.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    # Imported here because SciPy and polars start slowly.
    from iogauge.calibrate import command, proposal
    from iogauge.calibrate.runs import RunChoice
    from iogauge.report.history_table import moment

    console = new_console()
    try:
        fine = command.calibrate(
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


def show_history(
    system: Annotated[str, typer.Option(help="System; all if omitted.")] = "",
    name: Annotated[
        str, typer.Option("-n", "--check", help="Regular expression, found in the case's name.")
    ] = "",
    verdict: Annotated[
        list[Verdict] | None,
        typer.Option(
            case_sensitive=False, help="Verdict of the case or a metric; may be repeated."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric; all if omitted.")] = "",
    since: Annotated[str, typer.Option(help="Day or time (UTC), or 12h, 7d, 4w ago.")] = "",
    until: Annotated[str, typer.Option(help="As --since; a day includes its end.")] = "",
    limit: Annotated[
        int, typer.Option(min=0, help="Number of newest records to show; 0 for all.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records, one a line.")] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write all that fits as .parquet, or as .lp for InfluxDB.")
    ] = None,
    site: Annotated[str, typer.Option(help="For --export: the column site of a .parquet.")] = "",
    damaged: Annotated[
        bool, typer.Option("--damaged", help="List the lines that are not records.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Show the records, the newest first."""
    from iogauge.report import history_table  # imported here because polars starts slowly

    folder, console = paths.history_dir(), new_console()
    try:
        choice = history_table.RecordChoice(
            system=system,
            name=name,
            verdicts=tuple(verdict or ()),
            metric=metric,
            since=history_table.moment(since) if since else None,
            until=history_table.moment(until, end=True) if until else None,
            limit=limit,
        )
        if damaged:
            return _show_damaged(folder)
        if export:
            return _write_history(folder, replace(choice, limit=0), export, site)
        rows, matching = choice.of(folder)
        contents = list(history_table.records(folder, rows))
    except (ValueError, OSError) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        for record, _ in contents:
            typer.echo(json.dumps(record, separators=(",", ":")))
        return
    if contents:
        console.print(history_table.table(contents, wide), soft_wrap=True)
    console.print(plain(f"{len(contents)} of {matching} record(s) in {folder}"), soft_wrap=True)


def _show_damaged(folder: Path) -> None:
    """Print the lines of a history that are no records."""
    from iogauge.records import query

    for line in query.damaged(folder):
        typer.echo(visible(f"{line.file}:{line.line}: {line.problem}"))


def _write_history(folder: Path, choice: RecordChoice, file: Path, site: str) -> None:
    """Write the chosen part of the history for other tools; raises ValueError for another name."""
    from iogauge.report import export

    if file.suffix not in (".parquet", ".lp"):
        raise ValueError(f"{file}: expected a name that ends in .parquet, or in .lp for InfluxDB")
    frame = export.rows(folder, choice)
    if file.suffix == ".parquet":
        export.parquet(frame, file, site)
    else:
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{line}\n" for line in export.influx(frame))
    typer.echo(visible(f"{frame.height} row(s) in {file}"))


def show_trend(
    system: Annotated[str, typer.Option(help="Only this system.")] = "",
    name: Annotated[
        str, typer.Option("--name", "-n", help="Only cases that match this regular expression.")
    ] = "",
    since: Annotated[str, typer.Option(help="Only runs since this day, YYYY-MM-DD.")] = "",
    baseline: Annotated[
        int, typer.Option(help="Number of runs with which later runs are compared.")
    ] = 30,
    false_alarms: Annotated[
        float, typer.Option(help="Share of stable series with an alarm in 30 runs.")
    ] = 0.05,
    offline: Annotated[
        bool, typer.Option("--offline", help="All changes of the newest series, in retrospect.")
    ] = False,
    method: Annotated[str, typer.Option(help="For --offline: binary or otava.")] = "binary",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Say which metrics have become worse, since when, by how much, and what changed just before.

    Exit status 1: there is an alarm; 2: a wrong option. Improvements and short series are no alarm.
    """
    from iogauge.report.history_table import moment
    from iogauge.trend import command
    from iogauge.trend.offline import MissingExtra

    try:
        status = command.command(
            new_console(),
            paths.history_dir(),
            command.Question(
                system=system,
                name=name,
                since=moment(since) if since else None,
                baseline=baseline,
                false_alarms=false_alarms,
                offline=offline,
                method=method,
                as_json=as_json,
            ),
            partial(drawn, wide),
        )
    except (ValueError, MissingExtra) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(status)
