"""What Darshan logs say: a part of ``iogauge compare``."""

from __future__ import annotations

from pathlib import Path

import typer

from iogauge.cli.reporting import write_file
from iogauge.cli.screen import new_console
from iogauge.core.text import visible_lines
from iogauge.report.outcome import plain
from iogauge_extras.compare import compare
from iogauge_extras.darshan import subject


def show_profile(log: Path, other: Path | None, html: Path | None, as_json: bool) -> None:
    """Say what a program did to the file system, from its Darshan log."""
    from iogauge_extras.darshan import profile  # with Jinja

    try:
        found = [profile.Profile.of(str(f), subject.read_log(f)) for f in (log, other) if f]
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if html:
        write_file(html, profile.page(found))
    if as_json:
        for one in found:
            typer.echo(profile.to_json(one))
        return
    console = new_console()
    if len(found) == 2:
        console.print(compare.render(compare.compare(found[0].subject, found[1].subject)))
    else:
        for name, text in profile.lines(found[0]).items():
            console.print(plain(f"{name + ':':<29} {text}"), soft_wrap=True)
    for one in found:
        said = profile.told(one) or ["nothing stands out."]
        console.print(plain(f"{one.name}: {' '.join(said)}"), soft_wrap=True)
