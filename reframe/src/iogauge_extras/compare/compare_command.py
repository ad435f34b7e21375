"""Commands that put two things side by side: compare."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iogauge.cli.reporting import write_file
from iogauge.cli.screen import Wide, show, slips
from iogauge.core import paths, registry
from iogauge_extras.compare import logs
from iogauge_extras.compare.logs import CompareError

if TYPE_CHECKING:
    from iogauge_extras.compare import sides


def show_comparison(
    a: Annotated[
        str,
        typer.Argument(
            help="A session or its .jsonl, with :case; key=value,… (docs/results.md); or a Darshan log."
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
        Path | None, typer.Option(help="Write a page, for records.")
    ] = None,
    servers: Annotated[str, typer.Option(help="Servers of A and B, as 4,8.")] = "",
    tib: Annotated[
        str, typer.Option(help="Capacities of A and B in TiB, as 100,250.")
    ] = "",
    wide: Wide = False,
) -> None:
    """Compare two sides: sets of records, records or Darshan logs."""
    if not b:
        registry.load("iogauge_commands", "profile")(Path(a), as_json)
        return
    found: logs.LogComparison | sides.Contrast
    of_logs = {_is_log(name) for name in (a, b)}
    with slips(CompareError, registry.Missing):
        if True in of_logs:
            if html or False in of_logs:
                raise CompareError(
                    f"{a} and {b}: give two Darshan logs, or two sides of records; --html is for the latter "
                    "(docs/results.md)"
                )
            subject = registry.load("iogauge_answers", "darshan.subject")
            found = logs.compare(subject(a), subject(b))
        else:
            by_server, by_tib = _two(servers), _two(tib)
            found = contrast(((a, a), (b, b)), html, by_server, by_tib)
    if as_json:
        typer.echo(found.to_json())
    else:
        show(found.render(wide))


def _is_log(name: str) -> bool:
    """Return whether a name is that of a Darshan log: any file but one of records."""
    # os.path.isfile returns False for a name that is too long; Path.is_file raises.
    return name.endswith(".darshan") or (
        os.path.isfile(name) and not name.endswith(".jsonl")
    )


def _two(text: str) -> tuple[float | None, float | None]:
    """Return the numbers in ``4,8``; raises CompareError."""
    try:
        first, second = map(float, text.split(",")) if text else (0.0, 0.0)
        if min(first, second) < 0:
            raise ValueError("it is negative")
    except ValueError as error:
        raise CompareError(
            f"{text!r}: expected one number for A and one for B, such as 4,8: {error}"
        ) from error
    return first or None, second or None


def contrast(
    named: Sequence[tuple[str, str]],
    html: Path | None,
    servers: Sequence[float | None] = (None, None),
    tib: Sequence[float | None] = (None, None),
) -> sides.Contrast:
    """Return the contrast of two sets of records, each a choice and its title, and write its page.

    Raises :class:`CompareError`.
    """
    from iogauge_extras.compare import sides

    a, b = (
        replace(sides.read(paths.history_dir(), choice, servers[n], tib[n]), name=title)
        for n, (choice, title) in enumerate(named)
    )
    found = sides.contrast(a, b)
    if html:
        write_file(html, registry.load("iogauge_answers", "page.comparison")(found))
    return found
