"""Commands that look at the history for a person: status and alarm."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import Asked, sessions_of, warn_of, write_file
from iogauge.cli.screen import (
    Name,
    Since,
    System,
    Wide,
    new_console,
    say,
    show,
    slips,
    warn,
)
from iogauge.core import paths, registry
from iogauge.core.units import format_bytes, moment
from iogauge.report.endings import Ending, SessionRecords
from iogauge.site import folders, settings
from iogauge.site.extras import Receivers

if TYPE_CHECKING:
    from iogauge_extras.page.receivers import Message, Receiver

NOBODY = (
    "nobody would be told: declare alarm in the site's settings.yaml, or set IOGAUGE_ALARM_COMMAND, "
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
        bool, typer.Option("--send", help="Send it to the receivers.")
    ] = False,
    link: Annotated[str, typer.Option(help="Address of the whole report.")] = "",
    test: Annotated[bool, typer.Option("--test", help="Send a test, and end.")] = False,
) -> None:
    """Say what failed and what has become worse, and send it.

    Exit status 0: no trouble; 1: trouble, and every receiver has it; 2: a wrong option or setting;
    3: trouble that a receiver did not get, or that has none. Nothing is sent without trouble.
    """
    from iogauge_extras.page import receivers
    from iogauge_extras.page.news import TEST, collect

    with slips(ValueError, OSError):
        asked = Asked() if test or (expect and not names) else sessions_of(names or [])
        systems = [one.partition(":")[0] for one in expect or ()]
        systems += [record.system for record in asked.records]
        wanted = (
            receivers.receivers(os.environ, _declared(systems, test))
            if send or test
            else {}
        )
        if test and not wanted:
            raise ValueError(NOBODY)
        if test:
            raise typer.Exit(0 if _send(receivers.Message(TEST, link), wanted) else 3)
        alarm = collect(
            paths.history_dir(),
            asked.records,
            gate=gate or asked.gate,
            expected=expect or (),
            damaged=asked.damaged,
            unmeasured=asked.unmeasured,
        )
    say(alarm.text)
    if send and not wanted:
        warn(NOBODY)
    if alarm.failed:
        sent = _send(receivers.Message(alarm, link), wanted)
        raise typer.Exit(1 if sent and (wanted or not send) else 3)


def _declared(systems: Sequence[str], here: bool) -> list[Receivers]:
    """Return the receivers that sites declare: those of some systems, or those of this host's site."""
    every = folders.site_folders(*folders.site_dirs())
    of_host = (
        folders.sites_of_host(every, socket.gethostname())[:1]
        if here and not systems
        else []
    )
    found: dict[Receivers, None] = {}
    for folder in [*of_host, *(one for one in every if one.name in systems)]:
        found |= dict.fromkeys(
            one.alarm for one in settings.partitions(folder).values()
        )
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
    trend: Annotated[
        bool, typer.Option("--trend", help="What became worse for good.")
    ] = False,
    false_alarms: Annotated[
        float, typer.Option(help="With --trend: the share.")
    ] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    wide: Wide = False,
) -> None:
    """Show a line for each case, the worst first.

    Cases of the last 30 days, or those since a time. With --trend: which metrics have become worse for good; exit status 1 if some have. --false-alarms is the share
    of healthy series with an alarm within 30 runs.
    """
    from iogauge.records import query
    from iogauge_extras.page import marks
    from iogauge_extras.page.news import collect

    demand_known(system, name)
    with slips(ValueError, TypeError, OSError):
        if trend:
            show_trend = registry.load("iogauge_commands", "trend")
            raise typer.Exit(
                show_trend(system, name, since, false_alarms, as_json, wide)
            )
        start = since or moment("30d")
        cases = marks.read_marks(paths.history_dir(), system, start, name)
        warn_of(query.damaged(paths.history_dir()))
    if not cases and not as_json:
        say(f"no case was measured since {start:%Y-%m-%d}: {paths.history_dir()}")
        if brief:
            say("next: iogauge check, then iogauge run -t quick")
        return
    newest = sorted((case.newest for case in cases), key=lambda record: record.time)
    alarm = collect(paths.history_dir(), SessionRecords(newest), gate=False)
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

    html = report(asked, since, until)[1]
    made = bundle.contents(paths.state_dir(), asked.records, html)
    data = bundle.packed(made.files, file.name.partition(".")[0])
    raw = sum(name.startswith("raw/") for name in made.files)
    say(
        f"{file}: {len(made.files)} files, {format_bytes(len(data))}: the page, records, commands.sh, hashes, and {raw} "
        "raw outputs. Users, homes, hosts and addresses have stand-ins; names of cases, sites and paths are as they are"
    )
    if made.left:
        say(
            f"{', '.join(made.left)}: this host or user has no stand-in, because a path, a partition or a command is "
            "called so too"
        )
    if not unasked and not typer.confirm("write it?"):
        raise typer.Exit(2)
    write_file(file, data)


def report(
    asked: Asked, since: datetime | None, until: datetime | None
) -> tuple[Ending, str]:
    """Return how sessions ended, with what has become worse, and their page: ``iogauge report --html``."""
    from iogauge_extras.ceilings import table
    from iogauge_extras.page.news import collect
    from iogauge_extras.page.page import page
    from iogauge_extras.page.past import Span

    alarm = collect(
        paths.history_dir(),
        asked.records,
        gate=asked.gate,
        damaged=asked.damaged,
        unmeasured=asked.unmeasured,
        span=Span(since, until),
    )
    systems = sorted({record.system for record in asked.records})
    layers = table.of_systems(paths.history_dir(), systems)
    return alarm.ending, page(alarm, asked.records, layers)
