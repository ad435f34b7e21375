"""What one Darshan log says: a part of ``iogauge compare``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from iogauge.cli.screen import say, slips
from iogauge_extras.compare.logs import CompareError, amount
from iogauge_extras.darshan.subject import read_subject


def show_profile(log: Path, as_json: bool = False) -> None:
    """Say what a program did to the file system, from its Darshan log."""
    with slips(CompareError):
        figures = read_subject(str(log))
    if as_json:
        typer.echo(json.dumps(asdict(figures), indent=2, allow_nan=False))
        return
    say(f"{figures.name}: whole; for ranks, files and time: python -m darshan summary")
    for name, fact in figures.facts.items():
        if fact:
            say(f"{name + ':':<29} {fact}")
    for name, value in figures.values.items():
        say(f"{name + ':':<29} {amount(value.value, value.unit)}")
    for note in figures.notes:
        say(f"note: {note}")
