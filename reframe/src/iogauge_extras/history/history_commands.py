"""Commands over the history: calibrate."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from iogauge.cli.screen import Name, Since, System, say, slips
from iogauge.core import paths
from iogauge.core.text import visible_lines
from iogauge.records.query import Choice
from iogauge_extras.history import proposal
from iogauge_extras.history.proposal import Proposal


def propose_references(
    system: System = "",
    name: Name = "",
    since: Since = None,
    write: Annotated[
        bool, typer.Option("--write", help="Change references.yaml.")
    ] = False,
    lower: Annotated[
        str | None, typer.Option(help="Allow softer references, for this reason.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Propose references from what was measured, as a diff to review."""
    with slips(ValueError):
        choice = Choice(system=system, name=name, since=since)
        found = proposal.calibrate(paths.history_dir(), choice, lower)
        if write:
            for file, proposed in found.items():
                if proposed.changes:
                    proposal.write_text(file, proposed.after)
    if as_json:
        typer.echo(to_json(found))
    else:
        for file, proposed in found.items():
            _show(file, proposed, write)
    raise typer.Exit(int(any(proposed.refused for proposed in found.values())))


def to_json(found: dict[Path, Proposal]) -> str:
    """Return the outcomes and the diff of every system."""
    systems = []
    for file, proposed in found.items():
        outcomes = [asdict(outcome) for outcome in proposed.outcomes]
        diff = proposed.diff(str(file), str(file))
        system = file.parent.name
        systems.append({"system": system, "outcomes": outcomes, "diff": diff})
    return json.dumps(systems, indent=2)


def _show(file: Path, proposed: Proposal, write: bool) -> None:
    """Print what happened to each metric, and the diff."""
    for line in proposed.told(file.parent.name):
        say(line)
    if not proposed.changes:
        say(f"{file}: nothing to change")
        return
    typer.echo(visible_lines(proposed.diff(str(file), str(file))))
    done = "not written: review, then --write"
    if write:
        done = "written"
    say(f"{file}: {done}")
