"""Commands that put two things side by side: compare."""

from typing import Annotated

import typer

from iogauge.cli.screen import show, slips
from iogauge.core import paths
from iogauge_extras.compare import sides
from iogauge_extras.compare.sides import CompareError


def show_comparison(
    a: Annotated[
        str, typer.Argument(help="A session, or key=value,… (docs/results.md).")
    ],
    b: Annotated[str, typer.Argument(help="The other, shown relative to A.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two sets of records."""
    folder = paths.history_dir()
    with slips(CompareError):
        found = sides.contrast(sides.read(folder, a), sides.read(folder, b))
    if as_json:
        typer.echo(found.to_json())
    else:
        show(found.render())
