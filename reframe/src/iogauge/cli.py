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
from rich.markup import escape
from rich.table import Table

from iogauge import (
    agent,
    allowed,
    compare,
    detect,
    doctor,
    guards,
    history,
    patience,
    references,
    removal,
    report,
    session,
    site,
    workdir,
)
from iogauge.filesystem import View
from iogauge.lustre import LustreError
from iogauge.units import format_bytes
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
    reframe_report = session.state_dir() / "reports" / f"run-{name}.json"
    extra = {"IOGAUGE_SESSION": name}
    extra |= {"IOGAUGE_GATE": "1"} if gate else {}
    extra |= {"IOGAUGE_CONFIRMS": confirms} if confirms else {}
    environment = _environment(**extra)
    words = _reframe_command(["--report-file", str(reframe_report), "-r", *arguments])
    process = subprocess.Popen(words, env=environment)
    status: int | None = None
    while status is None:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # ReFrame got it too, cancels its jobs and cleans up
    files = sorted(session.history_dir().glob(f"*/{name}.jsonl"))
    records = [r for file in files for r in history.read(file) if isinstance(r, dict)]
    try:
        missing = report.undecided(reframe_report, records)
    except (OSError, ValueError, KeyError):
        missing = []
    for record in missing:
        record |= {"session": name, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        # The name comes out of a report: it must not lead anywhere else.
        system = Path(str(record["system"])).name or "unknown"
        file = session.history_dir() / system / f"{name}.jsonl"
        history.append(file, record)
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


def _selects_derived(arguments: list[str]) -> bool:
    """Whether ReFrame's arguments select checks that are derived from others, and some that are not."""

    def found(*more: str) -> int:
        words = _reframe_command(["-l", *arguments, *more])
        done = subprocess.run(
            words, env=_environment(), capture_output=True, text=True, check=False
        )
        match = re.search(r"Found (\d+) check", done.stdout)
        return int(match[1]) if match else 0

    return found("-t", _DERIVED) > 0 and found("-T", _DERIVED) > 0


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
) -> None:
    """Run checks through ReFrame and end with the table; all other options are ReFrame's.

    What is derived from other cases comes last, in a run of its own. With --confirm a case that fails is
    measured once more, and the run fails for it only if it fails again.
    """
    gate = gate or session.is_gate()
    if any("derived" in word for word in context.args) or not _selects_derived(context.args):
        status, records = _run(context.args, gate)
    else:
        status, records = _run([*context.args, "-T", _DERIVED], gate)
        after, derived = _run([*context.args, "-t", _DERIVED], gate)
        status, records = max(status, after), [*records, *derived]
    if confirm and any(map(report.needs_confirmation, records)):
        status, records = _confirm(context.args, status, records, gate)
    raise typer.Exit(_show(_console(), records, gate, status))


@app.command(context_settings=_PASS_ON)
def bench(context: typer.Context) -> None:
    """The newcomer's run: quick checks on this machine, sized to its speed, one at a time."""
    console = _console()
    target = detect.target_path()
    os.environ["IOGAUGE_TARGET"] = target
    for line in doctor.describe_stack(detect.machine()):
        console.print(escape(line))
    if "IOGAUGE_CASE_BYTES" not in os.environ:
        try:
            speed, size = patience.ask(target, lambda: _probe(target))
        except OSError as error:
            typer.echo(f"iogauge: {error}", err=True)
            raise typer.Exit(1) from error
        os.environ["IOGAUGE_CASE_BYTES"] = f"{size} B"
        console.print(
            f"target {escape(target)}: about {format_bytes(speed)}/s, so {format_bytes(size)} a case"
        )
    arguments = ["--system=local", "-t", "quick", "--exec-policy=serial", "--exec-order=name"]
    status, records = _run([*arguments, *context.args], session.is_gate())
    code = _show(console, records, session.is_gate(), status)
    for line in doctor.not_run(detect.machine(), target):
        console.print(escape(line))
    raise typer.Exit(code)


def _probe(target: str) -> tuple[float, int]:
    """Rough bandwidth of the target in bytes/s, and bytes for a case; raises OSError."""
    name = session.new_session_name()
    directory = workdir.create(target, name, "probe")
    try:
        speed = detect.probe_write(directory)
        return speed, detect.quick_case_bytes(speed, target)
    finally:
        workdir.remove(workdir.session_dir(target, name))


@app.command("report")
def show_report(
    name: Annotated[str, typer.Argument(help="Session; the newest where left out.")] = "",
) -> None:
    """Show the table of a session again."""
    files = sorted(session.history_dir().glob("*/*.jsonl"), key=lambda file: file.name)
    chosen = [file for file in files if name in ("", file.stem)]
    if not chosen:
        known = ", ".join(file.stem for file in files[-5:]) or "none"
        raise typer.BadParameter(
            f"no session {name!r} in {session.history_dir()} (newest: {known})"
        )
    chosen = [file for file in chosen if file.stem == chosen[-1].stem]
    console, records = _console(), []
    for file in chosen:
        for record in history.read(file):
            if isinstance(record, history.Damaged):
                console.print(escape(f"{record.file}:{record.line}: skipped: {record.problem}"))
            else:
                records.append(record)
    gate = any(record.get("gate") for record in records)
    raise typer.Exit(_show(console, records, gate, 0))


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
        typer.echo(f"iogauge: {error}", err=True)
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
        console.print(f"{mark} {escape(check.subject)}: {escape(check.text)}")
        if check.remedy:
            console.print(f"        -> {escape(check.remedy)}")
        healthy = healthy and check.state != "problem"
    raise typer.Exit(0 if healthy else 1)


@app.command(context_settings=_PASS_ON)
def plan(context: typer.Context) -> None:
    """Show what the selected cases would write and read, and whether the target has room."""
    console = _console()
    with tempfile.TemporaryDirectory(prefix="iogauge-plan-") as scratch:
        words = _reframe_command(["--prefix", scratch, "--dry-run", *context.args])
        done = subprocess.run(
            words,
            env=_environment(IOGAUGE_HOME=scratch),
            capture_output=True,
            text=True,
            check=False,
        )
        files = sorted(Path(scratch).rglob("footprint.json"))
        cases = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    if done.returncode != 0:
        console.print(escape(done.stdout[-4000:] + done.stderr[-4000:]))
        raise typer.Exit(1)
    if not cases:
        console.print(escape(done.stderr))
        console.print("no case is selected: see what 'reframe -c checks/ -l' lists")
        raise typer.Exit(1)
    raise typer.Exit(0 if _show_plan(console, cases) else 1)


def _show_plan(console: Console, cases: list[dict[str, Any]]) -> bool:
    """Print the footprints and the room on each target; returns whether there is room for all."""
    view = Table(title="What the selected cases will do", title_justify="left", pad_edge=False)
    for heading in (
        "case",
        "partition",
        "target",
        "holds",
        "files",
        "writes",
        "reads",
        "node-minutes",
    ):
        view.add_column(
            heading, justify="left" if heading in ("case", "partition", "target") else "right"
        )
    for case in cases:
        view.add_row(
            escape(report.short_name(case["name"])),
            escape(case["partition"]),
            escape(case["target"]),
            format_bytes(case["held_bytes"]),
            str(case["files"]),
            format_bytes(case["written_bytes"]),
            format_bytes(case["read_bytes"]),
            f"{case['node_minutes']:.1f}",
        )
    view.add_section()
    view.add_row(
        f"{len(cases)} case(s), one at a time",
        "",
        "",
        format_bytes(max(case["held_bytes"] for case in cases)),
        str(max(case["files"] for case in cases)),
        format_bytes(sum(case["written_bytes"] for case in cases)),
        format_bytes(sum(case["read_bytes"] for case in cases)),
        f"{sum(case['node_minutes'] for case in cases):.1f}",
    )
    console.print(view)
    console.print(
        "node-minutes at 200 MiB/s; 'holds' and 'files': what lies on the target at a time, at most"
    )
    fits = True
    for target in sorted({case["target"] for case in cases}):
        mine = [case for case in cases if case["target"] == target]
        try:
            seen: View = patience.ask(target, partial(agent.look_as_declared, target, mine[0]))
        except (OSError, LustreError) as error:
            console.print(escape(f"{target}: cannot be looked at from here: {error}"))
            fits = False
            continue
        try:
            by = patience.ask(target, partial(allowed.by_what, target))
            console.print(f"{escape(target)}: [green]ok[/] may be written in: {escape(by)}")
        except OSError as error:
            console.print(f"{escape(target)}: [bold red]refused[/] {escape(str(error))}")
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
            console.print(f"{escape(target)}: {word} {escape(str(finding))}")
    return fits


@app.command()
def clean(
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Session directories; those of dead sessions where left out."),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target to look on; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also sessions that may be alive.")
    ] = False,
) -> None:
    """Remove what sessions that ended hard left on the targets, and stage directories a week old.

    On a target nothing without our marker is touched.
    """
    console, failed = _console(), False
    found = []
    for place in [] if paths else (target or session.known_targets() or [detect.target_path()]):
        try:
            seen = patience.ask(place, partial(workdir.sessions, place))
            found += [(one.path, workdir.may_be_alive(one)) for one in seen]
        except OSError as error:
            console.print(escape(str(error)))
            failed = True
    doomed = list(paths or [path for path, alive in found if everything or not alive])
    for path, alive in found:
        if alive and not everything and not paths:
            console.print(escape(f"kept: {path}: its session may be alive (--all removes it)"))
    for path in doomed:
        try:
            patience.follow(
                path,
                partial(_remove, path, dry_run),
                removal.Progress(path, lambda text: console.print(escape(text))),
            )
            console.print(escape(f"{'would remove' if dry_run else 'removed'}: {path}"))
        except OSError as error:
            console.print(escape(f"refused: {error}"))
            failed = True
    stages = [] if paths else session.old_stages()
    for stage in stages:
        if not dry_run:
            shutil.rmtree(stage, ignore_errors=True)
        console.print(escape(f"{'would remove' if dry_run else 'removed'}: {stage} (a week old)"))
    if not doomed and not stages:
        console.print("nothing to remove")
    raise typer.Exit(1 if failed else 0)


def _remove(path: str, dry_run: bool, tell: patience.Tell) -> None:
    workdir.check_ours(path)
    if not dry_run:
        workdir.remove(path, tell=tell)


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
        typer.echo(f"iogauge: {error}", err=True)
        raise typer.Exit(1) from error
    file = os.path.join(path, allowed.MARKER)
    _console().print(escape(f"{file} allows {marker.meaning()}"))
    typer.echo(marker.to_yaml(), nl=False)
    _console().print(
        escape(f"iogauge writes below {path}/iogauge and nowhere else. Undo: rm {file}")
    )


@app.command()
def validate() -> None:
    """Check every site's settings and references; lists every mistake."""
    console, wrong = _console(), 0
    for one in site.site_folders(references.sites_dir()):
        mistakes = doctor.site_mistakes(one)
        wrong += len(mistakes)
        console.print(
            f"{escape(one.name)}: " + (f"[red]{len(mistakes)} mistake(s)[/]" if mistakes else "ok")
        )
        for mistake in mistakes:
            console.print(escape(f"  {mistake}"))
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
            say=lambda text: console.print(escape(text), soft_wrap=True),
        )
    except ValueError as error:
        typer.echo(f"iogauge: {error}", err=True)
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
                typer.echo(f"{one.file}:{one.line}: {one.problem}")
            return
        rows, matching = choice.of(folder)
        found = list(historyview.records(folder, rows))
    except (ValueError, OSError) as error:
        typer.echo(f"iogauge: {error}", err=True)
        raise typer.Exit(2) from error
    if as_json:
        for record, _ in found:
            typer.echo(json.dumps(record, separators=(",", ":")))
        return
    if found:
        console.print(historyview.table(found))
    console.print(escape(f"{len(found)} of {matching} record(s) in {folder}"), soft_wrap=True)


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
    from iogauge import trend

    try:
        status = trend.command(
            _console(),
            session.history_dir(),
            trend.Question(
                system=system,
                name=name,
                since=since,
                baseline=baseline,
                false_alarms=false_alarms,
                offline=offline,
                method=method,
                as_json=as_json,
            ),
        )
    except (ValueError, trend.MissingExtra) as error:
        typer.echo(f"iogauge: {error}", err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(status)
