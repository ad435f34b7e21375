"""Treat outside input as data, never as code: bounded files, strict JSON, values of declared type.

Only regular files of bounded size are read. JSON follows RFC 8259, with finite numbers.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import reprlib
import stat
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn, Union

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11

#: Largest file in bytes: a tool's output for 10,000 tasks is smaller.
LIMIT_BYTES = 256 << 20


class NotFinite(ValueError):
    """A JSON number is not finite: NaN, Infinity, or too large for a float."""


def is_number(value: object) -> bool:
    """Return whether a value is a finite number (True and False are not)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def open_file(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> BinaryIO:
    """Open a regular file of at most ``limit`` bytes for reading; raises OSError that names it.

    Opening never blocks, even if the path is a named pipe or a device.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(
                errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)
            )
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if info.st_size > limit:
            problem = f"{info.st_size} bytes, at most {limit} are read"
            raise OSError(errno.EFBIG, problem, os.fspath(path))
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_bytes(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> bytes:
    """Return the content of a file, see :func:`open_file`."""
    with open_file(path, limit) as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"more than {limit} bytes", os.fspath(path))
    return data


def read_text(
    path: str | os.PathLike[str], limit: int = LIMIT_BYTES, errors: str = "replace"
) -> str:
    """Return the text of a file, line ends as ``\\n``; ``errors`` is for bytes that are not UTF-8.

    Raises OSError, and with ``errors="strict"`` UnicodeDecodeError.
    """
    text = read_bytes(path, limit).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _no_number(name: str) -> NoReturn:
    raise NotFinite(f"the number {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotFinite(f"the number {text[:40]}")
    return value


_JSON = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """Return the JSON value at ``text[start]`` and the position behind it; raises ValueError."""
    try:
        found: tuple[Any, int] = _JSON.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; raises ValueError."""
    text = text.strip(" \t\r\n")
    value, end = decode_json(text)
    if end != len(text):
        raise ValueError(f"extra data after the JSON, at character {end}")
    return value


def read_json(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> Any:
    """Return the value of a JSON file; raises OSError or ValueError that names the file."""
    try:
        return parse_json(read_bytes(path, limit).decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{Path(path).name}: not JSON: {error}") from error


@functools.lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


#: Types of which every value is right.
_PLAIN = (str, bool, types.NoneType)


@functools.lru_cache(maxsize=256)
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def build(kind: Any, value: Any, where: str = "") -> Any:  # noqa: C901
    """Build a value of a type from JSON data; raises TypeError that names the wrong part.

    ``kind`` may be str, bool, int (64 bits), float (finite), None, a union, or a Literal of
    text. It may be a tuple, a mapping from text, or a dataclass of these. Nothing is converted,
    with two exceptions: a whole number may stand for a float, a list for a tuple. A dataclass must
    have all its keys, and no others.
    """
    if kind is Any or (type(value) is kind and kind not in (int, float)):
        return value
    origin, inner = _shape(kind)
    if origin in (Union, types.UnionType):
        if type(value) in _PLAIN and type(value) in inner:
            return value
        if value is not None and len(inner) == 2 and is_dataclass(inner[0]):
            return build(inner[0], value, where)
        for member in inner:
            if member not in _PLAIN:
                with contextlib.suppress(TypeError):
                    return build(member, value, where)
    elif origin is Literal:
        if type(value) is str and value in inner:
            return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        kinds = list(inner)
        if inner[1:] == (...,):
            kinds = [inner[0]] * len(value)
        if len(kinds) == len(value):
            numbered = enumerate(zip(kinds, value, strict=True))
            return tuple(
                build(member, item, f"{where}[{n}]") for n, (member, item) in numbered
            )
    elif (
        isinstance(origin, type)
        and issubclass(origin, Mapping)
        and isinstance(value, Mapping)
    ):
        return {
            build(inner[0], k, where): build(inner[1], v, f"{where}.{k}")
            for k, v in value.items()
        }
    elif is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return _build_dataclass(kind, value, where)
    elif kind in (None, type(None)):
        if value is None:
            return None
    elif kind in (int, float):
        whole = type(value) is int and -(2**63) <= value < 2**63
        if whole or (kind is float and type(value) is float and math.isfinite(value)):
            return value
    name = getattr(kind, "__name__", str(kind))
    raise TypeError(f"{where or 'the value'} is {reprlib.repr(value)}: expected {name}")


def _build_dataclass(kind: type, value: Mapping[Any, Any], where: str) -> Any:
    names = [field.name for field in fields(kind)]
    for name in names:
        if name not in value:
            raise TypeError(f"{where or kind.__name__}: the key {name!r} is missing")
    for name in value:
        if name not in names:
            raise TypeError(f"{where or kind.__name__} has no key {str(name)[:80]!r}")
    hints = _hints(kind)
    built = {}
    for name in names:
        built[name] = build(hints[name], value[name], f"{where}.{name}".lstrip("."))
    return kind(**built)


class Plain:
    """A dataclass that goes through JSON: :func:`build` reads what it wrote, and nothing else."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON file; :meth:`from_json` is its inverse."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Return the object that :meth:`to_json` made plain; raises TypeError or ValueError on other data."""
        built: Self = build(cls, data)
        return built
