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


def is_named_only(folder: Path) -> bool:
    """Return whether a site claims no host at all: who names it means the host where it is named."""
    systems = settings.read_site(folder)[0]["systems"]
    return bool(systems[0].get("hostnames") == ["^$"])


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
    of_host: list[Path] = []
    lines: list[Check] = []
    if not files:
        of_host = folders.sites_of_host(every, socket.gethostname())
        lines += doctor.of_this_host()
        lines += _of_second_sites(of_host)
    chosen = of_host[:1]
    if names:
        chosen = [folder for folder in every if folder.name in names]
    elif files:
        chosen = every
    summaries = []
    for folder in chosen:
        here = folder in of_host or (not files and is_named_only(folder))
        found, cases = _of_site(folder, here)
        lines += found
        if not here and not files:
            text = (
                f"no pattern of its hostnames matches this host, {socket.gethostname()}"
            )
            remedy = f"here, name it: --system={folder.name}"
            lines.append(Check("note", f"site {folder.name}", text, remedy))
        summaries.append(_summary(folder, cases, here))
    if not names:
        for folder in every:
            if folder not in chosen:
                lines += _of_files(folder)
    raise typer.Exit(_show(lines, everything, summaries))


def _of_second_sites(of_host: Sequence[Path]) -> Iterator[Check]:
    """Yield a line for each further site whose hostnames claim this host."""
    for other in of_host[1:]:
        text = (
            f"its hostnames claim this host too, and {of_host[0].name} is selected here"
        )
        remedy = f"narrow the hostnames of one, or name a site: --system={other.name}"
        yield Check("problem", f"site {other.name}", text, remedy)


#: Notes about one subject that are shown without ``--all``.
_NOTES: Final = 6


def _show(lines: Sequence[Check], everything: bool, summaries: Sequence[str]) -> int:
    """Print remarks, then what is to be done, in order, then the word; return the exit status."""
    states = grouped(dict.fromkeys(lines), lambda line: line.state)
    if everything:
        for line in states.get("ok", ()):
            say(f"ok    {line}", "green")
    notes = grouped(states.get("note", ()), lambda line: line.subject)
    for subject, of_subject in notes.items():
        shown = [str(line) for line in of_subject]
        hidden = len(shown) - _NOTES
        if hidden > 0 and not everything:
            shown[_NOTES:] = [f"{subject}: {hidden} more: --all"]
        for text in shown:
            say(f"note  {text}", "yellow")
    problems = _without_repetitions(states.get("problem", []))
    for number, line in enumerate(problems, 1):
        say(f"to do {number} {line.subject}: {line.text}", "red")
        say(f"  -> {line.remedy or 'correct the file'}")
    if problems:
        say(f"not ready: {count(len(problems), 'thing')} to do", "bold red")
        return 1
    for text in summaries:
        say(f"ready: {text}", "green")
    return 0


def _without_repetitions(problems: Sequence[Check]) -> list[Check]:
    """Return problems without those that repeat another's for single cases."""
    kept = []
    for line in problems:
        stems = [
            f"{other.text} (" for other in problems if other.subject == line.subject
        ]
        if not line.text.startswith(tuple(stems)):
            kept.append(line)
    return kept


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
    scheduler = partition["scheduler"]
    program = _SUBMITS.get(scheduler)
    if program and not shutil.which(program):
        text = f"scheduler is {scheduler}, and {program} is not on PATH"
        remedy = f"put {program} on PATH, or correct scheduler"
        yield Check("problem", f"partition {partition['name']}", text, remedy)
    if scheduler != "local" or {"modules", "prepare_cmds"} & set(partition):
        return
    here = set(programs.machine().features)
    for environment in site.get("environments", ()):
        lacks = set(environment.get("features", ())) - here
        brings = {"modules", "prepare_cmds", "env_vars", "extras"} & set(environment)
        if lacks and not brings:
            text = f"features names {', '.join(sorted(lacks))}, which no program on PATH has"
            remedy = "install it, or leave the feature out"
            yield Check("note", f"environment {environment['name']}", text, remedy)


def _summary(folder: Path, cases: Sequence[PlannedCase], here: bool) -> str:
    """Return what a site's cases cost, and what comes next."""
    if not here:
        return f"{folder.name}: its files are in order; nothing else was looked at"
    if not cases:
        return f"{folder.name}: no case can run here"
    seconds = sum(case.seconds for case in cases)
    held = max(case.order.held_bytes + case.order.fill_bytes for case in cases)
    where = f" --system={folder.name}"
    if folder.name == folders.LOCAL:
        where = ""
    return (
        f"{folder.name}: {count(len(cases), 'case')} can run; all take {duration(seconds)}, "
        f"with at most {format_bytes(held)} on the target. Next: iogauge run{where} -t quick"
    )


def _of_files(folder: Path) -> list[Check]:
    """Return the lines about a site's files."""
    subject = f"site {folder.name}"
    lines = []
    for mistake in settings.read_site(folder)[1]:
        lines.append(Check("problem", subject, str(mistake), "correct the file"))
    for doubt in References.of_site(folder.name).doubts():
        lines.append(Check("note", subject, str(doubt), doctor.DOUBT))
    return lines


def _of_site(folder: Path, here: bool) -> tuple[list[Check], list[PlannedCase]]:
    """Return the lines about a site, and the cases that can run on it; ``here`` if this host belongs to it."""
    site, mistakes = settings.read_site(folder)
    lines = _of_files(folder)
    if mistakes:
        return lines, []
    if here:
        for partition in site["systems"][0]["partitions"]:
            lines += _of_partition(folder, partition, site)
        lines += _same_file_system(folder, site)
    cases, more = _as_planned(folder, here)
    return lines + more, cases


def _same_file_system(folder: Path, site: Mapping[str, Any]) -> Iterator[Check]:
    """Yield a line about partitions on one file system with locks of their own: their cases would run at once."""
    by_identity: dict[str, dict[str, str]] = {}
    for partition in site["systems"][0]["partitions"]:
        target = PartitionExtras.of_partition(partition["extras"]).target
        identity = target.uuid or target.source
        if identity and target.lock_place:
            locks = by_identity.setdefault(identity, {})
            locks[partition["name"]] = target.lock_place
    for identity, locks in by_identity.items():
        if len(set(locks.values())) > 1:
            place = next(iter(locks.values()))
            yield Check(
                "note",
                f"site {folder.name}",
                f"partitions {', '.join(locks)} lie on one file system, {identity}, and each has its own lock: their cases "
                "run at once and load each other",
                f"write into the extras of each: target: {{lock: {place}}}",
            )


def _of_partition(
    folder: Path, partition: Mapping[str, Any], site: Mapping[str, Any]
) -> list[Check]:
    """Return the lines about the target and the nodes of a partition of this host's site."""
    extras = PartitionExtras.of_partition(partition["extras"])
    asked = list(nodes.ask(partition, site))
    target = doctor.of_target(extras)
    answered = any(line.state == "ok" for line in asked)
    if answered and (partition["scheduler"] != "local" or extras.hosts):
        # The nodes decide; this host may see another target, or none.
        target = [_on_this_host(line) for line in target]
    lines = [*_not_on_path(partition, site), *queues.never_start(partition)]
    lines += [*target, *asked]
    return lines + list(doctor.declared_nodes(folder.name, partition, extras))


def _on_this_host(line: Check) -> Check:
    """Return a problem of a target as a note, but for another file system."""
    if line.state != "problem" or "G9" in line.text:
        return line
    return Check("note", line.subject, f"on this host: {line.text}", line.remedy)


def _as_planned(folder: Path, here: bool) -> tuple[list[PlannedCase], list[Check]]:
    """Return the cases that can run, and what a run of all cases of a site would refuse or doubt."""
    subject = f"site {folder.name}"
    with tempfile.TemporaryDirectory(prefix="iogauge-notes-") as scratch:
        file = Path(scratch, "notes")
        file.touch()
        cases, unable = planned_cases([f"--system={folder.name}"], file)
        _, noted = selected.noted(file.read_text(encoding="utf-8"))
    if folder.name == folders.LOCAL:
        return cases, []
    by_check = grouped(noted.values(), lambda case: case.check)
    values = {}
    for check_name, of_check in by_check.items():
        values[check_name] = [case.values for case in of_check]
    refused = []
    doubts = []
    for line in unable:
        if str(folder.resolve()) in line or not cases:
            refused.append(line)
        elif "nothing could fail" not in line:
            doubts.append(line)
    refused += map(str, settings.unfitting(folder, values))
    refused += plan_table.refused(cases)
    lines = [Check("problem", subject, text, doctor.DOUBT) for text in refused]
    late: doctor.Answer = "problem" if here else "note"
    lines += [Check(late, subject, text) for text in plan_table.over_time(cases)]
    doubts += plan_table.doubts(cases)
    lines += [Check("note", subject, text) for text in doubts]
    if here:
        lines += room(cases)
    return cases, lines
