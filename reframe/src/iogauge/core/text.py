"""Text that is safe to print, and digests."""

from __future__ import annotations

import hashlib
import json


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def digest(value: object) -> str:
    """Twelve hex digits that name plain data, whatever the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def visible(text: str) -> str:
    """Text from outside with control characters shown, not acted upon by the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def visible_lines(text: str) -> str:
    """As :func:`visible`, for text of several lines: they stay lines."""
    return "\n".join(map(visible, text.split("\n")))
