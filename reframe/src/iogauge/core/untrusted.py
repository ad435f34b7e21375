"""Treat outside input as data, never as code: bounded files, strict JSON, values of declared type.

Only regular files of bounded size are read. JSON follows RFC 8259, with finite numbers and bounded
nesting.
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
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NoReturn, Union

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator
    from typing_extensions import Self  # of Python 3.11

#: Largest file in bytes: a tool's output for 10,000 tasks is smaller.
LIMIT_BYTES = 256 << 20

#: Deepest nesting of objects and lists.
_DEPTH = 60


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
        value, end = _JSON.raw_decode(text, start)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for outer in level:
            if type(outer) is dict:
                inner += outer.values()
            elif type(outer) is list:
                inner += outer
        if not inner:
            return value, end
        level = inner
    raise ValueError("nested too deeply")


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
    have all its keys, and no others, but a :class:`Form` has its own rule.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An object of JSON whose older and newer forms are read too: the fields of a subclass are its keys.

    A field without a default must be there. A value that is there must have the field's type; ``Any`` takes every
    value. Keys that are not declared, and the order of all, are kept. The constructor does not look at the values,
    :meth:`from_json` does.
    """

    #: The object as JSON held it; empty if it is a new one.
    kept: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, values: object, where: str = "") -> Self:
        """Build the object from what JSON holds; raises TypeError or ValueError that names the key.

        ``where`` stands before the keys in the message.
        """
        form: Any = cls
        try:
            built: Self = _validator(form, build=True).validate_python(values)
        except ValueError as error:
            raise _as_told(error, where) from None
        return built

    @classmethod
    def fits(cls, values: object) -> bool:
        """Return whether JSON has all keys, with the types of their fields."""
        form: Any = cls
        return _validator(form, build=False).isinstance_python(values)

    def _check(self) -> None:
        """Raise TypeError or ValueError for values that have the right type and are wrong all the same."""

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON holds it."""
        form: Any = type(self)
        values = dict(self.kept)
        for name, key in _keys(form).items():
            value = getattr(self, key.name)
            is_own = value is not None or "left out" not in key.metadata
            if name in values or (is_own and not self.kept):
                values[name] = _plain(value)
        return values


@functools.lru_cache(maxsize=64)
def _keys(form: Any) -> Mapping[str, Field[Any]]:
    """Return the fields of a form by their keys in JSON; the metadata of a field may name its key."""
    keys = {}
    for key in fields(form):
        if key.name != "kept":
            keys[key.metadata.get("key", key.name)] = key
    return keys


@functools.lru_cache(maxsize=64)
def _validator(form: Any, build: bool) -> SchemaValidator:
    """Return what checks the keys of a form, and builds it from them."""
    from pydantic_core import SchemaValidator  # no agent reads a form

    if build:
        return SchemaValidator(_schema(form))
    return SchemaValidator(_keys_schema(form))


def _keys_schema(form: Any) -> Any:
    """Return the schema of a form's keys; those that are not declared are left out."""
    from pydantic_core import core_schema as core

    keys = {}
    for name, key in _keys(form).items():
        needed = key.default is MISSING and key.default_factory is MISSING
        schema = _schema(_hints(form)[key.name])
        keys[name] = core.typed_dict_field(schema, required=needed)
    return core.typed_dict_schema(keys, strict=True, extra_behavior="ignore")


def _schema(kind: Any) -> Any:
    """Return the schema of a type of a form's field. Nothing is converted but lists to tuples, and texts to members of an Enum."""
    from pydantic_core import core_schema as core

    whole = core.int_schema(strict=True, ge=-(2**63), lt=2**63)
    finite = core.float_schema(strict=True, allow_inf_nan=False)
    simple = {
        Any: core.any_schema(),
        str: core.str_schema(strict=True),
        int: whole,
        float: core.union_schema(
            [whole, finite],
            mode="left_to_right",
            custom_error_type="number",
            custom_error_message="expected a finite number",
        ),
    }
    origin, inner = _shape(kind)
    if kind in simple:
        return simple[kind]
    if types.NoneType in inner:
        return core.nullable_schema(_schema(inner[0]))
    if origin is tuple:
        items = core.list_schema(_schema(inner[0]), strict=True)
        return core.no_info_after_validator_function(tuple, items)
    if origin is not None:
        return core.dict_schema(*map(_schema, inner), strict=True)
    if issubclass(kind, Enum):
        values = core.literal_schema([member.value for member in kind])
        return core.no_info_after_validator_function(kind, values)
    built = functools.partial(_built, kind)
    return core.no_info_wrap_validator_function(built, _keys_schema(kind))


def _built(form: Any, values: Any, read: Callable[[Any], Any]) -> Form:
    """Return a form of what JSON held, once it is read."""
    given = {}
    keys = _keys(form)
    for name, value in read(values).items():
        given[keys[name].name] = value
    built: Form = form(**given, kept=values)
    built._check()
    return built


def _as_told(error: Any, where: str) -> TypeError | ValueError:
    """Return the first mistake of a form in words; ``where`` stands before its key."""
    (mistake, *_) = error.errors(include_url=False)
    place = where.rstrip(".")
    for part in mistake["loc"]:
        step = f".{part}"
        if isinstance(part, int):
            step = f"[{part}]"
        place += step
    place = place.lstrip(".")
    if mistake["type"] == "missing":
        return TypeError(f"the key {place} is missing")
    if mistake["type"] == "value_error":
        return ValueError(f"{place}.{mistake['ctx']['error']}".lstrip("."))
    found = reprlib.repr(mistake["input"])
    expected = mistake["msg"].replace("Input should be", "expected")
    return TypeError(f"{place or 'the record'} is {found}: {expected}")


def _plain(value: Any) -> Any:
    if isinstance(value, Form):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


def numbers(values: object) -> list[float]:
    """Return the finite numbers of a list; what is no list has none."""
    finite: list[float] = []
    if isinstance(values, (list, tuple)):
        for value in values:
            if type(value) in (int, float) and abs(value) < 1e300:  # false for NaN
                finite.append(float(value))
    return finite


def texts(values: object) -> list[str]:
    """Return the values of a list from a file as text; what is no list has none."""
    if not isinstance(values, (list, tuple)):
        return []
    return [str(value) for value in values]
