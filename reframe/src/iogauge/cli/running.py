"""The command that measures, through ReFrame: run."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer
from reframe.frontend.cli import main as reframe_main

from iogauge.cli import doctor, planning
from iogauge.cli.reporting import sessions_of, write_file
from iogauge.cli.screen import Wide, say, show_ending, slip, warn
from iogauge.core import processes, registry
from iogauge.core.paths import history_dir, state_dir
from iogauge.core.units import format_bytes
from iogauge.evidence import complaints
from iogauge.records import journal, names
from iogauge.records.record import Record, short_name
from iogauge.records.selected import Selected, Unmeasured, save_unmeasured, selection
from iogauge.report import undone
from iogauge.report.endings import SessionRecords, Word, first_look
from iogauge.session import current, life
from iogauge.site import folders, machine, programs
from iogauge.workspace import lock, permission
from iogauge.workspace.directory import create, remove, session_dir


@dataclass(frozen=True, slots=True)
class _Ran:
    """One run of ReFrame: its session, exit status and records, and its blocks about failures."""

    session: str
    status: int
    records: list[Record]
    details: Path


def _run(arguments: list[str], gate: bool, confirms: str = "") -> _Ran:
    """Run ReFrame; the records include undecided cases.

    ``confirms`` names the session whose failures are measured once more.
    """
    name = current.new_session_name()
    try:
        current.announce(name)
    except OSError as error:
        text = (
            f"IOGAUGE_SESSIONS: {error}: name a file that can be written, or unset it"
        )
        raise slip(text) from error
    reframe_report = state_dir() / "reports" / f"run-{name}.json"
    details = reframe_report.with_suffix(".failures")
    details.parent.mkdir(parents=True, exist_ok=True)
    extra = {"IOGAUGE_SESSION": name, life.DETAILS: str(details)}
    extra |= {"IOGAUGE_GATE": "1"} if gate else {}
    extra |= {"IOGAUGE_CONFIRMS": confirms} if confirms else {}
    environment = planning.environment_of(**extra)
    if not gate:
        environment.pop("IOGAUGE_SELECTION", None)
    words = ["--report-file", str(reframe_report), "-r", *arguments]
    process = processes.Fork(reframe_main, planning.reframe_command(words), environment)
    status: int | None = None
    while status is None:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # ReFrame gets the signal too, cancels its jobs and cleans up
    if status < 0:
        status = 128 - status
        ended = complaints.describe_status(status)
        warn(
            f"ReFrame was {ended}. Undecided cases have no record, and their jobs may still "
            "run. When the jobs have ended, run: iogauge clean"
        )
    files = sorted(history_dir().glob(f"*/{name}.jsonl"))
    records = [
        r for file in files for r in journal.read_whole(file) if isinstance(r, Record)
    ]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    marks: dict[str, object] = {"session": name, "time": now, "gate": gate}
    marks |= {"confirms": confirms} if confirms else {}
    marks |= current.gate_marks() if gate else {}
    try:
        missing = undone.undecided(reframe_report, records, marks)
    except (OSError, ValueError, KeyError):
        missing = []
    for record in missing:
        system = str(record.system)
        folder = system if folders.NAME.fullmatch(system) else "unknown"
        try:
            journal.append(history_dir() / folder / f"{name}.jsonl", record.to_line())
        except journal.NotRecorded as error:
            warn(str(error))
            status = status or 1
    return _Ran(name, status, [*records, *missing], details)


#: What --distribute adds to a case after it was chosen.
_OF_NODE: Final = re.compile(r" %\.(part|nid)=\S+")


def _confirm(arguments: list[str], ran: list[_Ran], gate: bool) -> list[_Ran]:
    """Measure every failed case once more, on all nodes with ``--distribute``; return all runs.

    If no failure counts any more, the exit statuses become 0: ReFrame knows only its first run.
    """
    kept = planning.without(arguments, *planning.CHOOSING, "--repeat")
    records = [record for one in ran for record in one.records]
    failed = [record for record in records if record.needs_confirmation]
    again: list[_Ran] = []
    for place in dict.fromkeys(r.place for r in failed):
        system, partition, environment = place
        failures = [r for r in failed if r.place == place]
        chosen_by = (_OF_NODE.sub("", r.case) for r in failures)
        cases = dict.fromkeys(names.exactly(short_name(case)) for case in chosen_by)
        chosen = [word for case in cases for word in ("-n", case)]
        where = [f"--system={system}:{partition}", "-p", f"^{re.escape(environment)}$"]
        one = _run([*kept, *where, *chosen], False, confirms=failures[0].session)
        again.append(replace(one, status=0))
        records += one.records
    if SessionRecords(records).ending(gate).status == 0:
        ran = [replace(one, status=0) for one in ran]
    return [*ran, *again]


#: Pattern for the tag of checks that are computed from the records of others.
_DERIVED = "^derived$"
#: Options of two runs: of all cases but the derived ones, and of these.
_APART = [["-T", _DERIVED], ["-t", _DERIVED]]


def _keep_unmeasured(lack: Unmeasured, chosen: Selected, ran: _Ran) -> None:
    """Keep what a session did not measure beside its records, for ``iogauge report``."""
    if ran.records and lack == Unmeasured(gate=lack.gate, accepted=lack.accepted):
        return
    for system in chosen.systems:
        file = history_dir() / system / f"{ran.session}.json"
        try:
            save_unmeasured(file, lack)
        except OSError as error:
            warn(f"{file}: not written: {error}")


def _end(
    arguments: list[str],
    chosen: Selected | None,
    ran: list[_Ran],
    gate: bool,
    accept: bool = False,
    wide: bool = False,
    first: bool = False,
) -> int:
    """Print how a run ended, keep what it did not measure, and return its exit status.

    ``ran`` are the sessions: of measured cases, then of derived ones, then of confirmations. A ``first`` look has no
    site, so there is nothing that it could prove.
    """
    records = [record for one in ran for record in one.records]
    status = max(one.status for one in ran)
    lack = Unmeasured(gate=gate, accepted=accept)
    if chosen is not None:
        lack = planning.unmeasured_of(arguments, chosen, records, gate, accept)
        _keep_unmeasured(lack, chosen, ran[0])
    found = SessionRecords(records)
    end = found.ending(gate, lack)
    if status and not end.status:
        end = found.ending(gate, lack, [f"ReFrame ended with status {status}"])
    sentence = ""
    if first and end.word is Word.NOTHING_PROVEN:
        sentence = first_look(Counter(record.verdict for record in records))
    show_ending(found, end, wide, sentence)
    for one in ran:
        if one.details.exists():
            for why in _never_started(one.details.read_text(errors="replace")):
                say(why)
            say(f"ReFrame's details of the failures: {one.details}")
    if gate and not accept and (lack.unmatched or lack.gone):
        say(
            "A gate fails if a case of an earlier gate is missing. If you removed the case on purpose, "
            "run once: iogauge run --gate --accept-missing ..."
        )
    return max(status, end.status)


def _never_started(details: str) -> Iterator[str]:
    """Yield each case whose job the scheduler did not take, and why: no record knows it."""
    for case in details.split("FAILURE INFO for ")[1:]:
        if "* Failing phase: run\n" in case and "sanity error" not in case:
            why = case.partition("* Reason: ")[2].splitlines()
            said = [line for line in why if line.strip() and not line.startswith("---")]
            yield " ".join(
                [f"{case.partition(' (run')[0]}:", *dict.fromkeys(said[:1] + said[-2:])]
            )


def run(
    context: typer.Context,
    try_out: Annotated[
        bool, typer.Option("--try", help="Try this machine as it is.")
    ] = False,
    gate: Annotated[
        bool, typer.Option("--gate", help="Fail unless every case is PASS.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure failures once more.")
    ] = False,
    accept_missing: Annotated[
        bool,
        typer.Option("--accept-missing", help="Cases of earlier gates may be gone."),
    ] = False,
    budget: Annotated[
        str, typer.Option(help="Run what fits into this time, as 20min.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it costs.")
    ] = False,
    wide: Wide = False,
) -> None:
    """Run checks through ReFrame, then show the table. All other options are ReFrame's.

    Checks that are derived from other cases come last, in a run of their own. With --confirm a
    failed case is measured once more, and the run fails only if the case fails again. A gate fails too if no case
    ran, or if a case of an earlier gate is gone: --accept-missing accepts that. --budget says in advance what fits.
    --try sizes quick checks to the speed of this machine.
    """
    gate = gate or current.is_gate()
    given = planning.settled(context)
    lists = any(word in planning.LISTING for word in given)
    if gate and (lists or dry_run):
        raise slip(current.NO_GATE)
    if lists:
        return planning.list_cases(given)
    if dry_run:
        raise typer.Exit(0 if planning.plan(given, wide) else 1)
    if try_out:
        raise typer.Exit(_try_out(given, wide))
    if gate:
        os.environ["IOGAUGE_SELECTION"] = selection(given)
        os.environ["IOGAUGE_ACCEPTS"] = "1" if accept_missing else ""
    arguments = _affordable(given, budget)
    chosen = planning.selected_by(arguments)
    if not accept_missing:
        planning.demand_cases(given, chosen)
    both = (
        chosen
        and len(chosen.derived) == 2
        and not any("derived" in w for w in arguments)
    )
    ran = [_run([*arguments, *only], gate) for only in (_APART if both else [[]])]
    if confirm and any(
        record.needs_confirmation for one in ran for record in one.records
    ):
        ran = _confirm(arguments, ran, gate)
    raise typer.Exit(_end(given, chosen, ran, gate, accept_missing, wide))


def _affordable(given: list[str], budget: str) -> list[str]:
    """Return the options for what fits into a time, if one is given."""
    arguments = planning.within(given, budget) if budget else given
    if any(word.startswith("--distribute") for word in arguments):
        # One case a node; derived quantities are of all nodes.
        arguments = [*arguments, "-T", _DERIVED]
    planning.say_unclaimed(arguments)
    return arguments


def _try_out(given: list[str], wide: bool) -> int:
    """Run quick checks sized to this machine's speed, on the site local; return the exit status."""
    target = machine.target_path()
    os.environ["IOGAUGE_TARGET"] = target
    for found in doctor.of_programs(programs.machine()):
        if found.state == "ok":
            say(str(found))
    if "IOGAUGE_CASE_BYTES" not in os.environ:
        try:
            speed = write_probe(target)
            size = processes.call_in_time(
                target, lambda: machine.quick_case_bytes(speed, target)
            )
        except lock.Occupied as error:
            warn(f"{target}: the probe is left out: {error}")
        except OSError as error:
            told = str(error)
            if error.errno == errno.EACCES:
                check = doctor.not_writable(target)
                told = f"{check.subject}: {check.text}: {check.remedy}"
            warn(told)
            raise typer.Exit(1) from error
        else:
            os.environ["IOGAUGE_CASE_BYTES"] = f"{size} B"
            say(
                f"target {target}: about {format_bytes(speed)}/s, so {format_bytes(size)} a case"
            )
    arguments = [
        "--system=local",
        "-t",
        "quick",
        "--exec-policy=serial",
        "--exec-order=name",
    ]
    arguments += given
    chosen, gate = planning.selected_by(arguments), current.is_gate()
    planning.demand_cases(arguments, chosen)
    ran = _run(arguments, gate)
    status = _end(arguments, chosen, [ran], gate, wide=wide, first=True)
    _write_page(ran.session)
    sites = (
        "" if os.access(folders.site_dirs()[0], os.W_OK) else "--sites DIR "
    )  # a shared one
    for line in _AFTER_TRY:
        say(line.format(sites=sites, target=target))
    return status


def _write_page(session: str) -> None:
    """Write the page of a session, and say where; without the extra there is none."""
    page = state_dir() / "report.html"
    with contextlib.suppress(registry.Missing, typer.BadParameter):
        asked = sessions_of([session])
        write_file(page, registry.load("iogauge_answers", "page")(asked, None, None)[1])
        say(f"page: {page}")


#: What follows a first try.
_AFTER_TRY = (
    "next, after '. ./activate' in this shell:",
    "    iogauge {sites}site new NAME --target {target}",
    "    iogauge run --system=NAME -t quick",
    "    iogauge calibrate --system=NAME    # after 20 runs: references, so that a case can be PASS",
)


def write_probe(target: str) -> float:
    """Return the rough bandwidth of the target in bytes/s; raises OSError and lock.Occupied."""
    return processes.call_in_time(target, lambda: _probe(target))


def _probe(target: str) -> float:
    name = current.new_session_name()
    content = lock.describe(
        session=name, case="probe", lease_s=lock.LEASE_S, processes=(os.getpid(),)
    )
    with permission.permitted(target):
        held = lock.take(target, content, wait_s=0, pause=bool, say=say)
    directory = None
    try:
        directory = create(target, name, "probe")
        return machine.probe_write(directory)
    finally:
        if directory:
            remove(session_dir(target, name))
        held.release()
