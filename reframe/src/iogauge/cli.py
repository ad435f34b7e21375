"""The ``iogauge`` command: run, look at the result, look at the machine, plan, clean up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from iogauge import (
    agent,
    allowed,
    compare,
    detect,
    doctor,
    evidence,
    expect,
    guards,
    history,
    lock,
    outside,
    patience,
    planview,
    process,
    references,
    removal,
    report,
    session,
    site,
    workdir,
)
from iogauge.filesystem import View
from iogauge.lustre import LustreError
from iogauge.report import plain
from iogauge.units import format_bytes, visible, visible_lines
from iogauge.verdict import Verdict

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Storage benchmarks through ReFrame that pass only on a proven measurement.",
)
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def _console() -> Console:
    """Standard output; a pipe gets lines wide enough for the table."""
    wide = None if sys.stdout.isatty() else 200
    return Console(width=wide, highlight=False)


def _reframe_command(arguments: list[str]) -> list[str]:
    """ReFrame's command line: the checks of this project unless others are named."""
    given = [a for a in arguments if a in ("-c", "--checkpath") or a.startswith("--checkpath=")]
    paths = [] if given else ["-c", str(session.project_root() / "checks")]
    beside = Path(sys.executable).with_name("reframe")
    program = str(beside) if beside.exists() else shutil.which("reframe")
    if program is None:
        raise SystemExit(
            "iogauge: reframe is not installed here: run 'make setup', then '. ./activate'"
        )
    return [program, *paths, *arguments]


def _environment(**extra: str) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[1])
    python_path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
    defaults = {"RFM_CONFIG_PATH": str(session.project_root() / "site-configs")}
    return defaults | os.environ | {"PYTHONPATH": python_path} | extra


def _run(arguments: list[str], gate: bool, confirms: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Run ReFrame and return its exit status and the session's records, the undecided ones added.

    ``confirms`` names the session whose failures are measured once more.
    """
    name = session.new_session_name()
    try:
        session.announce(name)
    except OSError as error:
        said = f"iogauge: IOGAUGE_SESSIONS: {error}: name a file that can be written, or unset it"
        typer.echo(visible_lines(said), err=True)
        raise typer.Exit(2) from error
    reframe_report = session.state_dir() / "reports" / f"run-{name}.json"
    extra = {"IOGAUGE_SESSION": name}
    extra |= {"IOGAUGE_GATE": "1"} if gate else {}
    extra |= {"IOGAUGE_CONFIRMS": confirms} if confirms else {}
    environment = _environment(**extra)
    if not gate:
        environment.pop("IOGAUGE_SELECTION", None)
    words = _reframe_command(["--report-file", str(reframe_report), "-r", *arguments])
    process = subprocess.Popen(words, env=environment)
    status: int | None = None
    while status is None:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # ReFrame got it too, cancels its jobs and cleans up
    if status < 0:
        status = 128 - status
        ended = evidence.describe_status(status)
        typer.echo(
            visible(
                f"iogauge: ReFrame was {ended}; what it had not decided has no record, and may still run. "
                "What is left then: iogauge clean"
            ),
            err=True,
        )
    files = sorted(session.history_dir().glob(f"*/{name}.jsonl"))
    records = [r for file in files for r in history.read_whole(file) if isinstance(r, dict)]
    try:
        missing = report.undecided(reframe_report, records)
    except (OSError, ValueError, KeyError):
        missing = []
    for record in missing:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record |= {"session": name, "time": now, "gate": gate}
        record |= {"confirms": confirms} if confirms else {}
        record |= session.gate_marks() if gate else {}
        system = str(record["system"])
        folder = system if re.fullmatch(r"[A-Za-z_][\w-]*", system, re.ASCII) else "unknown"
        try:
            history.append(session.history_dir() / folder / f"{name}.jsonl", record)
        except history.NotRecorded as error:
            typer.echo(visible_lines(f"iogauge: {error}"), err=True)
            status = status or 1
    return status, [*records, *missing]


#: ReFrame's options that choose cases, each with a value.
_CHOOSING = ("-n", "--name", "-t", "--tag", "-T", "--exclude-tag", "-x", "--exclude", "-E", "-p")


def _confirm(
    arguments: list[str], status: int, records: list[dict[str, Any]], gate: bool
) -> tuple[int, list[dict[str, Any]]]:
    """Measure every case that failed once more; returns the exit status that both runs leave, and all records."""
    kept, skip = [], False
    for word in arguments:
        if not skip and word not in _CHOOSING and not word.startswith(("--name=", "--tag=")):
            kept.append(word)
        skip = word in _CHOOSING and not skip
    failed = [record for record in records if report.needs_confirmation(record)]
    again: list[dict[str, Any]] = []
    for place in dict.fromkeys((r["system"], r["partition"], r["environment"]) for r in failed):
        system, partition, environment = place
        mine = [r for r in failed if (r["system"], r["partition"], r["environment"]) == place]
        hashes = [word for r in mine for word in ("-n", f"/{r['hash']}")]
        where = [f"--system={system}:{partition}", "-p", f"^{re.escape(environment)}$"]
        again += _run([*kept, *where, *hashes], False, confirms=str(mine[0]["session"]))[1]
    records = [*records, *again]
    if report.exit_status(records, gate) == 0:
        status = 0  # ReFrame's own status knows of the first run only
    return status, records


#: Tag of the checks that are computed from the records of others.
_DERIVED = "^derived$"


def _listed(*arguments: str) -> list[str]:
    """Cases that ReFrame's arguments select, each followed by its hash."""
    words = _reframe_command(["-l", *arguments])
    done = subprocess.run(words, env=_environment(), capture_output=True, text=True, check=False)
    return re.findall(r"^- (.* /[0-9a-f]+)$", done.stdout, re.MULTILINE)


def _selects_derived(arguments: list[str]) -> bool:
    """Whether ReFrame's arguments select checks that are derived from others, and some that are not."""
    return bool(_listed(*arguments, "-t", _DERIVED)) and bool(_listed(*arguments, "-T", _DERIVED))


def _not_measured(
    console: Console, arguments: list[str], records: list[dict[str, Any]], accept: bool
) -> int:
    """As a gate, say what was not measured; returns 1 where it should have been.

    That is what an earlier gate of the same selection has recorded, and what ``-n`` names.
    """
    names, chosen = _listed(*arguments), expect.selection(arguments)
    everywhere = _listed(*arguments, "--skip-system-check", "--skip-prgenv-check")
    lacking = sorted({name.split()[0] for name in everywhere} - {name.split()[0] for name in names})
    if lacking:
        console.print(
            f"not run: {plain(', '.join(lacking))}: no partition and environment of this site has what they need "
            "(features, sweeps: docs/checks.md)"
        )
    wrong = [f"-n {text} selects no case" for text in expect.without_match(arguments, names)]
    mine = {record["session"] for record in records}
    for system in dict.fromkeys(str(record["system"]) for record in records):
        before = expect.seen_before(session.history_dir() / system, chosen, mine)
        wrong += expect.gone(before, records, system)
    for line in wrong:
        console.print(f"[bold red]missing: {plain(line)}[/]")
    if not wrong or accept:
        return 0
    console.print(
        "iogauge: FAILED: what a gate has measured must not go unnoticed. If it is gone on purpose, say so "
        "once: iogauge run --gate --accept-missing ..."
    )
    return 1


def _show(console: Console, records: list[dict[str, Any]], gate: bool, status: int) -> int:
    """Print the table and the summary; returns the exit status of the whole."""
    if records:
        console.print(report.table(report.rows(records), "What was measured"))
    if found := report.costs(records):
        console.print(report.cost_table(found))
    worst = max(status, report.exit_status(records, gate))
    word = "ok" if worst == 0 else "FAILED"
    console.print(f"iogauge: {word}: {report.summary(records)}" + (" (gate)" if gate else ""))
    if any(r.get("tier") == "quick" and r["metrics"] for r in records):
        console.print("Tier quick: short phases, rough figures. To compare systems: -S tier=daily.")
    if any(r["verdict"] == "UNREFERENCED" for r in records):
        console.print(
            "UNREFERENCED is no pass: the figures are valid, and nothing says what they should be. "
            "Add references to site-configs/<site>/references.yaml."
        )
    return worst


@app.command(context_settings=_PASS_ON)
def run(
    context: typer.Context,
    gate: Annotated[
        bool, typer.Option("--gate", help="Only PASS passes, and nothing run fails.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure what failed once more; both are kept.")
    ] = False,
    over_budget: Annotated[
        bool, typer.Option("--over-budget", help="Run also what costs more than the budget.")
    ] = False,
    accept_missing: Annotated[
        bool,
        typer.Option("--accept-missing", help="As a gate: cases that are gone are so on purpose."),
    ] = False,
) -> None:
    """Run checks through ReFrame and end with the table; all other options are ReFrame's.

    What is derived from other cases comes last, in a run of its own. With --confirm a case that fails is
    measured once more, and the run fails for it only if it fails again.
    """
    gate = gate or session.is_gate()
    if gate:
        os.environ["IOGAUGE_SELECTION"] = expect.selection(context.args)
        os.environ["IOGAUGE_ACCEPTS"] = "1" if accept_missing else ""
    if over_budget:
        os.environ["IOGAUGE_OVER_BUDGET"] = "1"
    elif site.any_budget(references.sites_dir()):
        _keep_budget(context.args)
    if any(word.startswith("--distribute") for word in context.args):
        # A case for each node; what is derived is of all nodes.
        status, records = _run([*context.args, "-T", _DERIVED], gate)
    elif any("derived" in word for word in context.args) or not _selects_derived(context.args):
        status, records = _run(context.args, gate)
    else:
        status, records = _run([*context.args, "-T", _DERIVED], gate)
        after, derived = _run([*context.args, "-t", _DERIVED], gate)
        status, records = max(status, after), [*records, *derived]
    if confirm and any(map(report.needs_confirmation, records)):
        status, records = _confirm(context.args, status, records, gate)
    console = _console()
    status = _show(console, records, gate, status)
    if gate:
        status = max(status, _not_measured(console, context.args, records, accept_missing))
    raise typer.Exit(status)


def _keep_budget(arguments: list[str]) -> None:
    """End the command where the selected cases cost more than the budget of their partition."""
    over = planview.over_budget(_planned(arguments)[0])
    if over:
        for line in over:
            typer.echo(visible_lines(f"iogauge: {line}"), err=True)
        typer.echo(
            "iogauge: nothing was run. 'iogauge plan' shows all; run it all the same: --over-budget",
            err=True,
        )
        raise typer.Exit(1)


@app.command(context_settings=_PASS_ON)
def bench(context: typer.Context) -> None:
    """The newcomer's run: quick checks on this machine, sized to its speed, one at a time."""
    console = _console()
    target = detect.target_path()
    os.environ["IOGAUGE_TARGET"] = target
    for line in doctor.describe_stack(detect.machine()):
        console.print(plain(line))
    if "IOGAUGE_CASE_BYTES" not in os.environ:
        try:
            speed, size = patience.ask(target, lambda: _probe(target))
        except lock.Occupied as error:
            typer.echo(visible_lines(f"iogauge: {target}: the probe is left out: {error}"))
        except OSError as error:
            typer.echo(visible_lines(f"iogauge: {error}"), err=True)
            raise typer.Exit(1) from error
        else:
            os.environ["IOGAUGE_CASE_BYTES"] = f"{size} B"
            console.print(
                f"target {plain(target)}: about {format_bytes(speed)}/s, so {format_bytes(size)} a case"
            )
    arguments = ["--system=local", "-t", "quick", "--exec-policy=serial", "--exec-order=name"]
    status, records = _run([*arguments, *context.args], session.is_gate())
    code = _show(console, records, session.is_gate(), status)
    for line in doctor.not_run(detect.machine(), target):
        console.print(plain(line))
    raise typer.Exit(code)


def _probe(target: str) -> tuple[float, int]:
    """Rough bandwidth of the target in bytes/s, and bytes for a case; raises OSError, lock.Occupied."""
    name = session.new_session_name()
    content = lock.describe(
        session=name, case="probe", lease_s=lock.LEASE_S, processes=(os.getpid(),)
    )
    with allowed.opened(target):
        held = lock.take(target, content, wait_s=0, pause=bool, say=typer.echo)
    directory = None
    try:
        directory = workdir.create(target, name, "probe")
        speed = detect.probe_write(directory)
        return speed, detect.quick_case_bytes(speed, target)
    finally:
        if directory:
            workdir.remove(workdir.session_dir(target, name))
        held.release()


def _sessions(
    console: Console, names: list[str]
) -> tuple[list[dict[str, Any]], bool, list[history.Damaged]]:
    """Records of the named sessions, of the newest where none is, whether one was a gate, and what is no record."""
    files = sorted(session.history_dir().glob("*/*.jsonl"), key=lambda file: file.name)
    known = [file.stem for file in files]
    wanted = names or known[-1:]
    for name in wanted or [""]:
        if name not in known:
            newest = ", ".join(known[-5:]) or "none"
            raise typer.BadParameter(
                visible(f"no session {name!r} in {session.history_dir()} (newest: {newest})")
            )
    records, damaged = [], []
    for file in files:
        for record in history.read_whole(file) if file.stem in wanted else ():
            if isinstance(record, history.Damaged):
                console.print(plain(f"{record.file}:{record.line}: skipped: {record.problem}"))
                damaged.append(record)
            else:
                records.append(record)
    return records, any(record.get("gate") for record in records), damaged


@app.command("report")
def show_report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest where left out.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: one file that needs no network.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML.")] = None,
) -> None:
    """Show the table of a session again; with --html and --junit also as files."""
    console = _console()
    records, gate, damaged = _sessions(console, names or [])
    if html:
        from iogauge import alarm, page  # with SciPy and polars

        found = alarm.collect(session.history_dir(), records, gate=gate, damaged=damaged)
        html.write_text(page.page(found, records), encoding="utf-8")
    if junit:
        from iogauge.junit import junit as as_junit

        junit.write_text(as_junit(records, gate), encoding="utf-8")
    # Nobody knows what a damaged record had to say: it may have been a failure.
    raise typer.Exit(_show(console, records, gate, 1 if damaged else 0))


@app.command("alarm")
def raise_alarm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest where left out.")
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(help="system:partition that must have been measured; may be repeated."),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Only PASS is no trouble.")] = False,
    send: Annotated[
        bool,
        typer.Option("--send", help="To what IOGAUGE_ALARM_COMMAND, IOGAUGE_WEBHOOK_URL … name."),
    ] = False,
    link: Annotated[str, typer.Option(help="Where the whole report is.")] = "",
    figures: Annotated[
        Path | None, typer.Option(help="Directory for a figure of each trouble.")
    ] = None,
) -> None:
    """Say what failed in a session and what it measured that has become worse, and send it.

    Exit status 0: no trouble; 1: trouble, and every receiver has it; 2: the question is wrong; 3: trouble, and a
    receiver does not have it. Nothing is sent where there is no trouble.
    """
    from iogauge import alarm, figure  # with SciPy and polars
    from iogauge import send as sending

    console = _console()
    try:
        receivers = sending.receivers(os.environ) if send else {}
        records, was_gate, damaged = (
            ([], False, []) if expect and not names else _sessions(console, names or [])
        )
        found = alarm.collect(
            session.history_dir(),
            records,
            gate=gate or was_gate,
            expected=expect or (),
            damaged=damaged,
        )
    except ValueError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    typer.echo(visible_lines(found.text))
    curves = [trouble.curve for trouble in found.troubles if trouble.curve]
    try:
        for number, curve in enumerate(curves if figures else (), 1):
            assert figures is not None
            figures.mkdir(parents=True, exist_ok=True)
            (figures / f"{number}.svg").write_text(figure.svg(curve, alone=True), encoding="utf-8")
    except OSError as error:  # the alarm goes out all the same
        typer.echo(visible_lines(f"iogauge: figures were not written: {error}"), err=True)
    if not found.failed:
        return
    code = 1
    for name, receiver in receivers.items():
        try:
            receiver(sending.Message(found, link))
            typer.echo(visible(f"iogauge: alarm sent: {name}"))
        except sending.SendError as error:
            typer.echo(visible_lines(f"iogauge: ALARM NOT SENT: {name}: {error}"), err=True)
            code = 3
    raise typer.Exit(code)


@app.command("compare")
def show_comparison(
    a: Annotated[
        str, typer.Argument(help="A Darshan log; or a session or its .jsonl, with :case.")
    ],
    b: Annotated[str, typer.Argument(help="What is put in relation to it; of the same kind.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put two Darshan logs, or two records, side by side, and say what else was different."""
    try:
        found = compare.compare(compare.read(a), compare.read(b))
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(compare.to_json(found))
    else:
        _console().print(compare.render(found))


@app.command("doctor")
def show_doctor() -> None:
    """Say what is there, what is missing, and what to do."""
    console = _console()
    healthy = True
    for check in doctor.examine():
        mark = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]"}.get(
            check.state, "[red]problem[/]"
        )
        console.print(f"{mark} {plain(check.subject)}: {plain(check.text)}")
        if check.remedy:
            console.print(f"        -> {plain(check.remedy)}")
        healthy = healthy and check.state != "problem"
    raise typer.Exit(0 if healthy else 1)


def _planned(arguments: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Footprints of the cases that ReFrame's arguments select, by a dry run; a text where that failed."""
    with tempfile.TemporaryDirectory(prefix="iogauge-plan-") as scratch:
        # Nothing runs, so there is nothing to wait for between the cases.
        quick = {"RFM_POLL_RATE_MAX": "100000", "IOGAUGE_HOME": scratch}
        words = ["--prefix", scratch, *arguments, "--dry-run", "--exec-policy=serial"]
        done = subprocess.run(
            _reframe_command(words),
            env=_environment(**quick),
            capture_output=True,
            text=True,
            check=False,
        )
        files = sorted(Path(scratch).rglob("footprint.json"))
        cases = [outside.read_json(file) for file in files]
    if done.returncode != 0:
        return cases, done.stdout[-4000:] + done.stderr[-4000:]
    return cases, "" if cases else done.stderr + _NO_CASE


_NO_CASE = "no case is selected: see what 'reframe -c checks/ -l' lists"


@app.command(context_settings=_PASS_ON)
def plan(context: typer.Context) -> None:
    """Show what the selected cases would write and read, and whether the target and the budget have room."""
    console = _console()
    cases, problem = _planned(context.args)
    if problem:
        console.print(plain(problem))
        raise typer.Exit(1)
    raise typer.Exit(0 if _show_plan(console, cases) else 1)


def _show_plan(console: Console, cases: list[dict[str, Any]]) -> bool:
    """Print the footprints, the budget and the room on each target; returns whether all is kept."""
    console.print(planview.table(cases))
    for line in [*planview.remarks(cases), *planview.within_budget(cases)]:
        console.print(plain(line))
    over = planview.over_budget(cases)
    for line in over:
        console.print(f"[bold red]{plain(line)}[/]")
    fits = not over
    for target in sorted({case["target"] for case in cases}):
        mine = [case for case in cases if case["target"] == target]
        try:
            seen: View = patience.ask(target, partial(agent.look_as_declared, target, mine[0]))
        except (OSError, LustreError) as error:
            console.print(plain(f"{target}: cannot be looked at from here: {error}"))
            fits = False
            continue
        try:
            by = patience.ask(target, partial(allowed.by_what, target))
            console.print(f"{plain(target)}: [green]ok[/] may be written in: {plain(by)}")
        except OSError as error:
            console.print(f"{plain(target)}: [bold red]refused[/] {plain(str(error))}")
            fits = False
        worst = {
            **mine[0],
            "held_bytes": max(case["held_bytes"] for case in mine),
            "files": max(case["files"] for case in mine),
        }
        for finding in agent.preflight(seen, worst):
            good = finding.outcome is guards.Outcome.OK
            fits = fits and good
            word = "[green]ok[/]" if good else "[bold red]refused[/]"
            console.print(f"{plain(target)}: {word} {plain(str(finding))}")
    return fits


@app.command()
def clean(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Session directories; those of dead sessions, and their locks, where left out."
        ),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target to look on; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also sessions that may be alive, and their locks.")
    ] = False,
) -> None:
    """Remove what sessions that ended hard left on the targets, and stage directories a week old.

    On a target nothing without our marker is touched.
    """
    console, failed = _console(), False
    places = [] if paths else target or session.known_targets() or [detect.target_path()]
    silent: set[str] = set()  # what did not answer once is not waited for again
    doomed = [(os.path.abspath(os.path.join(path, *[".."] * 3)), path) for path in paths or ()]
    for place in places:
        try:
            for one in patience.ask(place, partial(workdir.sessions, place)):
                if everything or not workdir.may_be_alive(one):
                    doomed.append((place, one.path))
                else:
                    text = f"kept: {one.path}: its session may be alive (--all removes it)"
                    console.print(plain(text))
        except patience.NoAnswer as error:
            console.print(plain(str(error)))
            silent.add(place)
        except FileNotFoundError:
            console.print(plain(f"{place} is not there: if it is not mounted, clean it when it is"))
            failed = failed or bool(target)
        except OSError as error:
            console.print(plain(f"{place} cannot be looked at: {error}"))
            failed = True
    for place, path in doomed:
        if place in silent:
            console.print(plain(f"left: {path}"))
            continue
        try:
            ended = patience.follow(
                place,
                partial(_remove, path, dry_run, bool(paths)),
                removal.Progress(path, lambda text: console.print(plain(text))),
            )
            for told in ended:
                console.print(plain(told))
            console.print(plain(f"{'would remove' if dry_run else 'removed'}: {path}"))
        except patience.NoAnswer as error:
            console.print(plain(f"left: {path}: {error}"))
            silent.add(place)
        except OSError as error:
            console.print(plain(f"refused: {error}"))
            failed = True
    locks = [
        _clean_lock(console, place, dry_run, everything) for place in places if place not in silent
    ]
    failed = failed or bool(silent) or None in locks
    stages = [] if paths else session.old_stages()
    for stage in stages:
        if not dry_run:
            shutil.rmtree(stage, ignore_errors=True)
        word = "would remove" if dry_run else "left" if stage.exists() else "removed"
        console.print(plain(f"{word}: {stage} (a week old)"))
    if not doomed and not any(locks) and not stages:
        console.print("nothing to remove")
    raise typer.Exit(1 if failed else 0)


def _clean_lock(console: Console, place: str, dry_run: bool, everything: bool) -> bool | None:
    """Break the lock of a place if its holder is dead; whether one went, None where that could not be done."""
    try:
        holder = patience.ask(place, partial(lock.standing, place))
        if holder is not None and not holder.name:
            raise lock.LockError(f"{holder}: remove it by hand")
        if holder is not None and not everything:
            if not holder.gone:
                text = f"watching the lock of {holder} for at most {holder.lease_s:g} s"
                console.print(plain(text), soft_wrap=True)
            dead = patience.follow(place, partial(_watch_lock, place), lambda _: None)
            if dead is None:
                text = f"kept: the lock of {holder}: it is in use (--all breaks it)"
                console.print(plain(text), soft_wrap=True)
                return False
            holder = dead
        if not dry_run:
            patience.ask(place, partial(_break_lock, place, holder))
    except OSError as error:
        console.print(plain(f"refused: {error}"), soft_wrap=True)
        return None
    if holder is None:
        return False
    word = "would remove" if dry_run else "removed"
    console.print(plain(f"{word}: the lock of {holder}"), soft_wrap=True)
    return True


def _watch_lock(place: str, tell: patience.Tell) -> lock.Holder | None:
    """The holder of a place's lock if it is dead; says at each look that the place answers."""

    def pause(seconds: float) -> None:
        tell(0)
        time.sleep(seconds)

    return lock.find_dead(place, pause)


def _break_lock(place: str, holder: lock.Holder | None) -> None:
    if holder is not None:
        lock.remove(holder)
    lock.tidy(place)


def _remove(path: str, dry_run: bool, is_named: bool, tell: patience.Tell) -> list[str]:
    """Remove a session's directory, and end what still works in it; says what that was.

    One that is gone meanwhile is an error only where the user has named it.
    """
    try:
        workdir.check_ours(path)
    except FileNotFoundError:
        if is_named:
            raise
        return []
    if dry_run:
        return []
    ended = process.end(os.path.abspath(path))
    workdir.remove(path, tell=tell)
    return ended


@app.command()
def allow(
    directory: Annotated[str, typer.Argument(help="Directory that cases may write below.")],
    user: Annotated[list[str] | None, typer.Option(help="Only this user; may be repeated.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Only members of this group; may be repeated.")
    ] = None,
    expires: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day, YYYY-MM-DD.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write an existing one anew.")] = False,
) -> None:
    """Allow a directory as a target: for administrators, and for owners of a mount point.

    Writes a file .iogauge-allowed into it, for the file system that is mounted there now. Without that file
    only directories of the caller are written in.
    """
    path = os.path.abspath(directory)
    last = expires.date() if expires else None
    try:
        marker = patience.ask(
            path,
            partial(allowed.allow, path, tuple(user or ()), tuple(group or ()), last, replace),
        )
    except OSError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(1) from error
    file = os.path.join(path, allowed.MARKER)
    _console().print(plain(f"{file} allows {marker.meaning()}"))
    typer.echo(visible_lines(marker.to_yaml()), nl=False)
    if strangers := allowed.unknown(marker):
        said = f"iogauge: {', '.join(strangers)}: not known on this host; if that is a slip, write it anew with --replace"
        typer.echo(visible_lines(said), err=True)
    _console().print(
        plain(f"iogauge writes below {path}/iogauge and nowhere else. Undo: rm {file}")
    )


@app.command()
def validate() -> None:
    """Check every site's settings and references; lists every mistake."""
    console, wrong = _console(), 0
    for one in site.site_folders(references.sites_dir()):
        mistakes = doctor.site_mistakes(one)
        wrong += len(mistakes)
        console.print(
            f"{plain(one.name)}: " + (f"[red]{len(mistakes)} mistake(s)[/]" if mistakes else "ok")
        )
        for mistake in mistakes:
            console.print(plain(f"  {mistake}"))
    raise typer.Exit(1 if wrong else 0)


@app.command("calibrate")
def propose_references(
    system: Annotated[str, typer.Option(help="System; all that have records where left out.")] = "",
    name: Annotated[
        str, typer.Option("-n", "--name", help="Regular expression that the case's name holds.")
    ] = "",
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric; may be repeated; all where left out.")
    ] = None,
    since: Annotated[str, typer.Option(help="Only runs from this day or moment on (UTC).")] = "",
    runs: Annotated[int | None, typer.Option(help="Only the newest so many runs.")] = None,
    coverage: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Share of healthy runs that meet the bound.")
    ] = 0.99,
    confidence: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="How sure that is.")
    ] = 0.95,
    write: Annotated[bool, typer.Option("--write", help="Change references.yaml.")] = False,
    lower: Annotated[
        str | None, typer.Option(help="Why references may be made softer; without it none is.")
    ] = None,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    # With SciPy and polars, which no other command waits for.
    from iogauge import calibrate, historyview

    console = _console()
    try:
        fine = calibrate.calibrate(
            session.history_dir(),
            references.sites_dir(),
            calibrate.Choice(
                system=system,
                name=name,
                metrics=tuple(metric or ()),
                since=historyview.moment(since) if since else None,
                newest=runs,
            ),
            calibrate.Settings(coverage=coverage, confidence=confidence, lower=lower),
            write=write,
            say=lambda text: console.print(plain(text), soft_wrap=True),
        )
    except ValueError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if fine else 1)


@app.command("history")
def show_history(
    system: Annotated[str, typer.Option(help="System; all where left out.")] = "",
    name: Annotated[
        str,
        typer.Option("-n", "--check", help="Regular expression that the case's name holds."),
    ] = "",
    verdict: Annotated[
        list[Verdict] | None,
        typer.Option(case_sensitive=False, help="Of the case or a metric; may be repeated."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric; all where left out.")] = "",
    since: Annotated[str, typer.Option(help="Day or moment (UTC), or 12h, 7d, 4w ago.")] = "",
    until: Annotated[str, typer.Option(help="As --since; a day to its end.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="Newest records that are shown; 0: all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records, one a line.")] = False,
    damaged: Annotated[
        bool, typer.Option("--damaged", help="List the lines that are no records.")
    ] = False,
) -> None:
    """Show what was recorded, the newest first."""
    from iogauge import historyview  # with polars, which no run of checks waits for

    folder, console = session.history_dir(), _console()
    try:
        choice = historyview.Choice(
            system=system,
            name=name,
            verdicts=tuple(verdict or ()),
            metric=metric,
            since=historyview.moment(since) if since else None,
            until=historyview.moment(until, end=True) if until else None,
            limit=limit,
        )
        if damaged:
            for one in history.damaged(folder):
                typer.echo(visible(f"{one.file}:{one.line}: {one.problem}"))
            return
        rows, matching = choice.of(folder)
        found = list(historyview.records(folder, rows))
    except (ValueError, OSError) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        for record, _ in found:
            typer.echo(json.dumps(record, separators=(",", ":")))
        return
    if found:
        console.print(historyview.table(found))
    console.print(plain(f"{len(found)} of {matching} record(s) in {folder}"), soft_wrap=True)


@app.command("trend")
def show_trend(
    system: Annotated[str, typer.Option(help="Only this system.")] = "",
    name: Annotated[str, typer.Option("--name", "-n", help="Only cases that fit this regex.")] = "",
    since: Annotated[str, typer.Option(help="Only runs from this day on, YYYY-MM-DD.")] = "",
    baseline: Annotated[int, typer.Option(help="Runs that later ones are compared with.")] = 30,
    false_alarms: Annotated[
        float, typer.Option(help="Share of stable series with an alarm in 30 runs.")
    ] = 0.05,
    offline: Annotated[
        bool, typer.Option("--offline", help="All changes of the newest series, seen from today.")
    ] = False,
    method: Annotated[str, typer.Option(help="For --offline: binary or otava.")] = "binary",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which metrics have become worse, since when, by how much, and what changed just before.

    Exit status 1: there is an alarm; 2: the question is wrong. Improvements and short series are no alarm.
    """
    from iogauge import changepoint, historyview, trend

    try:
        status = trend.command(
            _console(),
            session.history_dir(),
            trend.Question(
                system=system,
                name=name,
                since=historyview.moment(since) if since else None,
                baseline=baseline,
                false_alarms=false_alarms,
                offline=offline,
                method=method,
                as_json=as_json,
            ),
        )
    except (ValueError, changepoint.MissingExtra) as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(status)
