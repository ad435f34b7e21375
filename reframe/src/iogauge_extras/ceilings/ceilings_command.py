"""Commands over the layers below the file system: ceilings."""

from __future__ import annotations

from typing import Annotated

import typer

from iogauge.cli import doctor
from iogauge.cli.screen import Wide, say, show, slip
from iogauge.core.paths import history_dir
from iogauge.site import folders


def show_ceilings(
    system: Annotated[
        str, typer.Option(help="Site; if omitted, that of this host.")
    ] = "",
    wide: Wide = False,
) -> None:
    """Show what each layer should carry, and what it carried alone.

    Exit status 1: a measurement is missing, too old, or contradicted.
    """
    from iogauge_extras.ceilings import (
        table as report,
    )

    sites = folders.site_folders(*folders.site_dirs())
    named = [folder for folder in sites if folder.name == system]
    here = doctor.site_of_host(sites) if not system else None
    if not (chosen := named or ([here] if here else [])):
        names = ", ".join(folder.name for folder in sites)
        raise slip(f"no site {system!r}: expected one of {names}")
    (folder,) = chosen
    sound = True
    for shown in report.of_site(history_dir(), folder):
        show(report.table(shown, wide))
        for line in report.remarks(shown):
            say(line)
        sound = sound and not shown.problems
    raise typer.Exit(0 if sound else 1)
