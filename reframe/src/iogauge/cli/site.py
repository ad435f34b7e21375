"""Commands about a site and its targets: doctor, validate, ceilings, plan, clean, allow."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iogauge.cli import doctor
from iogauge.cli.remark import Check
from iogauge.cli.running import planned_cases, say_unclaimed, settled, unmeasured_remarks
from iogauge.cli.screen import Wide, new_console
from iogauge.core import deadline
from iogauge.core.paths import history_dir, project_root
from iogauge.core.text import visible_lines
from iogauge.guards.finding import Outcome
from iogauge.job import opening
from iogauge.node.layouts import LustreError
from iogauge.plan.stage import PlannedCase
from iogauge.records import selected
from iogauge.report import plan_table
from iogauge.report.table import plain
from iogauge.session.janitor import Janitor
from iogauge.site import folders, machine, settings
from iogauge.workspace import permission


def _as_planned(folder: Path) -> tuple[list[str], list[str]]:
    """Return what a run of all cases of a site would refuse in its files, and what is doubtful.

    Both are empty if the files have other mistakes, or if nobody has described the site.
    """
    if folder.name == folders.LOCAL or settings.read_site(folder)[1]:
        return [], []
    with tempfile.TemporaryDirectory(prefix="iogauge-notes-") as scratch:
        file = Path(scratch, "notes")
        cases, unable = planned_cases([f"--system={folder.name}"], file)
        _, noted = selected.noted(file.read_text(encoding="utf-8") if file.exists() else "")
    values: dict[str, list[Mapping[str, Sequence[object]]]] = {}
    for case in noted.values():
        values.setdefault(case.check, []).append(case.values)
    found = [line for line in unable if str(folder.resolve()) in line or not cases]
    others = [line for line in unable if line not in found and "nothing could fail" not in line]
    mistakes = [*found, *map(str, settings.unfitting(folder, values)), *plan_table.refused(cases)]
    return mistakes, [*others, *plan_table.doubts(cases)]


def show_doctor() -> None:
    """Say what is available, what is missing, and what to do."""
    console = new_console()
    healthy, in_log = True, not console.is_terminal
    checks = doctor.examine()
    if here := doctor.site_of_host(folders.site_folders(*folders.site_dirs())):
        refused, doubts = _as_planned(here)
        subject = f"site {here.name}"
        checks += [Check("problem", subject, text, doctor.DOUBT) for text in refused]
        checks += [Check("note", subject, text, doctor.DOUBT) for text in doubts]
    for check in checks:
        mark = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]"}.get(
            check.state, "[red]problem[/]"
        )
        console.print(f"{mark} {plain(check.subject)}: {plain(check.text)}", soft_wrap=in_log)
        if check.remedy:
            console.print(f"        -> {plain(check.remedy)}", soft_wrap=in_log)
        healthy = healthy and check.state != "problem"
    raise typer.Exit(0 if healthy else 1)


def plan(
    context: typer.Context,
    wide: Wide = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the cost of each case as JSON.")
    ] = False,
) -> None:
    """Show what the selected cases would write and read, and whether they fit.

    Compares with the target's space, the budget and the time limit.

    All other options are ReFrame's: -t daily, -n NAME, --system=SITE, ...
    """
    console = Console(stderr=True) if as_json else new_console()
    arguments = settled(context)
    say_unclaimed(arguments)
    cases, unable = planned_cases(arguments)
    if as_json:
        typer.echo(plan_table.to_json(cases))
    fits = bool(cases) and show_plan(console, cases, wide)
    for line in unable:
        console.print(f"[bold red]{plain(line)}[/]", soft_wrap=True)
    for line in unmeasured_remarks(arguments):
        console.print(plain(line), soft_wrap=True)
    raise typer.Exit(0 if fits and not unable else 1)


def show_plan(console: Console, cases: list[PlannedCase], wide: bool) -> bool:
    """Print the footprints, the budget and the room on each target; return whether all suffices."""
    console.print(plan_table.table(cases, wide), soft_wrap=True)
    remarks = [*plan_table.remarks(cases), *plan_table.timed(cases)]
    for line in [*remarks, *plan_table.within_budget(cases)]:
        console.print(plain(line), soft_wrap=True)
    over = [*plan_table.over_budget(cases), *plan_table.over_time(cases)]
    for line in over:
        console.print(f"[bold red]{plain(line)}[/]", soft_wrap=True)
    for line in plan_table.doubts(cases):
        console.print(f"[yellow]{plain(line)}[/]", soft_wrap=True)
    fits = not over
    declared: dict[tuple[object, ...], list[PlannedCase]] = {}
    for case in cases:
        order = case.order
        place = (order.target, order.type, order.source, order.uuid, order.striping, order.pool)
        declared.setdefault(place, []).append(case)
    for (target, *_), group in sorted(declared.items(), key=str):
        fits = _show_target(console, str(target), group) and fits
    return fits


def _show_target(console: Console, target: str, cases: list[PlannedCase]) -> bool:
    """Print what a target says to the cases that are declared for it; return whether all may run."""
    asked = replace(cases[0].order, metadata=any(case.order.metadata for case in cases))
    try:
        view, seen = deadline.call(target, partial(opening.look_as_declared, target, asked))
    except (OSError, LustreError) as error:
        console.print(plain(f"{target}: cannot be looked at from here: {error}"))
        return False
    fits = True
    try:
        by = deadline.call(target, partial(permission.reason, target))
        console.print(f"{plain(target)}: [green]ok[/] may be written in: {plain(by)}")
    except OSError as error:
        console.print(f"{plain(target)}: [bold red]refused[/] {plain(str(error))}")
        fits = False
    findings = [(case, opening.preflight(view, seen, case.order)) for case in cases]
    for finding, names in plan_table.worst(findings):
        word = _WORDS.get(finding.outcome, "[bold red]refused[/]")
        fits = fits and finding.outcome in _WORDS
        of = f" ({plan_table.first_and_more(names)})" if names else ""
        console.print(f"{plain(target)}: {word} {plain(f'{finding}{of}')}")
    return fits


#: Words for findings with which a case runs.
_WORDS = {Outcome.OK: "[green]ok[/]", Outcome.WARN: "[yellow]remark[/]"}


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


def show_ceilings(
    system: Annotated[str, typer.Option(help="Site; if omitted, that of this host.")] = "",
    wide: Wide = False,
) -> None:
    """Show what each layer should carry, carried alone, and what reached the client of it.

    Exit status 1: a measurement is missing, too old, or contradicted.
    """
    from iogauge.records import ceilings  # imported here because polars starts slowly
    from iogauge.report import ceilings as report

    console, sites = new_console(), folders.site_folders(*folders.site_dirs())
    named = [folder for folder in sites if folder.name == system]
    here = doctor.site_of_host(sites) if not system else None
    if not (chosen := named or ([here] if here else [])):
        names = ", ".join(folder.name for folder in sites)
        typer.echo(visible_lines(f"iogauge: no site {system!r}: expected one of {names}"), err=True)
        raise typer.Exit(2)
    (folder,) = chosen
    sound = True
    for name, extras in settings.partitions(folder).items():
        seen = ceilings.of_history(history_dir(), folder.name, name, extras.ceilings)
        shown = report.Shown.of(f"{folder.name}:{name}", extras, seen)
        console.print(report.table(shown, wide), soft_wrap=True)
        for line in report.remarks(shown):
            console.print(plain(line), soft_wrap=True)
        sound = sound and not shown.problems
    raise typer.Exit(0 if sound else 1)


def validate() -> None:
    """Check every site's settings and references; list every mistake, and every doubt.

    A doubt is a declaration under which a PASS means little, or a case that cannot run. References
    are held against the cases of a dry run: metrics, units, points, partitions, ceilings. Lists the
    UUID of each target that is mounted here.
    """
    console, wrong = new_console(), 0
    every = folders.site_folders(*folders.site_dirs())
    for folder in every:
        site, found = settings.read_site(folder)
        mistakes = [str(mistake) for mistake in found]
        doubts = [str(doubt) for doubt in settings.doubts(folder)]
        mistakes += map(str, settings.claimed_twice(folder, every))
        refused, doubted = _as_planned(folder)
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


def show_paths() -> None:
    """Print the variables with which ReFrame finds sites and checks: eval "$(iogauge site paths)"."""
    paths = {"RFM_CONFIG_PATH": "site-configs", "RFM_CHECK_SEARCH_PATH": "checks"}
    for variable, folder in paths.items():
        typer.echo(visible_lines(f"export {variable}={shlex.quote(str(project_root() / folder))}"))
