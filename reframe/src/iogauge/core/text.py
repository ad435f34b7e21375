"""Text that is safe to print, and digests."""

import json
import sys
from collections.abc import Iterable, Sequence


def text_digest(text: str) -> str:
    """Return twelve hex digits that name a text."""
    import hashlib  # brings OpenSSL, an eighth of an agent's start

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def digest(value: object) -> str:
    """Return twelve hex digits that identify plain data, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return text_digest(text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return repr(character)[1:-1]


def visible(text: str) -> str:
    """Return outside text with control characters shown, not acted upon by the terminal."""
    return "".join(map(_shown, text))


def say(text: str) -> None:
    """Print a line, whatever is in it."""
    print(visible(text), flush=True)


def complain(text: str) -> None:
    """Print a line to the standard error, whatever is in it."""
    print(visible(text), file=sys.stderr, flush=True)


def visible_lines(text: str) -> str:
    """Return text of several lines as :func:`visible` does; its line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def count(number: object, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``, ``? nodes``."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def some(names: Sequence[str], most: int = 6) -> str:
    """Return the first of several names, and how many more there are: ``n1, n2 and 3 more``."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    if more > 0:
        return f"{shown} and {more} more"
    return shown


def because(reason: str) -> str:
    """Return a reason in brackets, to be put behind what it explains; empty without a reason."""
    if not reason:
        return ""
    return f" ({reason})"


def after(subject: str, text: str) -> str:
    """Return what a text says of a subject that stands before it already."""
    head, rest = text[: len(subject)], text[len(subject) :]
    if head == subject and rest[:1] in (":", " "):
        return rest.lstrip(": ")
    return text


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``" (did you mean X?)"`` with the known name that is most like a name, or nothing."""
    similar = nearest(name, known)
    if not similar:
        return ""
    return f" (did you mean {similar}?)"


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the known name that is most like a name; empty if none is.

    Names that differ only in capitals are alike.
    """
    import difflib  # an agent on a node needs it not

    names = {candidate.casefold(): candidate for candidate in known}
    similar = difflib.get_close_matches(str(name).casefold(), names, 1)
    if not similar:
        return ""
    return names[similar[0]]
