"""Commands about a site and its targets: doctor, validate, plan, clean, allow."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iogauge.cli import doctor
from iogauge.cli.running import planned_cases, unmeasured_remarks
from iogauge.cli.screen import Wide, new_console
from iogauge.core import deadline
from iogauge.core.paths import sites_dir
from iogauge.core.text import visible_lines
from iogauge.guards.finding import Outcome
from iogauge.job import opening
from iogauge.node.layouts import LustreError
from iogauge.plan.stage import PlannedCase
from iogauge.records.record import short_name
from iogauge.report import plan_table
from iogauge.report.table import plain
from iogauge.session.janitor import Janitor
from iogauge.site import machine, settings
from iogauge.workspace import permission


def _beside_ceilings(folder: Path) -> tuple[list[str], list[str]]:
    """Return a site's references that its cases refuse for their ceilings, and the doubtful ones."""
    if not settings.has_ceilings(folder):
        return [], []
    cases, _ = planned_cases([f"--system={folder.name}"])
    return plan_table.refused(cases), plan_table.doubts(cases)


def show_doctor() -> None:
    """Say what is available, what is missing, and what to do."""
    console = new_console()
    healthy = True
    checks = doctor.examine()
    if here := doctor.site_of_host(settings.site_folders(sites_dir())):
        refused, doubts = _beside_ceilings(here)
        subject = f"site {here.name}"
        checks += [doctor.Check("problem", subject, text, doctor.DOUBT) for text in refused]
        checks += [doctor.Check("note", subject, text, doctor.DOUBT) for text in doubts]
    for check in checks:
        mark = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]"}.get(
            check.state, "[red]problem[/]"
        )
        console.print(f"{mark} {plain(check.subject)}: {plain(check.text)}", soft_wrap=True)
        if check.remedy:
            console.print(f"        -> {plain(check.remedy)}", soft_wrap=True)
        healthy = healthy and check.state != "problem"
    raise typer.Exit(0 if healthy else 1)


def plan(
    context: typer.Context,
    wide: Wide = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the cost of each case as JSON.")
    ] = False,
) -> None:
    """Show what the selected cases would write and read, and whether target and budget suffice.

    All other options are ReFrame's: -t daily, -n NAME, --system=SITE, ...
    """
    console = Console(stderr=True) if as_json else new_console()
    cases, problem = planned_cases(context.args)
    if as_json:
        typer.echo(plan_table.to_json(cases))
    if problem:
        console.print(plain(problem), soft_wrap=True)
    fits = not problem and _show_plan(console, cases, wide)
    for line in unmeasured_remarks(context.args):
        console.print(plain(line), soft_wrap=True)
    raise typer.Exit(0 if fits else 1)


def _show_plan(console: Console, cases: list[PlannedCase], wide: bool) -> bool:
    """Print the footprints, the budget and the room on each target; return whether all suffices."""
    console.print(plan_table.table(cases, wide), soft_wrap=True)
    for line in [*plan_table.remarks(cases), *plan_table.within_budget(cases)]:
        console.print(plain(line), soft_wrap=True)
    over = plan_table.over_budget(cases)
    for line in over:
        console.print(f"[bold red]{plain(line)}[/]", soft_wrap=True)
    for line in plan_table.doubts(cases):
        console.print(f"[yellow]{plain(line)}[/]", soft_wrap=True)
    fits = not over
    for target in sorted({case.order.target for case in cases}):
        orders = [case.order for case in cases if case.order.target == target]
        asked = replace(orders[0], metadata=any(order.metadata for order in orders))
        try:
            view, seen = deadline.call(target, partial(opening.look_as_declared, target, asked))
        except (OSError, LustreError) as error:
            console.print(
                plain(f"{target}: cannot be looked at from here: {error}"), soft_wrap=True
            )
            fits = False
            continue
        try:
            by = deadline.call(target, partial(permission.reason, target))
            console.print(
                f"{plain(target)}: [green]ok[/] may be written in: {plain(by)}", soft_wrap=True
            )
        except OSError as error:
            console.print(
                f"{plain(target)}: [bold red]refused[/] {plain(str(error))}", soft_wrap=True
            )
            fits = False
        worst = replace(
            orders[0],
            held_bytes=max(order.held_bytes for order in orders),
            files=max(order.files for order in orders),
            shared_bytes=0,
        )
        found = [("", finding) for finding in opening.preflight(view, seen, worst)]
        for case in (case for case in cases if case.order.target == target):
            stripes = opening.stripes_of(view, seen, case.order)
            found += [(f"{short_name(case.name)}: ", finding) for finding in stripes]
        for name, finding in found:
            good = finding.outcome is Outcome.OK
            fits = fits and good
            word = "[green]ok[/]" if good else "[bold red]refused[/]"
            console.print(f"{plain(target)}: {word} {plain(f'{name}{finding}')}")
    return fits


def clean(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Session directories; if omitted, those of dead sessions, and their locks."
        ),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target to search; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also sessions that may be alive, and their locks.")
    ] = False,
) -> None:
    """Remove what interrupted sessions left on the targets, and stage directories a week old.

    Nothing on a target is touched without our marker.
    """
    console = new_console()
    janitor = Janitor(dry_run, everything, lambda text: console.print(plain(text), soft_wrap=True))
    if paths:
        janitor.clean_directories(paths)
    else:
        janitor.clean_targets(target or [], machine.target_path())
    raise typer.Exit(1 if janitor.failed else 0)


def allow(
    directory: Annotated[str, typer.Argument(help="Directory that cases may write below.")],
    user: Annotated[list[str] | None, typer.Option(help="Only this user; may be repeated.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Only members of this group; may be repeated.")
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day, YYYY-MM-DD.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> None:
    """Allow a directory as a target: for administrators, and for owners of a mount point.

    Writes a file .iogauge-allowed into it, valid for the file system that is mounted there now.
    Without that file cases write only in directories of the caller.
    """
    path = os.path.abspath(directory)
    last = expires.date() if expires else None
    try:
        marker = deadline.call(
            path,
            partial(permission.allow, path, tuple(user or ()), tuple(group or ()), last, replace),
        )
    except OSError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(1) from error
    file = os.path.join(path, permission.MARKER)
    new_console().print(plain(f"{file} allows {marker.meaning()}"))
    typer.echo(visible_lines(marker.to_yaml()), nl=False)
    if strangers := permission.unknown(marker):
        message = f"iogauge: {', '.join(strangers)}: not known on this host; if that is a slip, write it anew with --replace"
        typer.echo(visible_lines(message), err=True)
    new_console().print(
        plain(f"iogauge writes below {path}/iogauge and nowhere else. Undo: rm {file}")
    )


def validate() -> None:
    """Check every site's settings and references; list every mistake, and every doubt.

    A doubt is a declaration under which a PASS means little. References are held against the
    ceilings of the cases that a dry run selects. Lists the UUID of each target that is mounted here.
    """
    console, wrong = new_console(), 0
    for folder in settings.site_folders(sites_dir()):
        site, found = settings.read_site(folder)
        mistakes = [str(mistake) for mistake in found]
        doubts = [str(doubt) for doubt in settings.doubts(folder)]
        refused, doubted = _beside_ceilings(folder)
        mistakes, doubts = mistakes + refused, doubts + doubted
        wrong += len(mistakes)
        console.print(
            f"{plain(folder.name)}: "
            + (f"[red]{len(mistakes)} mistake(s)[/]" if mistakes else "ok")
            + (f", [yellow]{len(doubts)} doubt(s)[/]" if doubts else "")
        )
        seen = [] if mistakes else doctor.seen_targets(site)
        for line in (*mistakes, *doubts, *seen):
            console.print(plain(f"  {line}"), soft_wrap=True)
    raise typer.Exit(1 if wrong else 0)
