"""Layouts of files on Lustre, as ``lfs getstripe`` prints them.

Separate from :mod:`iogauge.node.layouts` because YAML takes a third of an agent's start time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from iogauge.node.layouts import Component, FileLayout, LustreError, excerpt


class _TextLoader(yaml.BaseLoader):
    """YAML whose scalars all stay text. Repeated keys and aliases are refused.

    ``lfs`` prints the keys of several files one after the other without a separator, and no
    aliases.
    """

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", None)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(keys) != len(node.value) or len(set(keys)) != len(keys):
            raise yaml.constructor.ConstructorError(
                None, None, "a key stands twice: more than one file", node.start_mark
            )
        return super().construct_mapping(node, deep)


def _load(text: str, path: str) -> Mapping[str, Any]:
    try:
        data = yaml.load(text, Loader=_TextLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        problem = " ".join(str(error).split())
        raise LustreError(f"lfs getstripe -y {path}: not YAML of one file: {problem}") from error
    if not isinstance(data, Mapping):
        raise LustreError(f"lfs getstripe -y {path}: no layout in {excerpt(text)}")
    return data


def _text(data: Mapping[str, Any], key: str, path: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise LustreError(f"lfs getstripe -y {path}: {key} is {value!r}: the answer is damaged")
    return value


def _number(data: Mapping[str, Any], key: str, path: str, least: int = 0) -> int:
    value = _text(data, key, path)
    if not re.fullmatch(r"-?[0-9]{1,20}", value) or int(value) < least:
        raise LustreError(
            f"lfs getstripe -y {path}: {key} is {value!r}: expected a number of at least {least}"
        )
    return int(value)


def _objects(part: Mapping[str, Any], path: str) -> tuple[int, ...]:
    """Return the target indices of all objects of a part, in order; as many as it has stripes."""
    listed = part.get("lmm_objects", [])
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        raise LustreError(f"lfs getstripe -y {path}: lmm_objects is no list of objects")
    indices = tuple(_number(entry, "l_ost_idx", path) for entry in listed)
    count = _number(part, "lmm_stripe_count", path)
    if len(indices) != count:
        raise LustreError(
            f"lfs getstripe -y {path}: {len(indices)} object(s) for {count} stripe(s): the answer is "
            "damaged, or the file has no objects"
        )
    return indices


def _part(part: Mapping[str, Any], path: str, osts: tuple[int, ...]) -> dict[str, Any]:
    """Return fields of a :class:`FileLayout` from a part with objects (or with the metadata)."""
    start = None
    if osts:
        start = _number(part, "lmm_stripe_offset", path)
        if start != osts[0]:
            raise LustreError(
                f"lfs getstripe -y {path}: lmm_stripe_offset is {start}, the first object is on "
                f"{osts[0]}: the answer is damaged"
            )
    return {
        "stripe_count": _number(part, "lmm_stripe_count", path),
        "stripe_bytes": _number(part, "lmm_stripe_size", path, 1),
        "pattern": _text(part, "lmm_pattern", path),
        "start": start,
        "pool": _text(part, "lmm_pool", path) if "lmm_pool" in part else None,
    }


def parse_getstripe(text: str, path: str) -> FileLayout:
    """Parse the layout of one file from ``lfs getstripe -y FILE``.

    Raises :class:`LustreError` that names the file if it has no layout. The same is raised if the
    answer is about several files or a directory, or is cut or damaged: a part has as many objects
    as stripes.
    """
    if re.search(r"has no stripe info\s*\Z", text):
        raise LustreError(
            f"{path} has no stripe info: it was made without objects, so it cannot hold data"
        )
    data = _load(text, path)
    if "components" not in data:
        osts = _objects(data, path)
        if not osts:
            raise LustreError(f"lfs getstripe -y {path}: a file without objects")
        unique = tuple(dict.fromkeys(osts))
        return FileLayout(path=path, osts=unique, **_part(data, path, osts))
    parts = data["components"]
    entries = _number(data, "lcm_entry_count", path, 1)
    if not isinstance(parts, list) or len(parts) != entries:
        raise LustreError(f"lfs getstripe -y {path}: expected {entries} component(s)")
    components: list[Component] = []
    hit: list[int] = []
    last: dict[str, Any] | None = None
    instantiated = 0
    for part in parts:
        sub = part.get("sub_layout") if isinstance(part, Mapping) else None
        if not isinstance(sub, Mapping):
            raise LustreError(f"lfs getstripe -y {path}: a component without sub_layout")
        end = _text(part, "lcme_extent.e_end", path)
        components.append(
            Component(
                end_bytes=None if end == "EOF" else _number(part, "lcme_extent.e_end", path, 1),
                stripe_count=_number(sub, "lmm_stripe_count", path, -1),
                stripe_bytes=_number(sub, "lmm_stripe_size", path, 1),
            )
        )
        if "init" in _text(part, "lcme_flags", path).split(","):
            osts = _objects(sub, path)
            hit += osts
            last = _part(sub, path, osts)
            instantiated += 1
    if last is None:
        raise LustreError(f"lfs getstripe -y {path}: no component has objects")
    return FileLayout(
        path=path,
        osts=tuple(dict.fromkeys(hit)),
        components=tuple(components),
        instantiated=instantiated,
        **last,
    )


def parse_default_start(text: str, path: str) -> int | None:
    """Return the first target that a directory prescribes (``lfs getstripe -d -y DIR``), or None.

    A progressive default prescribes no target. Raises :class:`LustreError` on a damaged answer.
    """
    data = _load(text, path)
    if "components" in data:
        return None
    start = _number(data, "stripe_offset", path, -1)
    return start if start >= 0 else None
