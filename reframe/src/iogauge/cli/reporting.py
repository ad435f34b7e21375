"""Commands that report on sessions and logs: report, alarm, compare, profile."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from iogauge.cli.screen import Wide, new_console, show_ending
from iogauge.core import paths
from iogauge.core.paths import replace_file
from iogauge.core.text import visible, visible_lines
from iogauge.records import journal, selected
from iogauge.records.record import Record
from iogauge.records.selected import Unmeasured
from iogauge.report import compare, outcome
from iogauge.report.outcome import Ending, SessionRecords, plain

if TYPE_CHECKING:
    from iogauge.alarm.collect import Alarm, Span
    from iogauge.alarm.receivers import Message, Receiver


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
                lacks.append(selected.load_unmeasured(file))
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
    return _Asked(SessionRecords(records), selected.joined_unmeasured(lacks), tuple(damaged))


def _asked(console: Console, names: list[str], span: Span | None, system: str) -> _Asked:
    """Return what is known of the named sessions, or of the newest run of all in a span of time.

    Raises BadParameter if both are given, or if nothing was measured in the span.
    """
    if span is None and not system:
        return _sessions(console, names)
    if names:
        raise typer.BadParameter("give sessions, or --since, --until and --system: not both")
    from iogauge.report import history_table  # with polars

    records, damaged = history_table.newest_records(
        paths.history_dir(),
        system,
        span.since if span else None,
        span.until if span else None,
    )
    if not records:
        raise typer.BadParameter(
            f"nothing was measured on {system or 'any system'} in this time: {paths.history_dir()}; "
            "iogauge history lists the newest records"
        )
    of_sessions = _sessions(console, sorted({record.session for record in records}))
    return _Asked(SessionRecords(records), of_sessions.unmeasured, (*of_sessions.damaged, *damaged))


def _span(since: str, until: str) -> Span | None:
    """Return the span of time that two options name; None without them."""
    if not since and not until:
        return None
    from iogauge.alarm.collect import Span  # with polars
    from iogauge.report.history_table import moment

    try:
        return Span(moment(since) if since else None, moment(until, end=True) if until else None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Since = Annotated[
    str,
    typer.Option(help="The newest run of every case since this day or time (UTC), or 7d, 4w ago."),
]
Until = Annotated[
    str, typer.Option(help="Until this day or time, as for --since. A day counts to its end.")
]


def show_report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if omitted.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: one file that needs no network.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write Markdown for a merge request.")
    ] = None,
    openmetrics: Annotated[
        Path | None, typer.Option(help="Write OpenMetrics, for Prometheus and for GitLab.")
    ] = None,
    push: Annotated[str, typer.Option(help="Send OpenMetrics to this Pushgateway.")] = "",
    since: Since = "",
    until: Until = "",
    system: Annotated[str, typer.Option(help="Only this system, instead of sessions.")] = "",
    wide: Wide = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each metric with its reasons as JSON.")
    ] = False,
) -> None:
    """Show the table of sessions or of a span of time. Options write it as files."""
    console = Console(stderr=True) if as_json else new_console()
    span = _span(since, until)
    asked = _asked(console, names or [], span, system)
    ending = asked.records.ending(asked.gate, asked.unmeasured, outcome.of_damage(asked.damaged))
    if html:
        # with numpy and polars
        from iogauge.alarm.collect import ALWAYS, collect
        from iogauge.alarm.page import page
        from iogauge.report import ceilings

        alarm = collect(
            paths.history_dir(),
            asked.records,
            gate=asked.gate,
            damaged=asked.damaged,
            unmeasured=asked.unmeasured,
            span=span or ALWAYS,
        )
        ending = alarm.ending
        layers = ceilings.of_systems(paths.history_dir(), sorted({r.system for r in asked.records}))
        _write(html, page(alarm, asked.records, layers))
    if junit:
        from iogauge.report.export import junit as as_junit

        text = as_junit(asked.records, asked.gate, ending, asked.unmeasured.left_out)
        _write(junit, text)
    if markdown or openmetrics or push:
        _export(asked.records, ending, markdown, openmetrics, push)
    if as_json:
        typer.echo(outcome.to_json(asked.records, ending))
    else:
        show_ending(console, asked.records, ending, wide)
    raise typer.Exit(ending.status)


def _write(file: Path, text: str) -> None:
    """Write a file at once, as readers may look at any time; ends with status 2 if that fails."""
    data = text.encode("utf-8", "replace")
    try:
        if file.exists() and not file.is_file():  # such as /dev/stdout
            file.write_bytes(data)
        else:
            replace_file(file, data)
    except OSError as error:
        message = f"iogauge: {file} was not written: {error.strerror}; give a path in a directory that is there"
        typer.echo(visible_lines(message), err=True)
        raise typer.Exit(2) from error


def _export(
    records: SessionRecords,
    ending: Ending,
    markdown: Path | None,
    openmetrics: Path | None,
    gateway: str,
) -> None:
    """Write what other tools read; ends with status 2 if the Pushgateway does not take it."""
    from iogauge.report import export  # with polars

    if markdown:
        _write(markdown, export.markdown(records, ending))
    newest = outcome.newest(records)
    if openmetrics:
        _write(openmetrics, export.openmetrics(newest))
    if gateway:
        try:
            export.push(newest, gateway)
        except (OSError, ValueError) as error:
            typer.echo(
                visible_lines(f"iogauge: the Pushgateway {gateway} did not take it: {error}"),
                err=True,
            )
            raise typer.Exit(2) from error


def raise_alarm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if omitted.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="system:partition that must have been measured; may be repeated."),
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="Treat every verdict except PASS as trouble.")
    ] = False,
    send: Annotated[
        bool,
        typer.Option("--send", help="Send to IOGAUGE_ALARM_COMMAND, IOGAUGE_WEBHOOK_URL …"),
    ] = False,
    link: Annotated[str, typer.Option(help="Address of the whole report.")] = "",
    figures: Annotated[
        Path | None, typer.Option(help="Directory for a figure of each trouble.")
    ] = None,
) -> None:
    """Say what failed and what has become worse, and send it.

    Exit status 0: no trouble; 1: trouble, and every receiver has it; 2: a wrong option or setting;
    3: trouble that a receiver did not get. Nothing is sent without trouble.
    """
    from iogauge.alarm import receivers  # with numpy and polars
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
    from iogauge.alarm import charts

    curves = [trouble.curve for trouble in alarm.troubles if trouble.curve]
    try:
        for number, curve in enumerate(curves, 1):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.svg").write_text(charts.svg(curve, alone=True), encoding="utf-8")
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
        str,
        typer.Argument(
            help="A Darshan log; a session or its .jsonl, with :case; or key=value,… (docs/results.md)."
        ),
    ],
    b: Annotated[
        str, typer.Argument(help="The other; its figures are shown relative to those of A.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with a figure, of two sets of records.")
    ] = None,
    servers: Annotated[
        str,
        typer.Option(
            help="Numbers of servers of A and B, as 4,8. Default: what the Lustre client sees."
        ),
    ] = "",
    tib: Annotated[
        str,
        typer.Option(help="Capacities of A and B in TiB, as 100,250. Default: those of the price."),
    ] = "",
    wide: Wide = False,
) -> None:
    """Compare two sets of records, two records or two Darshan logs."""
    console = new_console()
    records_of = [count for name in (a, b) if (count := _records_of(name))]
    try:
        if _is_set(a) or _is_set(b) or (len(records_of) == 2 and max(records_of) > 1):
            _show_contrast(console, (a, b), as_json, html, (_two(servers), _two(tib)), wide)
            return
        if html:
            raise compare.CompareError("--html is for two sets of records: see docs/results.md")
        comparison = compare.compare(compare.read_subject(a), compare.read_subject(b))
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(compare.to_json(comparison))
    else:
        console.print(compare.render(comparison, wide), soft_wrap=wide)


def show_profile(
    log: Annotated[Path, typer.Argument(help="A Darshan log.")],
    other: Annotated[Path | None, typer.Argument(help="A second log, to put beside it.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with figures.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object for each log.")
    ] = False,
) -> None:
    """Say what a program did to the file system, from its Darshan log."""
    from iogauge.alarm import profile  # with Jinja

    try:
        found = [profile.Profile.of(str(f), compare.read_log(f)) for f in (log, other) if f]
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if html:
        _write(html, profile.page(found))
    if as_json:
        for one in found:
            typer.echo(profile.to_json(one))
        return
    console = new_console()
    if len(found) == 2:
        console.print(compare.render(compare.compare(found[0].subject, found[1].subject)))
    else:
        for name, text in profile.lines(found[0]).items():
            console.print(plain(f"{name + ':':<29} {text}"), soft_wrap=True)
    for one in found:
        said = profile.told(one) or ["nothing stands out."]
        console.print(plain(f"{one.name}: {' '.join(said)}"), soft_wrap=True)


def _is_set(words: str) -> bool:
    """Return whether words choose a set of records: ``system=mysite,day=2027-01-31``."""
    return re.match("[a-z]+=", words) is not None


def _records_of(name: str) -> int:
    """Return the number of records of a session; 0 if there is no such session."""
    files = paths.history_dir().glob("*/*.jsonl")
    return sum(len(list(journal.read_whole(f))) for f in files if f.stem == name)


def _two(text: str) -> tuple[float | None, float | None]:
    """Return the numbers in ``4,8``; raises CompareError."""
    try:
        first, second = map(float, text.split(",")) if text else (0.0, 0.0)
        if min(first, second) < 0:
            raise ValueError("it is negative")
    except ValueError as error:
        raise compare.CompareError(
            f"{text!r}: expected one number for A and one for B, such as 4,8: {error}"
        ) from error
    return first or None, second or None


def _show_contrast(
    console: Console,
    names: tuple[str, str],
    as_json: bool,
    html: Path | None,
    divisors: tuple[tuple[float | None, float | None], ...],
    wide: bool,
) -> None:
    """Print the contrast of two sets of records, and write its page; raises CompareError."""
    from iogauge.report import sides  # with numpy and polars

    servers, tib = divisors
    a, b = (
        sides.read(paths.history_dir(), name, servers[n], tib[n]) for n, name in enumerate(names)
    )
    found = sides.contrast(a, b)
    if html:
        from iogauge.alarm.page import comparison

        _write(html, comparison(found))
    if as_json:
        typer.echo(sides.to_json(found))
    else:
        console.print(sides.render(found, wide), soft_wrap=True)
