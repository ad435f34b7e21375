"""Load the settings of a site, in ReFrame's own format, and validate them before anything runs.

:mod:`iogauge.cases.configuration` gives ReFrame the site that it may select. If that has mistakes, a stand-in replaces it, on which no
check runs. They are printed when the configuration is loaded, and end the process.
"""

import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from iogauge.core import vocabulary
from iogauge.core.paths import project_root, stages_dir, state_dir
from iogauge.core.yamlfile import Mistake, YamlError, located
from iogauge.core.yamlfile import load as load_yaml
from iogauge.site import machine, stack
from iogauge.site.extras import PartitionExtras
from iogauge.site.folders import (
    SETTINGS,
    namesakes,
    sites_of_host,
    spack_environments,
)
from iogauge.site.mistakes import (
    DARSHAN,
    DETECT,
    STACK,
    find_mistakes,
    find_unknown_names,
    of_pydantic,
)
from iogauge.site.references import References, known_checks

MISTAKES: Final = "mistakes"

#: Keys that are added to it: the stack that was built, or why there is none.
INSTALLED: Final = "installed"
NOT_INSTALLED: Final = "not_installed"


def _stand_in(folder: Path, mistakes: list[Mistake]) -> dict[str, Any]:
    """Return a configuration that keeps a broken site's name, claims this host if the site does, and runs nothing.

    ReFrame refuses all systems for one bad name or host pattern, so neither is passed on.
    """
    site = re.sub(r"^(?=[^A-Za-z_])|[^\w-]", "_", folder.name, flags=re.ASCII)
    host = socket.gethostname()
    hosts = [re.escape(host)] if sites_of_host([folder], host) else []
    partition = {
        "name": "broken",
        "scheduler": "local",
        "launcher": "local",
        "environs": ["broken"],
        "extras": {MISTAKES: list(map(str, mistakes))},
    }
    return {
        "systems": [
            {
                "name": site,
                "descr": "has mistakes",
                "hostnames": hosts,
                "partitions": [partition],
            }
        ],
        "environments": [{"name": "broken", "target_systems": [site]}],
    }


def _fill_in(data: dict[str, Any], folder: Path, session: str, runs: bool) -> None:
    """Fill in detected settings, implied features, and places for ReFrame's files."""
    for system in data["systems"]:
        system.setdefault("prefix", str(state_dir() / "reframe"))
        # Two sessions at once, or two targets of the site local, must not meet in one stage
        # directory.
        system.setdefault("stagedir", str(stages_dir() / session))
        for partition in system["partitions"]:
            if partition.get("extras", {}).pop(DETECT, False):
                machine.complete(partition, data["environments"])
            extras = PartitionExtras.model_validate(partition["extras"])
            _offer(partition, *extras.implied_features)
            _end_at_failure(partition)
    for environment in data["environments"]:
        _install(environment, folder, runs)
        if DARSHAN in environment.get("extras", {}):
            _offer(environment, vocabulary.DARSHAN)
        _end_at_failure(environment)


def _offer(holder: dict[str, Any], *features: str) -> None:
    """Add features to a partition or an environment."""
    holder["features"] = sorted({*holder.get("features", ()), *features})


def _end_at_failure(holder: dict[str, Any]) -> None:
    """Let a prepare command that fails end the job: ReFrame's jobs go on after it."""
    lines = []
    for command in holder.get("prepare_cmds") or ():
        message = shlex.quote(
            f"iogauge: the prepare command of {holder['name']} failed: {command}"
        )
        lines += [command, f'[ "$?" -eq 0 ] || {{ echo {message} >&2; exit 1; }}']
    if lines:
        holder["prepare_cmds"] = lines


def _install(environment: dict[str, Any], folder: Path, runs: bool) -> None:
    """Let an environment use the stack that its Spack environment has built, or say why it cannot.

    If ``runs`` is True, cases will run with it, and a stack that is only planned is not enough.
    """
    extras = environment.get("extras", {})
    if STACK not in extras:
        return
    environments = spack_environments(folder, extras[STACK])
    # What is declared counts until the stack is built.
    declared = environment.pop("features", [])
    try:
        built = stack.of_environment(environments, extras[STACK])
        extras[INSTALLED] = built.to_record()
    except stack.StackError as error:
        extras[NOT_INSTALLED] = str(error)
        if runs:
            return
        # A planned stack is enough to list and to dry-run.
        built = stack.planned(environments, extras[STACK], declared)
    if built.darshan:
        extras.setdefault(DARSHAN, built.darshan)
    environment["prepare_cmds"] = [
        built.prepare_command,
        *environment.get("prepare_cmds", []),
    ]
    _offer(environment, *built.features)


def read_site(
    folder: Path, session: str = "", runs: bool = False
) -> tuple[dict[str, Any], list[Mistake]]:
    """Return configuration and mistakes of a site's folder; with mistakes, the configuration is a
    stand-in.

    ``session`` names the session whose files ReFrame keeps. ``runs`` is True if ReFrame will run
    cases.
    """
    file, data = folder / SETTINGS, None
    try:
        data = load_yaml(file)
        mistakes = find_mistakes(folder.name, data)
        if not mistakes:
            _fill_in(data, folder, session, runs)
    except YamlError as error:
        mistakes = [Mistake.of_yaml(error)]
    except ValidationError as error:
        mistakes = list(of_pydantic(f"systems.{folder.name} (detected)", error))
    except OSError as error:
        allowed = "an existing directory on storage (mkdir it, or name another)"
        mistakes = [Mistake("target", str(error), allowed)]
    if "IOGAUGE_TARGET" in os.environ and mistakes and mistakes[0].key == "target":
        mistakes = [replace(mistakes[0], key="", file="IOGAUGE_TARGET")]
    else:
        mistakes = located(file, mistakes)
    references = References.of_site(folder.name)
    checks = project_root() / "checks"
    mistakes += [*references.mistakes, *namesakes(folder)]
    if checks.is_dir():
        names = known_checks(checks)
        mistakes += references.unknown_checks(names)
        if not mistakes:
            mistakes += located(file, find_unknown_names(data, names))
    if mistakes:
        return _stand_in(folder, mistakes), mistakes
    assert isinstance(data, dict)
    return data, []


def partitions(folder: Path) -> dict[str, PartitionExtras]:
    """Return the extras of a site's partitions, by name; empty if the site has mistakes."""
    data, mistakes = read_site(folder)
    if mistakes:
        return {}
    extras = {}
    for partition in data["systems"][0]["partitions"]:
        extras[partition["name"]] = PartitionExtras.of_partition(partition["extras"])
    return extras


def unfitting(
    folder: Path, cases: Mapping[str, Sequence[Mapping[str, Sequence[object]]]]
) -> list[Mistake]:
    """Return mistakes: references of a site that fit none of a check's cases, by check.

    A case has the values that its parameters and variables may have.
    """
    references, (data, _) = References.of_site(folder.name), read_site(folder)
    places: dict[str, Sequence[object]] = {
        "$system": [folder.name],
        "$partition": [f"{folder.name}:{name}" for name in partitions(folder)],
        "$environ": [environment["name"] for environment in data["environments"]],
    }
    mistakes: list[Mistake] = []
    for check, values in cases.items():
        placed = [{**places, **case} for case in values]
        mistakes += references.unfitting(check, placed)
    return mistakes
