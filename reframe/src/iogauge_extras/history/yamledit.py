"""Find the value of a reference in a YAML file, and change single values as text; every other byte
stays.

Comments, order, quotes, alignment and line ends survive because nothing is rewritten. Every change
is read back. It is refused if the file would differ by more than the change.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml

from iogauge.core import yamlfile
from iogauge.records.record import Record
from iogauge_extras.history.runs import Refused, SkippedRuns

Key: TypeAlias = str | int | float | bool | None

_WIDTH: Final = 118
_INDENT: Final = 2


class EditError(ValueError):
    """A change cannot be made as text; the message names the key and the reason."""


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _key_text(key: Key) -> str:
    """Return a key as it may stand in a mapping of either style."""
    return flow({key: 0})[1:].removesuffix(": 0}")


def _block_key(key: Key) -> str:
    """Return a key as it may stand on its own line: ``here:disk`` needs no quotes there."""
    text = flow(key)
    plain = "\n" not in text and yaml.safe_load(f"{text}: 0") == {key: 0}
    return text if plain else _key_text(key)


def _construct(node: yaml.Node) -> Any:
    return yaml.constructor.SafeConstructor().construct_object(node, deep=True)


def _same(first: object, second: object) -> bool:
    return type(first) is type(second) and first == second


def _child(node: yaml.MappingNode, key: Key) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = [pair for pair in node.value if _same(_construct(pair[0]), key)]
    return pairs[0] if pairs else None


def _dotted(path: Sequence[Key]) -> str:
    return ".".join(map(str, path))


def _line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _last(node: yaml.Node) -> yaml.Node:
    """Return the last node inside a block mapping or sequence; else the node itself."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _set_remark(text: str, position: int, remark: str, label: str, newline: str) -> str:
    """Put a comment above the line of a position; it replaces the comment with the same label."""
    start = _line_start(text, position)
    line = text[start : _line_end(text, start)]
    column = len(line) - len(line.lstrip(" "))
    above = text[:start].splitlines(keepends=True)
    blocks: list[str] = []
    while above and above[-1].lstrip(" ").startswith("#"):
        blocks.insert(0, above.pop())
    kept, dropping = [], False
    for comment in blocks:
        words = comment.strip()
        if words.startswith(f"# {label}"):
            dropping = True
        elif dropping and not words.startswith("#   "):
            dropping = False
        if not dropping:
            kept.append(comment)
    width = _WIDTH - column - 2
    wrapped = textwrap.wrap(remark, width, break_long_words=False, break_on_hyphens=False)
    new = [
        f"{' ' * column}#{' ' if number == 0 else '   '}{part}{newline}"
        for number, part in enumerate(wrapped)
    ]
    return "".join([*above, *kept, *new]) + text[start:]


def _chain(keys: Sequence[Key], value: str) -> str:
    """Return a flow mapping of nested keys: ``a: {b: value}`` without the outermost braces."""
    head, *rest = keys
    return (
        f"{_key_text(head)}: {{{_chain(rest, value)}}}" if rest else f"{_key_text(head)}: {value}"
    )


def _insert_block(
    text: str, node: yaml.MappingNode | None, keys: Sequence[Key], value: str, newline: str
) -> tuple[str, int]:
    """Return the new text, and the position of the last key in it."""
    column = node.value[0][0].start_mark.column if node is not None else 0
    position = len(text)
    if node is not None:
        end = len(text[: _last(node).end_mark.index].rstrip())
        position = _line_end(text, end)
    head, tail = text[:position], text[position:]
    if head and not head.endswith("\n"):
        head += newline
    if column == 0 and head.strip():
        head += newline
    for depth, key in enumerate(keys[:-1]):
        head += " " * (column + depth * _INDENT) + _block_key(key) + ":" + newline
    at = len(head)
    head += (
        " " * (column + (len(keys) - 1) * _INDENT) + f"{_block_key(keys[-1])}: {value}" + newline
    )
    return head + tail, at


def _put(text: str, path: Sequence[Key], value: str, newline: str) -> tuple[str, int]:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return _insert_block(text, None, path, value, newline)
    for depth, key in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise EditError(f"{_dotted(path[:depth])}: no mapping, so it cannot hold {key!r}")
        pair = _child(node, key)
        if pair is not None:
            named, node = pair
            continue
        if not node.flow_style and node.value:
            return _insert_block(text, node, path[depth:], value, newline)
        if node.value:
            position, comma = node.value[-1][1].end_mark.index, ", "
        else:
            position, comma = node.start_mark.index + 1, ""
        added = comma + _chain(path[depth:], value)
        return text[:position] + added + text[position:], position
    start, end = node.start_mark.index, node.end_mark.index
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        # It begins on a line of its own, and ends before the next key.
        start = text.index(":", named.end_mark.index) + 1
        end, value = len(text[: _last(node).end_mark.index].rstrip()), f" {value}"
    return text[:start] + value + text[end:], start


def _unshared(data: Any) -> Any:
    """Return a copy in which every use of an anchor has its own value."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(value) for value in data] if isinstance(data, list) else data


def _with(data: Any, path: Sequence[Key], value: object) -> Any:
    expected = _unshared(data) if data is not None else {}
    inner = expected
    for depth, key in enumerate(path):
        if not isinstance(inner, dict):
            raise EditError(f"{_dotted(path[:depth])}: no mapping, so it cannot hold {key!r}")
        inner = inner.setdefault(key, {}) if depth < len(path) - 1 else inner
    inner[path[-1]] = value
    return expected


def _read(text: str, path: Sequence[Key]) -> Any:
    try:
        return yamlfile.parse(text, _dotted(path))
    except yamlfile.YamlError as error:
        raise EditError(f"cannot be set as text: {error}") from error


def put(text: str, path: Sequence[Key], value: object, remark: str = "", label: str = "") -> str:
    """Return the text of a YAML file with one value set; missing keys are added.

    ``remark`` is a comment for the line above; it replaces a comment that begins with ``label``.
    Raises :class:`EditError` if more than the value would change, as with an anchor that is used
    elsewhere.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    expected = _with(_read(text, path), path, value)
    changed, position = _put(text, path, flow(value), newline)
    if label:
        changed = _set_remark(changed, position, remark, label, newline)
    if _read(changed, path) != expected:
        raise EditError(f"{_dotted(path)}: setting it would change other values of the file too")
    return changed


def add_words(text: str, path: Sequence[Key], words: str) -> str:
    """Return the text of a YAML file with words added to the end of one of its texts.

    Nothing changes if the words are in that text already. ``words`` are letters, digits, blanks and
    parentheses. Raises :class:`EditError` as :func:`put` does.
    """
    data = _read(text, path)
    before = data
    for key in path:
        before = before[key]
    if words in before:
        return text
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        pair = _child(node, key) if isinstance(node, yaml.MappingNode) else None
        if pair is None:
            raise EditError(f"{_dotted(path)}: merged from elsewhere, not a text of its own")
        node = pair[1]
    assert isinstance(node, yaml.ScalarNode)
    end = len(text[: node.end_mark.index].rstrip()) - (node.style in ("'", '"'))
    changed = f"{text[:end]} {words}{text[end:]}"
    stripped = before.rstrip()
    if _read(changed, path) != _with(data, path, f"{stripped} {words}{before[len(stripped) :]}"):
        raise EditError(f"{_dotted(path)}: extending it would change other values of the file too")
    return changed


#: Variables of every check that a record keeps in addition to its parameters.
KEPT: Final = ("nodes", "tasks_per_node", "repetitions", "tier", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePosition:
    """Keys of a leaf below its check; the keys in ``wide`` hold for other cases too."""

    keys: tuple[Key, ...]
    index: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()


def _value_of(part: str, record: Record) -> Key:
    """Return the value in a record of a part of ``$index``; raises :class:`Refused`."""
    special = {
        "$system": record.system,
        "$partition": f"{record.system}:{record.partition}",
        "$environ": record.environment,
    }
    kept: dict[str, Any] = {name: getattr(record, name) for name in KEPT if name in record.order}
    sources = [special, record.parameters, record.overridden, kept]
    for source in sources:
        if part in source:
            value = source[part]
            if value is None or isinstance(value, (str, int, float)):
                return value
            raise Refused(f"$index: {part} is {value!r}: only text and numbers can be keys")
    raise Refused(f"$index names {part}, which a record does not keep: write this entry by hand")


def _matching(mapping: Mapping[Any, Any], key: Key) -> Key | None:
    """Return the key that ReFrame takes: the same key, else the first that matches as a regular
    expression.
    """
    if key in mapping:
        return key
    for name in mapping:
        if isinstance(name, str) and isinstance(key, str) and re.match(f"^{name}$", key):
            return name
    return None


def position_of(entry: Mapping[str, Any] | None, record: Record, metric: str) -> FilePosition:
    """Return the position of a metric's reference in the entry of its check, even if not yet
    written.

    It is found as ReFrame finds it. A check without an entry gets an ``$index`` of the partition
    and its parameters. Raises :class:`SkippedRuns` for runs with overridden variables that the
    index does not name.
    """
    if "parameters" not in record.order:
        raise Refused(
            "its records are older than their parameters: only newer runs can be calibrated"
        )
    if record.pinned:
        raise SkippedRuns(
            f"pinned to {record.pinned} by --distribute: one node's value, not the target's"
        )
    plain = entry is not None and "$index" not in entry
    if entry is None:
        named = ["$partition", *record.parameters]
        index, entry = ([] if len(named) == 1 else named), {}
    else:
        index = [str(part) for part in entry.get("$index") or ()]
    foreign = [f"{name}={value}" for name, value in record.overridden.items() if name not in index]
    if foreign:
        raise SkippedRuns(
            f"measured with {', '.join(foreign)}; references hold for what the site declares, "
            "unless $index names it"
        )
    if plain or not index:
        scopes = (f"{record.system}:{record.partition}", record.system, "*")
        scope = next((name for name in scopes if metric in (entry.get(name) or {})), scopes[0])
        wide = () if scope == scopes[0] else (scope,)
        return FilePosition(keys=(scope, metric), wide=wide)
    keys: list[Key] = []
    wide_keys: list[str] = []
    below: Any = {name: value for name, value in entry.items() if name != "$index"}
    for part in index:
        value = _value_of(part, record)
        key = _matching(below, value)
        if key is None:
            key, below = value, {}
        else:
            below = below[key]
            if key != value:
                wide_keys.append(str(key))
        keys.append(key)
    return FilePosition(keys=(*keys, metric), index=tuple(index), wide=tuple(wide_keys))
