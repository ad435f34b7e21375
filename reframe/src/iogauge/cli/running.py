"""The command that measures, through ReFrame: run."""

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

import typer

from iogauge.cli import host, planning
from iogauge.cli.screen import say, show_ending, slip, warn
from iogauge.core import processes
from iogauge.core.groups import grouped
from iogauge.core.paths import history_dir, state_dir
from iogauge.core.units import format_bytes
from iogauge.evidence import complaints
from iogauge.node.mounts import space_of
from iogauge.records import journal, names
from iogauge.records.record import Record, short_name
from iogauge.records.selected import Selected, Unmeasured, save_unmeasured, selection
from iogauge.report import undone
from iogauge.report.endings import SessionRecords
from iogauge.session import current, life
from iogauge.site import folders, machine
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
    _announce(name)
    reframe_report = state_dir() / "reports" / f"run-{name}.json"
    details = reframe_report.with_suffix(".failures")
    details.parent.mkdir(parents=True, exist_ok=True)
    variables = {"IOGAUGE_SESSION": name, life.DETAILS: str(details)}
    if gate:
        variables["IOGAUGE_GATE"] = "1"
    if confirms:
        variables["IOGAUGE_CONFIRMS"] = confirms
    environment = planning.environment_of(**variables)
    if not gate:
        environment.pop("IOGAUGE_SELECTION", None)
    words = ["--report-file", str(reframe_report), "-r", *arguments]
    process = processes.Fork(
        planning.reframe_main(), planning.reframe_command(words), environment
    )
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
    records = _records_of(name)
    missing = _undecided(name, reframe_report, records, gate, confirms)
    for record in missing:
        folder = str(record.system)
        if not folders.NAME.fullmatch(folder):
            folder = "unknown"
        try:
            journal.append(history_dir() / folder / f"{name}.jsonl", record.to_line())
        except journal.NotRecorded as error:
            warn(str(error))
            status = status or 1
    return _Ran(name, status, [*records, *missing], details)


def _announce(session: str) -> None:
    """Write the session's name where the caller asked for it; end the command if that is impossible."""
    try:
        current.announce(session)
    except OSError as error:
        text = (
            f"IOGAUGE_SESSIONS: {error}: name a file that can be written, or unset it"
        )
        raise slip(text) from error


def _records_of(session: str) -> list[Record]:
    """Return the records that a session wrote, of all systems."""
    records = []
    for file in sorted(history_dir().glob(f"*/{session}.jsonl")):
        for entry in journal.read_whole(file):
            if isinstance(entry, Record):
                records.append(entry)
    return records


def _undecided(
    session: str, report: Path, records: list[Record], gate: bool, confirms: str
) -> list[Record]:
    """Return records of the cases that ReFrame's report has and nobody decided; none if it cannot be read."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    marks: dict[str, object] = {"session": session, "time": now, "gate": gate}
    if confirms:
        marks["confirms"] = confirms
    if gate:
        marks |= current.gate_marks()
    try:
        return undone.undecided(report, records, marks)
    except (OSError, ValueError, KeyError):
        return []


def _records(ran: Sequence[_Ran]) -> list[Record]:
    """Return the records of all runs."""
    return list(chain.from_iterable(run.records for run in ran))


#: What --distribute adds to a case after it was chosen.
_OF_NODE: Final = re.compile(r" %\.(part|nid)=\S+")


def _confirm(arguments: list[str], ran: list[_Ran], gate: bool) -> list[_Ran]:
    """Measure every failed case once more, on all nodes with ``--distribute``; return all runs.

    If no failure counts any more, the exit statuses become 0: ReFrame knows only its first run.
    """
    kept = planning.without(arguments, *planning.CHOOSING, "--repeat")
    records = _records(ran)
    failed = [record for record in records if record.needs_confirmation]
    again: list[_Ran] = []
    for place, failures in grouped(failed, lambda record: record.place).items():
        system, partition, environment = place
        where = [f"--system={system}:{partition}", "-p", f"^{re.escape(environment)}$"]
        chosen: list[str] = []
        for record in failures:
            name = names.exactly(short_name(_OF_NODE.sub("", record.case)))
            if name not in chosen:
                chosen += ["-n", name]
        confirms = failures[0].session
        confirmed = _run([*kept, *where, *chosen], False, confirms=confirms)
        again.append(replace(confirmed, status=0))
        records += confirmed.records
    if SessionRecords(records).ending(gate).status == 0:
        ran = [replace(run, status=0) for run in ran]
    return [*ran, *again]


#: Pattern for the tag of checks that are computed from the records of others.
_DERIVED = "^derived$"
#: Options of two runs: of all cases but the derived ones, and of these.
_APART = [["-T", _DERIVED], ["-t", _DERIVED]]


def _keep_unmeasured(lack: Unmeasured, chosen: Selected, ran: _Ran) -> None:
    """Keep what a session did not measure beside its records, for ``iogauge report``."""
    if ran.records and lack == Unmeasured(gate=lack.gate):
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
) -> int:
    """Print how a run ended, keep what it did not measure, and return its exit status.

    ``ran`` are the sessions: of measured cases, then of derived ones, then of confirmations.
    """
    records = _records(ran)
    status = max(run.status for run in ran)
    lack = Unmeasured(gate=gate)
    if chosen is not None:
        lack = planning.unmeasured_of(arguments, chosen, records, gate)
        _keep_unmeasured(lack, chosen, ran[0])
    found = SessionRecords(records)
    end = found.ending(gate, lack)
    if status and not end.status:
        end = found.ending(gate, lack, [f"ReFrame ended with status {status}"])
    show_ending(found, end)
    for run in ran:
        if run.details.exists():
            for why in _never_started(run.details.read_text(errors="replace")):
                say(why)
            say(f"ReFrame's details of the failures: {run.details}")
    if lack.gone:
        say(
            "A gate fails if a case of an earlier gate with the same options is gone. If you removed the case on "
            "purpose, say so in the gate's options: -x NAME"
        )
    return max(status, end.status)


def _never_started(details: str) -> Iterator[str]:
    """Yield each case whose job the scheduler did not take, and why: no record knows it."""
    for case in details.split("FAILURE INFO for ")[1:]:
        if "* Failing phase: run\n" in case and "sanity error" not in case:
            why = case.partition("* Reason: ")[2].splitlines()
            lines = [line for line in why if line.strip() and line[:3] != "---"]
            # The first line and the last two, each once.
            kept = dict.fromkeys(lines[:1] + lines[-2:])
            yield " ".join([f"{case.partition(' (run')[0]}:", *kept])


def run(
    context: typer.Context,
    gate: Annotated[
        bool, typer.Option("--gate", help="Fail unless every case is PASS.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure failures once more.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it costs.")
    ] = False,
) -> None:
    """Run checks through ReFrame, then show the table. All of ReFrame's options work, such as these.

    \b
      --system=SITE[:PARTITION]   where; if omitted, the site of this host
      -n NAME                     cases by their name, as the tables have it
      -t TAG                      cases by a tag: quick, daily, weekly, fio, ior, mdtest
      -l                          only list the cases
      --mode=MODE                 quick, daily, weekly or acceptance
      --repeat=N                  measure each case so often
      -S VARIABLE=VALUE           set repetitions, nodes, tasks_per_node, tier

    With --confirm the run fails only if a failed case fails again. A gate fails too if no case ran, or if a case of
    an earlier gate with the same options is gone.
    """
    gate = gate or current.is_gate()
    given = planning.settled(context)
    lists = any(word in planning.LISTING for word in given)
    if gate and (lists or dry_run):
        raise slip(current.NO_GATE)
    if lists:
        return planning.list_cases(given)
    if dry_run:
        raise typer.Exit(int(not planning.plan(given)))
    if gate:
        os.environ["IOGAUGE_SELECTION"] = selection(given)
    arguments = given
    if any(word.startswith("--distribute") for word in arguments):
        # One case a node; derived quantities are of all nodes.
        arguments = [*arguments, "-T", _DERIVED]
    planning.say_target(arguments)
    chosen = planning.selected_by(arguments)
    planning.demand_cases(given, chosen)
    runs: list[list[str]] = [[]]
    if chosen and chosen.mixes_derived and not _names_derived(arguments):
        runs = _APART
    ran = [_run([*arguments, *only], gate) for only in runs]
    if confirm and any(record.needs_confirmation for record in _records(ran)):
        ran = _confirm(arguments, ran, gate)
    raise typer.Exit(_end(given, chosen, ran, gate))


def _names_derived(arguments: list[str]) -> bool:
    return any("derived" in word for word in arguments)


def bench(context: typer.Context) -> None:
    """Try this machine as it is, without a site.

    Quick checks of a size that fits the target's speed. All of ReFrame's options work.
    """
    given = planning.settled(context)
    try:
        target = machine.target_path()
    except processes.NoAnswer as error:
        warn(str(error))
        raise typer.Exit(1) from error
    except OSError as error:
        raise slip(str(error)) from error
    os.environ["IOGAUGE_TARGET"] = target
    for found in host.tools():
        if found.state == "ok":
            say(str(found))
    if "IOGAUGE_CASE_BYTES" not in os.environ:
        _choose_size(target)
    arguments = ["--system=local", "-t", "quick"]
    arguments += ["--exec-policy=serial", "--exec-order=name"]
    arguments += given
    gate = current.is_gate()
    chosen = planning.selected_by(arguments)
    planning.demand_cases(arguments, chosen)
    ran = _run(arguments, gate)
    status = _end(arguments, chosen, [ran], gate)
    sites = "--sites DIR "
    if os.access(folders.site_dirs()[0], os.W_OK):
        sites = ""
    for line in _AFTER_TRY:
        say(line.format(sites=sites, target=target))
    raise typer.Exit(status)


def _choose_size(target: str) -> None:
    """Set the size of a case by the speed of the target, if that can be measured; end the command if it may not."""
    try:
        speed = write_speed(target)
        room = processes.call_in_time(target, lambda: space_of(target))
    except lock.Occupied as error:
        warn(f"{target}: its speed is not measured: {error}")
        return
    except OSError as error:
        text = str(error)
        if error.errno == errno.EACCES:
            check = host.not_writable(target)
            text = f"{check.subject}: {check.text}: {check.remedy}"
        warn(text)
        raise typer.Exit(1) from error
    size = machine.quick_bytes(speed, room)
    os.environ["IOGAUGE_CASE_BYTES"] = f"{size} B"
    say(
        f"target {target}: about {format_bytes(speed)}/s, so {format_bytes(size)} a case"
    )


#: What follows a first try.
_AFTER_TRY = (
    "next, after '. ./activate' in this shell:",
    "    iogauge {sites}site new NAME --target {target}",
    "    iogauge run --system=NAME -t quick",
    "    iogauge calibrate --system=NAME    # after 20 runs: references, so that a case can be PASS",
)


def write_speed(target: str) -> float:
    """Return the rough bandwidth of the target in bytes/s; raises OSError and lock.Occupied."""
    return processes.call_in_time(target, lambda: _write_speed(target))


def _write_speed(target: str) -> float:
    name = current.new_session_name()
    content = lock.describe(
        session=name, case="speed", lease_s=lock.LEASE_S, processes=(os.getpid(),)
    )
    with permission.permitted(target):
        held = lock.take(target, content, wait_s=0, pause=bool, say=say)
    directory = None
    try:
        directory = create(target, name, "speed")
        return machine.write_speed(directory)
    finally:
        if directory:
            remove(session_dir(target, name))
        held.release()
