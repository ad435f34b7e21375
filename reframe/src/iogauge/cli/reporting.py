"""Commands that report on sessions: report."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from iogauge.cli.screen import Since, System, Until, show_ending, slip, warn
from iogauge.core import paths, registry
from iogauge.core.paths import replace_file
from iogauge.core.text import visible
from iogauge.records import journal, query, selected
from iogauge.records.record import Record
from iogauge.records.selected import Unmeasured
from iogauge.report import endings, history_table, outcome
from iogauge.report.endings import SessionRecords


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of some sessions: records, damaged lines, and what they did not measure."""

    records: SessionRecords = field(default_factory=SessionRecords)
    unmeasured: Unmeasured = field(default_factory=Unmeasured)
    damaged: tuple[journal.Damaged, ...] = ()

    @property
    def gate(self) -> bool:
        """Return whether any of the sessions ran as a gate."""
        return self.unmeasured.gate or any(record.gate for record in self.records)


def sessions_of(names: list[str]) -> Asked:
    """Return what is known of the named sessions; without names, of the newest session.

    Raises BadParameter for an unknown session.
    """
    folder = paths.history_dir()
    files = [*folder.glob("*/*.json"), *folder.glob("*/*.jsonl")]
    if not files:
        raise slip(f"{folder} has no session yet: iogauge run makes one")
    sessions = sorted({file.stem for file in files})
    wanted = names or sessions[-1:]
    found = history_table.chosen(folder, query.Choice(sessions=wanted))
    records = found.records[::-1]
    # A session whose file was renamed or merged has no file of its name.
    known = {*sessions, *(record.session for record in records)}
    for name in wanted:
        if name not in known:
            newest = ", ".join(sessions[-5:])
            text = f"no session {name!r} in {folder} (newest: {newest})"
            raise typer.BadParameter(visible(text))
    return _asked_of(records, found.damaged, wanted)


def _asked_of(
    records: Sequence[Record],
    damaged: Sequence[journal.Damaged],
    sessions: Collection[str],
) -> Asked:
    """Return records with the damaged lines of some sessions' files, which it names, and what they did not measure."""
    lacks: list[Unmeasured] = []
    every = [line for line in damaged if line.file.stem in sessions]
    for file in sorted(paths.history_dir().glob("*/*.json")):
        if file.stem not in sessions:
            continue
        try:
            lacks.append(selected.load_unmeasured(file))
        except (OSError, ValueError, TypeError) as error:
            every.append(journal.Damaged(file, 0, f"cannot be read: {error}"))
    warn_of(every)
    unmeasured = selected.joined_unmeasured(lacks)
    return Asked(SessionRecords(records), unmeasured, tuple(every))


#: Most damaged lines that are named one by one.
_NAMED: Final = 5


def warn_of(damaged: Sequence[journal.Damaged]) -> None:
    """Name lines of the history that are no records."""
    for line in damaged[:_NAMED]:
        warn(f"{line.file}:{line.line}: skipped: {line.problem}")
    if len(damaged) > _NAMED:
        warn(f"and {len(damaged) - _NAMED} more lines that are no records")


def _asked(
    names: list[str], since: datetime | None, until: datetime | None, system: str
) -> Asked:
    """Return what is known of the named sessions, or of the newest run of all in a span of time.

    Raises BadParameter if both are given, or if nothing was measured in the span.
    """
    if not (since or until or system):
        return sessions_of(names)
    if names:
        raise typer.BadParameter(
            "give sessions, or --since, --until and --system: not both"
        )
    choice = query.Choice(system=system, since=since, until=until)
    try:
        records, damaged = history_table.newest_records(paths.history_dir(), choice)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not records:
        raise typer.BadParameter(
            f"nothing was measured on {system or 'any system'} in this time: {paths.history_dir()}; "
            "iogauge history lists the newest records"
        )
    return _asked_of(records, damaged, {record.session for record in records})


def show_report(
    names: Annotated[
        list[str] | None, typer.Argument(help="Sessions; the newest if none.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page: one file.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit's XML.")] = None,
    openmetrics: Annotated[Path | None, typer.Option(help="Write OpenMetrics.")] = None,
    since: Since = None,
    until: Until = None,
    system: System = "",
    bundle: Annotated[
        Path | None, typer.Option(help="Write a .tar.gz for a vendor.")
    ] = None,
    acceptance: Annotated[
        Path | None, typer.Option(help="Write what extras.acceptance demands.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Good nights, incidents; with --html.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each metric as JSON.")
    ] = False,
) -> None:
    """Show the table of sessions or of a span of time. Options write it as files."""
    if summary:
        choice = query.Choice(system=system, since=since, until=until)
        registry.load("iogauge_answers", "page.summary")(choice, html)
        return
    if acceptance:
        accept = registry.load("iogauge_answers", "page.acceptance")
        raise typer.Exit(accept(names or [], since, until, system, acceptance))
    asked = _asked(names or [], since, until, system)
    ending = asked.records.ending(
        asked.gate, asked.unmeasured, endings.of_damage(asked.damaged)
    )
    if html:
        ending, page = registry.load("iogauge_answers", "page")(asked, since, until)
        write_file(html, page)
    if bundle:
        registry.load("iogauge_answers", "page.bundle")(asked, since, until, bundle)
    if junit:
        from iogauge.report.export import junit as as_junit

        left_out = asked.unmeasured.left_out
        text = as_junit(asked.records, asked.gate, ending, left_out)
        write_file(junit, text)
    if openmetrics:
        from iogauge.report.export import openmetrics as as_openmetrics

        write_file(openmetrics, as_openmetrics(outcome.newest(asked.records)))
    if as_json:
        typer.echo(outcome.to_json(asked.records, ending))
    else:
        show_ending(asked.records, ending)
    raise typer.Exit(ending.status)


def write_file(file: Path, text: str | bytes) -> None:
    """Write a file at once, as readers may look at any time; ends with status 2 if that fails."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        if file.exists() and not file.is_file():  # such as /dev/stdout
            file.write_bytes(data)
        else:
            replace_file(file, data)
    except OSError as error:
        text = f"{file} was not written: {error.strerror}; give a path in a directory that is there"
        raise slip(text) from error
