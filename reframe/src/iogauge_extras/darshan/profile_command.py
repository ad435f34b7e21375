"""What Darshan logs say: a part of ``iogauge compare``."""

from __future__ import annotations

from pathlib import Path

import typer

from iogauge.cli.screen import say, slips
from iogauge_extras.compare.logs import CompareError
from iogauge_extras.darshan import profile
from iogauge_extras.darshan.figures import of_log
from iogauge_extras.darshan.log import read_log


def show_profile(log: Path, as_json: bool = False) -> None:
    """Say what a program did to the file system, from its Darshan log."""
    with slips(CompareError):
        read = read_log(log)
    figures = of_log(str(log), read)
    if as_json:
        typer.echo(profile.to_json(read, figures))
        return
    say(f"{figures.name}: {' '.join(profile.verdict(read, figures))}")
    for name, text in profile.lines(figures).items():
        say(f"{name + ':':<29} {text}")
    for note in figures.notes:
        say(f"note: {note}")
