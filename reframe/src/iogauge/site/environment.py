"""The Spack environments that a site's settings name, for the scripts of ``ci/``.

``python -m iogauge.site.environment`` prints them for this host, one a line: a folder if it lies beside
the site's, else the name of one in environments/.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iogauge.core.text import visible_lines
from iogauge.core.yamlfile import load
from iogauge.site.folders import (
    SETTINGS,
    site_dirs,
    site_folders,
    sites_of_host,
    spack_environments,
)
from iogauge.site.mistakes import STACK
from iogauge.site.topology import in_all_sizes


def _settings(folder: Path) -> dict[str, Any]:
    data = load(folder / SETTINGS)
    return data if isinstance(data, dict) else {}


def _environs(system: Mapping[str, Any], partition: str) -> set[str]:
    """Return the names of a system's environments, of one partition or of all (empty)."""
    chosen = [p for p in system["partitions"] if partition in ("", p["name"])]
    return {name for p in chosen for name in p.get("environs", [])}


def stacks(folders: Sequence[Path], system: str, host: str) -> list[str]:
    """Return the stacks that the selected site names, each once, in the order of its settings.

    ``system`` is ``site`` or ``site:partition``. If it is empty, the host's name selects the site.
    Raises ValueError if the site does not exist or its settings cannot be read.
    """
    name, _, partition = system.partition(":")
    folder = next((f for f in folders if f.name == name), None)
    if not name:
        folder = next(iter(sites_of_host(folders, host)), None)
    if folder is None:
        if name:
            raise ValueError(f"no site {name}; known: {', '.join(f.name for f in folders)}")
        return []
    try:
        data = in_all_sizes(_settings(folder))
        names = {p["name"] for system in data["systems"] for p in system["partitions"]}
        if partition and partition not in names:
            raise ValueError(f"no partition {partition}; known: {', '.join(sorted(names))}")
        used = {name for system in data["systems"] for name in _environs(system, partition)}
        named = [
            environment["extras"][STACK]
            for environment in data.get("environments", [])
            if environment["name"] in used and STACK in environment.get("extras", {})
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder / SETTINGS} has mistakes ({error!r}): iogauge validate"
        ) from error
    places = [spack_environments(folder, one) / one for one in named]
    return [str(p) if p.is_dir() else p.name for p in dict.fromkeys(places)]


def main() -> int:
    """Print the stacks of the site that the environment variables or the host select."""
    system = os.environ.get("IOGAUGE_SYSTEM") or os.environ.get("RFM_SYSTEM") or ""
    try:
        found = stacks(site_folders(*site_dirs()), system, socket.gethostname())
    except (ValueError, OSError) as error:
        print(visible_lines(f"environment: {error}"), file=sys.stderr)
        return 1
    print(visible_lines("".join(f"{name}\n" for name in found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
