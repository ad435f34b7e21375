"""Commands over the layers below the file system: ceilings."""

from typing import Annotated

import typer

from iogauge.cli.screen import show, slip
from iogauge.core.paths import history_dir
from iogauge.site import folders, settings


def show_ceilings(
    system: Annotated[
        str, typer.Option(help="Site; if omitted, that of this host.")
    ] = "",
) -> None:
    """Show what each layer should carry, and what was reached."""
    from iogauge_extras.ceilings import table

    sites = folders.site_folders(*folders.site_dirs())
    chosen = [folder for folder in sites if folder.name == system]
    here = folders.site_of_this_host()
    if here and not system:
        chosen = [here]
    if not chosen:
        names = ", ".join(folder.name for folder in sites)
        raise slip(f"no site {system!r}: expected one of {names}")
    site = chosen[0]
    for name, extras in settings.partitions(site).items():
        reached = table.reached_by(history_dir(), site.name, name)
        show(table.table(f"{site.name}:{name}", extras, reached))
