"""Commands that look at the history for a person: status and alarm."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import Asked, sessions_of, warn_of, write_file
from iogauge.cli.screen import (
    Name,
    Since,
    System,
    Until,
    new_console,
    say,
    show,
    slips,
    warn,
)
from iogauge.core import paths
from iogauge.core.text import visible
from iogauge.core.units import format_bytes, moment
from iogauge.records import query
from iogauge.report.endings import Ending, SessionRecords, Word
from iogauge.report.export import plugin_line
from iogauge.site import folders, settings
from iogauge.site.extras import Receivers
from iogauge_extras.page import marks, nagios, news, notices
from iogauge_extras.page.notices import Notice, Notices, stamp
from iogauge_extras.page.trouble import TEST, Alarm

if TYPE_CHECKING:
    from iogauge_extras.page.receivers import Receiver
    from iogauge_extras.page.sheets import Sheet

NOBODY = (
    "nobody would be told: declare alarm in the site's settings.yaml, or set "
    "IOGAUGE_WEBHOOK_URL or IOGAUGE_GITLAB_TOKEN (docs/pipeline.md)"
)


def raise_alarm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if none.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="system:partition that must be there; repeatable."),
    ] = None,
    gate: Annotated[
        bool, typer.Option("--gate", help="All but PASS is trouble.")
    ] = False,
    send: Annotated[
        bool, typer.Option("--send", help="Send what is new to the receivers.")
    ] = False,
    link: Annotated[str, typer.Option(help="Address of the whole report.")] = "",
    test: Annotated[bool, typer.Option("--test", help="Send a test, and end.")] = False,
    plugin: Annotated[
        bool, typer.Option("--nagios", help="One line and status of a plugin.")
    ] = False,
    acknowledge: Annotated[
        str, typer.Option(metavar="CASE", help="Do not tell of it until a time.")
    ] = "",
    silence: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Send nothing in this time."),
    ] = None,
    by: Annotated[str, typer.Option(help="Who says so; you if omitted.")] = "",
    until: Until = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Say what failed or became worse, and send what is new.

    Exit status 1: trouble, and every receiver has it; 3: trouble that a receiver did not get (docs/keys.md).
    """
    now = datetime.now(timezone.utc)
    places = expect or []
    if plugin:
        status, line = _plugin(names or [], places, gate, now)
        typer.echo(visible(line))
        raise typer.Exit(status)
    mine = Notice(
        what="acknowledged",
        time=stamp(now),
        by=by or getpass.getuser(),
        reason=reason,
    )
    with slips(ValueError, OSError):
        if silence:
            return _silence(silence, mine)
        if test:
            wanted = _receivers(place.partition(":")[0] for place in places)
            if not wanted:
                raise ValueError(NOBODY)
            raise typer.Exit(_send(TEST, wanted))
        known = Notices.read(now)
        asked, alarm = _looked_at(names or [], places, gate, known)
        if acknowledge:
            if until is None or not reason:
                raise ValueError("--acknowledge needs --until DATE and --reason TEXT")
            return _acknowledge(alarm, acknowledge, replace(mine, until=stamp(until)))
        new = news.news_of(alarm, asked.records, known)
        say(replace(alarm, over=new.over).text)
        if known.silence:
            return say(f"iogauge: nothing is sent: {known.silence}")
        status = int(alarm.failed)
        if send:
            status = _deliver(replace(new, link=link), alarm, now) or status
    raise typer.Exit(status)


def _looked_at(
    names: list[str], expected: list[str], gate: bool, known: Notices
) -> tuple[Asked, Alarm]:
    """Return what is known of sessions, and the alarm of it."""
    asked = Asked()
    if names or not expected:
        asked = sessions_of(names)
    alarm = news.collect(
        paths.history_dir(),
        asked,
        gate=gate or asked.gate,
        expected=expected,
        notices=known,
    )
    return asked, alarm


def _silence(span: tuple[str, str], notice: Notice) -> None:
    """Keep that nothing is sent in a time; raises ValueError for one that is none."""
    begin, end = moment(span[0]), moment(span[1], end=True)
    if not notice.reason or end <= begin:
        raise ValueError("--silence needs FROM before TO, and --reason TEXT")
    notice = replace(notice, what="silent", begin=stamp(begin), until=stamp(end))
    notices.append(notice)
    say(f"iogauge: from {notice.begin}: {notice}")


def _deliver(new: Alarm, alarm: Alarm, now: datetime) -> int:
    """Send what is new, and keep that it was sent; return 3 if somebody lacks it, else 0."""
    systems = [trouble.where.partition(":")[0] for trouble in alarm.troubles]
    wanted = _receivers([*alarm.systems, *systems])
    if not wanted and alarm.failed:
        warn(NOBODY)
        return 3
    if not wanted or not (new.troubles or new.over):
        return 0
    status = _send(new, wanted)
    if not status:
        for notice in news.sent_notices(new, now):
            notices.append(notice)
    return status


def _acknowledge(alarm: Alarm, name: str, notice: Notice) -> None:
    """Keep who knows of the troubles of a case; raises ValueError if it has none."""
    meant = [trouble for trouble in alarm.troubles if trouble.is_meant(name)]
    if not meant:
        known = [f"{trouble.where} {trouble.case}" for trouble in alarm.troubles]
        there = "; ".join(dict.fromkeys(known)) or "there is none"
        raise ValueError(f"no trouble is called {name!r}: {there}")
    for trouble in meant:
        notices.append(replace(notice, incidents=trouble.incidents))
        say(f"{trouble.headline}: {notice}")


def _plugin(
    names: list[str], expected: list[str], gate: bool, now: datetime
) -> tuple[int, str]:
    """Return exit status and line of a plugin; what goes wrong is UNKNOWN."""
    try:
        known = Notices.read(now)
        asked, alarm = _looked_at(names, expected, gate, known)
    except typer.Exit:
        return 3, plugin_line(3, f"no session is in {paths.history_dir()}")
    except (typer.BadParameter, ValueError, OSError) as error:
        return 3, plugin_line(3, visible(str(error)))
    return nagios.plugin(alarm, asked.records, now)


def _receivers(systems: Iterable[str]) -> Mapping[str, Receiver]:
    """Return the receivers that the environment and some sites declare; of no system those of this host's site."""
    from iogauge_extras.page import receivers

    every = folders.site_folders(*folders.site_dirs())
    names = set(systems)
    chosen = [folder for folder in every if folder.name in names]
    if not names:
        chosen = folders.sites_of_host(every, socket.gethostname())[:1]
    declared: dict[Receivers, None] = {}
    for folder in chosen:
        for extras in settings.partitions(folder).values():
            declared[extras.alarm] = None
    return receivers.receivers(os.environ, list(declared))


def _send(alarm: Alarm, wanted: Mapping[str, Receiver]) -> int:
    """Send an alarm to all receivers; return 3 if one of them has not got it, else 0."""
    from iogauge_extras.page.receivers import SendError

    status = 0
    for name, receiver in wanted.items():
        try:
            receiver(alarm)
            say(f"iogauge: alarm sent: {name}")
        except SendError as error:
            warn(f"ALARM NOT SENT: {name}: {error}")
            status = 3
    return status


def show_status(
    system: System = "",
    name: Name = "",
    since: Since = None,
    brief: Annotated[
        bool,
        typer.Option("--brief", help="Ten lines: red or green, and the gravest cases."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show a line for each case, the worst first.

    Cases of the last 30 days, or those since a time, and which of their metrics have become worse for good: since when,
    by how much, and what changed just before. Exit status 1 if a case failed or a metric has become worse.
    """
    demand_known(system, name)
    with slips(ValueError, TypeError, OSError):
        start = since or moment("30d")
        choice = query.Choice(system=system, name=name, since=start)
        cases, damaged = marks.read_marks(paths.history_dir(), choice)
        warn_of(damaged)
    if not cases and not as_json:
        say(f"no case was measured since {start:%Y-%m-%d}: {paths.history_dir()}")
        if brief:
            say("next: iogauge check, then iogauge run -t quick")
        return
    newest = sorted((case.newest for case in cases), key=lambda record: record.time)
    known = Notices.read(datetime.now(timezone.utc))
    asked = Asked(SessionRecords(newest))
    alarm = news.collect(paths.history_dir(), asked, gate=False, notices=known)
    cases = marks.gravest_first(cases, alarm.troubles)
    if as_json:
        typer.echo(marks.marks_json(cases, alarm.ending))
        raise typer.Exit(alarm.ending.status)
    if brief:
        first, *others = marks.brief(cases, alarm, new_console().width)
        style = "bold green"
        if alarm.failed:
            style = "bold red"
        say(first, style)
        for line in others:
            say(line)
        raise typer.Exit(alarm.ending.status)
    show(marks.marks_table(cases))
    say(f"iogauge: {alarm.ending}")
    raise typer.Exit(alarm.ending.status)


def write_bundle(
    asked: Asked,
    since: datetime | None,
    until: datetime | None,
    file: Path,
) -> None:
    """Write what a vendor needs as one file, and say what is in it."""
    from iogauge_extras.page import bundle

    _, html = report(asked, since, until)
    files = bundle.contents(paths.state_dir(), asked.records, html)
    data = bundle.packed(files, file.name.partition(".")[0])
    write_file(file, data)
    say(
        f"{file}: {len(files)} files, {format_bytes(len(data))}: the page, records, commands.sh, hashes, raw outputs. "
        "Users, homes, hosts and addresses have stand-ins; other names are as they are"
    )


def report(
    asked: Asked, since: datetime | None, until: datetime | None
) -> tuple[Ending, str]:
    """Return how sessions ended, and their page: ``iogauge report --html``."""
    from iogauge_extras.page.page import page

    known = Notices.read(datetime.now(timezone.utc))
    span = query.Choice(since=since, until=until)
    alarm = news.collect(
        paths.history_dir(), asked, gate=asked.gate, span=span, notices=known
    )
    return alarm.ending, page(alarm, asked.records)


def write_acceptance(
    names: list[str],
    since: datetime | None,
    until: datetime | None,
    system: str,
    file: Path,
) -> int:
    """Write whether some sessions meet the criteria of their site, and return 0 if they do: ``iogauge report --acceptance``."""
    from iogauge.report.history_table import chosen
    from iogauge_extras.page import page, sheets

    with slips(ValueError, TypeError, OSError):
        if since or until:
            choice = query.Choice(system=system, since=since, until=until)
            records = chosen(paths.history_dir(), choice).records
        else:
            records = list(sessions_of(names).records)
        systems = sorted({record.system for record in records})
        if len(systems) != 1:
            listed = ", ".join(systems)
            raise ValueError(f"an acceptance is of one system: --system of {listed}")
        partitions = settings.partitions(folders.site_dir(systems[0]))
        criteria = {name: extras.acceptance for name, extras in partitions.items()}
        mine = [record for record in records if criteria.get(record.partition)]
        places = page.places_of(mine)
        sheet = sheets.acceptance(systems[0], criteria, records, places)
    _show_sheet(sheet, file)
    return int(sheet.style == Word.FAILED.style)


def show_summary(choice: query.Choice, file: Path | None) -> None:
    """Print the nights of a time in a few lines, and write them as a page: ``iogauge report --summary``."""
    from iogauge_extras.page import sheets

    with slips(ValueError, OSError):
        sheet = sheets.summary(paths.history_dir(), choice)
    _show_sheet(sheet, file)


def _show_sheet(sheet: Sheet, file: Path | None) -> None:
    from iogauge_extras.page import page

    for part in sheet.parts:
        show(part)
    say(f"iogauge: {sheet.title}: {sheet.conclusion}")
    if file:
        write_file(file, page.sheet(sheet))
