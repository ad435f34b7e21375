"""ReFrame's configuration of all sites, as ReFrame loads it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from reframe.core.logging import getlogger, log_files

from iogauge.core.paths import logs_dir, state_dir
from iogauge.core.text import visible
from iogauge.core.words import ENVIRONMENT
from iogauge.core.yamlfile import YamlError
from iogauge.core.yamlfile import load as load_yaml
from iogauge.records import selected
from iogauge.session import life
from iogauge.session.current import current, guard_gate, is_gate, runs_cases
from iogauge.site.folders import (
    COMMON,
    LOCAL,
    SETTINGS,
    site_dir,
    site_dirs,
    site_folders,
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
    """Return ReFrame's configuration of all sites; print their mistakes on standard error.

    The sites are those of ``folder``, and of the folders that ``$IOGAUGE_SITES`` names.
    """
    base = Path(folder).resolve()
    os.environ["IOGAUGE_CONFIGURATION"] = str(base)
    if odd := sorted(
        set(_ODD.findall(str(state_dir())))
    ):  # ReFrame would run the text in $(...)
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
        parts = [_expand(load_yaml(common))] if common.exists() else []
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
    hosts: dict[Path, list[str]] = {}
    for site in site_folders(*site_dirs()):
        if site.name in (other.name for other in hosts):
            continue  # the first of the name stands for both, with the mistake
        data, mistakes = read_site(site, current().name, runs)
        parts.append(data)
        hosts[site] = data["systems"][0].get("hostnames", [])
        _SITES.add(data["systems"][0]["name"])
        for mistake in mistakes:
            message = visible(f"iogauge: site {site.name} is disabled: {mistake}")
            print(message, file=sys.stderr)
    _tell_rivals(hosts)
    for part in parts:
        for section, entries in part.items():
            merged[section] = merged.get(section, []) + entries
    guard_gate()
    return merged


def _tell_rivals(hosts: Mapping[Path, Sequence[str]]) -> None:
    """Say which site the host's name selects if several claim it, and none is named.

    ``hosts`` are the patterns of host names by the site's folder.
    """
    named = "RFM_SYSTEM" in os.environ or any(
        w.startswith("--system") for w in sys.argv[1:]
    )
    host = socket.gethostname()
    claiming = [
        site
        for site, patterns in hosts.items()
        if site.name != LOCAL and any(re.match(pattern, host) for pattern in patterns)
    ]
    if len(claiming) > 1 and not named:
        message = (
            f"iogauge: {len(claiming)} sites claim the host {host} by their hostnames: "
            f"{', '.join(map(str, claiming))}. The first is taken; expected one: name it "
            f"(--system={claiming[0].name}), or narrow the hostnames"
        )
        print(visible(message), file=sys.stderr)


def _tell_the_listing(system: Any) -> None:
    """Note the features of the selected system's partitions, and why environments lack others."""
    for partition in system.partitions:
        environments = [
            selected.NotedEnvironment(
                name=one.name,
                features=(*one.features, *one.extras),
                why=one.extras.get(LACKS) or _why_lacking(system.name, one),
            )
            for one in partition.environs
        ]
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
        details = os.environ.get(life.DETAILS)
        keep = life.Filter(life.screen(), Path(details) if details else None)
        for handler in getlogger().std_stream_handlers:
            handler.addFilter(keep)
    declared = [partition.extras for partition in system.partitions]
    mistakes = [text for extras in declared for text in extras.get(MISTAKES, [])]
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
        _tell_the_listing(system)
    environments = {
        e.name: e.extras for partition in system.partitions for e in partition.environs
    }
    missing = [text for e in environments.values() if (text := e.get(NOT_INSTALLED))]
    if missing and len(missing) == len(environments) and runs_cases(sys.argv[1:]):
        lines = "\n  ".join(missing)
        raise SystemExit(
            f"iogauge: no software stack of site {system.name!r} is installed:\n  {lines}\n"
            "Nothing was measured."
        )
    for text in missing:
        print(visible(f"iogauge: left out: {text}"), file=sys.stderr)
    if not any("target" in extras for extras in declared):
        raise SystemExit(
            f"iogauge: the selected system {system.name!r} is no site of this suite, so no check can run.\n"
            "  Set the configuration:   . ./activate        (sets RFM_CONFIG_PATH=site-configs)\n"
            "  or name it yourself:     export RFM_CONFIG_PATH=<project>/site-configs\n"
            "  and a described site:    reframe --system=<site> -c checks/ -r\n"
            "  or in a configuration of your own, give a partition extras: docs/own-reframe.md\n"
            f"  References are read from {site_dir('<site>') / REFERENCES}; nothing was measured."
        )
