"""Commands that show what was measured: report, alarm, compare, calibrate, history, trend."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding

from iogauge.cli.screen import Wide, drawn, new_console, show_ending
from iogauge.core import paths
from iogauge.core.text import visible, visible_lines
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, missing
from iogauge.records.missing import Unmeasured
from iogauge.records.record import Record
from iogauge.report import compare, outcome, subjects, table
from iogauge.report.outcome import SessionRecords
from iogauge.report.table import plain

if TYPE_CHECKING:
    from iogauge.alarm.collect import Alarm
    from iogauge.alarm.receivers import Message, Receiver


#: Columns of a log for the tables that have boxes and do not fold well.
_BOXES = 200


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is known of some sessions: records, damaged lines, and what they did not measure."""

    records: SessionRecords = field(default_factory=SessionRecords)
    unmeasured: Unmeasured = field(default_factory=Unmeasured)
    damaged: tuple[journal.Damaged, ...] = ()

    @property
    def gate(self) -> bool:
        """Return whether any of the sessions ran as a gate."""
        return self.unmeasured.gate or any(record.gate for record in self.records)


def _sessions(console: Console, names: list[str]) -> _Asked:
    """Return what is known of the named sessions; without names, of the newest session.

    Raises BadParameter for an unknown session.
    """
    files = sorted(paths.history_dir().glob("*/*.json*"), key=lambda file: file.name)
    files = [file for file in files if file.suffix in (".json", ".jsonl")]
    sessions = list(dict.fromkeys(file.stem for file in files))
    wanted = names or sessions[-1:]
    for name in wanted or [""]:
        if name not in sessions:
            newest = ", ".join(sessions[-5:]) or "none"
            raise typer.BadParameter(
                visible(f"no session {name!r} in {paths.history_dir()} (newest: {newest})")
            )
    records: list[Record] = []
    damaged: list[journal.Damaged] = []
    lacks: list[Unmeasured] = []
    for file in files:
        if file.stem not in wanted:
            continue
        if file.suffix == ".json":
            try:
                lacks.append(missing.load(file))
            except (OSError, ValueError, TypeError) as error:
                damaged.append(journal.Damaged(file, 0, f"cannot be read: {error}"))
            continue
        for record in journal.read_whole(file):
            if isinstance(record, journal.Damaged):
                damaged.append(record)
            else:
                records.append(record)
    for line in damaged:
        console.print(plain(f"{line.file}:{line.line}: skipped: {line.problem}"))
    return _Asked(SessionRecords(records), missing.joined(lacks), tuple(damaged))


def show_report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if omitted.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: one file that needs no network.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML.")] = None,
    wide: Wide = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each metric with its reasons as JSON.")
    ] = False,
) -> None:
    """Show the table of a session again; with --html and --junit also write files."""
    console = Console(stderr=True) if as_json else new_console()
    asked = _sessions(console, names or [])
    ending = asked.records.ending(asked.gate, asked.unmeasured, outcome.of_damage(asked.damaged))
    if html:
        from iogauge.alarm.collect import collect  # with SciPy and polars
        from iogauge.alarm.page import page

        alarm = collect(
            paths.history_dir(),
            asked.records,
            gate=asked.gate,
            damaged=asked.damaged,
            unmeasured=asked.unmeasured,
        )
        ending = alarm.ending
        html.write_text(page(alarm, asked.records), encoding="utf-8")
    if junit:
        from iogauge.report.junit import junit as as_junit

        text = as_junit(asked.records, asked.gate, ending, asked.unmeasured.left_out)
        junit.write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(table.to_json(asked.records, ending))
    else:
        show_ending(console, asked.records, ending, wide)
    raise typer.Exit(ending.status)


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


def raise_alarm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if omitted.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="system:partition that must have been measured; may be repeated."),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Everything but PASS is trouble.")] = False,
    send: Annotated[
        bool,
        typer.Option("--send", help="Send to IOGAUGE_ALARM_COMMAND, IOGAUGE_WEBHOOK_URL …"),
    ] = False,
    link: Annotated[str, typer.Option(help="Address of the whole report.")] = "",
    figures: Annotated[
        Path | None, typer.Option(help="Directory for a figure of each trouble.")
    ] = None,
) -> None:
    """Say what failed in a session and which metrics have become worse, and send it.

    Exit status 0: no trouble; 1: trouble, and every receiver has it; 2: a wrong option or setting;
    3: trouble that a receiver did not get. Nothing is sent without trouble.
    """
    from iogauge.alarm import receivers  # with SciPy and polars
    from iogauge.alarm.collect import collect

    console = new_console()
    try:
        wanted = receivers.receivers(os.environ) if send else {}
        asked = _Asked() if expect and not names else _sessions(console, names or [])
        alarm = collect(
            paths.history_dir(),
            asked.records,
            gate=gate or asked.gate,
            expected=expect or (),
            damaged=asked.damaged,
            unmeasured=asked.unmeasured,
        )
    except ValueError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    typer.echo(visible_lines(alarm.text))
    if figures:
        _write_figures(figures, alarm)
    if alarm.failed:
        everybody_has_it = _send(receivers.Message(alarm, link), wanted)
        raise typer.Exit(1 if everybody_has_it else 3)


def _write_figures(folder: Path, alarm: Alarm) -> None:
    """Write a figure of each trouble; only say so if that fails, as the alarm matters more."""
    from iogauge.alarm import figure

    curves = [trouble.curve for trouble in alarm.troubles if trouble.curve]
    try:
        for number, curve in enumerate(curves, 1):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.svg").write_text(figure.svg(curve, alone=True), encoding="utf-8")
    except OSError as error:
        typer.echo(visible_lines(f"iogauge: figures were not written: {error}"), err=True)


def _send(message: Message, receivers: Mapping[str, Receiver]) -> bool:
    """Send a message to all receivers; return whether each has it."""
    from iogauge.alarm.receivers import SendError

    sent = True
    for name, receiver in receivers.items():
        try:
            receiver(message)
            typer.echo(visible(f"iogauge: alarm sent: {name}"))
        except SendError as error:
            typer.echo(visible_lines(f"iogauge: ALARM NOT SENT: {name}: {error}"), err=True)
            sent = False
    return sent


def show_comparison(
    a: Annotated[
        str, typer.Argument(help="A Darshan log; or a session or its .jsonl, with :case.")
    ],
    b: Annotated[str, typer.Argument(help="The other; it is put in relation to the first.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two Darshan logs, or two records, and say what else was different."""
    try:
        comparison = compare.compare(subjects.read(a), subjects.read(b))
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(compare.to_json(comparison))
    else:
        new_console(_BOXES).print(compare.render(comparison))


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
        str,
        typer.Option("-n", "--check", help="Regular expression, found in the case's name."),
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
    damaged: Annotated[
        bool, typer.Option("--damaged", help="List the lines that are not records.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Show the records, the newest first."""
    from iogauge.records import query  # imported here because polars starts slowly
    from iogauge.report import history_table

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
            for line in query.damaged(folder):
                typer.echo(visible(f"{line.file}:{line.line}: {line.problem}"))
            return
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
