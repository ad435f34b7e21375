"""Text that is safe to print, and digests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence


def text_digest(text: str) -> str:
    """Return twelve hex digits that name a text."""
    import hashlib  # brings OpenSSL, an eighth of an agent's start

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def digest(value: object) -> str:
    """Return twelve hex digits that identify plain data, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return text_digest(text)


def visible(text: str) -> str:
    """Return outside text with control characters shown, not acted upon by the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def visible_lines(text: str) -> str:
    """Return text of several lines as :func:`visible` does; its line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def count(number: object, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``, ``? nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(names: Sequence[str], most: int = 6) -> str:
    """Return the first of several names, and how many more there are: ``n1, n2 and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def because(reason: str) -> str:
    """Return a reason in brackets, to be put behind what it explains; empty without a reason."""
    return f" ({reason})" if reason else ""


def after(subject: str, text: str) -> str:
    """Return what a text says of a subject that stands before it already."""
    head, rest = text[: len(subject)], text[len(subject) :]
    return rest.lstrip(": ") if head == subject and rest[:1] in (":", " ") else text


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean X?)"`` with the known name that is most like a name, or nothing."""
    similar = nearest(name, known)
    return f" (did you mean {similar}?)" if similar else ""


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like a name; empty if none is.

    Names that differ only in capitals are alike.
    """
    import difflib  # an agent on a node needs it not

    names = {one.casefold(): one for one in known}
    similar = difflib.get_close_matches(str(name).casefold(), names, 1)
    return names[similar[0]] if similar else ""
