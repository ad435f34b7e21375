"""What comes from outside is data: files of bounded size, strict JSON, values of the declared type.

A file that is no regular one is not opened to be waited for, one that is too large is not read. JSON is
what RFC 8259 calls so, with finite numbers, not nested deeper than any document of ours.
"""

from __future__ import annotations

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
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NoReturn, Union

#: Bytes that a file may have: what a tool printed for 10,000 tasks is smaller.
LIMIT_BYTES: Final = 256 << 20

#: Levels of objects and lists in each other.
_DEPTH: Final = 60


class NotFinite(ValueError):
    """A number that is none: NaN, Infinity, or one that no float can hold."""


def open_file(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> BinaryIO:
    """A regular file of at most ``limit`` bytes, opened for reading; raises OSError that names it.

    A named pipe or a device that lies in its place is not waited for.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if info.st_size > limit:
            said = f"{info.st_size} bytes, at most {limit} are read"
            raise OSError(errno.EFBIG, said, os.fspath(path))
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_bytes(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> bytes:
    """Content of a file, see :func:`open_file`."""
    with open_file(path, limit) as file:
        data = file.read(limit + 1)
    if len(data) > limit:  # it grew meanwhile
        raise OSError(errno.EFBIG, f"more than {limit} bytes", os.fspath(path))
    return data


def read_text(
    path: str | os.PathLike[str], limit: int = LIMIT_BYTES, errors: str = "replace"
) -> str:
    """Text of a file, line ends as ``\\n``; bytes that are no UTF-8 as ``errors`` says.

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


_JSON: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)


def decode_json(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at ``text[start]``, and the position behind it; raises ValueError."""
    try:
        value, end = _JSON.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value, end
    raise ValueError("nested too deeply")


def parse_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError."""
    text = text.strip(" \t\r\n")
    value, end = decode_json(text)
    if end != len(text):
        raise ValueError(f"extra data after the JSON, at character {end}")
    return value


def read_json(path: str | os.PathLike[str], limit: int = LIMIT_BYTES) -> Any:
    """The value of a JSON file; raises OSError or ValueError that names the file."""
    try:
        return parse_json(read_bytes(path, limit).decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"{Path(path).name}: not JSON: {error}") from error


@functools.lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def build(kind: Any, value: Any, where: str = "") -> Any:
    """A value of a type from what JSON holds; raises TypeError that says where something else stands.

    ``kind``: str, bool, int (of 64 bits), float (finite), None, unions, Literal and Enum of text, tuples,
    mappings from text, and dataclasses of these. Nothing is converted, but that a whole number may stand for a float,
    and a list is what JSON has for a tuple. A dataclass must have all its keys, and no others.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        for one in inner:
            try:
                return build(one, value, where)
            except TypeError:
                continue
    elif origin is Literal:
        if type(value) is str and value in inner:
            return value
    elif isinstance(kind, type) and issubclass(kind, Enum):
        if type(value) is str and value in [one.value for one in kind]:
            return kind(value)
    elif origin is tuple and isinstance(value, (list, tuple)):
        kinds = [inner[0]] * len(value) if inner[1:] == (...,) else list(inner)
        if len(kinds) == len(value):
            numbered = enumerate(zip(kinds, value, strict=True))
            return tuple(build(one, item, f"{where}[{n}]") for n, (one, item) in numbered)
    elif isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {
            build(inner[0], k, where): build(inner[1], v, f"{where}.{k}") for k, v in value.items()
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
    elif type(value) is kind:
        return value
    name = getattr(kind, "__name__", str(kind))
    raise TypeError(f"{where or 'the value'} is {reprlib.repr(value)}: expected {name}")


def _build_dataclass(kind: type, value: Mapping[Any, Any], where: str) -> Any:
    names = [field.name for field in fields(kind)]
    if wrong := [name for name in names if name not in value]:
        raise TypeError(f"{where or kind.__name__}: the key {wrong[0]!r} is missing")
    if wrong := [str(name) for name in value if name not in names]:
        raise TypeError(f"{where or kind.__name__} has no key {wrong[0][:80]!r}")
    return kind(**{n: build(_hints(kind)[n], value[n], f"{where}.{n}".lstrip(".")) for n in names})
