"""What ReFrame's arguments select, before anything runs: slips, the list of cases, and what they will cost."""

import contextlib
import difflib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import typer

from iogauge.cli.answers import Answer, State, objections, show_answers
from iogauge.cli.screen import say, show, slip, slips, warn
from iogauge.core import processes, untrusted
from iogauge.core.groups import grouped
from iogauge.core.paths import LIBRARY, history_dir, project_root
from iogauge.core.text import after, count, did_you_mean, some
from iogauge.core.units import BANDWIDTH_UNITS, convert, in_order
from iogauge.core.yamlfile import YamlError, load
from iogauge.job import looking
from iogauge.node.lustre.lfs import LustreError
from iogauge.plan.bounds import MEASURED
from iogauge.plan.stage import FOOTPRINT, PlannedCase
from iogauge.records import names, query, selected
from iogauge.records.record import Record, short_name
from iogauge.records.selected import NotedCase, Selected, Unmeasured, selection
from iogauge.report import endings, plan_table, undone
from iogauge.report.undone import Unable
from iogauge.site import folders, machine, settings
from iogauge.site.references import known_checks
from iogauge.workspace import permission


def reframe_command(arguments: list[str]) -> list[str]:
    """Return ReFrame's command line, with this project's checks unless others are named."""
    paths = ["-c", str(project_root() / "checks")]
    if _names_checks(arguments):
        paths = []
    program = shutil.which("reframe")
    installed = Path(sys.executable).with_name("reframe")
    if installed.exists():
        program = str(installed)
    if program is None:
        raise SystemExit(
            "iogauge: reframe is not installed here: run 'make setup', then '. ./activate'"
        )
    return [program, *paths, *names.for_reframe(arguments)]


def _names_checks(arguments: Sequence[str]) -> bool:
    options = [word.partition("=")[0] for word in arguments]
    return "-c" in options or "--checkpath" in options


#: Options of ``run`` that are not ReFrame's, which takes a slip in them for its own.
_OWN: Final = (
    "--gate",
    "--confirm",
    "--dry-run",
    "--system",
    "--mode",
)


def settled(context: typer.Context) -> list[str]:
    """Return the arguments for ReFrame; end the command at a slip that can be seen in them alone."""
    with slips(ValueError):
        arguments = selected.with_variables(context.args)
    for text in _slips(arguments):
        raise slip(text)
    return arguments


def no_site(name: str, known: Sequence[str]) -> str:
    """Return what is said of a site that does not exist."""
    return f"no site {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}"


def demand_known(system: str, name: str) -> None:
    """End the command if a system is neither a site nor in the history, or if a case's name fits no check."""
    sites = {folder.name for folder in folders.site_folders(*folders.site_dirs())}
    sites |= {path.name for path in history_dir().glob("*/")}
    if system and system not in sites:
        raise slip(no_site(system, sorted(sites)))
    checks = known_checks(project_root() / "checks")
    asked = re.match(r"\^?(\w+)", name)
    if asked and not any(asked[1] in check for check in checks):
        raise slip(f"-n {name} fits no check{did_you_mean(asked[1], checks)}")


def _slips(arguments: Sequence[str]) -> Iterable[str]:
    """Yield what is wrong with options, sites and modes that the arguments name."""
    for word in arguments:
        option = word.partition("=")[0]
        near = difflib.get_close_matches(option, _OWN, 1, 0.8)
        if near and option not in _OWN:
            yield f"{option} is no option (did you mean {near[0]}?)"
    for option, value in zip(arguments, [*arguments, "-"][1:], strict=True):
        if option in CHOOSING and value.startswith("-"):
            yield f"{option} needs a value; iogauge run -l lists the cases"
    if "RFM_CONFIG_FILES" in os.environ or {"-C", "--config-file"} & set(arguments):
        return
    sites = [folder.name for folder in folders.site_folders(*folders.site_dirs())]
    for system in selected.values(arguments, "--system", "--system"):
        name, _, partition = system.partition(":")
        if name not in (*sites, "generic"):
            yield no_site(name, sites)
        known = settings.partitions(folders.site_dir(name)) if partition else {}
        if known and partition not in known:
            yield f"no partition {partition!r} of {name}{did_you_mean(partition, known)}; known: {', '.join(known)}"
    modes = _modes()
    for mode in selected.values(arguments, "--mode", "--mode"):
        if modes and mode not in modes:
            yield f"no mode {mode!r}{did_you_mean(mode, modes)}; known: {', '.join(modes)}"


def _modes() -> list[str]:
    """Return the names of the modes that all sites share; empty if they cannot be read."""
    for folder in reversed(folders.site_dirs()):
        with contextlib.suppress(YamlError, OSError, LookupError, TypeError):
            values = load(folder / folders.COMMON / folders.SETTINGS)
            return [str(mode["name"]) for mode in values["modes"]]
    return []


def demand_cases(arguments: list[str], chosen: Selected | None) -> None:
    """End the command if a name or a tag fits no case, or if all of them together select none."""
    if chosen is None:
        return
    checks = known_checks(project_root() / "checks")
    unknown = selected.without_match(arguments, chosen.listed, checks=checks)
    names_of_cases = [n for n in selected.values(arguments, "-n", "--name") if " " in n]
    if unknown and names_of_cases:
        known = {*checks, *map(_short, _every_case(arguments))}
        unknown = selected.without_match(arguments, chosen.listed, checks=known)
    if unknown:
        raise slip("; ".join(unknown))
    if not (chosen.listed or chosen.left_out or chosen.unfit):
        raise slip(
            f"these options select no case: {selection(arguments) or 'none given'}"
        )


def _every_case(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return ReFrame's names of all cases, whatever the arguments choose among them."""
    found = selected_by([word for word in arguments if word.startswith("--system=")])
    if found is None:
        return ()
    return found.listed


def _short(case: str) -> str:
    """Return the name of a table for the name that ReFrame lists, with its hash."""
    return short_name(case.rpartition(" /")[0])


def list_cases(arguments: list[str]) -> None:
    """Print the selected cases by the names of the table, and what each lacks here."""
    asked = [word for word in arguments if word not in LISTING]
    chosen = selected_by(asked)
    demand_cases(asked, chosen)
    if chosen is None:
        raise slip("ReFrame cannot list the cases: try reframe -c checks/ -l")
    lacks = {short_name(case.case): case.feature for case in chosen.left_out}
    runs = {_short(case): case in chosen.runnable for case in chosen.listed}
    rows = []
    for name in sorted(runs, key=in_order):
        answer = "yes"
        if not runs[name]:
            answer = f"no {lacks.get(name, '')}".strip()
        rows.append((name, answer))
    show(plan_table.listing(rows))
    say(f"{count(len(rows), 'case')}, {sum(runs.values())} run here")
    for line in endings.remarks(unmeasured_of(asked, chosen)):
        say(line)


#: ReFrame's options that list.
LISTING: Final = ("-l", "-L", "--list", "--list-detailed")


def reframe_main() -> Callable[[], object]:
    """Return what runs ReFrame in a fork; its modules are loaded here, for all forks, and by no other command."""
    from reframe.frontend import cli
    from reframe.utility import color

    def main() -> object:
        # ReFrame colours the lines of a failed metric even if it must not colour.
        if os.environ.get("RFM_COLORIZE") == "n":
            color.colorize = _plain
        return cli.main()

    return main


def _plain(text: str, *_: object, **__: object) -> str:
    return text


def environment_of(**extra: str) -> dict[str, str]:
    python_path = [str(LIBRARY.parent)]
    if os.environ.get("PYTHONPATH"):
        python_path.append(os.environ["PYTHONPATH"])
    defaults = {"RFM_CONFIG_PATH": str(project_root() / "site-configs")}
    if not sys.stdout.isatty() and os.environ.get("GITLAB_CI") != "true":
        defaults["RFM_COLORIZE"] = "n"  # ReFrame would write colours into files
    path = {"PYTHONPATH": os.pathsep.join(python_path)}
    return defaults | os.environ | path | extra


def _system_of(arguments: Sequence[str]) -> str:
    """Return the name of the system that is measured: it is named, or has this host; empty if neither."""
    here = folders.site_of_this_host()
    name = os.environ.get("RFM_SYSTEM", "")
    if here and not name:
        name = here.name
    for named in selected.values(arguments, "--system", "--system"):
        name = named
    return name.partition(":")[0]


def say_target(arguments: Sequence[str]) -> None:
    """Say which target is used if no site claims this host and none is named, or that a site leaves IOGAUGE_TARGET out."""
    system = _system_of(arguments)
    is_named = "RFM_SYSTEM" in os.environ
    is_named |= any(word.startswith("--system") for word in arguments)
    if system == folders.LOCAL and not is_named:
        with slips(OSError):
            target = machine.target_path()
        text = (
            f"no site claims host {socket.gethostname()}: using site local, target "
            f"{target}. Name another site: --system=SITE, or add the host to its hostnames"
        )
        warn(text)
    elif system not in ("", folders.LOCAL) and "IOGAUGE_TARGET" in os.environ:
        warn(
            f"IOGAUGE_TARGET is ignored: the settings of site {system} name its targets"
        )


def selected_by(arguments: list[str]) -> Selected | None:
    """Return what ReFrame's arguments select, also cases that ReFrame would leave out.

    Returns None if ReFrame cannot list them: a run then says why.
    """
    # These two multiply the selected cases.
    words = without(arguments, "--distribute", "--repeat")
    words = ["-l", "--skip-system-check", "--skip-prgenv-check", *words]
    with tempfile.TemporaryDirectory(prefix="iogauge-list-") as scratch:
        notes = Path(scratch, "notes")
        environment = environment_of(IOGAUGE_GATE="0", **{selected.LISTING: str(notes)})
        status, output, _ = processes.Fork.printed(
            reframe_main(), reframe_command(words), environment
        )
        listed = re.findall(r"^- (.* /[0-9a-f]+)$", output, re.MULTILINE)
        if status != 0 or not notes.exists():
            return None
        return selected.select(listed, notes.read_text(encoding="utf-8"))


def unmeasured_of(
    arguments: list[str],
    chosen: Selected,
    records: Sequence[Record] = (),
    gate: bool = False,
) -> Unmeasured:
    """Return what a run was asked for and did not measure."""
    checks = known_checks(project_root() / "checks")
    unmatched = selected.without_match(
        arguments, chosen.runnable, chosen.listed, checks
    )
    gone: list[str] = []
    if gate:
        gone = _gone(selection(arguments), records)
    nothing = ""
    if not (chosen.runnable or chosen.left_out or chosen.unfit or unmatched):
        nothing = selection(arguments) or "none given"
    return Unmeasured(
        gate=gate,
        left_out=chosen.left_out,
        unfit=chosen.unfit,
        unmatched=tuple(unmatched),
        gone=tuple(gone),
        nothing=nothing,
    )


def _gone(asked: str, records: Sequence[Record]) -> list[str]:
    """Return the cases that earlier gates of the same options measured, and this one did not."""
    sessions = {record.session for record in records}
    gone: list[str] = []
    for system in dict.fromkeys(record.system for record in records):
        before = selected.seen_before(history_dir(), system, asked, sessions)
        gone += selected.gone(before, records, system)
    return gone


def _measured_speed(arguments: Sequence[str]) -> float:
    """Return the median bandwidth that a node of the selected system reached, in bytes/s; 0 without records."""
    units = query.among("unit", BANDWIDTH_UNITS)
    of_system = query.Condition(
        f"{query.COUNTING} AND nodes > 0 AND system = ?",
        (_system_of(arguments),),
    )
    rates = []
    with closing(query.connect(history_dir())) as history:
        newest = "ORDER BY time DESC LIMIT 200"
        for row in query.rows(
            history, "median, unit, nodes", query.every(of_system, units), newest
        ):
            rates.append(convert(row["median"], row["unit"], "B/s") / row["nodes"])
    speed: float = median(rates or [0.0])
    return speed


class Planned(NamedTuple):
    """What a dry run finds of the cases that ReFrame's arguments select."""

    #: Footprints of the cases that can run.
    cases: list[PlannedCase]
    #: Which cases cannot run, or why there is none; empty if all can.
    unable: list[Unable]
    #: All cases, before ReFrame's options change them.
    noted: list[NotedCase]


def planned_cases(arguments: list[str]) -> Planned:
    """Return what a dry run finds of the cases that ReFrame's arguments select."""
    with tempfile.TemporaryDirectory(prefix="iogauge-plan-") as scratch:
        # Nothing runs, so ReFrame need not wait between the cases.
        quick = {"RFM_POLL_RATE_MAX": "100000", "IOGAUGE_HOME": scratch}
        quick["IOGAUGE_GATE"] = "0"  # a plan is no gate, whatever asks for it
        quick[MEASURED] = str(_measured_speed(arguments))
        notes = Path(scratch, "notes")
        notes.touch()
        quick[selected.LISTING] = str(notes)
        report = Path(scratch, "report.json")
        words = ["--nocolor", "--prefix", scratch, *arguments, "--dry-run"]
        words += ["--exec-policy=serial", "--report-file", str(report)]
        status, output, errors = processes.Fork.printed(
            reframe_main(), reframe_command(words), environment_of(**quick)
        )
        files = sorted(Path(scratch).rglob(FOOTPRINT))
        cases = [PlannedCase.from_json(untrusted.read_json(file)) for file in files]
        reasons: list[Unable] = []
        with contextlib.suppress(OSError, ValueError):
            reasons = undone.unable(report)
        _, noted = selected.noted(notes.read_text(encoding="utf-8"))
    if status == 0:
        reasons = []
        if not cases:
            text = f"{errors}no case is selected: see what 'iogauge run -l' shows"
            reasons = [Unable("", text)]
    elif not reasons:
        reasons = [Unable("", output[-4000:] + errors[-4000:])]
    return Planned(cases, reasons, [*noted.values()])


#: ReFrame's options that select cases; each takes a value.
CHOOSING: Final = (
    "-n",
    "--name",
    "-t",
    "--tag",
    "-T",
    "--exclude-tag",
    "-x",
    "--exclude",
    "-E",
    "-p",
)


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """Return ReFrame's arguments without options, and without the values that they take."""
    kept = []
    takes_value = False
    for word in arguments:
        is_value = takes_value and not word.startswith("-")
        if word.partition("=")[0] not in options and not is_value:
            kept.append(word)
        takes_value = word in options
    return kept


def plan(arguments: list[str]) -> bool:
    """Show what cases would write and read; return whether they can run, and fit the target and the time limit."""
    say_target(arguments)
    chosen = selected_by(arguments)
    demand_cases(arguments, chosen)
    cases, unable, _ = planned_cases(arguments)
    if cases:
        show(plan_table.table(cases))
        for line in plan_table.remarks(cases):
            say(line)
    answers = [Answer("problem", "cases", line, _LESS) for _, line in unable]
    answers += against(cases, "cases")
    for permitted, lines in at_targets(cases):
        answers += [permitted, *lines]
    lack = Unmeasured()
    if chosen:
        lack = unmeasured_of(arguments, chosen)
    for line in (*lack.unmatched, *endings.remarks(lack)):
        say(line)
    fits = not show_answers(answers, everything=True)
    return fits and bool(cases)


#: What to do about a target that may not be written, and about cases that cannot run as they are.
_ELSEWHERE: Final = "look on a node that mounts it, or name a directory of your own"
_LESS: Final = "change the site's settings, or leave them out: -x NAME"


#: What to do about a declaration under which a PASS means little.
_DOUBT: Final = "a PASS means little there: correct it; if it is meant, let the file's sources say why"


def against(
    cases: Sequence[PlannedCase], subject: str, here: bool = True
) -> Iterator[Answer]:
    """Yield what references and time limits have against cases; elsewhere nobody knows how long they take."""
    late: State = "problem"
    if not here:
        late = "note"
    for line in plan_table.refused(cases):
        yield Answer("problem", subject, line, _DOUBT)
    for line in plan_table.over_time(cases):
        yield Answer(late, subject, line)
    for line in plan_table.doubts(cases):
        yield Answer("note", subject, line)


def at_targets(cases: Iterable[PlannedCase]) -> Iterator[tuple[Answer, list[Answer]]]:
    """Yield of each target whether cases may write there, as this host sees it, and what is not in order for them."""

    def declared(case: PlannedCase) -> tuple[object, ...]:
        order = case.order
        return (
            order.target,
            order.type,
            order.source,
            order.uuid,
            order.striping,
        )

    for _, group in sorted(grouped(cases, declared).items(), key=str):
        order = group[0].order
        target = order.target
        subject = f"target {target}"
        try:
            look = partial(looking.look_as_declared, target, order)
            view, seen = processes.call_in_time(target, look)
            reason = processes.call_in_time(target, partial(permission.reason, target))
        except (OSError, LustreError) as error:
            text = after(target, getattr(error, "strerror", "") or str(error))
            yield Answer("problem", subject, text, _ELSEWHERE), []
            continue
        lines: list[Answer] = []
        findings = [(case, looking.preflight(view, seen, case.order)) for case in group]
        for finding, concerned in plan_table.worst(findings):
            of_cases = ""
            if concerned:
                of_cases = f" ({some(concerned, 1)})"
            lines += objections(subject, [finding], of_cases)
        yield Answer("ok", subject, f"allowed: {reason}"), lines
