"""``iogauge check``: can the cases of a site run here? One word, or the things to do, in order."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from iogauge.cli import doctor, nodes, queues
from iogauge.cli.doctor import Check
from iogauge.cli.planning import no_site, planned_cases, room
from iogauge.cli.screen import say, slip
from iogauge.core.groups import grouped
from iogauge.core.text import count
from iogauge.core.units import duration, format_bytes
from iogauge.plan.stage import PlannedCase
from iogauge.records import selected
from iogauge.report import plan_table
from iogauge.site import folders, programs, settings
from iogauge.site.extras import PartitionExtras
from iogauge.site.references import References


def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sites; if omitted, that of this host.")
    ] = None,
    files: Annotated[
        bool,
        typer.Option("--files", help="Only the sites' files, whatever host this is."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is in order.")
    ] = False,
) -> None:
    """Say whether cases can run: "ready", or what to do, in order.

    Looks at the programs, the site's files, the target, the nodes (by one launch), and at what the cases need.
    Exit status 0: ready; 1: there is something to do; 2: no such site.
    """
    every = folders.site_folders(*folders.site_dirs())
    known = [folder.name for folder in every]
    for name in names or ():
        if name not in known:
            raise slip(no_site(name, known))
    of_host = [] if files else folders.sites_of_host(every, socket.gethostname())
    chosen = (
        [folder for folder in every if folder.name in names]
        if names
        else [*of_host[:1]]
    )
    lines, summaries = [] if files else doctor.of_this_host(), []
    for other in of_host[1:]:
        text = (
            f"its hostnames claim this host too, and {of_host[0].name} is selected here"
        )
        remedy = f"narrow the hostnames of one, or name a site: --system={other.name}"
        lines.append(Check("problem", f"site {other.name}", text, remedy))
    for folder in every if files and not names else chosen:
        found, cases = _of_site(folder, folder in of_host)
        lines += found
        if not (files or folder in of_host):
            text = (
                f"no pattern of its hostnames matches this host, {socket.gethostname()}"
            )
            remedy = f"here, name it: --system={folder.name}"
            lines.append(Check("note", f"site {folder.name}", text, remedy))
        summaries.append(_summary(folder, cases, folder in of_host))
    for folder in () if files or names else (one for one in every if one not in chosen):
        lines += _of_files(folder)
    raise typer.Exit(_show(lines, everything, summaries))


#: Notes about one subject that are shown without ``--all``.
_NOTES: Final = 6


def _show(lines: Sequence[Check], everything: bool, summaries: Sequence[str]) -> int:
    """Print remarks, then what is to be done, in order, then the word; return the exit status."""
    states = grouped(dict.fromkeys(lines), lambda one: one.state)
    problems = states.get("problem", [])
    told = [(one.subject, one.text) for one in problems]
    problems = [  # what a target lacks is said once, whatever cases it stops
        one
        for one in problems
        if not any(
            s == one.subject and one.text.startswith(f"{text} (") for s, text in told
        )
    ]
    for one in states.get("ok", ()) if everything else ():
        say(f"ok    {one}", "green")
    for subject, found in grouped(
        states.get("note", ()), lambda one: one.subject
    ).items():
        shown = list(map(str, found if everything else found[:_NOTES]))
        if len(shown) < len(found):
            shown.append(f"{subject}: {len(found) - _NOTES} more: --all")
        for text in shown:
            say(f"note  {text}", "yellow")
    for number, one in enumerate(problems, 1):
        say(f"to do {number} {one.subject}: {one.text}", "red")
        say(f"  -> {one.remedy or 'correct the file'}")
    if problems:
        say(f"not ready: {count(len(problems), 'thing')} to do", "bold red")
    for text in () if problems else summaries:
        say(f"ready: {text}", "green")
    return 1 if problems else 0


#: The program that hands jobs to a scheduler.
_SUBMITS: Final = {
    **dict.fromkeys(("slurm", "squeue"), "sbatch"),
    **dict.fromkeys(("pbs", "pbspro", "torque", "sge"), "qsub"),
    **{"lsf": "bsub", "flux": "flux", "oar": "oarsub"},
}


def _not_on_path(
    partition: Mapping[str, Any], site: Mapping[str, Any]
) -> Iterator[Check]:
    """Yield the line about a scheduler's program that this host lacks, or about tools of an environment of PATH."""
    program, subject = (
        _SUBMITS.get(partition["scheduler"]),
        f"partition {partition['name']}",
    )
    if program and not shutil.which(program):
        text = f"scheduler is {partition['scheduler']}, and {program} is not on PATH"
        yield Check(
            "problem", subject, text, f"put {program} on PATH, or correct scheduler"
        )
    of_path = partition["scheduler"] == "local" and not {"modules", "prepare_cmds"} & {
        *partition
    }
    for one in site.get("environments", ()) if of_path else ():
        lacks = {*one.get("features", ())} - {*programs.machine().features}
        if lacks and not {"modules", "prepare_cmds", "env_vars", "extras"} & {*one}:
            text = f"features names {', '.join(sorted(lacks))}, which no program on PATH has"
            yield Check(
                "note",
                f"environment {one['name']}",
                text,
                "install it, or leave the feature out",
            )


def _summary(folder: Path, cases: Sequence[PlannedCase], here: bool) -> str:
    """Return what a site's cases cost, and what comes next."""
    if not here:
        return f"{folder.name}: its files are in order; nothing else was looked at"
    if not cases:
        return f"{folder.name}: no case can run here"
    seconds = sum(case.seconds for case in cases)
    held = max(case.order.held_bytes + case.order.fill_bytes for case in cases)
    where = "" if folder.name == folders.LOCAL else f" --system={folder.name}"
    return (
        f"{folder.name}: {count(len(cases), 'case')} can run; all take {duration(seconds)}, "
        f"with at most {format_bytes(held)} on the target. Next: iogauge run{where} -t quick"
    )


def _of_files(folder: Path) -> list[Check]:
    """Return the lines about a site's files."""
    subject = f"site {folder.name}"
    mistakes = settings.read_site(folder)[1]
    lines = [
        Check("problem", subject, str(one), "correct the file") for one in mistakes
    ]
    return [
        *lines,
        *(
            Check("note", subject, str(one), doctor.DOUBT)
            for one in References.of_site(folder.name).doubts()
        ),
    ]


def _of_site(folder: Path, here: bool) -> tuple[list[Check], list[PlannedCase]]:
    """Return the lines about a site, and the cases that can run on it; ``here`` if this host belongs to it."""
    site, found = settings.read_site(folder)
    lines = _of_files(folder)
    if found:
        return lines, []
    for partition in site["systems"][0]["partitions"] if here else ():
        lines += _of_partition(folder, partition, site)
    cases, more = _as_planned(folder, here)
    return [*lines, *more], cases


def _of_partition(
    folder: Path, partition: Mapping[str, Any], site: Mapping[str, Any]
) -> list[Check]:
    """Return the lines about the target and the nodes of a partition of this host's site."""
    extras = PartitionExtras.of_partition(partition["extras"])
    asked = list(nodes.ask(partition, site))
    target = doctor.of_target(extras)
    if partition["scheduler"] != "local" or extras.hosts:
        # The nodes decide; this host may see another target, or none.
        seen = any(one.state == "ok" for one in asked)
        target = [
            Check("note", one.subject, f"on this host: {one.text}", one.remedy)
            if seen and one.state == "problem" and "G9" not in one.text
            else one
            for one in target
        ]
    lacks = _not_on_path(partition, site)
    return [
        *lacks,
        *queues.never_start(partition),
        *target,
        *asked,
        *doctor.declared_nodes(folder.name, partition, extras),
    ]


def _as_planned(folder: Path, here: bool) -> tuple[list[PlannedCase], list[Check]]:
    """Return the cases that can run, and what a run of all cases of a site would refuse or doubt."""
    subject = f"site {folder.name}"
    with tempfile.TemporaryDirectory(prefix="iogauge-notes-") as scratch:
        file = Path(scratch, "notes")
        cases, unable = planned_cases([f"--system={folder.name}"], file)
        _, noted = selected.noted(
            file.read_text(encoding="utf-8") if file.exists() else ""
        )
    if folder.name == folders.LOCAL:
        return cases, []
    checks = grouped(noted.values(), lambda case: case.check)
    values = {check: [case.values for case in mine] for check, mine in checks.items()}
    found = [line for line in unable if str(folder.resolve()) in line or not cases]
    others = [
        line
        for line in unable
        if line not in found and "nothing could fail" not in line
    ]
    refused = [
        *found,
        *map(str, settings.unfitting(folder, values)),
        *plan_table.refused(cases),
    ]
    lines = [Check("problem", subject, text, doctor.DOUBT) for text in refused]
    late: doctor.Answer = "problem" if here else "note"
    lines += [Check(late, subject, text) for text in plan_table.over_time(cases)]
    lines += [
        Check("note", subject, text) for text in [*others, *plan_table.doubts(cases)]
    ]
    return cases, [*lines, *(room(cases) if here else ())]
