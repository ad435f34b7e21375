"""Commands that put two things side by side: compare."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.screen import say, show, slips
from iogauge.core import paths, registry
from iogauge_extras.compare import logs
from iogauge_extras.compare.logs import CompareError

if TYPE_CHECKING:
    from iogauge_extras.compare import sides


def show_comparison(
    a: Annotated[
        str,
        typer.Argument(
            help="A session; key=value,… (docs/results.md); or a Darshan log."
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            help="The other, shown relative to A; none: what the program of a Darshan log did."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two sides: sets of records, records or Darshan logs."""
    of_logs = [_is_log(name) for name in (a, b) if name]
    found: logs.LogComparison | sides.Contrast
    with slips(CompareError, registry.Missing):
        if any(of_logs):
            if not all(of_logs):
                raise CompareError(
                    f"{a} and {b}: give two Darshan logs, or two sides of records (docs/results.md)"
                )
            subject = registry.load("iogauge_answers", "darshan.subject")
            if not b:
                _show_log(subject(a), as_json)
                return
            found = logs.compare(subject(a), subject(b))
        elif not b:
            raise CompareError(
                f"compare needs two sides, and {a} is one: iogauge compare {a} OTHER. A Darshan log may stand alone"
            )
        else:
            from iogauge_extras.compare import sides  # a log needs no history

            folder = paths.history_dir()
            found = sides.contrast(sides.read(folder, a), sides.read(folder, b))
    if as_json:
        typer.echo(found.to_json())
    else:
        show(found.render())


def _show_log(log: logs.Figures, as_json: bool) -> None:
    """Say what a program did to the file system, from its Darshan log."""
    if as_json:
        typer.echo(json.dumps(asdict(log), indent=2, allow_nan=False))
        return
    say(f"{log.name}: whole; for ranks, files and time: python -m darshan summary")
    shown = dict(log.facts)
    for name, value in log.values.items():
        shown[name] = logs.amount(value.value, value.unit)
    for name, text in shown.items():
        say(f"{name + ':':<29} {text}")
    for note in log.notes:
        say(f"note: {note}")


def _is_log(name: str) -> bool:
    """Return whether a name is that of a Darshan log: any file."""
    # os.path.isfile returns False for a name that is too long; Path.is_file raises.
    return name.endswith(".darshan") or os.path.isfile(name)
