"""A tool's options as a dataclass: each field says its word on the command line, and their order is that of the fields."""

from dataclasses import MISSING, field, fields
from typing import Any

from iogauge.core.units import tool_size


def option(word: str, default: Any = MISSING, *, size: bool = False) -> Any:
    """Return a field that an option tells: ``-n`` and its value in the next word, or ``--seed=`` with the value behind it.

    True stands for the word alone. What is None, False, empty or 0 is left out. ``size`` means bytes.
    """
    return field(default=default, metadata={"word": word, "size": size})


def arguments(options: Any) -> list[str]:
    """Return the words of all options that are given."""
    words: list[str] = []
    for given in fields(options):
        value, word = getattr(options, given.name), given.metadata["word"]
        if value is True:
            words.append(word)
        elif value:
            text = str(value)
            if given.metadata["size"]:
                text = tool_size(value)
            *first, last = word.split(" ")
            words += first
            if last.endswith("="):
                words.append(last + text)
            else:
                words += [last, text]
    return words
