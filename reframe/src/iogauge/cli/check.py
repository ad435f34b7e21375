"""``iogauge check``: can the cases of a site run here? One word, or the things to do, in order."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
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
from iogauge.site import folders, programs, settings
from iogauge.site.extras import PartitionExtras


@dataclass(slots=True)
class SitePlace:
    """A site as its files describe it."""

    folder: Path
    #: Whether its cases can be started on this host.
    here: bool
    settings: dict[str, Any]
    mistakes: Sequence[object]
    #: The cases that can run, once a dry run has found them.
    cases: Sequence[PlannedCase] = ()

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
    "Does PATH have what the environments offer?",
    "a program for each feature of an environment without modules",
)
def features(site: SitePlace) -> Iterator[Answer]:
    """Compare features with the programs on PATH, if cases run here."""
    if not any(place.is_local for place in site.places):
        return
    for environment in site.settings.get("environments", ()):
        brings = {"modules", "prepare_cmds", "env_vars", "extras"} & set(environment)
        lacks = set(environment.get("features", ())) - set(programs.machine().features)
        if lacks and not brings:
            text = f"features names {', '.join(sorted(lacks))}, which no program on PATH has"
            subject = f"environment {environment['name']}"
            remedy = "install it, or leave the feature out"
            yield Answer("note", subject, text, remedy)


@probe(
    "Would its cases run?",
    "references that fit cases, time limits that suffice, room on the target",
)
def of_cases(site: SitePlace) -> Iterator[Answer]:
    """Look at what a dry run of all cases refuses or doubts."""
    if site.mistakes:
        return
    with tempfile.TemporaryDirectory(prefix="iogauge-notes-") as scratch:
        file = Path(scratch, "notes")
        file.touch()
        cases, unable = planned_cases([f"--system={site.folder.name}"], file)
        _, noted = selected.noted(file.read_text(encoding="utf-8"))
    site.cases = cases
    if site.folder.name == folders.LOCAL:
        return
    for kind, line in unable:
        state: State = "note"
        if kind == vocabulary.OF_SITE or not cases:
            state = "problem"
        elif kind == vocabulary.OF_SCALE:
            state = "detail"
        if kind != vocabulary.OF_REFERENCE or not cases:
            yield Answer(state, site.subject, line)
    values: dict[str, list[Any]] = {}
    for case in noted.values():
        values.setdefault(case.check, []).append(case.values)
    for mistake in settings.unfitting(site.folder, values):
        yield Answer("problem", site.subject, str(mistake))
    yield from against(cases, site.subject, site.here)
    if site.here:
        for is_seen, lines in at_targets(cases):
            if is_seen:
                yield from lines


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
    answers: list[Answer] = []
    if not (clients or files_only):
        answers = [*ask(host.OF_HOST), *_of_second_sites(of_host)]
    sites = []
    for folder in every:
        site = SitePlace(folder, folder in of_host, *settings.read_site(folder))
        # Who names a site that claims no host means the host where it is named.
        claims = site.settings["systems"][0].get("hostnames")
        site.here |= claims == ["^$"] and not files_only
        if folder.name in asked:
            sites.append(site)
            answers += _of_clients(site) if clients else _of_site(site)
        elif not (names or system or clients):
            answers += files(site)
    summaries = [_summary(site, clients) for site in sites]
    raise typer.Exit(_show(answers, summaries, everything, as_json))


def _of_clients(site: SitePlace) -> Iterator[Answer]:
    """Yield the answers about the site's files and the clients of each partition."""
    yield from files(site)
    with slips(registry.Missing):
        for place in site.places:
            yield from registry.load("iogauge_answers", "clients.of_partition")(place)


def _of_site(site: SitePlace) -> Iterator[Answer]:
    """Yield the answers about a site: its partitions, its files, its cases."""
    for place in site.places:
        yield from _of_partition(place)
    yield from files(site)
    yield from features(site)
    yield from of_cases(site)


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


def _summary(site: SitePlace, clients: bool) -> str:
    """Return what a site's cases cost, and what comes next."""
    name = site.folder.name
    where = f" --system={name}"
    if not site.here:
        return (
            f"{name}: its files are in order; nothing else was looked at: no pattern of its hostnames matches this host, "
            f"{socket.gethostname()}. Here, name it:{where}"
        )
    if clients:
        return f"{name}: clients are well (--all says what was asked)"
    if not site.cases:
        return f"{name}: no case can run here"
    seconds = sum(case.cost.seconds for case in site.cases)
    held = max(case.order.held_bytes for case in site.cases)
    if name == folders.LOCAL:
        where = ""
    return (
        f"{name}: {count(len(site.cases), 'case')} can run; all take {duration(seconds)}, "
        f"with at most {format_bytes(held)} on the target. Next: iogauge run{where} -t quick"
    )
