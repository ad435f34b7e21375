"""Load the settings of a site, in ReFrame's own format, and validate them before anything runs.

:mod:`iogauge.check.configuration` merges the folders of all sites into one ReFrame configuration. A site with mistakes is replaced by a stand-in that no check runs on, so that the
other sites keep working. The mistakes are printed when the configuration is loaded. If that site is
selected, they are an error.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import jsonschema
from pydantic import ValidationError

from iogauge.core import untrusted, words
from iogauge.core.paths import project_root, stages_dir, state_dir
from iogauge.core.yamlfile import Mistake, YamlError, show
from iogauge.core.yamlfile import load as load_yaml
from iogauge.node.mounts import traits
from iogauge.site import machine, stack
from iogauge.site.doubts import of_extras
from iogauge.site.extras import PartitionExtras
from iogauge.site.folders import SETTINGS, namesakes, site_folders, spack_environments
from iogauge.site.references import References, known_checks
from iogauge.tools import mpi

#: Key under a partition's ``extras``: fill undeclared keys from the machine itself.
DETECT: Final = "detect"
MISTAKES: Final = "mistakes"

#: Key under an environment's ``extras``: the Spack environment in environments/ that it uses.
STACK: Final = "stack"

#: Key under an environment's ``extras``: the MPI whose MPI-IO hints its MPI understands.
MPI: Final = "mpi"

#: Key under an environment's ``extras``: path of Darshan's library (libdarshan.so).
DARSHAN: Final = "darshan"

#: Keys that are added to it: the stack that was built, or why there is none.
INSTALLED: Final = "installed"
NOT_INSTALLED: Final = "not_installed"

#: Keys of an environment's ``extras``: form and meaning of each value.
_ENVIRONMENT_EXTRAS: Final = {
    STACK: (re.compile(r"[\w-][\w.-]*"), "name of a folder in environments/"),
    MPI: (re.compile("|".join(mpi.DIALECTS)), f"one of {', '.join(mpi.DIALECTS)}"),
    DARSHAN: (re.compile(r"/[^\s\"'$`\\]+\.so"), "absolute path of libdarshan.so"),
}
_NO_EXTRAS: Final = (re.compile(r"(?!)"), f"the keys {', '.join(_ENVIRONMENT_EXTRAS)}")
_TIME_LIMIT: Final = re.compile(
    r"(?=\d)(?=.*[1-9])(\d{1,6}d)?(\d{1,6}h)?(\d{1,6}m)?(\d{1,6}s)?", re.ASCII
)

#: ReFrame's own pattern lets a name end in a newline.
_NAME: Final = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_MISSING: Final = "nothing"


@lru_cache(maxsize=1)
def _reframe_schema() -> dict[str, Any]:
    text = resources.files("reframe").joinpath("schemas/config.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _reframe_mistakes(file: str, data: dict[str, Any]) -> list[Mistake]:
    """Return what ReFrame's own schema refuses."""
    whole = {"systems": [], "environments": [], "logging": [], **data}
    schema = {**_reframe_schema()}
    mistakes = []
    for error in jsonschema.Draft7Validator(schema).iter_errors(whole):
        while error.context:
            error = min(error.context, key=lambda inner: -len(inner.absolute_path))
        key = ".".join(str(part) for part in error.absolute_path)
        mistakes.append(
            Mistake(file, key, show(error.instance), f"ReFrame's configuration: {error.message}")
        )
    return mistakes


def _pydantic_mistakes(file: str, key: str, error: ValidationError) -> list[Mistake]:
    mistakes = []
    for item in error.errors():
        where = ".".join([key, *(str(part) for part in item["loc"])])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            mistakes.append(Mistake(file, where, _MISSING, "this key is required"))
        elif item["type"] == "extra_forbidden":
            mistakes.append(Mistake(file, where, "an unknown key", _keys_beside(item["loc"])))
        else:
            mistakes.append(Mistake(file, where, show(item["input"]), message))
    return mistakes


def _keys_beside(location: tuple[int | str, ...]) -> str:
    """Return the names of the keys that may stand beside an unknown key."""
    model: Any = PartitionExtras
    parts = iter(location[:-1])
    for part in parts:
        annotation = model.model_fields[str(part)].annotation
        options = [a for a in get_args(annotation) if hasattr(a, "model_fields")]
        model = options[0] if options else annotation
        if get_origin(annotation) is dict:
            next(parts, None)  # names that the site chooses
    return "the keys " + ", ".join(model.model_fields)


def _feature_mistakes(file: str, key: str, found: object, known: frozenset[str]) -> list[Mistake]:
    names = found if isinstance(found, list) else []
    return [
        Mistake(file, f"{key}.features", f"feature {name!r}", ", ".join(sorted(known)))
        for name in names
        if name not in known
    ]


def _partition_mistakes(file: str, key: str, partition: dict[str, Any]) -> list[Mistake]:
    extras = partition.get("extras", {})
    mistakes = _feature_mistakes(file, key, partition.get("features"), words.PARTITION)
    declared = {name: value for name, value in extras.items() if name != DETECT}
    try:
        PartitionExtras.model_validate(declared)
    except ValidationError as error:
        refused = _pydantic_mistakes(file, f"{key}.extras", error)
        mistakes += [m for m in refused if not extras.get(DETECT) or m.found != _MISSING]
    offered = [resource["name"] for resource in partition.get("resources", [])]
    requested = extras.get("resources", [])
    mistakes += [
        Mistake(
            file,
            f"{key}.extras.resources",
            f"resource {name!r}",
            f"a name under {key}.resources ({', '.join(offered) or 'there is none'})",
        )
        for name in (requested if isinstance(requested, list) else [])
        if name not in offered
    ]
    limit = partition.get("time_limit")
    if not limit or not _TIME_LIMIT.fullmatch(str(limit)):
        mistakes.append(
            Mistake(
                file,
                f"{key}.time_limit",
                show(limit) if limit else "nothing",
                "a time limit of more than 0 such as 30m or 1h30m: storage that hangs must end",
            )
        )
    if partition.get("max_jobs") != 1:
        mistakes.append(
            Mistake(
                file,
                f"{key}.max_jobs",
                show(partition.get("max_jobs")),
                "1: two cases at a time on a target measure each other",
            )
        )
    return mistakes


def find_mistakes(file: str, site: str, data: object) -> list[Mistake]:
    """Return every mistake in the content of a site's settings file."""
    if not isinstance(data, dict):
        return [Mistake(file, "", show(data), "a mapping with systems and environments")]
    mistakes = _reframe_mistakes(file, data)
    try:
        return [*mistakes, *_own_mistakes(file, site, data)]
    except (KeyError, TypeError, AttributeError):
        if not mistakes:
            raise
        return mistakes  # data that ReFrame refuses may have any shape


def _own_mistakes(file: str, site: str, data: dict[str, Any]) -> list[Mistake]:
    """Return what this suite refuses beyond ReFrame's schema.

    Raises KeyError, TypeError or AttributeError if the data break that schema too.
    """
    mistakes: list[Mistake] = []
    systems = data.get("systems", [])
    if [system["name"] for system in systems] != [site]:
        names = ", ".join(system["name"] for system in systems) or "none"
        mistakes.append(
            Mistake(
                file, "systems", f"systems: {names}", f"one system, named {site!r} as its folder"
            )
        )
    if "environments" not in data:
        meaning = "a list of environments, whose features say which tools there are"
        mistakes.append(Mistake(file, "environments", _MISSING, meaning))
    named = [("environments", entry["name"]) for entry in data.get("environments", [])]
    named += [("partitions", entry["name"]) for system in systems for entry in system["partitions"]]
    mistakes += [
        Mistake(file, kind, f"the name {show(name)}", "letters, digits, _ and -, a letter in front")
        for kind, name in named
        if not _NAME.fullmatch(str(name))
    ]
    for system in systems:
        for pattern in system.get("hostnames", []):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                mistakes.append(
                    Mistake(
                        file,
                        f"{system['name']}.hostnames",
                        show(pattern),
                        f"a regular expression: {error}",
                    )
                )
        for partition in system["partitions"]:
            key = f"systems.{system['name']}.partitions.{partition['name']}"
            mistakes += _partition_mistakes(file, key, partition)
    for environment in data.get("environments", []):
        key = f"environments.{environment['name']}"
        mistakes += _feature_mistakes(file, key, environment.get("features"), words.ENVIRONMENT)
        extras = environment.get("extras", {})
        for name, value in extras.items():
            allowed, meaning = _ENVIRONMENT_EXTRAS.get(name, _NO_EXTRAS)
            if not isinstance(value, str) or not allowed.fullmatch(value):
                mistakes.append(Mistake(file, f"{key}.extras.{name}", show(value), meaning))
        if environment.get("target_systems") != [site]:
            mistakes.append(
                Mistake(
                    file,
                    f"{key}.target_systems",
                    show(environment.get("target_systems")),
                    f"[{site}]: an environment belongs to its site",
                )
            )
    return mistakes


def _is_regex(pattern: object) -> bool:
    try:
        re.compile(pattern)  # type: ignore[call-overload]
    except (re.error, TypeError, OverflowError, RecursionError):
        return False
    return isinstance(pattern, str)


def _stand_in(site: str, data: object, mistakes: list[Mistake]) -> dict[str, Any]:
    """Return a configuration that keeps a broken site's name and hosts, and runs nothing.

    ReFrame refuses all systems for one bad name or host pattern, so neither is passed on.
    """
    site = re.sub(r"^(?=[^A-Za-z_])|[^\w-]", "_", site, flags=re.ASCII)
    hosts: list[str] = []
    if isinstance(data, dict) and isinstance(data.get("systems"), list):
        for system in data["systems"]:
            patterns = system.get("hostnames", []) if isinstance(system, dict) else []
            hosts += [h for h in patterns if _is_regex(h)] if isinstance(patterns, list) else []
    partition = {
        "name": "broken",
        "scheduler": "local",
        "launcher": "local",
        "environs": ["broken"],
        "extras": {MISTAKES: [str(mistake) for mistake in mistakes]},
    }
    return {
        "systems": [
            {"name": site, "descr": "has mistakes", "hostnames": hosts, "partitions": [partition]}
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
            target = extras.target
            caching = traits(target.type, target.cache, target.honours_o_direct)
            added = [
                words.TARGET,
                *([words.O_DIRECT] if caching.honours_o_direct else []),
                *([words.LUSTRE] if target.striped_by == "lustre" else []),
                *(right for right in extras.rights if right in words.PARTITION),
            ]
            partition["features"] = sorted({*partition.get("features", []), *added})
    for environment in data["environments"]:
        if DARSHAN in environment.get("extras", {}):
            environment["features"] = sorted({*environment.get("features", []), words.DARSHAN})
        _install(environment, folder, runs)


def _install(environment: dict[str, Any], folder: Path, runs: bool) -> None:
    """Let an environment use the stack that its Spack environment has built, or say why it cannot.

    If ``runs`` is True, cases will run with it, and a stack that is only planned is not enough.
    """
    extras = environment.get("extras", {})
    if STACK not in extras:
        return
    environments = spack_environments(folder, extras[STACK])
    try:
        built = stack.of_environment(environments, extras[STACK])
        extras[INSTALLED] = built.to_record()
    except stack.StackError as error:
        extras[NOT_INSTALLED] = str(error)
        if runs:
            return
        try:  # a planned stack is enough to list and to dry-run
            built = stack.planned(environments, extras[STACK])
        except stack.StackError:
            return
    if built.darshan:
        extras.setdefault(DARSHAN, built.darshan)
    environment["prepare_cmds"] = [built.prepare_command, *environment.get("prepare_cmds", [])]
    environment["features"] = sorted({*environment.get("features", []), *built.features})


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
        mistakes = find_mistakes(str(file), folder.name, data)
        if not mistakes:
            _fill_in(data, folder, session, runs)
    except YamlError as error:
        mistakes = [Mistake(str(file), "", str(error), "a YAML file")]
    except ValidationError as error:
        mistakes = _pydantic_mistakes(str(file), f"systems.{folder.name} (detected)", error)
    except OSError as error:
        mistakes = [
            Mistake(
                str(file), "target", str(error), "an existing directory (mkdir it, or name another)"
            )
        ]
    references = References.of_site(folder.name)
    checks = project_root() / "checks"
    mistakes += [*references.mistakes, *namesakes(folder)]
    if checks.is_dir():
        names = known_checks(checks)
        mistakes += references.unknown_checks(names)
        if not mistakes:
            mistakes += _name_mistakes(str(file), data, names)
    if mistakes:
        return _stand_in(folder.name, data, mistakes), mistakes
    assert isinstance(data, dict)
    return data, []


def partitions(folder: Path) -> dict[str, PartitionExtras]:
    """Return the extras of a site's partitions, by name; empty if the site has mistakes."""
    data, mistakes = read_site(folder)
    found = [] if mistakes else data["systems"][0]["partitions"]
    return {one["name"]: PartitionExtras.of_partition(one["extras"]) for one in found}


def doubts(folder: Path) -> list[Mistake]:
    """Return the declarations of a site under which a PASS means little; empty if it has mistakes."""
    found = References.of_site(folder.name).doubts()
    for name, extras in partitions(folder).items():
        key = f"systems.{folder.name}.partitions.{name}.extras"
        found += of_extras(str(folder / SETTINGS), key, extras)
    return found


def has_ceilings(folder: Path) -> bool:
    """Return whether a partition of a site declares a bandwidth that nothing can exceed."""
    topologies = [extras.topology for extras in partitions(folder).values()]
    return any(
        topology.bandwidth_ceiling(way, 1)
        for topology in topologies
        if topology
        for way in ("read", "write")
    )


def _name_mistakes(file: str, data: Any, checks: list[str]) -> list[Mistake]:
    """Return mistakes: names of checks and partitions in the extras that do not exist."""
    mistakes = []
    (system,) = data["systems"]
    names = [partition["name"] for partition in system["partitions"]]
    for partition in system["partitions"]:
        extras = PartitionExtras.of_partition(partition["extras"])
        key = f"systems.{system['name']}.partitions.{partition['name']}.extras"
        named = [(f"{key}.cases", check) for check in extras.cases]
        if extras.baseline:
            named += [(f"{key}.baseline.checks", check) for check in extras.baseline.checks]
            others = [name for name in names if name != partition["name"]]
            if extras.baseline.partition not in others:
                here = ", ".join(others) or "none: it has one partition"
                mistakes.append(
                    Mistake(
                        file,
                        f"{key}.baseline.partition",
                        show(extras.baseline.partition),
                        f"another partition of {system['name']} ({here})",
                    )
                )
        for where, check in named:
            if check not in checks:
                similar = difflib.get_close_matches(check, checks, 1)
                hint = f" (did you mean {similar[0]}?)" if similar else ""
                mistakes.append(
                    Mistake(file, where, f"no check {check!r}{hint}", ", ".join(sorted(checks)))
                )
    return mistakes


def any_budget(*directories: Path) -> bool:
    """Return whether any site may have a budget; mistakes are found elsewhere."""
    for site in site_folders(*directories):
        with contextlib.suppress(OSError):
            if "budget" in untrusted.read_text(site / SETTINGS):
                return True
    return False
