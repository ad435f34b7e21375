"""The command ``iogauge site collecting``: does a partition still collect its first runs, or is it a gate?

A partition collects until a reference or a declared efficiency decides on a case of it. It never collects again:
a reference that was removed does not open a gate.
"""

import os
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.planning import demand_known
from iogauge.cli.reporting import write_file
from iogauge.cli.screen import say, slip
from iogauge.core import commands, paths
from iogauge.core.text import count
from iogauge.records import query
from iogauge.site import folders, settings
from iogauge.site.reference_notes import fits
from iogauge.site.references import References
from iogauge_extras.history import proposal
from iogauge_extras.history.proposal import Proposal


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


def is_gate(system: str, partition: str) -> bool:
    """Return whether something decides on a partition, or a reference once did."""
    if is_decided(system, partition):
        return True
    once = query.Condition(
        "system = ? AND partition = ? AND reference IS NOT NULL", (system, partition)
    )
    with closing(query.connect(paths.history_dir())) as history:
        return bool(query.rows(history, "record", once, "LIMIT 1"))


def write_proposal(file: Path, proposed: Proposal, into: Path) -> None:
    """Write what ``iogauge calibrate`` says (references.txt) and proposes (references.diff) into a folder.

    The diff is for ``git apply`` in the repository that holds the site.
    """
    top = commands.run("git", "-C", str(file.parent), "rev-parse", "--show-toplevel")
    name = os.path.relpath(file.resolve(), top.stdout.strip() or file.parent.parent)
    old = f"a/{name}"
    if not proposed.before:
        old = "/dev/null"
    text = "\n".join([*proposed.told(file.parent.name), ""])
    write_file(into / "references.txt", text)
    write_file(into / "references.diff", proposed.diff(old, f"b/{name}"))


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
    gates = 0
    for place in places:
        system, _, partition = place.partition(":")
        demand_known(system, "")
        known = settings.partitions(folders.site_dir(system))
        if partition not in known:
            names = ", ".join(known) or f"none, see iogauge check {system}"
            raise slip(f"{place}: no such partition; known: {names}")
        if is_gate(system, partition):
            say(f"{place}: a gate: references decide")
            gates += 1
            continue
        try:
            chosen = query.Choice(system=system)
            found = proposal.calibrate(paths.history_dir(), chosen, None)
        except ValueError as error:
            say(f"{place}: collecting: {error}")
            continue
        ((file, proposed),) = found.items()
        mine = [o for o in proposed.outcomes if o.name.startswith(f"{partition} ")]
        ready = sum(outcome.state == "proposed" for outcome in mine)
        text = f"{place}: collecting: {ready} of {count(len(mine), 'metric')} can have a reference"
        if ready < len(mine):
            text += f", why not the others: iogauge calibrate --system={system}"
        if into:
            write_proposal(file, proposed, into)
            text += f". Read {into / 'references.txt'}"
            if proposed.changes:
                text += f"; merge {into / 'references.diff'}: then it is a gate"
        say(text)
    raise typer.Exit(min(gates, 1))
