"""YAML as site data: loaded safely and within bounds; a repeated key is a mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from iogauge.core import untrusted


class YamlError(ValueError):
    """A file cannot be read as YAML; the message names file and line."""

    def __init__(self, name: str, problem: str, line: int | None = None) -> None:
        self.problem, self.line = problem, line
        place = name
        if line:
            place = f"{name}:{line}"
        super().__init__(f"{place}: {problem}")


#: Largest file in bytes, and most values with every alias written out: no site has so many.
LIMIT_BYTES = 512 << 10
_LIMIT_VALUES = 200_000


class _Loader(Composer, yaml.CSafeLoader):
    """A loader that counts values before it makes them. Libyaml reads the text: each start looks for the host's site in the files of all.

    Python composes: libyaml's composer ends the process if values are nested too deeply.
    """

    def __init__(self, stream: str) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _count(node, {})
        return node


def _refusal(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """Count a node's values, aliases written out; raises MarkedYAMLError if too many or endless."""
    if id(node) not in counts:
        counts[id(node)] = (
            _LIMIT_VALUES  # for as long as it is being counted: it would contain itself
        )
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        if isinstance(node, yaml.MappingNode):
            for pair in node.value:
                parts += pair
        counts[id(node)] = 1 + sum(_count(part, counts) for part in parts)
        if counts[id(node)] > _LIMIT_VALUES:
            problem = f"more than {_LIMIT_VALUES} values, with aliases written out"
            raise _refusal(problem, node)
    return counts[id(node)]


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, (list, dict)):
            raise _refusal("a list or mapping cannot be a key", key_node)
        if key in keys:
            raise _refusal(f"key {key!r} stands here a second time", key_node)
        keys.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


#: Numbers that YAML 1.1 reads as others than they look like: octal, in base 60, a thousand that is one.
_UNLIKE = re.compile(
    r"[-+]?(0[0-9_]+|[0-9_]+(:[0-5]?[0-9])+|[1-9][0-9]{0,2}(\.[0-9]{2}0)+)"
)


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    value: int | float
    if node.tag.endswith("int"):
        value = loader.construct_yaml_int(node)
    else:
        value = loader.construct_yaml_float(node)
    if _UNLIKE.fullmatch(node.value):
        problem = f"{node.value} is read as {value:g}. Write {value:g} if you mean it, else the other number in full"
        raise _refusal(problem, node)
    return value


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def _advised(problem: str, character: str) -> str:
    """Return what is wrong with a line that cannot be read at a character, and where to look."""
    if character == "\t" or "tab character" in problem:
        return "a tab stands here. Use spaces: YAML does not indent with tabs"
    if "cannot start any token" in problem:
        problem = f"no value starts with {character}"
    return (
        f"this is not YAML: {problem}. Check the indentation, colons and quotes of this line and the "
        "line above"
    )


def parse(text: str, name: str) -> Any:
    """Return the content of a YAML text; raises :class:`YamlError` with name, line and problem."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line: int | None = None
        character = ""
        if mark:
            line = mark.line + 1
            # No mark counts the byte order mark.
            character = text.removeprefix("\ufeff")[mark.index : mark.index + 1]
        problem = error.problem or "not YAML"
        if not isinstance(error, yaml.constructor.ConstructorError):
            problem = _advised(problem, character)
            # What is missing at the end has a line of its own.
            line = line and min(line, text.count("\n") + (not text.endswith("\n")))
        raise YamlError(name, problem, line) from error
    except (
        yaml.YAMLError,
        RecursionError,
        ValueError,
        LookupError,  # PyYAML's constructors raise these for a value that its tag does not fit
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise YamlError(name, f"not YAML: {error}") from error


def load(path: Path) -> Any:
    """Return the content of a YAML file; raises :class:`YamlError` with file, line and problem."""
    try:
        text = untrusted.read_text(path, LIMIT_BYTES, errors="strict")
    except UnicodeDecodeError as error:
        raise YamlError(str(path), f"not YAML: {error}") from error
    except OSError as error:
        raise YamlError(str(path), str(error.strerror)) from error
    return parse(text, str(path))


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a site's file: the place, the value found, and the values allowed."""

    #: Parts joined by dots; entries of a list go by their ``name``, or by number.
    #: A part of a reference follows in brackets: ``write_bw (lower bound)``.
    key: str
    #: The value; without ``allowed`` a whole sentence.
    found: str
    allowed: str = ""
    line: int | None = None
    file: str = ""

    @staticmethod
    def of_yaml(error: YamlError) -> Mistake:
        """Return the mistake that a file is not YAML."""
        return Mistake("", error.problem, line=error.line)

    def __str__(self) -> str:
        place, problem = self.file, self.found
        if self.line:
            place += f":{self.line}"
        if self.allowed:
            problem = f"found {problem}; allowed: {self.allowed}"
        return ": ".join(filter(None, (place, self.key, problem)))


def located(file: Path, mistakes: Iterable[Mistake]) -> list[Mistake]:
    """Return the mistakes in a YAML file with its name and their lines; a missing key has its parent's line."""
    mistakes = [replace(mistake, file=str(file)) for mistake in mistakes]
    if not mistakes:
        return []
    try:
        text = untrusted.read_text(file, LIMIT_BYTES)
        node = yaml.compose(text, Loader=_Loader)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        return mistakes
    lines = dict(_lines(node, ""))
    return [
        replace(mistake, line=mistake.line or _line_of(mistake.key, lines))
        for mistake in mistakes
    ]


def _line_of(key: str, lines: dict[str, int]) -> int | None:
    key = re.sub(r" \([a-z ]+\)$", "", key)  # the part of a list
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return lines.get(key)


def _lines(node: yaml.Node | None, above: str) -> Iterator[tuple[str, int]]:
    """Yield the keys below a node, each with the number of its line."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = f"{above}{key.value}"
            yield path, key.start_mark.line + 1
            yield from _lines(value, f"{path}.")
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            names = [str(number)]
            if isinstance(item, yaml.MappingNode):
                for key, value in item.value:
                    if key.value == "name":
                        names.append(value.value)
            for name in names:
                yield f"{above}{name}", item.start_mark.line + 1
                yield from _lines(item, f"{above}{name}.")


def show(value: object) -> str:
    """Return a value of a file for a message: on one line, at most 80 characters."""
    text = repr(value)
    if value is None:
        text = "nothing"
    if len(text) > 80:
        return text[:77] + "..."
    return text
