"""One name for a case: the table's, ``IorPosix per-process sequential direct``. Every ``-n`` takes it, with quotes or none."""

import re
from collections.abc import Iterable, Sequence

from iogauge.core.text import did_you_mean
from iogauge.records.record import short_name

#: Options that take a case's name.
_NAMING = ("-n", "--name", "-x", "--exclude")

#: A word that ends a name without quotes: an option, or a session.
_OTHER = re.compile(r"-|\d{8}T\d{6}-")


def joined(arguments: Sequence[str]) -> list[str]:
    """Return a command line with each name as one word: ``-n IorPosix shared`` becomes two words."""
    words: list[str] = []
    naming = False
    for place, word in enumerate(arguments):
        if (
            naming
            and place > 1
            and arguments[place - 1] not in _NAMING
            and not _OTHER.match(word)
        ):
            words[-1] += f" {word}"
            continue
        naming = word in _NAMING or (naming and arguments[place - 1] in _NAMING)
        words.append(word)
    return words


def pattern_of(name: str) -> str:
    """Return a case's name as the expression that ReFrame's ``-n`` finds in its own name of the case."""
    if " " not in name.strip():
        return name
    if "%" in name:  # ReFrame's own name, in which it finds no blanks
        return name.replace(" ", "")
    return exactly(name)


def exactly(name: str) -> str:
    """Return the expression that fits the case of a name in the table alone."""
    check, *values = name.split()
    parts = "".join(rf"%[\w.]+={re.escape(value)}" for value in values)
    return rf"^{re.escape(check)}{parts}(?=%\.|$)"


def for_reframe(arguments: Sequence[str]) -> list[str]:
    """Return ReFrame's arguments with names of the table as expressions."""
    words = list(arguments)
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if equals and option in _NAMING:
            words[place] = f"{option}={pattern_of(value)}"
        elif place and arguments[place - 1] in _NAMING:
            words[place] = pattern_of(word)
    return words


def chosen(name: str, cases: Iterable[str | None]) -> list[str]:
    """Return the recorded cases that a name fits: the table's name, or an expression in any form of it.

    Raises ValueError for a name that fits none of them, with what was meant perhaps.
    """
    shown = {case: short_name(case) for case in cases if case}
    exact = [case for case, short in shown.items() if short == name]
    if exact:
        return exact
    try:
        find = re.compile(name).search
    except re.error as error:
        raise ValueError(f"-n {name!r} is no regular expression: {error}") from error
    found = [
        case
        for case, short in shown.items()
        if find(short) or find(case) or find(case.replace(" ", ""))
    ]
    if shown and not found:
        known = {*shown.values(), *(short.split()[0] for short in shown.values())}
        raise ValueError(
            f"-n {name!r} fits no recorded case{did_you_mean(name, known)}"
        )
    return found
