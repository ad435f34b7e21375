"""The Spack environments that a site's settings name, for the scripts of ``ci/``.

``python -m iogauge.site.environment`` prints the folders' names for this host, one a line.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iogauge.core.paths import sites_dir
from iogauge.core.text import visible_lines
from iogauge.core.yamlfile import YamlError, load
from iogauge.site.mistakes import STACK
from iogauge.site.settings import SETTINGS, site_folders


def _settings(folder: Path) -> dict[str, Any]:
    data = load(folder / SETTINGS)
    return data if isinstance(data, dict) else {}


def _fits(system: object, host: str) -> bool:
    patterns = system.get("hostnames", []) if isinstance(system, dict) else []
    return any(re.match(pattern, host) for pattern in patterns)


def _of_host(folders: Sequence[Path], host: str) -> Path | None:
    """Return the folder of the first site that a host belongs to, or None."""
    for folder in folders:
        try:
            if any(_fits(system, host) for system in _settings(folder).get("systems", [])):
                return folder
        except (YamlError, TypeError, re.error):
            continue  # `iogauge validate` tells of it
    return None


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
    folder = next((f for f in folders if f.name == name), None) if name else _of_host(folders, host)
    if folder is None:
        if name:
            raise ValueError(f"no site {name}; known: {', '.join(f.name for f in folders)}")
        return []
    try:
        data = _settings(folder)
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
    return list(dict.fromkeys(named))


def main() -> int:
    """Print the stacks of the site that the environment variables or the host select."""
    system = os.environ.get("IOGAUGE_SYSTEM") or os.environ.get("RFM_SYSTEM") or ""
    try:
        found = stacks(site_folders(sites_dir()), system, socket.gethostname())
    except (ValueError, OSError) as error:
        print(visible_lines(f"environment: {error}"), file=sys.stderr)
        return 1
    print(visible_lines("".join(f"{name}\n" for name in found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
