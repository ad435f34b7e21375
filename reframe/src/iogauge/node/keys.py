"""The keys of a fingerprint as data: :data:`keys.ini` has them, and says which start a new series when they change."""

from __future__ import annotations

import configparser
import functools
from pathlib import Path


@functools.cache
def rows() -> configparser.ConfigParser:
    """Return the rows of keys.ini."""
    table = configparser.ConfigParser(delimiters="=", interpolation=None)
    table.read(Path(__file__).with_name("keys.ini"), encoding="utf-8")
    return table


@functools.cache
def starred() -> tuple[str, ...]:
    """Return the keys (patterns of fnmatch) on which a result depends by design. Other keys only explain a change."""
    words = (word for row in rows().values() for word in row.get("keys", "").split())
    return tuple(word[1:] for word in words if word.startswith("+"))


@functools.cache
def tunables() -> dict[str, tuple[str, ...]]:
    """Return the settings of Lustre's client that a fingerprint keeps, by the kind of device that has them."""
    names = [word.strip("+").split(".") for word in rows()["client"]["keys"].split()]
    kinds = dict.fromkeys(kind for _, kind, _ in names)
    return {kind: tuple(name for _, of, name in names if of == kind) for kind in kinds}
