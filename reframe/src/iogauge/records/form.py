"""Objects of JSON as dataclasses that keep the keys that they do not know, and the order of all keys.

So an object that an older or a newer version wrote is read, and written back as it was.
"""

from __future__ import annotations

import math
import reprlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar, Union

from iogauge.core import untrusted

#: Metadata of a field that a new object leaves out if it is None.
LEFT_OUT: Final[Mapping[str, Any]] = {"left out": True}


def named(key: str) -> Mapping[str, Any]:
    """Return the metadata of a field whose key in JSON has another name."""
    return {"key": key}


_Form = TypeVar("_Form", bound="Form")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An object of JSON: the fields of a subclass are its keys.

    A field without a default must be there. A value that is there must have the field's type; ``Any`` takes every
    value. The constructor does not look at the values, :meth:`from_json` does.
    """

    #: Keys that are not declared, and their values.
    more: Mapping[str, Any] = field(default_factory=dict)
    #: The keys in JSON, in their order; empty: those of a new object.
    order: tuple[str, ...] = ()

    @classmethod
    def from_json(cls: type[_Form], values: object, where: str = "") -> _Form:
        """Build the object from what JSON holds; raises TypeError or ValueError that names the key.

        ``where`` stands before the keys in the message.
        """
        if not isinstance(values, Mapping):
            found = reprlib.repr(values)
            raise TypeError(f"{where.rstrip('.') or 'the record'} is {found}: expected an object")
        keys = _keys(cls)
        given: dict[str, Any] = {}
        for name, key in keys.items():
            if name in values:
                given[key.attribute] = key.read(values[name], where + name)
            elif key.required:
                raise TypeError(f"the key {where}{name} is missing")
        more = {name: values[name] for name in values if name not in keys}
        form = cls(**given, more=more, order=tuple(values))
        form._check(where)
        return form

    def _check(self, where: str) -> None:
        """Raise TypeError or ValueError for values that have the right type and are wrong all the same."""

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON holds it."""
        keys = _keys(type(self))
        order = self.order or tuple(
            name
            for name, key in keys.items()
            if not key.left_out or getattr(self, key.attribute) is not None
        )
        return {
            name: _plain(getattr(self, keys[name].attribute)) if name in keys else self.more[name]
            for name in order
        }


@dataclass(frozen=True, slots=True)
class _Key:
    """A declared key: the attribute that holds its value, and how the value is read."""

    attribute: str
    read: Callable[[Any, str], Any]
    required: bool
    left_out: bool


_KEYS: Final[dict[type[Any], Mapping[str, _Key]]] = {}


def _keys(form: type[Any]) -> Mapping[str, _Key]:
    """Return the declared keys of a form by their name in JSON."""
    if form not in _KEYS:
        _KEYS[form] = _find_keys(form)
    return _KEYS[form]


def _find_keys(form: type[Any]) -> Mapping[str, _Key]:
    kinds = typing.get_type_hints(form)

    def key(one: Field[Any]) -> _Key:
        required = one.default is MISSING and one.default_factory is MISSING
        return _Key(one.name, _reader(kinds[one.name]), required, "left out" in one.metadata)

    declared = [one for one in fields(form) if one.name not in ("more", "order")]
    return {one.metadata.get("key", one.name): key(one) for one in declared}


def _reader(kind: Any) -> Callable[[Any, str], Any]:
    """Return the function that turns a value of JSON into one of a type, or raises TypeError."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        (sort,) = (one for one in inner if one is not type(None))
        read = _reader(sort) if issubclass(sort, Form) else partial(_read_plain, sort, kind)
        return lambda value, where: None if value is None else read(value, where)
    if kind is Any:
        return lambda value, where: value
    if origin is tuple and issubclass(inner[0], Form):
        return partial(_read_forms, inner[0])
    if isinstance(kind, type) and issubclass(kind, Form):
        return lambda value, where: kind.from_json(value, f"{where}.")
    sort = dict if origin is Mapping else kind
    return partial(_read_plain, sort, sort)


def _read_forms(form: type[Form], value: Any, where: str) -> tuple[Form, ...]:
    entries = untrusted.build(list, value, where)
    return tuple(form.from_json(one, f"{where}[{n}].") for n, one in enumerate(entries))


def _read_plain(sort: type[Any], kind: Any, value: Any, where: str) -> Any:
    if type(value) is sort and (sort is not float or math.isfinite(value)):
        return value  # what build would say, sooner
    return untrusted.build(kind, value, where)


def _plain(value: Any) -> Any:
    if isinstance(value, Form):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.value if isinstance(value, Enum) else value
