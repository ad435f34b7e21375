"""What a shared library is: its own name, and which functions it defines (elf(5)), whatever its file is called.

Written for 64-bit files. A process of 64 bits loads no others.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

from iogauge.core.untrusted import read_bytes

_DYNAMIC = 6
_SYMBOLS = 11
_SONAME = 14
#: A section's header: name, type, flags, address, offset, size, link, info, alignment, size of an entry.
_SECTION = "IIQQQQIIQQ"


class Shared(NamedTuple):
    """A shared library: its own name, the wanted functions that it defines, and all names in it."""

    name: str
    defined: frozenset[str]
    texts: bytes


class _Section(NamedTuple):
    kind: int
    content: bytes
    link: int


def look(path: str, functions: Collection[str]) -> Shared:
    """Return what a library's file says, and which of some functions it defines; raises OSError or ValueError."""
    data = read_bytes(path)
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path}: not a 64-bit ELF file")
    order = "<" if data[5] == 1 else ">"
    try:
        sections = list(_sections(data, order))
        symbols = next(one for one in sections if one.kind == _SYMBOLS)
        texts = sections[symbols.link].content
        dynamic = next((one for one in sections if one.kind == _DYNAMIC), None)
        name = _name(dynamic.content, texts, order) if dynamic else ""
        defined = _defined(symbols.content, texts, order, functions)
    except (struct.error, StopIteration, IndexError) as error:
        raise ValueError(f"{path}: no table of symbols") from error
    return Shared(name, defined, texts)


def _sections(data: bytes, order: str) -> Iterator[_Section]:
    (first,) = struct.unpack_from(f"{order}Q", data, 0x28)
    size, count = struct.unpack_from(f"{order}HH", data, 0x3A)
    for number in range(count):
        header = struct.unpack_from(order + _SECTION, data, first + size * number)
        start, length = header[4], header[5]
        yield _Section(header[1], data[start : start + length], header[6])


def _name(dynamic: bytes, texts: bytes, order: str) -> str:
    for tag, value in struct.iter_unpack(f"{order}QQ", dynamic):
        if tag == _SONAME:
            return texts[value : texts.index(b"\0", value)].decode(errors="replace")
    return ""


def _defined(
    symbols: bytes, texts: bytes, order: str, functions: Collection[str]
) -> frozenset[str]:
    # Names share their ends: a name may begin within another one.
    wanted: dict[int, str] = {}
    for function in functions:
        text = function.encode() + b"\0"
        at = texts.find(text)
        while at >= 0:
            wanted[at] = function
            at = texts.find(text, at + 1)
    found = set()
    for name, info, _, section, _, _ in struct.iter_unpack(f"{order}IBBHQQ", symbols):
        # Undefined symbols have no section, local ones no binding.
        if name in wanted and section and info >> 4:
            found.add(wanted[name])
    return frozenset(found)
