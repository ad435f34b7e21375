"""Commands that show what was measured: report, alarm, compare, calibrate, history, trend."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iogauge.cli.running import new_console, show_outcome
from iogauge.core import paths
from iogauge.core.text import visible, visible_lines
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.report import compare
from iogauge.report.outcome import SessionRecords
from iogauge.report.table import plain


def _sessions(
    console: Console, names: list[str]
) -> tuple[SessionRecords, bool, list[journal.Damaged]]:
    """Records of the named sessions, of the newest where none is, whether one was a gate, and what is no record."""
    files = sorted(paths.history_dir().glob("*/*.jsonl"), key=lambda file: file.name)
    known = [file.stem for file in files]
    wanted = names or known[-1:]
    for name in wanted or [""]:
        if name not in known:
            newest = ", ".join(known[-5:]) or "none"
            raise typer.BadParameter(
                visible(f"no session {name!r} in {paths.history_dir()} (newest: {newest})")
            )
    records, damaged = [], []
    for file in files:
        for record in journal.read_whole(file) if file.stem in wanted else ():
            if isinstance(record, journal.Damaged):
                console.print(plain(f"{record.file}:{record.line}: skipped: {record.problem}"))
                damaged.append(record)
            else:
                records.append(record)
    return SessionRecords(records), any(record.gate for record in records), damaged


def show_report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest where left out.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: one file that needs no network.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML.")] = None,
) -> None:
    """Show the table of a session again; with --html and --junit also as files."""
    console = new_console()
    records, gate, damaged = _sessions(console, names or [])
    if html:
        from iogauge.alarm.collect import collect  # with SciPy and polars
        from iogauge.alarm.page import page

        found = collect(paths.history_dir(), records, gate=gate, damaged=damaged)
        html.write_text(page(found, records), encoding="utf-8")
    if junit:
        from iogauge.report.junit import junit as as_junit

        junit.write_text(as_junit(records, gate), encoding="utf-8")
    # Nobody knows what a damaged record had to say: it may have been a failure.
    raise typer.Exit(show_outcome(console, records, gate, 1 if damaged else 0))


def raise_alarm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest where left out.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="system:partition that must have been measured; may be repeated."),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Only PASS is no trouble.")] = False,
    send: Annotated[
        bool,
        typer.Option("--send", help="To what IOGAUGE_ALARM_COMMAND, IOGAUGE_WEBHOOK_URL … name."),
    ] = False,
    link: Annotated[str, typer.Option(help="Where the whole report is.")] = "",
    figures: Annotated[
        Path | None, typer.Option(help="Directory for a figure of each trouble.")
    ] = None,
) -> None:
    """Say what failed in a session and what it measured that has become worse, and send it.

    Exit status 0: no trouble; 1: trouble, and every receiver has it; 2: the question is wrong; 3: trouble, and a
    receiver does not have it. Nothing is sent where there is no trouble.
    """
    from iogauge.alarm import figure, receivers  # with SciPy and polars
    from iogauge.alarm.collect import collect

    console = new_console()
    try:
        wanted = receivers.receivers(os.environ) if send else {}
        records, was_gate, damaged = (
            (SessionRecords(), False, [])
            if expect and not names
            else _sessions(console, names or [])
        )
        found = collect(
            paths.history_dir(),
            records,
            gate=gate or was_gate,
            expected=expect or (),
            damaged=damaged,
        )
    except ValueError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    typer.echo(visible_lines(found.text))
    curves = [trouble.curve for trouble in found.troubles if trouble.curve]
    try:
        for number, curve in enumerate(curves if figures else (), 1):
            assert figures is not None
            figures.mkdir(parents=True, exist_ok=True)
            (figures / f"{number}.svg").write_text(figure.svg(curve, alone=True), encoding="utf-8")
    except OSError as error:  # the alarm goes out all the same
        typer.echo(visible_lines(f"iogauge: figures were not written: {error}"), err=True)
    if not found.failed:
        return
    code = 1
    for name, receiver in wanted.items():
        try:
            receiver(receivers.Message(found, link))
            typer.echo(visible(f"iogauge: alarm sent: {name}"))
        except receivers.SendError as error:
            typer.echo(visible_lines(f"iogauge: ALARM NOT SENT: {name}: {error}"), err=True)
            code = 3
    raise typer.Exit(code)


def show_comparison(
    a: Annotated[
        str, typer.Argument(help="A Darshan log; or a session or its .jsonl, with :case.")
    ],
    b: Annotated[str, typer.Argument(help="What is put in relation to it; of the same kind.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put two Darshan logs, or two records, side by side, and say what else was different."""
    try:
        found = compare.compare(compare.read(a), compare.read(b))
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(compare.to_json(found))
    else:
        new_console().print(compare.render(found))


def propose_references(
    system: Annotated[str, typer.Option(help="System; all that have records where left out.")] = "",
    name: Annotated[
        str, typer.Option("-n", "--name", help="Regular expression that the case's name holds.")
    ] = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; may be repeated; all where left out.")
    ] = None,
    since: Annotated[str, typer.Option(help="Only runs from this day or moment on (UTC).")] = "",
    runs: Annotated[int | None, typer.Option(help="Only the newest so many runs.")] = None,
    coverage: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Share of healthy runs that meet the bound.")
    ] = 0.99,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="How sure that is.")
    ] = 0.95,
    write: Annotated[bool, typer.Option("--write", help="Change references.yaml.")] = False,
    lower: Annotated[
        str | None, typer.Option(help="Why references may be made softer; without it none is.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    # With SciPy and polars, which no other command waits for.
    from iogauge.calibrate import command, proposal
    from iogauge.calibrate.runs import RunChoice
    from iogauge.report.history_table import moment

    console = new_console()
    try:
        fine = command.calibrate(
            paths.history_dir(),
            paths.sites_dir(),
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
    system: Annotated[str, typer.Option(help="System; all where left out.")] = "",
    name: Annotated[
        str,
        typer.Option("-n", "--check", help="Regular expression that the case's name holds."),
    ] = "",
    verdict: Annotated[
        list[Verdict] | None,
        typer.Option(case_sensitive=False, help="Of the case or a metric; may be repeated."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric; all where left out.")] = "",
    since: Annotated[str, typer.Option(help="Day or moment (UTC), or 12h, 7d, 4w ago.")] = "",
    until: Annotated[str, typer.Option(help="As --since; a day to its end.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Newest records that are shown; 0: all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records, one a line.")] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="List the lines that are no records.")
    ] = False,
) -> None:
    """Show what was recorded, the newest first."""
    from iogauge.records import query  # with polars, which no run of checks waits for
    from iogauge.report import history_table

    folder, console = paths.history_dir(), new_console()
    try:
        choice = history_table.Choice(
            system=system,
            name=name,
            verdicts=tuple(verdict or ()),
            metric=metric,
            since=history_table.moment(since) if since else None,
            until=history_table.moment(until, end=True) if until else None,
            limit=limit,
        )
        if damaged:
            for one in query.damaged(folder):
                typer.echo(visible(f"{one.file}:{one.line}: {one.problem}"))
            return
        rows, matching = choice.of(folder)
        found = list(history_table.records(folder, rows))
    except (ValueError, OSError) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        for record, _ in found:
            typer.echo(json.dumps(record, separators=(",", ":")))
        return
    if found:
        console.print(history_table.table(found))
    console.print(plain(f"{len(found)} of {matching} record(s) in {folder}"), soft_wrap=True)


def show_trend(
    system: Annotated[str, typer.Option(help="Only this system.")] = "",
    name: Annotated[str, typer.Option("--name", "-n", help="Only cases that fit this regex.")] = "",
    since: Annotated[str, typer.Option(help="Only runs from this day on, YYYY-MM-DD.")] = "",
    baseline: Annotated[int, typer.Option(help="Runs that later ones are compared with.")] = 30,
    false_alarms: Annotated[
        float, typer.Option(help="Share of stable series with an alarm in 30 runs.")
    ] = 0.05,
    offline: Annotated[
        bool, typer.Option("--offline", help="All changes of the newest series, seen from today.")
    ] = False,
    method: Annotated[str, typer.Option(help="For --offline: binary or otava.")] = "binary",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which metrics have become worse, since when, by how much, and what changed just before.

    Exit status 1: there is an alarm; 2: the question is wrong. Improvements and short series are no alarm.
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
        )
    except (ValueError, MissingExtra) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(status)
