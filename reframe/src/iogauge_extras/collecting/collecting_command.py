"""The command ``iogauge site collecting``: does a partition still collect its first runs, or is it a gate?

A partition collects until a reference or a declared efficiency decides on a case of it. It never collects again:
a reference that was removed does not open a gate.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import write_file
from iogauge.cli.screen import say, slip, slips
from iogauge.core import commands, paths
from iogauge.core.text import count
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.site import folders, settings
from iogauge.site.reference_notes import fits
from iogauge.site.references import References
from iogauge_extras.history import proposal
from iogauge_extras.history.runs import LEAST_RUNS


@dataclass(slots=True)
class Collected:
    """What the history has of a partition on which no reference has decided."""

    #: Valid runs of the metric that has most, in the newest series of its case.
    runs: int
    #: Metrics that were UNSTABLE in the newest run of their case.
    unsteady: int
    #: Time of the oldest run in a series that is the newest of its case; None without a run.
    since: datetime | None


def is_decided(system: str, partition: str) -> bool:
    """Return whether the site declares what a case of the partition must reach.

    A file with mistakes counts as one that decides: the run refuses it.
    """
    extras = settings.partitions(folders.site_dir(system)).get(partition)
    if extras is None or (extras.topology and extras.topology.efficiency):
        return True
    references = References.of_site(system)
    if references.mistakes:
        return True
    for check in references.checks:
        entry = references.data[check]
        if entry.get("$index", ["$partition"])[0] != "$partition":
            return True
        if any(fits(key, f"{system}:{partition}") for key in entry):
            return True
    return False


def collected(system: str, partition: str) -> Collected | None:
    """Return what a partition has collected; None if it is a gate."""
    if is_decided(system, partition):
        return None
    here = query.Condition("system = ? AND partition = ?", (system, partition))
    with closing(query.connect(paths.history_dir())) as history:
        rows = query.rows(
            history,
            "line, series, time, record, metric, metric_verdict, reference, confirms, busy",
            here,
            "ORDER BY time, file, start",
        )
    newest: dict[str, sqlite3.Row] = {}
    first: dict[str, int] = {}
    runs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["reference"] is not None:
            return None
        newest[row["line"]] = row
        first.setdefault(row["series"], row["time"])
        # As calibrate: a run beside more work of others than cores is no basis of a reference.
        counts = not (row["confirms"] or row["busy"])
        if counts and row["metric"] and Verdict(row["metric_verdict"]).is_valid:
            runs[row["series"], row["metric"]] += 1
    last = {row["record"] for row in newest.values()}
    unsteady = 0
    for row in rows:
        if row["record"] in last:
            unsteady += row["metric_verdict"] == Verdict.UNSTABLE.value
    found = Collected(runs=0, unsteady=unsteady, since=None)
    going_on = {row["series"] for row in newest.values()}
    if going_on:
        found.since = query.moment(min(first[series] for series in going_on))
    for (series, _), number in runs.items():
        if series in going_on:
            found.runs = max(found.runs, number)
    return found


def propose(system: str, since: datetime, into: Path) -> bool:
    """Write what ``iogauge calibrate`` says (references.txt) and proposes (references.diff) into a folder.

    The diff is for ``git apply`` in the repository that holds the site. Returns whether anything is proposed.
    """
    chosen = query.Choice(system=system, since=since)
    with slips(ValueError):
        found = proposal.calibrate(paths.history_dir(), chosen, (), None)
    ((file, proposed),) = found.items()
    top = commands.run("git", "-C", str(file.parent), "rev-parse", "--show-toplevel")
    name = os.path.relpath(file.resolve(), top.stdout.strip() or file.parent.parent)
    old = f"a/{name}"
    if not proposed.before:
        old = "/dev/null"
    text = "\n".join([*proposed.told(system), ""])
    write_file(into / "references.txt", text)
    write_file(into / "references.diff", proposed.diff(old, f"b/{name}"))
    return proposed.changes


def show_collecting(
    places: Annotated[
        list[str], typer.Argument(help="SYSTEM:PARTITION; may be repeated.")
    ],
    into: Annotated[
        Path | None,
        typer.Option("--propose", help="Folder for proposed references, as a diff."),
    ] = None,
) -> None:
    """Say whether partitions still collect their first runs: status 0 if all do, 1 if one is a gate."""
    is_gate = False
    proposed: dict[str, bool] = {}
    for place in places:
        system, _, partition = place.partition(":")
        demand_known(system, "")
        known = settings.partitions(folders.site_dir(system))
        if partition not in known:
            names = ", ".join(known) or f"none, see iogauge check {system}"
            raise slip(f"{place}: no such partition; known: {names}")
        found = collected(system, partition)
        if found is None:
            say(f"{place}: a gate: references decide")
            is_gate = True
            continue
        text = f"{place}: collecting: {found.runs} of {LEAST_RUNS} runs"
        if found.unsteady:
            metrics = count(found.unsteady, "metric")
            text += f"; {metrics} too unsteady: see iogauge calibrate --system={system}"
        if into and found.since and found.runs >= LEAST_RUNS:
            if system not in proposed:
                proposed[system] = propose(system, found.since, into)
            text += f". Read {into / 'references.txt'}"
            if proposed[system]:
                text += f"; merge {into / 'references.diff'}: then it is a gate"
        say(text)
    raise typer.Exit(int(is_gate))
