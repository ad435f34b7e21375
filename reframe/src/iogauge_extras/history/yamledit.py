"""Change single values of a YAML file; every other line stays as it is, to the byte.

ruamel.yaml keeps comments, order and quotes. A file that it cannot give back as it was is refused, and so is a change
after which more than that differs.
"""

import io
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.tokens import CommentToken

from iogauge.core import yamlfile
from iogauge_extras.history.position import Key
from iogauge_extras.history.runs import Refused

_WIDTH: Final = 118


class EditError(Refused):
    """A change cannot be made; the message names the key and the reason."""


def put(
    text: str, path: Sequence[Key], value: object, remark: str = "", label: str = ""
) -> str:
    """Return the text of a YAML file with one value set; missing keys are added.

    ``remark`` is a comment for the line above; it replaces a comment that begins with ``label``.
    Raises :class:`EditError` if more than the value would change, as with an anchor that is used
    elsewhere.
    """
    name = ".".join(map(str, path))
    try:
        old = yamlfile.parse(text, name) or {}
        document = _yaml(text).load(text)
    except (yamlfile.YamlError, YAMLError) as error:
        raise EditError(f"{name}: cannot be set: {error}") from error
    head = ""
    if document is None:
        head, document = text, CommentedMap()
    elif _dumped(document, text) != text:
        raise EditError(
            f"{name}: cannot be set without a change of other lines: write this value by hand"
        )
    mapping = _mapping(document, path)
    _set(mapping, path[-1], value)
    after = head + _dumped(document, text)
    expected = _unshared(old)
    _mapping(expected, path)[path[-1]] = value
    if _unshared(yamlfile.parse(after, name)) != expected:
        raise EditError(f"{name}: setting it would change other values of the file too")
    if not label:
        return after
    number = _mapping(_yaml(after).load(after), path).lc.key(path[-1])[0]
    return _remarked(after.splitlines(keepends=True), number, remark, label)


def _yaml(text: str) -> YAML:
    found = YAML()
    found.preserve_quotes = True
    found.width = 10**9
    indented = re.search(r"^( +)\S", text, re.MULTILINE)
    if indented:
        found.map_indent = len(indented[1])
    return found


def _dumped(document: Any, text: str) -> str:
    stream = io.StringIO()
    _yaml(text).dump(document, stream)
    return stream.getvalue()


def _mapping(document: Any, path: Sequence[Key]) -> Any:
    """Return the mapping that holds the last key of a path; those that are missing are added."""
    for depth, key in enumerate(path):
        if not isinstance(document, dict):
            above = ".".join(map(str, path[:depth])) or "the file"
            raise EditError(f"{above} is no mapping, so it cannot hold {key!r}")
        if depth < len(path) - 1:
            if key not in document:
                _set(document, key, CommentedMap())
            document = document[key]
    return document


def _set(mapping: Any, key: Key, value: object) -> None:
    """Set a value of a mapping, a list on one line; comments stay where they are."""
    old = mapping.get(key)
    if isinstance(value, list):
        value = CommentedSeq(value)
        value.fa.set_flow_style()
        if isinstance(old, CommentedSeq):
            old.copy_attributes(value)
    elif isinstance(value, str) and isinstance(old, str):
        text: Any = type(old)(value)
        if hasattr(old, "fold_pos"):
            text.fold_pos = old.fold_pos
        value = text
    below = None
    if key not in mapping and isinstance(mapping, CommentedMap):
        below = _comment_below(mapping)
    mapping[key] = value
    if below:
        mapping.ca.items[key] = [None, None, below, None]


def _comment_below(mapping: CommentedMap) -> CommentToken | None:
    """Take the lines below a mapping, which ruamel.yaml keeps with its last value: they are of what follows."""
    name: Any = None
    while mapping and not mapping.fa.flow_style():
        name = next(reversed(mapping))
        if not isinstance(mapping[name], CommentedMap) or not mapping[name]:
            break
        mapping = mapping[name]
    tokens = mapping.ca.items.get(name)
    if not tokens or tokens[2] is None:
        return None
    own, _, lines = tokens[2].value.partition("\n")
    tokens[2].value = f"{own}\n"
    return CommentToken(f"\n{lines}", CommentMark(0), None) if lines else None


def _unshared(data: Any) -> Any:
    """Return a copy in which every use of an anchor has its own value."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return data


def _remarked(lines: list[str], number: int, remark: str, label: str) -> str:
    """Put a comment above a line; it replaces the comment with the same label."""
    indent = re.match(" *", lines[number])[0]  # type: ignore[index]
    begin = number
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    earlier = rf"(?m)^ *# {re.escape(label)}.*\n(?: *#   .*\n)*"
    comments = re.sub(earlier, "", "".join(lines[begin:number]))
    wrapped = textwrap.fill(
        remark,
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "".join([*lines[:begin], comments, wrapped, "\n", *lines[number:]])
