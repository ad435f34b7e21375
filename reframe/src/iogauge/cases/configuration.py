"""ReFrame's configuration of the sites that it may select, as ReFrame loads it."""

import contextlib
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from reframe.core.logging import getlogger, log_files

from iogauge.core import processes
from iogauge.core.paths import logs_dir, state_dir
from iogauge.core.text import visible
from iogauge.core.vocabulary import ENVIRONMENT
from iogauge.core.yamlfile import YamlError
from iogauge.core.yamlfile import load as load_yaml
from iogauge.records import selected
from iogauge.session import life
from iogauge.session.current import current, guard_gate, is_gate, runs_cases
from iogauge.site.folders import (
    COMMON,
    SETTINGS,
    site_dir,
    site_dirs,
    site_folders,
    sites_of_host,
)
from iogauge.site.machine import LACKS
from iogauge.site.mistakes import STACK, find_lacks
from iogauge.site.references import FILE as REFERENCES
from iogauge.site.settings import MISTAKES, NOT_INSTALLED, read_site

#: Names of the systems that :func:`load` gave to ReFrame in this process.
_SITES: Final[set[str]] = set()

#: Characters in the path of the state directory that ReFrame or a job script would interpret.
_ODD: Final = re.compile(r"[^A-Za-z0-9_./+,=@:-]")


def _expand(value: Any) -> Any:
    """Replace ``${IOGAUGE_HOME}`` and ``${IOGAUGE_SESSION}`` in all values."""
    if isinstance(value, dict):
        return {key: _expand(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner) for inner in value]
    if not isinstance(value, str):
        return value
    text = value.replace("${IOGAUGE_HOME}", str(state_dir()))
    return text.replace("${IOGAUGE_SESSION}", current().name)


def load(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return ReFrame's configuration of the sites that it may select; print their mistakes on standard error.

    The sites are those of ``folder``, and of the folders that ``$IOGAUGE_SITES`` names.
    """
    processes.hear_children()
    base = Path(folder).resolve()
    os.environ["IOGAUGE_CONFIGURATION"] = str(base)
    odd = sorted(set(_ODD.findall(str(state_dir()))))
    if odd:  # ReFrame would run the text in $(...)
        raise SystemExit(
            f"iogauge: {str(state_dir())!r} holds {' '.join(map(repr, odd))}: letters, digits and _ . / + , = @ : - "
            "are safe in job scripts; set IOGAUGE_HOME to such a directory"
        )
    merged: dict[str, Any] = {
        "systems": [],
        "environments": [],
        "logging": [],
        "general": [],
    }
    common = base / COMMON / SETTINGS
    try:
        parts = []
        if common.exists():
            parts.append(_expand(load_yaml(common)))
    except YamlError as error:
        message = visible(f"iogauge: {error}: every site needs this file, correct it")
        raise SystemExit(message) from error
    with contextlib.suppress(AttributeError):  # ReFrame does not run
        for early in log_files():  # ReFrame's log until it has this configuration
            if Path(early).match("rfm-*.log"):
                Path(early).unlink(missing_ok=True)
    try:
        logs_dir().mkdir(
            parents=True, exist_ok=True
        )  # ReFrame makes no directory for its log
    except OSError as error:
        raise SystemExit(
            f"iogauge: {error.filename}: {error.strerror}: records and logs go there. Set IOGAUGE_HOME to a "
            "directory of your own, with an absolute path"
        ) from error
    # A listing tells what would run: only software that is installed counts. A dry run runs nothing.
    listing = selected.LISTING in os.environ and "--dry-run" not in sys.argv
    runs = listing or runs_cases(sys.argv[1:])
    for site in _sites():
        data, mistakes = read_site(site, current().name, runs)
        parts.append(data)
        _SITES.add(data["systems"][0]["name"])
        for mistake in mistakes:
            message = visible(f"iogauge: site {site.name} is disabled: {mistake}")
            print(message, file=sys.stderr)
    for part in parts:
        for section, entries in part.items():
            merged[section] = merged.get(section, []) + entries
    guard_gate()
    return merged


def _sites() -> Sequence[Path]:
    """Return the sites that ReFrame may select: the named one, else those that claim this host; all if there is none.

    Says which one is taken if several claim it.
    """
    first: dict[str, Path] = {}
    for site in site_folders(*site_dirs()):
        # The first of a name stands for all, with the mistake.
        first.setdefault(site.name, site)
    sites = list(first.values())
    named = selected.values(sys.argv, "--system", "--system")
    named = named or [os.environ.get("RFM_SYSTEM", "")]
    if named[-1]:
        mine = first.get(named[-1].partition(":")[0])
        return [mine] if mine else sites
    host = socket.gethostname()
    claiming = sites_of_host(sites, host)
    if len(claiming) > 1:
        message = (
            f"iogauge: {len(claiming)} sites claim the host {host} by their hostnames: "
            f"{', '.join(map(str, claiming))}. The first is taken; expected one: name it "
            f"(--system={claiming[0].name}), or narrow the hostnames"
        )
        print(visible(message), file=sys.stderr)
    return claiming or sites


def _note_for_listing(system: Any) -> None:
    """Note the features of the selected system's partitions, and why environments lack others."""
    for partition in system.partitions:
        environments = []
        for environment in partition.environs:
            extras = environment.extras
            noted = selected.NotedEnvironment(
                name=environment.name,
                features=(*environment.features, *extras),
                why=extras.get(LACKS) or _why_lacking(system.name, environment),
            )
            environments.append(noted)
        selected.note(
            selected.NotedPlace(
                place=partition.fullname,
                features=(*partition.features, *partition.extras),
                environments=tuple(environments),
            )
        )


def _why_lacking(site: str, environment: Any) -> dict[str, str]:
    """Return why a declared environment lacks a feature, and what brings it, by feature."""
    stack = environment.extras.get(STACK)
    why = (
        f"if the program is on PATH of the nodes, add it to the features of {environment.name} in "
        f"{site_dir(site) / SETTINGS}"
    )
    if stack:
        why = f"the stack environments/{stack} is built without it. Add it there, then ci/build-stack"
    return dict.fromkeys(ENVIRONMENT, environment.extras.get(NOT_INSTALLED) or why)


def _filter_screen() -> None:
    """Keep ReFrame's blocks about failures for the command that started it, see :class:`iogauge.session.life.Filter`."""
    details = os.environ.get(life.DETAILS)
    if not details:
        return
    keep = life.Filter(Path(details))
    for handler in getlogger().std_stream_handlers:
        handler.addFilter(keep)


def _require_stack(system: Any) -> None:
    """Say which environments are left out; end the process if that is all of them."""
    environments = {}
    for partition in system.partitions:
        for environment in partition.environs:
            environments[environment.name] = environment.extras.get(NOT_INSTALLED)
    missing = [text for text in environments.values() if text]
    if missing and len(missing) == len(environments) and runs_cases(sys.argv[1:]):
        lines = "\n  ".join(missing)
        raise SystemExit(
            f"iogauge: no software stack of site {system.name!r} is installed:\n  {lines}\n"
            "Nothing was measured."
        )
    for text in missing:
        print(visible(f"iogauge: left out: {text}"), file=sys.stderr)


def require_ready(system: Any) -> None:
    """End the process with a clear message unless the selected ReFrame system is a site of this
    suite.

    checks/__init__.py calls this before the first check. Otherwise ReFrame would select nothing and
    report success. In a gate, ReFrame's warnings end the run from here on. Otherwise ReFrame would
    only warn of a check that cannot be loaded, and pass the others.
    """
    if is_gate():
        getlogger().warn_as_error = True
    if runs_cases(sys.argv[1:]):
        _filter_screen()
    declared = [partition.extras for partition in system.partitions]
    mistakes: list[str] = []
    for extras in declared:
        mistakes += extras.get(MISTAKES, [])
    if system.name not in _SITES:
        guard_gate()
        for partition in system.partitions:
            if "target" in partition.extras:
                mistakes += map(str, find_lacks(partition))
    if mistakes:
        lines = "\n  ".join(map(visible, mistakes))
        raise SystemExit(
            f"iogauge: site {system.name!r} is selected and has {len(mistakes)} mistake(s):\n  {lines}\n"
            "Correct them and run again; nothing was measured."
        )
    if selected.LISTING in os.environ:
        _note_for_listing(system)
    _require_stack(system)
    if not any("target" in extras for extras in declared):
        raise SystemExit(
            f"iogauge: the selected system {system.name!r} is no site of this suite, so no check can run.\n"
            "  Set the configuration:   . ./activate        (sets RFM_CONFIG_PATH=site-configs)\n"
            "  or name it yourself:     export RFM_CONFIG_PATH=<project>/site-configs\n"
            "  and a described site:    reframe --system=<site> -c checks/ -r\n"
            "  or in a configuration of your own, give a partition extras: docs/own-reframe.md\n"
            f"  References are read from {site_dir('<site>') / REFERENCES}; nothing was measured."
        )
