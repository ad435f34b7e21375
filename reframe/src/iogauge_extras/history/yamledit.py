"""Change single values of a YAML file; every other line stays as it is, to the byte.

PyYAML says where each value stands, and the text is changed there alone. A change after which the file says more than that
otherwise is refused.
"""

import math
import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

import yaml

from iogauge.core import yamlfile
from iogauge_extras.history.position import Key
from iogauge_extras.history.runs import Refused

_WIDTH: Final = 118


def put(
    text: str, path: Sequence[Key], value: object, remark: str = "", label: str = ""
) -> str:
    """Return the text of a YAML file with one value set; missing keys are added.

    ``remark`` is a comment for the line above; it replaces a comment that begins with ``label``.
    Raises :class:`Refused` if more than the value would change, as with an anchor that is used
    elsewhere.
    """
    name = ".".join(map(str, path))
    try:
        expected = _changed(yamlfile.parse(text, name) or {}, path, value)
        after = _edited(text, path, value)
        if label:
            key, _ = _nodes(after, path)[-1]
            lines = after.splitlines(keepends=True)
            after = _remarked(lines, key.start_mark.line, remark, label)
        found = yamlfile.parse(after, name)
    except (yamlfile.YamlError, yaml.YAMLError) as error:
        raise Refused(f"{name}: cannot be set: {error}: write it by hand") from error
    if found != expected:
        raise Refused(f"{name}: setting it would change other values of the file too")
    return after


def _changed(data: Any, path: Sequence[Key], value: object) -> Any:
    """Return what a file says after the change."""
    if not path:
        return value
    if not isinstance(data, dict):
        raise Refused(f"{data!r} is no mapping, so it cannot hold {path[0]!r}")
    return {**data, path[0]: _changed(data.get(path[0], {}), path[1:], value)}


def _nodes(text: str, path: Sequence[Key]) -> list[tuple[Any, Any]]:
    """Return the nodes of key and value of the file, which has no key, and of each part of a path that is there."""
    loader = yaml.SafeLoader(text)
    found: list[tuple[Any, Any]] = [(None, loader.get_single_node())]
    for part in path:
        _, above = found[-1]
        here = []
        if above:
            here = [pair for pair in above.value if _key(loader, pair) == part]
        if not here:
            break
        found.append(here[0])
    return found


def _key(loader: yaml.SafeLoader, pair: tuple[yaml.Node, yaml.Node]) -> Any:
    return loader.construct_object(pair[0], deep=True)


def _edited(text: str, path: Sequence[Key], value: object) -> str:
    """Return the text with the value in its place."""
    found = _nodes(text, path)
    key, node = found[-1]
    missing = path[len(found) - 1 :]
    if not missing:
        after = text[_end(text, node) :]
        return f"{text[: key.end_mark.index]}: {_flow(value)}{after}"
    if node and node.flow_style:
        comma = ""
        if node.value:
            comma = ", "
        for part in reversed(missing):
            value = {part: value}
        at = node.end_mark.index - 1
        return f"{text[:at]}{comma}{_flow(value)[1:-1]}{text[at:]}"
    indent = ""
    if node:
        indent = " " * node.value[0][0].start_mark.column
    lines = ""
    for part in missing:
        # On one line a key with a colon has quotes, here it needs none.
        alone = yaml.safe_dump({part: []}, allow_unicode=True)
        lines += "\n" + indent + alone.removesuffix(" []\n")
        indent += "  "
    lines += f" {_flow(value)}"
    if not node:
        return f"{text}{lines[1:]}\n"
    at = text.find("\n", _end(text, node))
    if at < 0:
        at = len(text)
    return f"{text[:at]}{lines}{text[at:]}"


def _flow(value: object) -> str:
    """Return a value as YAML on one line."""
    # A list shows no end of a document behind a single word.
    text: str = yaml.safe_dump(
        [value],
        default_flow_style=True,
        width=math.inf,
        allow_unicode=True,
        sort_keys=False,
    )
    return text[1:-2]


def _end(text: str, node: yaml.Node) -> int:
    """Return the place behind the last character of a node; a collection in lines ends where the next token begins."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style:
        node = node.value[-1]
        if isinstance(node, tuple):
            node = node[1]
    return len(text[: node.end_mark.index].rstrip())


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
