"""Find the mistakes in a site's settings file, before ReFrame reads it."""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Final, get_args, get_origin

import jsonschema
from pydantic import ValidationError
from reframe.core.exceptions import ConfigError

from iogauge.core import words
from iogauge.core.text import did_you_mean, nearest
from iogauge.core.yamlfile import Mistake, show
from iogauge.site.extras import PartitionExtras
from iogauge.site.folders import NAME
from iogauge.tools import mpi

#: Key under a partition's ``extras``: fill undeclared keys from the machine itself.
DETECT: Final = "detect"

#: Key under an environment's ``extras``: the Spack environment in environments/ that it uses.
STACK: Final = "stack"

#: Key under an environment's ``extras``: the MPI whose MPI-IO hints its MPI understands.
MPI: Final = "mpi"

#: Key under an environment's ``extras``: path of Darshan's library (libdarshan.so).
DARSHAN: Final = "darshan"

#: Key under an environment's ``extras``: path of the header that WRF-IO takes.
WRF_IO: Final = words.WRF_IO

#: Keys of an environment's ``extras``: form and meaning of each value.
_ENVIRONMENT_EXTRAS: Final = {
    STACK: (re.compile(r"[\w-][\w.-]*"), "name of a folder in environments/"),
    MPI: (re.compile("|".join(mpi.DIALECTS)), f"one of {', '.join(mpi.DIALECTS)}"),
    DARSHAN: (re.compile(r"/[^\s:\"'$`\\]+\.so"), "absolute path of libdarshan.so"),
    WRF_IO: (re.compile(r"/[^\s\"'$`\\]+"), "absolute path of wrf_header.txt"),
}

_NO_EXTRAS: Final = (re.compile(r"(?!)"), f"the keys {', '.join(_ENVIRONMENT_EXTRAS)}")

_TIME_LIMIT: Final = re.compile(
    r"(?=\d)(?=.*[1-9])(\d{1,6}d)?(\d{1,6}h)?(\d{1,6}m)?(\d{1,6}s)?", re.ASCII
)

#: ReFrame's default for ``modules_system``: it loads none.
NO_MODULES: Final = "nomod"

_MISSING: Final = "nothing"

_NO_KEY: Final = "this key is missing"


#: Types of JSON, as people write them in YAML.
_WORDS: Final = {
    "array": "a list: [..., ...], or entries that begin with '- '",
    "object": "a mapping: {key: value}",
    "string": "a text",
    "number": "a number",
    "boolean": "true or false",
}


@lru_cache(maxsize=1)
def reframe_schema() -> dict[str, Any]:
    """Return the schema of ReFrame's configuration."""
    text = resources.files("reframe").joinpath("schemas/config.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    # ReFrame passes over options that it does not know.
    schema["defs"]["sched_options"]["additionalProperties"] = False
    return schema


def _reframe_mistakes(data: dict[str, Any]) -> Iterator[Mistake]:
    """Yield what ReFrame's own schema refuses."""
    whole = {"systems": [], "environments": [], "logging": [], **data}
    for error in jsonschema.Draft7Validator(reframe_schema()).iter_errors(whole):
        if "time_limit" in error.absolute_path:
            continue  # has a text of our own
        while error.context:
            error = min(error.context, key=lambda inner: -len(inner.absolute_path))
        key = _named(data, error.absolute_path)
        below = f"{key}." if key else ""
        if error.validator == "additionalProperties":
            known = sorted(error.schema.get("properties", ()))
            for name in (name for name in error.instance if name not in known):
                yield _unknown_key(f"{below}{name}", name, known)
        elif error.validator == "required":
            missing = error.message.split("'")[1]
            if missing not in _meant(error.instance, error.schema["properties"]):
                yield Mistake(f"{below}{missing}", _NO_KEY)
        else:
            allowed = _WORDS.get(str(error.validator_value)) if error.validator == "type" else None
            allowed = allowed or f"ReFrame's configuration: {error.message}"
            yield Mistake(key, show(error.instance), allowed)


def _named(data: object, path: Iterable[str | int]) -> str:
    """Return the key of a place in the data; entries of a list go by their name, or by number."""
    parts = []
    for part in path:
        with contextlib.suppress(LookupError, TypeError):
            data = data[part]  # type: ignore[index]
        name = data.get("name") if isinstance(part, int) and isinstance(data, dict) else None
        parts.append(str(name or part))
    return ".".join(parts)


def _unknown_key(key: str, name: object, known: Sequence[str]) -> Mistake:
    """Return the mistake that a key is unknown, with the nearest that is known."""
    found = f"an unknown key{did_you_mean(name, known)}"
    return Mistake(key, found, f"the keys {', '.join(known)}")


def _meant(found: Iterable[object], known: Iterable[str]) -> set[str]:
    """Return the known keys that unknown keys are perhaps meant to be: they are not missing, too."""
    known, found = list(known), list(found)
    return {nearest(name, known) for name in found if name not in known} - {"", *found}


def of_pydantic(key: str, error: ValidationError) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in what stands under a key."""
    meant = {
        (*item["loc"][:-1], nearest(item["loc"][-1], _keys_beside(item["loc"])))
        for item in error.errors()
        if item["type"] == "extra_forbidden"
    }
    for item in error.errors():
        where = ".".join([key, *(str(part) for part in item["loc"])])
        message = item["msg"].removeprefix("Input should be ")
        found = show(item["input"])
        if item["type"] == "missing":
            if item["loc"] not in meant:
                yield Mistake(where, _NO_KEY)
        elif item["type"] == "extra_forbidden":
            yield _unknown_key(where, item["loc"][-1], _keys_beside(item["loc"]))
        elif item["loc"][-1] == "[key]":
            facts = (
                "mount.options",
                "mount.type",
                "mount.source",
                "layout.stripe_count",
                "kernel",
                "mpi",
            )
            found = f"an unknown fact{did_you_mean(item['input'], facts)}"
            yield Mistake(
                where.removesuffix(".[key]"), found, "a fact that docs/keys.md lists for expect"
            )
        elif item["type"] == "value_error":  # a sentence of our own
            yield Mistake(where, message.removeprefix("Value error, "))
        else:
            names = re.findall(r"'([^']*)'", message) if item["type"] == "literal_error" else ()
            yield Mistake(where, f"{found}{did_you_mean(item['input'], names)}", message)


def _keys_beside(location: tuple[int | str, ...]) -> list[str]:
    """Return the names of the keys that may stand beside an unknown key."""
    model: Any = PartitionExtras
    parts = iter(location[:-1])
    for part in parts:
        annotation = model.model_fields[str(part)].annotation
        options = [a for a in get_args(annotation) if hasattr(a, "model_fields")]
        model = options[0] if options else annotation
        if get_origin(annotation) is dict:
            next(parts, None)  # names that the site chooses
    return list(model.model_fields)


def _unknown(key: str, kind: str, name: object, known: Sequence[str]) -> Mistake:
    """Return the mistake that a name is not among those of its kind."""
    found = f"{kind} {show(name)}{did_you_mean(name, known)}"
    return Mistake(key, found, ", ".join(known) or f"nothing: there is no {kind}")


#: Launchers of ReFrame that start one program elsewhere, or no program of MPI. aprun (alps) allows no second step on a
#: node, where an agent runs beside the tool.
_NO_LAUNCHERS: Final = ("alps", "clush", "pdsh", "ssh", "upcrun", "upcxx-run")


@lru_cache(maxsize=1)
def _backends() -> dict[str, list[str]]:
    """Return the names of ReFrame's schedulers, and of its launchers that start tasks of MPI."""
    backends = importlib.import_module("reframe.core.backends")
    with contextlib.suppress(ConfigError):  # no such name, but all are loaded now
        backends.getscheduler("")
    with contextlib.suppress(ConfigError):
        backends.getlauncher("")
    started = {name for name in backends._launchers if name not in _NO_LAUNCHERS}
    return {"scheduler": sorted(backends._schedulers), "launcher": sorted(started)}


def _choice_mistakes(
    key: str, partition: dict[str, Any], environments: Mapping[str, dict[str, Any]]
) -> Iterator[Mistake]:
    """Yield mistakes: names in a partition that ReFrame would stop at, or select nothing for."""
    for kind, known in _backends().items():
        if partition[kind] not in known:
            yield _unknown(f"{key}.{kind}", kind, partition[kind], known)
    used = partition.get("environs", [])
    for name in used if isinstance(used, list) else []:
        if name not in environments:
            yield _unknown(f"{key}.environs", "environment", name, sorted(map(str, environments)))
        elif not partition.get("extras", {}).get(DETECT):
            declared = environments[name]
            ours = {MPI, DARSHAN, WRF_IO}
            if not declared.get("features") and {*declared.get("extras", {})} <= ours:
                allowed = f"features that say which tools there are, of {', '.join(sorted(words.ENVIRONMENT))}"
                yield Mistake(f"environments.{name}.features", _MISSING, allowed)


def _feature_mistakes(key: str, found: object, known: frozenset[str]) -> Iterator[Mistake]:
    for name in found if isinstance(found, list) else []:
        if name not in known:
            yield _unknown(f"{key}.features", "feature", name, sorted(known))


def _partition_mistakes(key: str, partition: dict[str, Any]) -> Iterator[Mistake]:
    extras = partition.get("extras", {})
    yield from _feature_mistakes(key, partition.get("features"), words.PARTITION)
    declared = {name: value for name, value in extras.items() if name != DETECT}
    try:
        PartitionExtras.model_validate(declared)
    except ValidationError as error:
        for mistake in of_pydantic(f"{key}.extras", error):
            if not extras.get(DETECT) or mistake.found != _NO_KEY:
                yield mistake
    offered = [resource["name"] for resource in partition.get("resources", [])]
    requested = extras.get("resources", [])
    for name in requested if isinstance(requested, list) else []:
        if name not in offered:
            allowed = f"a name under {key}.resources ({', '.join(offered) or 'there is none'})"
            yield Mistake(f"{key}.extras.resources", f"resource {name!r}", allowed)
    systems = reframe_schema()["properties"]["systems"]["items"]
    meant = _meant(partition, systems["properties"]["partitions"]["items"]["properties"])
    limit = partition.get("time_limit")
    if "time_limit" not in meant and not (limit and _TIME_LIMIT.fullmatch(str(limit))):
        allowed = "a time limit of more than 0 such as 30m or 1h30m: storage that hangs must end"
        yield Mistake(f"{key}.time_limit", show(limit or None), allowed)
    jobs = partition.get("max_jobs")
    if "max_jobs" not in meant and jobs != 1:
        allowed = "1: two cases at a time on a target measure each other"
        yield Mistake(f"{key}.max_jobs", show(jobs), allowed)


def find_mistakes(site: str, data: object) -> list[Mistake]:
    """Return every mistake in the content of a site's settings file."""
    if not isinstance(data, dict):
        return [Mistake("", show(data), "a mapping with systems and environments")]
    mistakes = list(_reframe_mistakes(data))
    try:
        return [*mistakes, *_own_mistakes(site, data)]
    except (KeyError, TypeError, AttributeError):
        if not mistakes:
            raise
        return mistakes  # data that ReFrame refuses may have any shape


def _ignored(system: Mapping[str, Any], environments: Any) -> Iterator[Mistake]:
    """Yield what ReFrame would pass over without a word: modules without a system of them, options of no scheduler."""
    key = f"systems.{system['name']}"
    partitions = {f"{key}.partitions.{one['name']}": one for one in system["partitions"]}
    declared = {f"environments.{one['name']}": one for one in environments}
    if system.get("modules_system", NO_MODULES) == NO_MODULES:
        for where, one in {key: system, **partitions, **declared}.items():
            if one.get("modules"):
                systems = reframe_schema()["properties"]["systems"]["items"]["properties"]
                known = [name for name in systems["modules_system"]["enum"] if name != NO_MODULES]
                allowed = f"{key}.modules_system, one of {', '.join(known)}: without it no module is loaded"
                yield Mistake(f"{where}.modules", show(one["modules"]), allowed)
    for where, one in partitions.items():
        for name in ("access", "resources"):
            if one.get(name) and one["scheduler"] == "local":
                allowed = "nothing: scheduler local takes no options. Name the scheduler that does"
                yield Mistake(f"{where}.{name}", show(one[name]), allowed)
        asked = one.get("extras", {}).get("resources", [])
        for resource in (r for r in one.get("resources", []) if r["name"] in asked):
            for option in resource["options"]:
                if set(re.findall(r"{(\w*)", option)) - {"capacity"}:
                    allowed = "{capacity} alone in braces: an option with another name is left out"
                    yield Mistake(f"{where}.resources.{resource['name']}", show(option), allowed)


def _host_mistakes(system: Mapping[str, Any]) -> Iterator[Mistake]:
    for pattern in system.get("hostnames", []):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            key = f"systems.{system['name']}.hostnames"
            yield Mistake(key, show(pattern), f"a regular expression: {error}")


def _own_mistakes(site: str, data: dict[str, Any]) -> Iterator[Mistake]:
    """Yield what this suite refuses beyond ReFrame's schema.

    Raises KeyError, TypeError or AttributeError if the data break that schema too.
    """
    systems, environments = data.get("systems", []), data.get("environments", [])
    if [system["name"] for system in systems] != [site]:
        names = ", ".join(system["name"] for system in systems) or "none"
        yield Mistake("systems", f"systems: {names}", f"one system, named {site!r} as its folder")
    if "environments" not in data:
        meaning = "a list of environments, whose features say which tools there are"
        yield Mistake("environments", _MISSING, meaning)
    named = [("environments", entry["name"]) for entry in environments]
    named += [("partitions", entry["name"]) for system in systems for entry in system["partitions"]]
    for kind, name in named:
        if not NAME.fullmatch(str(name)):
            allowed = "letters, digits, _ and -, a letter in front"
            yield Mistake(kind, f"the name {show(name)}", allowed)
    by_name = {entry["name"]: entry for entry in environments}
    for system in systems:
        yield from _host_mistakes(system)
        yield from _ignored(system, environments)
        for partition in system["partitions"]:
            key = f"systems.{system['name']}.partitions.{partition['name']}"
            yield from _partition_mistakes(key, partition)
            yield from _choice_mistakes(key, partition, by_name)
    for environment in environments:
        yield from _environment_mistakes(site, environment)


def _environment_mistakes(site: str, environment: dict[str, Any]) -> Iterator[Mistake]:
    key = f"environments.{environment['name']}"
    yield from _feature_mistakes(key, environment.get("features"), words.ENVIRONMENT)
    for name, value in environment.get("extras", {}).items():
        allowed, meaning = _ENVIRONMENT_EXTRAS.get(name, _NO_EXTRAS)
        if not isinstance(value, str) or not allowed.fullmatch(value):
            yield Mistake(f"{key}.extras.{name}", show(value), meaning)
    systems = environment.get("target_systems")
    if systems != [site]:
        meaning = f"[{site}]: an environment belongs to its site"
        yield Mistake(f"{key}.target_systems", show(systems), meaning)


def find_unknown_names(data: Any, checks: Sequence[str]) -> Iterator[Mistake]:
    """Yield mistakes: names of checks and partitions in the extras that do not exist."""
    (system,) = data["systems"]
    for partition in system["partitions"]:
        extras = PartitionExtras.of_partition(partition["extras"])
        key = f"systems.{system['name']}.partitions.{partition['name']}.extras"
        named = [(f"{key}.cases", check) for check in extras.cases]
        if baseline := extras.baseline:
            named += [(f"{key}.baseline.checks", check) for check in baseline.checks]
            others = [one["name"] for one in system["partitions"] if one is not partition]
            if baseline.partition not in others:
                here = ", ".join(others) or "none: it has one partition"
                allowed = f"another partition of {system['name']} ({here})"
                yield Mistake(f"{key}.baseline.partition", show(baseline.partition), allowed)
        for where, check in named:
            if check not in checks:
                yield _unknown(where, "check", check, sorted(checks))
