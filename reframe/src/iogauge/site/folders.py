"""Where sites are: the search path of folders that hold them, and the site that a host name selects.

A site is a folder with :data:`SETTINGS`. The search path is ``$IOGAUGE_SITES``, then the folder of
ReFrame's configuration, which is site-configs/ of the project.
"""

import contextlib
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from iogauge.core.paths import configuration_dir, project_root
from iogauge.core.yamlfile import Mistake, YamlError, load

SETTINGS: Final = "settings.yaml"

#: Names of systems, partitions and environments. ReFrame's own pattern lets one end in a newline.
NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_-]*")

#: What a text that is no regular expression raises.
NO_REGEX: Final = (re.error, OverflowError, RecursionError)

#: Folder of the settings that all sites share (logging, modes); not a site.
COMMON: Final = "common"

#: The site of a machine that nobody has described. Its host names match all hosts, so it comes
#: last.
LOCAL: Final = "local"

#: Variable with the folders of a user's own sites, absolute, separated by colons.
VARIABLE: Final = "IOGAUGE_SITES"


def site_dirs() -> tuple[Path, ...]:
    """Return the folders that hold sites: those of ``$IOGAUGE_SITES``, then the configuration's.

    A folder that cannot hold sites ends the process: its sites would be missed in silence.
    """
    paths = os.environ.get(VARIABLE, "").split(os.pathsep)
    named = [Path(path) for path in paths if path]
    for folder in named:
        why = ""
        if not folder.is_absolute():
            why = "is not an absolute path"
        elif not folder.is_dir():
            why = "is not a directory (make it: mkdir -p)"
        elif os.path.lexists(folder / SETTINGS):
            why = f"is a site itself; name the folder above it, {folder.parent}"
        if why:
            raise SystemExit(
                f"iogauge: {VARIABLE} or --sites: {str(folder)!r} {why}; expected folders that hold the folders of "
                f"sites, absolute, separated by {os.pathsep!r}"
            )
    return tuple(dict.fromkeys(map(Path.resolve, (*named, configuration_dir()))))


def site_dir(name: str) -> Path:
    """Return the folder of a site by its name, the first of the search path; it need not exist."""
    for folder in site_dirs():
        place = folder / name
        if os.path.lexists(place):
            return place
    return place


def site_folders(*directories: Path) -> list[Path]:
    """Return the folders of the sites in some directories, in the order in which host names select.

    That is the order of the directories, and by name in each; :data:`LOCAL` comes last.
    """
    # A broken link counts too: its site has a mistake, and does not vanish.
    sites = []
    for directory in directories:
        if directory.is_dir():
            for folder in sorted(directory.iterdir()):
                if folder.name != COMMON and os.path.lexists(folder / SETTINGS):
                    sites.append(folder)
    return sorted(sites, key=lambda folder: folder.name == LOCAL)


def namesakes(folder: Path) -> list[Mistake]:
    """Return a mistake if the search path has several sites of this one's name."""
    found = []
    for directory in site_dirs():
        place = directory / folder.name
        if os.path.lexists(place / SETTINGS):
            found.append(str(place))
    if len(found) < 2:
        return []
    saw = f"{len(found)} sites named {folder.name}: {', '.join(found)}"
    allowed = (
        f"one: rename a folder and its system, or take its folder out of {VARIABLE}"
    )
    return [Mistake("systems", saw, allowed)]


def _claims(folder: Path, host: str) -> bool:
    with contextlib.suppress(YamlError, KeyError, TypeError, AttributeError):
        for system in load(folder / SETTINGS)["systems"]:
            for pattern in system.get("hostnames", ()):
                # `iogauge check` tells of one that is none.
                with contextlib.suppress(*NO_REGEX):
                    if re.match(pattern, host):
                        return True
    return False


def sites_of_host(folders: Sequence[Path], host: str) -> list[Path]:
    """Return the sites that claim a host, of which ReFrame takes the first.

    :data:`LOCAL` claims every host, and counts only if no other site does.
    """
    claiming = [folder for folder in folders if _claims(folder, host)]
    return [folder for folder in claiming if folder.name != LOCAL] or claiming


def site_of_this_host() -> Path | None:
    """Return the folder of the site that ReFrame selects on this host, or None."""
    found = sites_of_host(site_folders(*site_dirs()), socket.gethostname())
    return next(iter(found), None)


def spack_environments(folder: Path, name: str) -> Path:
    """Return the folder ``environments`` that has the Spack environment of a site.

    It lies beside the folder that holds the site's, else in the project.
    """
    own = folder.resolve().parent.parent / "environments"
    if (own / name).is_dir():
        return own
    return project_root() / "environments"
