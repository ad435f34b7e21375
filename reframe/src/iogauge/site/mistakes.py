"""Find the mistakes in a site's settings file, before ReFrame reads it."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from pydantic import ValidationError

from iogauge.core import vocabulary
from iogauge.core.text import did_you_mean, nearest
from iogauge.core.yamlfile import Mistake, show
from iogauge.site.extras import PartitionExtras
from iogauge.site.folders import NAME, NO_REGEX
from iogauge.tools import mpi

if TYPE_CHECKING:
    import jsonschema

#: Key under a partition's ``extras``: fill undeclared keys from the machine itself.
DETECT: Final = "detect"

#: Key under an environment's ``extras``: the Spack environment in environments/ that it uses.
STACK: Final = "stack"

#: Key under an environment's ``extras``: the MPI whose MPI-IO hints its MPI understands.
MPI: Final = "mpi"

#: Key under an environment's ``extras``: path of Darshan's library (libdarshan.so).
DARSHAN: Final = "darshan"

#: Key under an environment's ``extras``: path of the header that WRF-IO takes.
WRF_IO: Final = vocabulary.WRF_IO

#: Keys of an environment's ``extras``: form and meaning of each value.
_ENVIRONMENT_EXTRAS: Final = {
    STACK: (r"[\w-][\w.-]*", "name of a folder in environments/"),
    MPI: ("|".join(mpi.DIALECTS), f"one of {', '.join(mpi.DIALECTS)}"),
    DARSHAN: (r"/[^\s:\"'$`\\]+\.so", "absolute path of libdarshan.so"),
    WRF_IO: (r"/[^\s\"'$`\\]+", "absolute path of wrf_header.txt"),
}

_TIME_LIMIT: Final = (
    r"(?=[0-9])(?=.*[1-9])([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?"
)

_LIMITED: Final = (
    "a time limit of more than 0 such as 30m or 1h30m: storage that hangs must end"
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
    text = (
        resources.files("reframe")
        .joinpath("schemas/config.json")
        .read_text(encoding="utf-8")
    )
    schema: dict[str, Any] = json.loads(text)
    # ReFrame passes over options that it does not know.
    schema["defs"]["sched_options"]["additionalProperties"] = False
    return schema


def _text(pattern: str, allowed: str) -> dict[str, str]:
    return {"type": "string", "pattern": rf"\A(?:{pattern})\Z", "allowed": allowed}


@lru_cache(maxsize=32)
def _schema(site: str) -> dict[str, Any]:
    """Return ReFrame's schema with what this suite demands beyond it: ``allowed`` says that in words, ``kind`` what a name is of."""
    schema = copy.deepcopy(reframe_schema())
    systems = schema["properties"]["systems"]
    environments = schema["properties"]["environments"]
    environments["allowed"] = (
        "a list of environments, whose features say which tools there are"
    )
    system, environment = systems["items"]["properties"], environments["items"]
    partition = system["partitions"]["items"]
    system["hostnames"]["items"] |= {
        "format": "regex",
        "allowed": "a regular expression",
    }
    for holder, features in (
        (partition, vocabulary.PARTITION),
        (environment, vocabulary.ENVIRONMENT),
    ):
        holder["properties"]["name"] = _text(
            NAME.pattern, "letters, digits, _ and -, a letter in front"
        )
        holder["properties"]["features"]["items"] = {
            "enum": sorted(features),
            "kind": "feature",
        }
    for kind, known in _backends().items():
        partition["properties"][kind] = {"enum": known, "kind": kind}
    jobs = "1: two cases at a time on a target measure each other"
    partition["properties"]["time_limit"] = _text(_TIME_LIMIT, _LIMITED)
    partition["properties"]["max_jobs"] = {"const": 1, "allowed": jobs}
    partition["required"] += ["time_limit", "max_jobs"]
    owner = f"[{site}]: an environment belongs to its site"
    environment["properties"]["target_systems"] = {"const": [site], "allowed": owner}
    environment["required"] += ["target_systems"]
    own = {name: _text(*form) for name, form in _ENVIRONMENT_EXTRAS.items()}
    extras = {"type": "object", "properties": own, "additionalProperties": False}
    environment["properties"]["extras"] = extras
    return schema


def is_regex(text: object) -> bool:
    """Return whether text is a regular expression; raises re.error and others if it is none."""
    return not isinstance(text, str) or bool(re.compile(text))


def _of_schema(site: str, data: dict[str, Any]) -> Iterator[Mistake]:
    """Yield what ReFrame's own schema refuses, and what this suite refuses beyond it."""
    import jsonschema  # most commands read no settings

    formats = jsonschema.FormatChecker(())
    formats.checks("regex", NO_REGEX)(is_regex)
    validator = jsonschema.Draft7Validator(_schema(site), format_checker=formats)
    for error in validator.iter_errors({"systems": [], "logging": [], **data}):
        while error.context:
            error = max(error.context, key=lambda inner: len(inner.absolute_path))
        key, rule = _named(data, error.absolute_path), error.schema
        if error.validator in ("additionalProperties", "required"):
            prefix = f"{key}." if key else ""
            yield from _wrong_keys(prefix, error)
        elif "kind" in rule:
            place = re.sub(r"\.\d+$", "", key)
            yield _unknown(place, rule["kind"], error.instance, rule["enum"])
        elif "allowed" in rule:
            place, allowed = re.sub(r"\.\d+$", "", key), rule["allowed"]
            if error.cause:
                allowed += f": {error.cause}"
            yield Mistake(place, show(error.instance), allowed)
        else:
            allowed = f"ReFrame's configuration: {error.message}"
            if error.validator == "type":
                allowed = _WORDS.get(str(error.validator_value), allowed)
            yield Mistake(key, show(error.instance), allowed)


def _wrong_keys(prefix: str, error: jsonschema.ValidationError) -> Iterator[Mistake]:
    """Yield the keys of a mapping that are unknown, or the one that it lacks."""
    rule: Any = error.schema
    found: Any = error.instance
    if error.validator == "additionalProperties":
        known = sorted(rule.get("properties", ()))
        for name in found:
            if name not in known:
                yield _unknown_key(f"{prefix}{name}", name, known)
        return
    missing = error.message.split("'")[1]
    if missing not in _meant(found, rule["properties"]):
        allowed = rule["properties"].get(missing, {}).get("allowed", "")
        what = _MISSING if allowed else _NO_KEY
        yield Mistake(f"{prefix}{missing}", what, allowed)


def _named(data: object, path: Iterable[str | int]) -> str:
    """Return the key of a place in the data; entries of a list go by their name, or by number."""
    parts = []
    for part in path:
        with contextlib.suppress(LookupError, TypeError):
            data = data[part]  # type: ignore[index]
        name = None
        if isinstance(part, int) and isinstance(data, dict):
            name = data.get("name")
        parts.append(str(name or part))
    return ".".join(parts)


def _unknown_key(key: str, name: object, known: Sequence[str]) -> Mistake:
    """Return the mistake that a key is unknown, with the nearest that is known."""
    found = f"an unknown key{did_you_mean(name, known)}"
    return Mistake(key, found, f"the keys {', '.join(known)}")


def _meant(found: Iterable[object], known: Iterable[str]) -> set[str]:
    """Return the known keys that unknown keys are perhaps meant to be: they are not missing, too."""
    known, found = list(known), list(found)
    meant = set()
    for name in found:
        if name not in known:
            meant.add(nearest(name, known))
    return meant.difference(["", *found])


def of_pydantic(key: str, error: ValidationError) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in what stands under a key."""
    meant = set()
    for item in error.errors():
        if item["type"] == "extra_forbidden":
            *above, name = item["loc"]
            meant.add((*above, nearest(name, _keys_beside(item["loc"]))))
    for item in error.errors():
        where = ".".join([key, *map(str, item["loc"])])
        message = item["msg"].removeprefix("Input should be ")
        found = show(item["input"])
        if item["type"] == "missing":
            if item["loc"] not in meant:
                yield Mistake(where, _NO_KEY)
        elif item["type"] == "extra_forbidden":
            yield _unknown_key(where, item["loc"][-1], _keys_beside(item["loc"]))
        elif item["loc"][-1] == "[key]" and "expect" in item["loc"]:
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
                where.removesuffix(".[key]"),
                found,
                "a fact that docs/keys.md lists for expect",
            )
        elif item["type"] == "value_error":  # a sentence of our own
            yield Mistake(where, message.removeprefix("Value error, "))
        else:
            if item["type"] == "literal_error":
                names = re.findall(r"'([^']*)'", message)
                found += did_you_mean(item["input"], names)
            yield Mistake(where.removesuffix(".[key]"), found, message)


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
    exceptions = importlib.import_module("reframe.core.exceptions")
    for load in (backends.getscheduler, backends.getlauncher):
        with contextlib.suppress(
            exceptions.ConfigError
        ):  # no such name, but all are loaded now
            load("")
    started = {*backends._launchers}.difference(_NO_LAUNCHERS)
    return {"scheduler": sorted(backends._schedulers), "launcher": sorted(started)}


def _partition_mistakes(
    key: str, partition: dict[str, Any], environments: Mapping[str, dict[str, Any]]
) -> Iterator[Mistake]:
    extras = partition.get("extras", {})
    declared = dict(extras)
    declared.pop(DETECT, None)
    try:
        PartitionExtras.model_validate(declared)
    except ValidationError as error:
        for mistake in of_pydantic(f"{key}.extras", error):
            if not extras.get(DETECT) or mistake.found != _NO_KEY:
                yield mistake
    offered = [resource["name"] for resource in partition.get("resources", [])]
    requested = extras.get("resources", [])
    if not isinstance(requested, list):
        requested = []
    for name in requested:
        if name not in offered:
            allowed = f"a name under {key}.resources ({', '.join(offered) or 'there is none'})"
            yield Mistake(f"{key}.extras.resources", f"resource {name!r}", allowed)
    for name in partition.get("environs", []):
        if name not in environments:
            yield _unknown(
                f"{key}.environs", "environment", name, sorted(map(str, environments))
            )
        elif not extras.get(DETECT):
            used = environments[name]
            if not used.get("features") and {*used.get("extras", {})} <= {
                MPI,
                DARSHAN,
                WRF_IO,
            }:
                allowed = f"features that say which tools there are, of {', '.join(sorted(vocabulary.ENVIRONMENT))}"
                yield Mistake(f"environments.{name}.features", _MISSING, allowed)


def find_mistakes(site: str, data: object) -> list[Mistake]:
    """Return every mistake in the content of a site's settings file."""
    if not isinstance(data, dict):
        return [Mistake("", show(data), "a mapping with systems and environments")]
    mistakes = list(_of_schema(site, data))
    try:
        return [*mistakes, *_own_mistakes(site, data)]
    except (KeyError, TypeError, AttributeError):
        if not mistakes:
            raise
        return mistakes  # data that ReFrame refuses may have any shape


def _ignored(system: Mapping[str, Any], environments: Any) -> Iterator[Mistake]:
    """Yield what ReFrame would pass over without a word: modules without a system of them, options of no scheduler."""
    key = f"systems.{system['name']}"
    partitions = {}
    for partition in system["partitions"]:
        partitions[f"{key}.partitions.{partition['name']}"] = partition
    holders = {key: system, **partitions}
    for environment in environments:
        holders[f"environments.{environment['name']}"] = environment
    if system.get("modules_system", NO_MODULES) == NO_MODULES:
        yield from _without_modules(key, holders)
    for where, partition in partitions.items():
        for name in ("access", "resources"):
            if partition.get(name) and partition["scheduler"] == "local":
                allowed = "nothing: scheduler local takes no options. Name the scheduler that does"
                yield Mistake(f"{where}.{name}", show(partition[name]), allowed)
        extras = partition.get("extras", {})
        pins = partition["scheduler"] in ("slurm", "squeue") or extras.get("hosts")
        if extras.get("in_turn") and not pins:
            allowed = "nothing: only Slurm and extras.hosts give a case the node whose turn it is"
            yield Mistake(f"{where}.extras.in_turn", show(extras["in_turn"]), allowed)
        asked = extras.get("resources", [])
        for resource in partition.get("resources", []):
            if resource["name"] not in asked:
                continue
            for option in resource["options"]:
                if set(re.findall(r"{(\w*)", option)) - {"capacity"}:
                    allowed = "{capacity} alone in braces: an option with another name is left out"
                    yield Mistake(
                        f"{where}.resources.{resource['name']}", show(option), allowed
                    )


def _without_modules(key: str, holders: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the modules of a system that names no system of modules."""
    for where, holder in holders.items():
        if holder.get("modules"):
            systems = reframe_schema()["properties"]["systems"]["items"]["properties"]
            known = [*systems["modules_system"]["enum"]]
            known.remove(NO_MODULES)
            allowed = f"{key}.modules_system, one of {', '.join(known)}: without it no module is loaded"
            yield Mistake(f"{where}.modules", show(holder["modules"]), allowed)


def _named_twice(system: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield a mistake for each name that several partitions have: ReFrame keeps one of them."""
    counts = Counter(partition["name"] for partition in system["partitions"])
    for name, number in counts.items():
        if number > 1:
            found = f"{number} partitions named {name}"
            yield Mistake(
                f"systems.{system['name']}.partitions", found, "one of each name"
            )


def _own_mistakes(site: str, data: dict[str, Any]) -> Iterator[Mistake]:
    """Yield what no schema can refuse.

    Raises KeyError, TypeError or AttributeError if the data break the schema too.
    """
    systems, environments = data.get("systems", []), data.get("environments", [])
    names = [system["name"] for system in systems]
    if names != [site]:
        found = f"systems: {', '.join(names) or 'none'}"
        yield Mistake("systems", found, f"one system, named {site!r} as its folder")
    by_name = {entry["name"]: entry for entry in environments}
    for system in systems:
        yield from _ignored(system, environments)
        yield from _named_twice(system)
        for partition in system["partitions"]:
            key = f"systems.{system['name']}.partitions.{partition['name']}"
            yield from _partition_mistakes(key, partition, by_name)


def find_lacks(partition: Any) -> Iterator[Mistake]:
    """Yield what a partition of somebody's own ReFrame configuration lacks for cases of this suite.

    ``partition`` is ReFrame's object, with ``extras.target``. Its extras may have keys of others.
    """
    key, keys = partition.fullname, PartitionExtras.model_fields.keys()
    for name in partition.extras:
        meant = nearest(name, sorted(keys - partition.extras.keys()))
        if name not in keys and meant:
            yield _unknown_key(f"{key}.extras.{name}", name, sorted(keys))
    try:
        extras = PartitionExtras.of_partition(partition.extras)
    except ValidationError as error:
        yield from of_pydantic(f"{key}.extras", error)
        return
    if not {*extras.implied_features} <= {*partition.features}:
        allowed = f"{', '.join(extras.implied_features)} among them, by its extras"
        yield Mistake(f"{key}.features", show(partition.features), allowed)
    if partition.time_limit is None:
        yield Mistake(f"{key}.time_limit", _MISSING, _LIMITED)
    launcher = partition.extras["launcher"]
    if launcher in _NO_LAUNCHERS:
        yield Mistake(f"{key}.launcher", launcher, ", ".join(_backends()["launcher"]))
    features: set[str] = set()
    for environment in partition.environs:
        features.update(environment.features)
    if not features & vocabulary.ENVIRONMENT:
        names = ", ".join(environment.name for environment in partition.environs)
        allowed = f"one whose features name a tool: {', '.join(sorted(vocabulary.ENVIRONMENT))}"
        yield Mistake(f"{key}.environs", names or _MISSING, allowed)


def find_unknown_names(data: Any, checks: Sequence[str]) -> Iterator[Mistake]:
    """Yield mistakes: names of checks and partitions in the extras that do not exist."""
    (system,) = data["systems"]
    for partition in system["partitions"]:
        extras = PartitionExtras.of_partition(partition["extras"])
        key = f"systems.{system['name']}.partitions.{partition['name']}.extras"
        named = [(f"{key}.cases", check) for check in extras.cases]
        baseline = extras.baseline
        if baseline:
            named += [(f"{key}.baseline.checks", check) for check in baseline.checks]
            others = [other["name"] for other in system["partitions"]]
            others.remove(partition["name"])
            if baseline.partition not in others:
                here = ", ".join(others) or "none: it has one partition"
                allowed = f"another partition of {system['name']} ({here})"
                yield Mistake(
                    f"{key}.baseline.partition", show(baseline.partition), allowed
                )
        for where, check in named:
            if check not in checks:
                yield _unknown(where, "check", check, sorted(checks))
