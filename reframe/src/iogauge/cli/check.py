"""``iogauge check``: can the cases of a site run here? One word, or the things to do, in order."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from iogauge.cli import host, nodes, queues
from iogauge.cli.answers import Answer, Place, State, ask, probe, show_answers
from iogauge.cli.planning import against, at_targets, no_site, planned_cases
from iogauge.cli.screen import say, slip, slips
from iogauge.core import registry, vocabulary
from iogauge.core.text import count, visible_lines
from iogauge.core.units import duration, format_bytes
from iogauge.plan.stage import PlannedCase
from iogauge.records import selected
from iogauge.report.undone import Unable
from iogauge.site import folders, settings
from iogauge.site.extras import PartitionExtras


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a dry run of a site's cases says."""

    #: The cases that can run, and why others cannot.
    cases: Sequence[PlannedCase] = ()
    unable: Sequence[Unable] = ()
    #: The values that parameters and variables of the cases may have, by check.
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SitePlace:
    """A site as its files describe it."""

    folder: Path
    #: Whether its cases can be started on this host.
    here: bool
    settings: dict[str, Any]
    mistakes: Sequence[object]

    @property
    def subject(self) -> str:
        """Return what its answers are about."""
        return f"site {self.folder.name}"

    @property
    def places(self) -> list[Place]:
        """Return its partitions, if its cases can be started on this host."""
        found = []
        if self.here and not self.mistakes:
            for partition in self.settings["systems"][0]["partitions"]:
                extras = PartitionExtras.of_partition(partition["extras"])
                found.append(Place(self.settings, partition, extras))
        return found


@probe(
    "Are the site's files right?", "no mistakes, and references that a number can miss"
)
def files(site: SitePlace) -> Iterator[Answer]:
    """Read the settings and the references."""
    for mistake in site.mistakes:
        yield Answer("problem", site.subject, str(mistake), "correct the file")


@probe(
    "Would its cases run?",
    "references that fit cases, time limits that suffice, room on the target",
)
def of_cases(site: SitePlace, dry_run: DryRun) -> Iterator[Answer]:
    """Look at what a dry run of all cases refuses or doubts."""
    for kind, line in dry_run.unable:
        state: State = "note"
        if kind == vocabulary.OF_SITE or not dry_run.cases:
            state = "problem"
        elif kind == vocabulary.OF_SCALE:
            state = "detail"
        if kind != vocabulary.OF_REFERENCE or not dry_run.cases:
            yield Answer(state, site.subject, line)
    for mistake in settings.unfitting(site.folder, dry_run.values):
        yield Answer("problem", site.subject, str(mistake))
    yield from against(dry_run.cases, site.subject, site.here)
    if site.here:
        for is_seen, lines in at_targets(dry_run.cases):
            if is_seen:
                yield from lines


def is_named_only(folder: Path) -> bool:
    """Return whether a site claims no host at all: who names it means the host where it is named."""
    systems = settings.read_site(folder)[0]["systems"]
    return bool(systems[0].get("hostnames") == ["^$"])


def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sites; if omitted, that of this host.")
    ] = None,
    files_only: Annotated[
        bool,
        typer.Option("--files", help="Only the sites' files, whatever host this is."),
    ] = False,
    clients: Annotated[
        bool,
        typer.Option("--clients", help="Only the nodes' mounts of the target."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is in order.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every answer as JSON.")
    ] = False,
    system: Annotated[str, typer.Option(help="The same as the name of a site.")] = "",
) -> None:
    """Say whether cases can run: "ready", or what to do, in order.

    Looks at the programs, the site's files, the target, the nodes (by one launch), and at what the cases need.
    Exit status 0: ready; 1: there is something to do; 2: no such site.
    """
    every = folders.site_folders(*folders.site_dirs())
    known = [folder.name for folder in every]
    asked = list(names or ())
    if system:
        asked.append(system)
    for name in asked:
        if name not in known:
            raise slip(no_site(name, known))
    of_host: list[Path] = []
    if not files_only:
        of_host = folders.sites_of_host(every, socket.gethostname())
    if not asked:
        asked = [folder.name for folder in of_host[:1]]
        if files_only:
            asked = known
    look: Callable[[SitePlace], tuple[list[Answer], str]] = _of_site
    answers: list[Answer] = []
    if clients:
        look = _of_clients
    elif not files_only:
        answers = [*ask(host.OF_HOST), *_of_second_sites(of_host)]
    summaries = []
    for folder in every:
        if folder.name in asked:
            here = folder in of_host or (not files_only and is_named_only(folder))
            found, summary = look(_read(folder, here))
            answers += found
            summaries.append(summary)
        elif not (names or system or clients):
            answers += files(_read(folder, False))
    raise typer.Exit(_show(answers, summaries, everything, as_json))


def _of_clients(site: SitePlace) -> tuple[list[Answer], str]:
    """Return the answers about the site's files and the clients of each partition, and what they found."""
    answers: list[Answer] = list(files(site))
    if not site.here:
        return answers, _summary(site, ())
    with slips(registry.Missing):
        of_partition = registry.load("iogauge_answers", "clients.of_partition")
        for place in site.places:
            answers += of_partition(place)
    found = count(sum(line.state == "ok" for line in answers), "answer")
    return answers, f"{site.folder.name}: clients are well: {found} in order (--all)"


def _of_site(site: SitePlace) -> tuple[list[Answer], str]:
    """Return the answers about a site, and what its cases cost."""
    answers: list[Answer] = []
    for place in site.places:
        answers += _of_partition(place)
    answers += files(site)
    dry_run = DryRun()
    if not site.mistakes:
        dry_run = _dry_run(site.folder)
        if site.folder.name != folders.LOCAL:
            answers += of_cases(site, dry_run)
    return answers, _summary(site, dry_run.cases)


@probe("Which site has this host?", "one, by its hostnames")
def _of_second_sites(of_host: Sequence[Path]) -> Iterator[Answer]:
    """Yield an answer for each further site whose hostnames claim this host."""
    for other in of_host[1:]:
        text = (
            f"its hostnames claim this host too, and {of_host[0].name} is selected here"
        )
        remedy = f"narrow the hostnames of one, or name a site: --system={other.name}"
        yield Answer("problem", f"site {other.name}", text, remedy)


def _of_partition(place: Place) -> Iterator[Answer]:
    """Yield the answers about a partition: if its nodes answer, they decide, and this host may see another target."""
    yield from queues.of_partition(place)
    of_nodes = list(nodes.of_partition(place))
    decided = any(line.state == "ok" for line in of_nodes)
    for line in host.of_target(place):
        if decided and line.state == "problem":
            line = replace(line, state="note", text=f"on this host: {line.text}")
        yield line
    yield from of_nodes
    yield from host.declared_nodes(place)


def _read(folder: Path, here: bool) -> SitePlace:
    """Return a site as its files describe it."""
    data, mistakes = settings.read_site(folder)
    return SitePlace(folder, here, data, mistakes)


def _dry_run(folder: Path) -> DryRun:
    """Return what a dry run of a site's cases says."""
    with tempfile.TemporaryDirectory(prefix="iogauge-notes-") as scratch:
        file = Path(scratch, "notes")
        file.touch()
        cases, unable = planned_cases([f"--system={folder.name}"], file)
        _, noted = selected.noted(file.read_text(encoding="utf-8"))
    values: dict[str, list[Any]] = {}
    for case in noted.values():
        values.setdefault(case.check, []).append(case.values)
    return DryRun(cases, unable, values)


def _show(
    answers: Sequence[Answer], summaries: Sequence[str], everything: bool, as_json: bool
) -> int:
    """Print the answers, then the word; return the exit status."""
    if as_json:
        shown = [asdict(line) for line in dict.fromkeys(answers)]
        ready = not any(line.state == "problem" for line in answers)
        text = json.dumps({"ready": ready, "answers": shown}, indent=1)
        typer.echo(visible_lines(text))
        return int(not ready)
    problems = show_answers(answers, everything)
    if problems:
        say(f"not ready: {count(problems, 'thing')} to do", "bold red")
        return 1
    for text in summaries:
        say(f"ready: {text}", "green")
    return 0


def _summary(site: SitePlace, cases: Sequence[PlannedCase]) -> str:
    """Return what a site's cases cost, and what comes next."""
    name = site.folder.name
    where = f" --system={name}"
    if not site.here:
        return (
            f"{name}: its files are in order; nothing else was looked at: no pattern of its hostnames matches this host, "
            f"{socket.gethostname()}. Here, name it:{where}"
        )
    if not cases:
        return f"{name}: no case can run here"
    seconds = sum(case.cost.seconds for case in cases)
    held = max(case.order.held_bytes for case in cases)
    if name == folders.LOCAL:
        where = ""
    return (
        f"{name}: {count(len(cases), 'case')} can run; all take {duration(seconds)}, "
        f"with at most {format_bytes(held)} on the target. Next: iogauge run{where} -t quick"
    )
