"""``iogauge check``: can the cases of a site run here? One word, or the things to do, in order."""

import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from iogauge.cli import host, nodes, queues
from iogauge.cli.answers import Answer, Place, Question, State, show_answers
from iogauge.cli.planning import Planned, against, at_targets, no_site, planned_cases
from iogauge.cli.screen import say, slip, slips
from iogauge.core import processes, registry, vocabulary
from iogauge.core.text import after, count, visible_lines
from iogauge.core.units import duration, format_bytes
from iogauge.node.view import look
from iogauge.site import folders, programs, settings
from iogauge.site.extras import PartitionExtras, Target


@dataclass
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

    @cached_property
    def planned(self) -> Planned:
        """Return what a dry run finds of its cases."""
        return planned_cases([f"--system={self.folder.name}"])


def _second_sites(of_host: Sequence[Path]) -> Iterator[Answer]:
    """Yield an answer for each further site whose hostnames claim this host."""
    for other in of_host[1:]:
        yield Answer(
            "problem",
            f"site {other.name}",
            f"its hostnames claim this host too, and {of_host[0].name} is selected here",
            f"narrow the hostnames of one, or name a site: --system={other.name}",
        )


def _clients(place: Place) -> Iterator[Answer]:
    """Ask the clients of a partition, by an extra."""
    with slips(registry.Missing):
        ask_clients = registry.load("iogauge_answers", "clients.of_partition")
    yield from ask_clients(place)


def _files(site: SitePlace) -> Iterator[Answer]:
    """Yield the mistakes in the settings and the references."""
    for mistake in site.mistakes:
        yield Answer("problem", site.subject, str(mistake), "correct the file")


def _features(site: SitePlace) -> Iterator[Answer]:
    """Compare features with the programs on PATH, if cases run here."""
    if not any(place.is_local for place in site.places):
        return
    for environment in site.settings.get("environments", ()):
        brings = {"modules", "prepare_cmds", "env_vars", "extras"} & set(environment)
        lacks = set(environment.get("features", ())) - set(programs.machine().features)
        if lacks and not brings:
            yield Answer(
                "note",
                f"environment {environment['name']}",
                f"features names {', '.join(sorted(lacks))}, which no program on PATH has",
                "install it, or leave the feature out",
            )


def _cases(site: SitePlace) -> Iterator[Answer]:
    """Look at what a dry run of all cases refuses or doubts."""
    if site.mistakes or site.folder.name == folders.LOCAL:
        return
    cases, unable, noted = site.planned
    for kind, line in unable:
        state: State = "note"
        if kind == vocabulary.OF_SITE or not cases:
            state = "problem"
        elif kind == vocabulary.OF_SCALE:
            state = "detail"
        if kind != vocabulary.OF_REFERENCE or not cases:
            yield Answer(state, site.subject, line)
    values: dict[str, list[Any]] = {}
    for case in noted:
        values.setdefault(case.check, []).append(case.values)
    for mistake in settings.unfitting(site.folder, values):
        yield Answer("problem", site.subject, str(mistake))
    yield from against(cases, site.subject, site.here)
    if site.here:
        for _, objections in at_targets(cases):
            yield from objections


#: All questions: about what, what is asked, what is expected, and what finds the answers.
QUESTIONS: Final = (
    Question(
        "host",
        "Where do records and logs go?",
        "a directory in which this user may make files",
        host.state_directory,
    ),
    Question(
        "host",
        "Which programs measure?",
        "ior, mdtest, fio and mpirun on PATH, as their names say",
        host.tools,
    ),
    Question(
        "sites of the host",
        "Which site has this host?",
        "one, by its hostnames",
        _second_sites,
    ),
    Question(
        "nodes",
        "Will the scheduler start the jobs?",
        "its program on PATH, a queue with their nodes and their time",
        queues.start,
    ),
    Question(
        "nodes",
        "Do the nodes have what cases need?",
        "clone, state and target in sight, modules that load, the tools on PATH",
        nodes.lack,
    ),
    Question(
        "target",
        "What is mounted at the target?",
        "a file system that shows which one it is",
        host.file_system,
    ),
    Question(
        "target",
        "Does the target keep what it promises?",
        "no cache below O_DIRECT, fsync that waits for storage, no compression",
        host.promises,
    ),
    Question(
        "target",
        "May cases write, and is the target free?",
        "your own or an allowed directory that no session holds",
        host.permitted,
    ),
    Question(
        "this node",
        "Are the nodes as they are declared?",
        "cores, memory and settings of the site's file",
        host.declared,
    ),
    Question(
        "clients",
        "Are all clients well, and do they agree?",
        "alike mounts that answer in 2 s, one clock, and what POSIX says of files that others use",
        _clients,
    ),
    Question(
        "files",
        "Are the site's files right?",
        "no mistakes, and references that a number can miss",
        _files,
    ),
    Question(
        "cases",
        "Does PATH have what the environments offer?",
        "a program for each feature of an environment without modules",
        _features,
    ),
    Question(
        "cases",
        "Would its cases run?",
        "references that fit cases, time limits that suffice, room on the target",
        _cases,
    ),
)


def _ask(about: str, *things: object) -> Iterator[Answer]:
    """Yield the answers to all questions about one thing."""
    for question in QUESTIONS:
        if question.about == about:
            for answer in question.find(*things):
                yield replace(answer, question=question.asks, expected=question.expects)


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
    asked = _named([*(names or ()), system], known)
    of_host: list[Path] = []
    if not files_only:
        of_host = folders.sites_of_host(every, socket.gethostname())
    if not asked:
        asked = [folder.name for folder in of_host[:1]]
        if files_only:
            asked = known
    answers: list[Answer] = []
    if not (clients or files_only):
        answers += _ask("host")
        answers += _ask("sites of the host", of_host)
    sites = []
    for folder in every:
        site = SitePlace(folder, folder in of_host, *settings.read_site(folder))
        # Who names a site that claims no host means the host where it is named.
        claims = site.settings["systems"][0].get("hostnames")
        site.here |= claims == ["^$"] and not files_only
        if folder.name in asked:
            sites.append(site)
            answers += _of_site(site, clients)
        elif not (names or system or clients):
            answers += _ask("files", site)
    if as_json:
        raise typer.Exit(_print_json(answers))
    problems = show_answers(answers, everything)
    if problems:
        say(f"not ready: {count(problems, 'thing')} to do", "bold red")
        raise typer.Exit(1)
    for site in sites:
        say(f"ready: {_summary(site, clients)}", "green")


def _named(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the sites that the user names; end the command at one that does not exist."""
    named = [name for name in names if name]
    for name in named:
        if name not in known:
            raise slip(no_site(name, known))
    return named


def _of_site(site: SitePlace, clients: bool) -> Iterator[Answer]:
    """Yield the answers about a site's partitions, or about their clients alone, then about its files and its cases."""
    for place in site.places:
        if clients:
            yield from _ask("clients", place)
        else:
            yield from _of_partition(place)
    yield from _ask("files", site)
    if not clients:
        yield from _ask("cases", site)


def _of_partition(place: Place) -> Iterator[Answer]:
    """Yield the answers about a partition: if its nodes answer, they decide, and this host may see another target."""
    of_nodes = [*_ask("nodes", place)]
    yield from of_nodes
    decided = any(line.state == "ok" for line in of_nodes)
    for line in _of_target(place.extras.target):
        if decided and line.state == "problem":
            line = replace(line, state="note", text=f"on this host: {line.text}")
        yield line
    yield from _ask("this node", place)


def _of_target(target: Target) -> Iterator[Answer]:
    """Yield the answers about a target as this host sees it, from a process that storage may hang."""
    subject = f"target {target.path}"
    if target.of_job:
        yield Answer("note", subject, "made for each job: only a job sees it")
        return

    def look_and_ask() -> list[Answer]:
        return [*_ask("target", target, look(target.path))]

    try:
        yield from processes.call_in_time(target.path, look_and_ask)
    except OSError as error:
        text = after(target.path, error.strerror or str(error))
        remedy = "correct target.path, or look on a node that mounts it"
        yield Answer("problem", subject, text, remedy)


def _print_json(answers: Sequence[Answer]) -> int:
    """Print every answer, each once, with its question; return the exit status."""
    shown = [asdict(line) for line in dict.fromkeys(answers)]
    ready = not any(line.state == "problem" for line in answers)
    text = json.dumps({"ready": ready, "answers": shown}, indent=1)
    typer.echo(visible_lines(text))
    return int(not ready)


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
    cases = site.planned.cases
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
