"""The keys of a fingerprint as data: :data:`keys.ini` has them, and says which start a new series when they change."""

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
    starred = []
    for row in rows().values():
        for word in row.get("keys", "").split():
            if word.startswith("+"):
                starred.append(word[1:])
    return tuple(starred)


@functools.cache
def tunables() -> dict[str, tuple[str, ...]]:
    """Return the settings of Lustre's client that a fingerprint keeps, by the kind of device that has them."""
    tunables: dict[str, tuple[str, ...]] = {}
    for word in rows()["client"]["keys"].split():
        _, kind, name = word.strip("+").split(".")
        tunables[kind] = (*tunables.get(kind, ()), name)
    return tunables
