"""Commands that look at the history for a person: status and alarm."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Wide,
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
from iogauge.report.endings import SessionRecords, Word
from iogauge.report.export import plugin_line
from iogauge.site import folders, settings
from iogauge.site.extras import Receivers
from iogauge_extras.page import marks, nagios, news, notices
from iogauge_extras.page.notices import Notice, Notices, stamp
from iogauge_extras.page.past import ALWAYS
from iogauge_extras.page.trouble import TEST, Alarm

if TYPE_CHECKING:
    from iogauge_extras.page.receivers import Message, Receiver
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
    who = by or getpass.getuser()
    if plugin:
        status, line = _plugin(names or [], expect or [], gate, now)
        typer.echo(visible(line))
        raise typer.Exit(status)
    with slips(ValueError, OSError):
        if silence:
            begin, end = moment(silence[0]), moment(silence[1], end=True)
            if not reason or end <= begin:
                raise ValueError("--silence needs FROM before TO, and --reason TEXT")
            notice = Notice(
                what="silent",
                time=stamp(now),
                begin=stamp(begin),
                until=stamp(end),
                by=who,
                reason=reason,
            )
            notices.append(notice)
            return say(f"iogauge: from {notice.begin}: {notice}")
        if test:
            raise typer.Exit(_test(expect or [], link))
        known = Notices.read(now)
        asked, alarm = _looked_at(names or [], expect or [], gate, known)
        if acknowledge:
            if until is None or not reason:
                raise ValueError("--acknowledge needs --until DATE and --reason TEXT")
            notice = Notice(
                what="acknowledged",
                time=stamp(now),
                until=stamp(until),
                by=who,
                reason=reason,
            )
            return _acknowledge(alarm, acknowledge, notice)
        new = news.news_of(alarm, asked.records, known)
        say(replace(alarm, over=new.over).text)
        if known.silence:
            return say(f"iogauge: nothing is sent: {known.silence}")
        if send and not _deliver(new, alarm, link, now):
            raise typer.Exit(3)
    raise typer.Exit(int(alarm.failed))


def _looked_at(
    names: list[str], expected: list[str], gate: bool, known: Notices
) -> tuple[Asked, Alarm]:
    """Return what is known of sessions, and the alarm of it."""
    asked = Asked()
    if names or not expected:
        asked = sessions_of(names)
    return asked, _alarm_of(asked, gate or asked.gate, known, expected)


def _alarm_of(
    asked: Asked,
    gate: bool,
    known: Notices,
    expected: Iterable[str] = (),
    span: query.Choice = ALWAYS,
) -> Alarm:
    return news.collect(
        paths.history_dir(),
        asked.records,
        gate=gate,
        expected=expected,
        damaged=asked.damaged,
        unmeasured=asked.unmeasured,
        span=span,
        notices=known,
    )


def _test(expected: list[str], link: str) -> int:
    """Send a test, and return the exit status; raises ValueError without a receiver."""
    from iogauge_extras.page import receivers

    systems = [place.partition(":")[0] for place in expected]
    wanted = receivers.receivers(os.environ, _declared(systems, True))
    if not wanted:
        raise ValueError(NOBODY)
    if _send(receivers.Message(TEST, link), wanted):
        return 0
    return 3


def _deliver(new: Alarm, alarm: Alarm, link: str, now: datetime) -> bool:
    """Send what is new, and keep that it was sent; return whether nobody lacks it."""
    from iogauge_extras.page import receivers

    systems = [trouble.where.partition(":")[0] for trouble in alarm.troubles]
    wanted = receivers.receivers(
        os.environ, _declared([*alarm.systems, *systems], False)
    )
    if not wanted:
        if alarm.failed:
            warn(NOBODY)
        return not alarm.failed
    if new.troubles or new.over:
        if not _send(receivers.Message(new, link), wanted):
            return False
        for notice in news.sent_notices(new, now):
            notices.append(notice)
    return True


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
    return nagios.plugin(alarm, asked.records, now, known.silence is not None)


def _declared(systems: Sequence[str], here: bool) -> list[Receivers]:
    """Return the receivers that sites declare: those of some systems, or those of this host's site."""
    every = folders.site_folders(*folders.site_dirs())
    chosen = [folder for folder in every if folder.name in systems]
    if here and not systems:
        chosen = folders.sites_of_host(every, socket.gethostname())[:1]
    found: dict[Receivers, None] = {}
    for folder in chosen:
        for extras in settings.partitions(folder).values():
            found[extras.alarm] = None
    return list(found)


def _send(message: Message, receivers: Mapping[str, Receiver]) -> bool:
    """Send a message to all receivers; return whether each has it."""
    from iogauge_extras.page.receivers import SendError

    sent = True
    for name, receiver in receivers.items():
        try:
            receiver(message)
            say(f"iogauge: alarm sent: {name}")
        except SendError as error:
            warn(f"ALARM NOT SENT: {name}: {error}")
            sent = False
    return sent


def show_status(
    system: System = "",
    name: Name = "",
    since: Since = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="Ten lines: red or green.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Show a line for each case, the worst first.

    Cases of the last 30 days, or those since a time, and which of their metrics have become worse for good: since when,
    by how much, and what changed just before. Exit status 1 if a case failed or a metric has become worse.
    """
    demand_known(system, name)
    with slips(ValueError, TypeError, OSError):
        start = since or moment("30d")
        cases, damaged = marks.read_marks(paths.history_dir(), system, start, name)
        warn_of(damaged)
    if not cases and not as_json:
        say(f"no case was measured since {start:%Y-%m-%d}: {paths.history_dir()}")
        if brief:
            say("next: iogauge check, then iogauge run -t quick")
        return
    newest = sorted((case.newest for case in cases), key=lambda record: record.time)
    known = Notices.read(datetime.now(timezone.utc))
    alarm = _alarm_of(Asked(SessionRecords(newest)), False, known)
    cases = marks.gravest_first(cases, alarm.troubles)
    if as_json:
        typer.echo(marks.marks_json(cases, alarm.ending))
    elif brief:
        for text, style in marks.brief(cases, alarm, new_console().width):
            say(text, style)
    else:
        show(marks.marks_table(cases, wide))
        say(marks.marks_legend(cases))
        say(f"iogauge: {alarm.ending}")
    raise typer.Exit(alarm.ending.status)


def write_bundle(
    asked: Asked,
    since: datetime | None,
    until: datetime | None,
    file: Path,
    unasked: bool,
) -> None:
    """Write what a vendor needs as one file, if the user agrees to what is in it."""
    from iogauge_extras.page import bundle

    _, html = report(asked, since, until)
    files = bundle.contents(paths.state_dir(), asked.records, html())
    data = bundle.packed(files, file.name.partition(".")[0])
    say(
        f"{file}: {len(files)} files, {format_bytes(len(data))}: the page, records, commands.sh, hashes, raw outputs. "
        "Users, homes, hosts and addresses have stand-ins; other names are as they are"
    )
    if not unasked and not typer.confirm("write it?"):
        raise typer.Exit(2)
    write_file(file, data)


def report(
    asked: Asked, since: datetime | None, until: datetime | None
) -> tuple[Alarm, Callable[[], str]]:
    """Return what somebody must know of sessions, and what makes their page: ``iogauge report --html``."""
    from iogauge_extras.ceilings import table
    from iogauge_extras.page.page import page

    known = Notices.read(datetime.now(timezone.utc))
    span = query.Choice(since=since, until=until)
    alarm = _alarm_of(asked, asked.gate, known, span=span)

    def html() -> str:
        systems = sorted({record.system for record in asked.records})
        layers = table.of_systems(paths.history_dir(), systems)
        return page(alarm, asked.records, layers, str(known.silence or ""))

    return alarm, html


def write_acceptance(
    names: list[str],
    since: datetime | None,
    until: datetime | None,
    system: str,
    file: Path,
) -> int:
    """Write whether some sessions meet the criteria of their site, and return 0 if they do: ``iogauge report --acceptance``."""
    from iogauge.report.history_table import RecordChoice, chosen
    from iogauge_extras.page import page, sheets

    with slips(ValueError, TypeError, OSError):
        if since or until:
            choice = RecordChoice(system=system, since=since, until=until, limit=0)
            found = chosen(paths.history_dir(), choice).records
            records = [record for record, _ in found]
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
