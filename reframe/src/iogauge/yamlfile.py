"""YAML as site data: loaded safely, and a key that stands twice is a mistake, not a choice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class YamlError(ValueError):
    """A file that cannot be read as YAML; the message names file and line."""


class _Loader(yaml.SafeLoader):
    pass


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (list, dict)):
            raise yaml.constructor.ConstructorError(
                None, None, "a list or mapping cannot be a key", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} stands here a second time", key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load(path: Path) -> Any:
    """The content of a YAML file; raises :class:`YamlError` that names file, line and problem."""
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.load(file, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise YamlError(f"{where}: {error.problem or 'not YAML'}") from error
    except (
        yaml.YAMLError,
        RecursionError,
        ValueError,
        LookupError,  # what PyYAML's constructors raise for a value that its tag does not fit
        TypeError,
        AttributeError,
    ) as error:
        raise YamlError(f"{path}: not YAML: {error}") from error
    except OSError as error:
        raise YamlError(f"{path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a site's file: where, what stands there, and what may."""

    file: str
    key: str
    found: str
    allowed: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{where}: found {self.found}; allowed: {self.allowed}"


def show(value: object) -> str:
    """A value of a file as a message shows it: on one line, and not longer than that."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
