"""What ReFrame's arguments select, before anything runs: slips, the list of cases, and what they will cost."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import typer
from reframe.frontend import cli
from reframe.utility import color

from iogauge.cli import doctor
from iogauge.cli.doctor import Check
from iogauge.cli.screen import say, show, slip, slips, warn
from iogauge.core import processes, untrusted
from iogauge.core.groups import grouped
from iogauge.core.paths import LIBRARY, history_dir, project_root
from iogauge.core.text import after, count, did_you_mean, some
from iogauge.core.units import UnitError, duration, in_order, parse_seconds
from iogauge.core.yamlfile import YamlError, load
from iogauge.job import opening
from iogauge.node.lustre.programs import LustreError
from iogauge.plan.stage import FOOTPRINT, PlannedCase
from iogauge.records import names, selected
from iogauge.records.record import Record, short_name
from iogauge.records.selected import Selected, Unmeasured, selection
from iogauge.report import endings, plan_table, undone
from iogauge.site import folders, machine
from iogauge.site.references import known_checks
from iogauge.workspace import permission


def reframe_command(arguments: list[str]) -> list[str]:
    """Return ReFrame's command line, with this project's checks unless others are named."""
    given = [
        a
        for a in arguments
        if a in ("-c", "--checkpath") or a.startswith("--checkpath=")
    ]
    paths = [] if given else ["-c", str(project_root() / "checks")]
    beside = Path(sys.executable).with_name("reframe")
    program = str(beside) if beside.exists() else shutil.which("reframe")
    if program is None:
        raise SystemExit(
            "iogauge: reframe is not installed here: run 'make setup', then '. ./activate'"
        )
    return [program, *paths, *names.for_reframe(arguments)]


#: Options of ``run`` that are not ReFrame's, which takes a slip in them for its own.
_OWN: Final = (
    *("--gate", "--confirm", "--accept-missing", "--wide", "--dry-run"),
    *("--budget", "--try", "--system", "--mode"),
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
    word = re.match(r"\^?(\w+)", name)
    if word and not any(word[1] in check for check in checks):
        raise slip(f"-n {name} fits no check{did_you_mean(word[1], checks)}")


def _slips(arguments: Sequence[str]) -> Iterable[str]:
    """Yield what is wrong with options, sites and modes that the arguments name."""
    for option in (word.partition("=")[0] for word in arguments):
        if option not in _OWN and (
            meant := difflib.get_close_matches(option, _OWN, 1, 0.8)
        ):
            yield f"{option} is no option (did you mean {meant[0]}?)"
    own_files = "RFM_CONFIG_FILES" in os.environ or {"-C", "--config-file"} & {
        *arguments
    }
    sites = [folder.name for folder in folders.site_folders(*folders.site_dirs())]
    for system in (
        () if own_files else selected.values(arguments, "--system", "--system")
    ):
        if (name := system.partition(":")[0]) not in (*sites, "generic"):
            yield no_site(name, sites)
    modes = _modes()
    for mode in selected.values(arguments, "--mode", "--mode"):
        if modes and not own_files and mode not in modes:
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
    unknown = selected.without_match(arguments, chosen.listed, chosen.listed, checks)
    if unknown and any(
        " " in name for name in selected.values(arguments, "-n", "--name")
    ):
        every = [
            short_name(case.rpartition(" /")[0]) for case in _every_case(arguments)
        ]
        unknown = selected.without_match(
            arguments, chosen.listed, chosen.listed, {*every, *checks}
        )
    if unknown:
        raise slip("; ".join(unknown))
    if not (chosen.listed or chosen.left_out or chosen.unfit):
        raise slip(
            f"these options select no case: {selection(arguments) or 'none given'}"
        )


def _every_case(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return ReFrame's names of all cases, whatever the arguments choose among them."""
    found = selected_by([word for word in arguments if word.startswith("--system=")])
    return found.listed if found else ()


def list_cases(arguments: list[str]) -> None:
    """Print the selected cases by the names of the table, and what each lacks here."""
    asked = [word for word in arguments if word not in LISTING]
    chosen = selected_by(asked)
    demand_cases(asked, chosen)
    if chosen is None:
        raise slip("ReFrame cannot list the cases: try reframe -c checks/ -l")
    lacks = {case.case: case for case in chosen.left_out}
    cases = {
        case.rpartition(" /")[0]: case in chosen.runnable for case in chosen.listed
    }
    rows = [
        (
            short_name(case),
            "yes" if runs else f"no {lacks[case].feature}" if case in lacks else "no",
        )
        for case, runs in sorted(
            cases.items(), key=lambda one: in_order(short_name(one[0]))
        )
    ]
    show(plan_table.listing(rows))
    say(f"{count(len(rows), 'case')}, {sum(cases.values())} run here")
    for line in endings.remarks(unmeasured_of(asked, chosen)):
        say(line)


#: ReFrame's options that list.
LISTING: Final = ("-l", "-L", "--list", "--list-detailed")


def reframe_main() -> object:
    """Run ReFrame, which colours the lines of a failed metric even if it must not colour."""
    if os.environ.get("RFM_COLORIZE") == "n":
        color.colorize = _plain
    return cli.main()


def _plain(text: str, *_: object, **__: object) -> str:
    return text


def environment_of(**extra: str) -> dict[str, str]:
    source = str(LIBRARY.parent)
    python_path = os.pathsep.join(
        p for p in (source, os.environ.get("PYTHONPATH", "")) if p
    )
    defaults = {"RFM_CONFIG_PATH": str(project_root() / "site-configs")}
    if not sys.stdout.isatty() and os.environ.get("GITLAB_CI") != "true":
        defaults["RFM_COLORIZE"] = "n"  # ReFrame would write colours into files
    return defaults | os.environ | {"PYTHONPATH": python_path} | extra


def say_unclaimed(arguments: list[str]) -> None:
    """Say which target is used if no site claims this host, and nobody has named a site."""
    named = "RFM_SYSTEM" in os.environ or any(
        a.startswith("--system") for a in arguments
    )
    here = (
        None
        if named
        else doctor.site_of_host(folders.site_folders(*folders.site_dirs()))
    )
    if here and here.name == folders.LOCAL:
        text = (
            f"no site claims host {socket.gethostname()}: using site local, target "
            f"{machine.target_path()}. Name another site: --system=SITE, or add the host to its hostnames"
        )
        warn(text)


def selected_by(arguments: list[str]) -> Selected | None:
    """Return what ReFrame's arguments select, also cases that ReFrame would leave out.

    Returns None if ReFrame cannot list them: a run then says why.
    """
    words = without(
        arguments, "--distribute", "--repeat"
    )  # they multiply the selected cases
    words = ["-l", "--skip-system-check", "--skip-prgenv-check", *words]
    with tempfile.TemporaryDirectory(prefix="iogauge-list-") as scratch:
        notes = Path(scratch, "notes")
        environment = environment_of(IOGAUGE_GATE="0", **{selected.LISTING: str(notes)})
        status, output, _ = processes.Fork.printed(
            reframe_main, reframe_command(words), environment
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
    accept: bool = False,
) -> Unmeasured:
    """Return what a run was asked for and did not measure."""
    checks = known_checks(project_root() / "checks")
    unmatched = selected.without_match(
        arguments, chosen.runnable, chosen.listed, checks
    )
    missed: list[str] = []
    sessions = {record.session for record in records}
    for system in dict.fromkeys(record.system for record in records) if gate else ():
        before = selected.seen_before(
            history_dir() / system, selection(arguments), sessions
        )
        missed += selected.gone(before, records, system)
    nothing = not (chosen.runnable or chosen.left_out or chosen.unfit or unmatched)
    return Unmeasured(
        gate=gate,
        accepted=accept,
        left_out=chosen.left_out,
        unfit=chosen.unfit,
        unmatched=tuple(unmatched),
        gone=tuple(missed),
        nothing=(selection(arguments) or "none given") if nothing else "",
    )


def planned_cases(
    arguments: list[str], notes: Path | None = None, **variables: str
) -> tuple[list[PlannedCase], list[str]]:
    """Return the footprints of the cases that ReFrame's arguments select, found by a dry run.

    The lines say which cases cannot run, or why there is none; they are empty if all can. The run
    writes what :func:`iogauge.records.selected.noted` reads into the file ``notes``.
    ``variables`` are set for the dry run.
    """
    with tempfile.TemporaryDirectory(prefix="iogauge-plan-") as scratch:
        # Nothing runs, so ReFrame need not wait between the cases.
        quick = {"RFM_POLL_RATE_MAX": "100000", "IOGAUGE_HOME": scratch}
        quick["IOGAUGE_GATE"] = "0"  # a plan is no gate, whatever asks for it
        quick |= {selected.LISTING: str(notes)} if notes else {}
        report = Path(scratch, "report.json")
        words = [
            "--nocolor",
            "--prefix",
            scratch,
            *arguments,
            "--dry-run",
            "--exec-policy=serial",
        ]
        words += ["--report-file", str(report)]
        status, output, errors = processes.Fork.printed(
            reframe_main, reframe_command(words), environment_of(**quick, **variables)
        )
        files = sorted(Path(scratch).rglob(FOOTPRINT))
        cases = [PlannedCase.from_json(untrusted.read_json(file)) for file in files]
        reasons: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            reasons = undone.unable(report)
    if status != 0:
        return cases, reasons or [output[-4000:] + errors[-4000:]]
    return cases, [] if cases else [errors + _NO_CASE]


_NO_CASE = "no case is selected: see what 'iogauge list' shows"


#: ReFrame's options that select cases; each takes a value.
CHOOSING: Final = (
    *(
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
    ),
)


def without(arguments: Sequence[str], *options: str) -> list[str]:
    """Return ReFrame's arguments without options, and without the values that they take."""
    kept, skip = [], False
    for word in arguments:
        if word.partition("=")[0] not in options and not (
            skip and not word.startswith("-")
        ):
            kept.append(word)
        skip = word in options
    return kept


def within(arguments: Sequence[str], budget: str) -> list[str]:
    """Return the arguments that select as many cases as fit into a time, the shortest first; say which do not.

    Ends the command if no case fits.
    """
    try:
        seconds = parse_seconds(budget)
    except UnitError as error:
        raise slip(f"--budget: {error}") from error
    cases, _ = planned_cases([*arguments])
    fits: list[PlannedCase] = []
    for case in sorted(cases, key=lambda one: one.seconds):
        if sum(one.seconds for one in fits) + case.seconds <= seconds:
            fits.append(case)
    if not fits:
        shortest = duration(min((one.seconds for one in cases), default=0.0))
        raise slip(
            f"--budget {budget}: no case fits; the shortest takes about {shortest}"
        )
    out = [short_name(case.name) for case in cases if case not in fits]
    text = (
        f"budget {budget}: {len(fits)} of {count(len(cases), 'case')}, about "
        f"{duration(sum(one.seconds for one in fits))}"
    )
    say(text + (f"; left out: {some(out)}" if out else ""))
    exact = [
        word for case in fits for word in ("-n", names.exactly(short_name(case.name)))
    ]
    return [*without(arguments, *CHOOSING), *exact]


def plan(arguments: list[str], wide: bool) -> bool:
    """Show what cases would write and read, and whether they fit the target and the time limit."""
    say_unclaimed(arguments)
    chosen = selected_by(arguments)
    demand_cases(arguments, chosen)
    cases, unable = planned_cases(arguments)
    fits = bool(cases) and show_plan(cases, wide)
    for line in unable:
        say(line, "bold red")
    lack = unmeasured_of(arguments, chosen) if chosen else Unmeasured()
    for line in (*lack.unmatched, *endings.remarks(lack)):
        say(line)
    return fits and not unable


def show_plan(cases: list[PlannedCase], wide: bool = False) -> bool:
    """Print the footprints and the room on each target; return whether all suffices."""
    show(plan_table.table(cases, wide))
    for line in [*plan_table.remarks(cases), *plan_table.timed(cases)]:
        say(line)
    over = plan_table.over_time(cases)
    for line in over:
        say(line, "bold red")
    for line in plan_table.doubts(cases):
        say(line, "yellow")
    return all([not over, *[_fit(*one) for one in at_targets(cases)]])


def _fit(target: str, said: list[Check]) -> bool:
    """Print what a target says to the cases; return whether they fit, and may write there."""
    allowed = ""
    if not any(one.text.startswith(_HIDDEN) for one in said):
        try:
            allowed = processes.call_in_time(target, partial(permission.reason, target))
        except OSError as error:
            text = after(target, error.strerror or str(error))
            said = [Check("problem", f"target {target}", text), *said]
    for one in said:
        word, style = (
            ("remark", "yellow") if one.state == "note" else ("refused", "bold red")
        )
        say(f"{target}: {word} {one.told}", style)
    fits = all(one.state == "note" for one in said)
    if fits:
        say(f"{target}: ok the cases fit, allowed: {allowed}", "green")
    return fits


#: How the line begins about a target that this host does not see.
_HIDDEN: Final = "cannot be looked at from here"


def at_targets(cases: Iterable[PlannedCase]) -> Iterator[tuple[str, list[Check]]]:
    """Yield what each target says before a byte to the cases that are declared for it: what is not in order."""

    def declared(case: PlannedCase) -> tuple[object, ...]:
        order = case.order
        return (
            order.target,
            order.type,
            order.source,
            order.uuid,
            order.striping,
            order.pool,
        )

    for _, group in sorted(grouped(cases, declared).items(), key=str):
        order = group[0].order
        target, subject = order.target, f"target {order.target}"
        try:
            look = partial(opening.look_as_declared, target, order)
            view, seen = processes.call_in_time(target, look)
        except (OSError, LustreError) as error:
            yield target, [Check("problem", subject, f"{_HIDDEN}: {error}")]
            continue
        said: list[Check] = []
        findings = [(case, opening.preflight(view, seen, case.order)) for case in group]
        for finding, concerned in plan_table.worst(findings):
            of = f" ({some(concerned, 1)})" if concerned else ""
            said += doctor.objections(subject, [finding], of)
        yield target, said


def room(cases: Iterable[PlannedCase]) -> Iterator[Check]:
    """Yield what the targets that this host sees object to the cases."""
    for _, said in at_targets(cases):
        yield from (one for one in said if not one.text.startswith(_HIDDEN))
