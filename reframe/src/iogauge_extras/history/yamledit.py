"""Find the value of a reference in a YAML file, and change single values as text; every other byte
stays.

Comments, order, quotes, alignment and line ends survive because nothing is rewritten. Every change
is read back. It is refused if the file would differ by more than the change.
"""

from __future__ import annotations

import re
import textwrap
from collections import ChainMap
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


class EditError(Refused):
    """A change cannot be made as text; the message names the key and the reason."""


def flow(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10**9, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _key_text(key: Key) -> str:
    """Return a key as it may stand on its own line: ``here:disk`` needs no quotes there."""
    plain = flow(key)
    alone = "\n" not in plain and yaml.safe_load(f"{plain}: 0") == {key: 0}
    return plain if alone else flow({key: 0})[1:].removesuffix(": 0}")


def _child(node: Any, key: Key) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of a key and its value in a mapping, if they are there."""
    for named, value in node.value:
        told = yaml.constructor.SafeConstructor().construct_object(named, deep=True)
        if type(told) is type(key) and told == key:
            return named, value
    return None


def _dotted(path: Sequence[Key]) -> str:
    return ".".join(map(str, path))


def _end(text: str, node: yaml.Node) -> int:
    """Return where a node ends, without the blanks and comments behind a block."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return len(text[: node.end_mark.index].rstrip())


def _remarked(text: str, position: int, remark: str, label: str) -> str:
    """Put a comment above the line of a position; it replaces the comment with the same label."""
    start = text.rfind("\n", 0, position) + 1
    indent = re.match(" *", text[start:])[0]  # type: ignore[index]
    head, block = re.fullmatch(
        r"((?s:.*?))((?:^ *#.*\n)*)", text[:start], re.MULTILINE
    ).groups()  # type: ignore[union-attr]
    kept = re.sub(rf"(?m)^ *# {re.escape(label)}.*\n(?: *#   .*\n)*", "", block)
    lines = textwrap.wrap(
        remark,
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return head + kept + "".join(f"{line}\n" for line in lines) + text[start:]


def _inserted(
    text: str, node: yaml.Node | None, keys: Sequence[Key], value: str
) -> tuple[str, int]:
    """Return the text with keys behind a block mapping, or in an empty file; and where the last key stands."""
    column = node.value[0][0].start_mark.column if node else 0
    end = text.find("\n", _end(text, node)) + 1 if node else 0
    head, tail = (text[:end], text[end:]) if end else (text, "")
    if head and not head.endswith("\n"):
        head += "\n"
    if column == 0 and head.strip():
        head += "\n"
    lines = [
        " " * (column + n * _INDENT) + _key_text(key) + ":"
        for n, key in enumerate(keys)
    ]
    head += "".join(f"{line}\n" for line in lines[:-1])
    return f"{head}{lines[-1]} {value}\n{tail}", len(head)


def _put(text: str, path: Sequence[Key], value: object) -> tuple[str, int]:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return _inserted(text, None, path, flow(value))
    for depth, key in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise EditError(
                f"{_dotted(path[:depth])}: no mapping, so it cannot hold {key!r}"
            )
        pair = _child(node, key)
        if pair is not None:
            named, node = pair
        elif not node.flow_style and node.value:
            return _inserted(text, node, path[depth:], flow(value))
        else:
            nested = value
            for inner in reversed(path[depth:]):
                nested = {inner: nested}
            at = (
                node.value[-1][1].end_mark.index
                if node.value
                else node.start_mark.index + 1
            )
            added = flow(nested)[1:-1]
            return f"{text[:at]}{', ' if node.value else ''}{added}{text[at:]}", at
    start, end, new = node.start_mark.index, node.end_mark.index, flow(value)
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        # It begins on a line of its own, and ends before the next key.
        start, end, new = (
            text.index(":", named.end_mark.index) + 1,
            _end(text, node),
            f" {new}",
        )
    return text[:start] + new + text[end:], start


def _unshared(data: Any) -> Any:
    """Return a copy in which every use of an anchor has its own value."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(value) for value in data] if isinstance(data, list) else data


def _read(text: str, path: Sequence[Key]) -> Any:
    try:
        return _unshared(yamlfile.parse(text, _dotted(path)))
    except yamlfile.YamlError as error:
        raise EditError(f"cannot be set as text: {error}") from error


def _checked(before: str, after: str, path: Sequence[Key], value: object) -> str:
    """Return a changed text; raises :class:`EditError` if it says anything else than one other value."""
    expected = inner = _read(before, path) or {}
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise EditError(
                f"{_dotted(path)}: {key!r} is merged from elsewhere, and no mapping"
            )
    inner[path[-1]] = value
    if _read(after, path) != expected:
        raise EditError(
            f"{_dotted(path)}: setting it would change other values of the file too"
        )
    return after


def put(
    text: str, path: Sequence[Key], value: object, remark: str = "", label: str = ""
) -> str:
    """Return the text of a YAML file with one value set; missing keys are added.

    ``remark`` is a comment for the line above; it replaces a comment that begins with ``label``.
    Raises :class:`EditError` if more than the value would change, as with an anchor that is used
    elsewhere.
    """
    if "\r\n" in text:
        return put(text.replace("\r\n", "\n"), path, value, remark, label).replace(
            "\n", "\r\n"
        )
    _read(text, path)
    changed, position = _put(text, path, value)
    if label:
        changed = _remarked(changed, position, remark, label)
    return _checked(text, changed, path, value)


def add_words(text: str, path: Sequence[Key], words: str) -> str:
    """Return the text of a YAML file with words added to the end of one of its texts.

    Nothing changes if the words are in that text already. ``words`` are letters, digits, blanks and
    parentheses. Raises :class:`EditError` as :func:`put` does.
    """
    before, node = _read(text, path), yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        before, pair = before[key], _child(node, key)
        if pair is None:
            raise EditError(
                f"{_dotted(path)}: merged from elsewhere, not a text of its own"
            )
        node = pair[1]
    assert isinstance(node, yaml.ScalarNode)
    if words in before:
        return text
    end = _end(text, node) - (node.style in ("'", '"'))
    stripped = before.rstrip()
    after = f"{stripped} {words}{before[len(stripped) :]}"
    return _checked(text, f"{text[:end]} {words}{text[end:]}", path, after)


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
    kept: dict[str, Any] = {
        name: getattr(record, name) for name in KEPT if name in record.order
    }
    known = ChainMap[str, Any](
        special, dict(record.parameters), dict(record.overridden), kept
    )
    if part not in known:
        raise Refused(
            f"$index names {part}, which a record does not keep: write this entry by hand"
        )
    value: Key = known[part]
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise Refused(f"$index: {part} is {value!r}: only text and numbers can be keys")


def _matching(mapping: Mapping[Any, Any], key: Key) -> Key | None:
    """Return the key that ReFrame takes: the same key, else the first that matches as a regular
    expression.
    """
    if key in mapping:
        return key
    texts = (name for name in mapping if isinstance(name, str) and isinstance(key, str))
    return next((name for name in texts if re.match(f"^{name}$", str(key))), None)


def position_of(
    entry: Mapping[str, Any] | None, record: Record, metric: str
) -> FilePosition:
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
    foreign = [
        f"{name}={value}"
        for name, value in record.overridden.items()
        if name not in index
    ]
    if foreign:
        raise SkippedRuns(
            f"measured with {', '.join(foreign)}; references hold for what the site declares, "
            "unless $index names it"
        )
    if plain or not index:
        scopes = (f"{record.system}:{record.partition}", record.system, "*")
        scope = next(
            (name for name in scopes if metric in (entry.get(name) or {})), scopes[0]
        )
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
