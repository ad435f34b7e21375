"""Commands that put two things side by side: compare."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from iogauge.cli.reporting import write_file
from iogauge.cli.screen import Wide, new_console
from iogauge.core import paths, registry
from iogauge.core.text import visible_lines
from iogauge.records import journal
from iogauge_extras.compare import compare


def show_comparison(
    a: Annotated[
        str,
        typer.Argument(
            help="A Darshan log; a session or its .jsonl, with :case; or key=value,… (docs/results.md)."
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            help="The other, shown relative to A; none: what the program of a Darshan log did."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with a figure, of two sets of records.")
    ] = None,
    servers: Annotated[
        str,
        typer.Option(
            help="Numbers of servers of A and B, as 4,8. Default: what the Lustre client sees."
        ),
    ] = "",
    tib: Annotated[
        str,
        typer.Option(help="Capacities of A and B in TiB, as 100,250. Default: those of the price."),
    ] = "",
    wide: Wide = False,
) -> None:
    """Compare two sets of records, two records or two Darshan logs; or say what one log's program did."""
    console = new_console()
    if not b or all(name.endswith(".darshan") for name in (a, b)):
        from iogauge_extras.darshan.commands import show_profile

        return show_profile(Path(a), Path(b) if b else None, html, as_json)
    records_of = [count for name in (a, b) if (count := _records_of(name))]
    try:
        if _is_set(a) or _is_set(b) or (len(records_of) == 2 and max(records_of) > 1):
            _show_contrast(console, (a, b), as_json, html, (_two(servers), _two(tib)), wide)
            return
        if html:
            raise compare.CompareError("--html is for two sets of records: see docs/results.md")
        comparison = compare.compare(compare.read_subject(a), compare.read_subject(b))
    except compare.CompareError as error:
        typer.echo(visible_lines(f"iogauge: {error}"), err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(compare.to_json(comparison))
    else:
        console.print(compare.render(comparison, wide), soft_wrap=wide)


def _is_set(words: str) -> bool:
    """Return whether words choose a set of records: ``system=mysite,day=2027-01-31``."""
    return re.match("[a-z]+=", words) is not None


def _records_of(name: str) -> int:
    """Return the number of records of a session; 0 if there is no such session."""
    files = paths.history_dir().glob("*/*.jsonl")
    return sum(len(list(journal.read_whole(f))) for f in files if f.stem == name)


def _two(text: str) -> tuple[float | None, float | None]:
    """Return the numbers in ``4,8``; raises CompareError."""
    try:
        first, second = map(float, text.split(",")) if text else (0.0, 0.0)
        if min(first, second) < 0:
            raise ValueError("it is negative")
    except ValueError as error:
        raise compare.CompareError(
            f"{text!r}: expected one number for A and one for B, such as 4,8: {error}"
        ) from error
    return first or None, second or None


def _show_contrast(
    console: Console,
    names: tuple[str, str],
    as_json: bool,
    html: Path | None,
    divisors: tuple[tuple[float | None, float | None], ...],
    wide: bool,
) -> None:
    """Print the contrast of two sets of records, and write its page; raises CompareError."""
    from iogauge_extras.compare import sides  # with numpy and polars

    servers, tib = divisors
    a, b = (
        sides.read(paths.history_dir(), name, servers[n], tib[n]) for n, name in enumerate(names)
    )
    found = sides.contrast(a, b)
    if html:
        write_file(html, registry.load("iogauge_answers", "page.comparison")(found))
    if as_json:
        typer.echo(sides.to_json(found))
    else:
        console.print(sides.render(found, wide), soft_wrap=True)
