"""Columns of text that fit the width of a terminal or of a log, without boxes.

Rich gives the width: the terminal's, or ``COLUMNS``. If a row does not fit, its first cell gets a
line of its own above the others. If that does not suffice, the widest column is folded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from iogauge.core.text import visible
from iogauge.judge.verdict import Verdict

_GAP: Final = 2

#: No column is folded to less.
_NARROWEST: Final = 6

#: A command within a sentence, with its options, and a character that keeps it on one line.
_COMMAND: Final = re.compile(
    r"\biogauge [a-z]+( [a-z]+(?=[ ']-))?( --?[a-z][\w=:.-]*( [\w.:][\w.:-]*)?)*"
)
WHOLE: Final = "\ue000"


def keep_commands(text: str, width: int) -> str:
    """Put :data:`WHOLE` in the place of the blanks within commands that fit so many characters."""

    def kept(command: re.Match[str]) -> str:
        if len(command[0]) > width:
            return command[0]
        return command[0].replace(" ", WHOLE)

    return _COMMAND.sub(kept, text)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    #: Its cells are aligned to the right.
    right: bool = False
    #: Its cells are never folded.
    whole: bool = False


def columns(
    *headings: str, right: Collection[str] = (), whole: Collection[str] = ()
) -> tuple[Column, ...]:
    """Return columns; ``right`` and ``whole`` are the headings of those that are so."""
    return tuple(
        Column(heading, heading in right, heading in whole) for heading in headings
    )


class _Look(NamedTuple):
    """How a verdict is told from the others: a sign without colours, a letter, and its style on a terminal."""

    sign: str
    letter: str
    style: str


#: The look of each verdict, the gravest first.
LOOKS: Final = {
    Verdict.FAIL: _Look("✗", "F", "bold red"),
    Verdict.INVALID: _Look("⊘", "I", "bold magenta"),
    Verdict.ERROR: _Look("✗", "E", "bold red"),
    Verdict.CONTAMINATED: _Look("≈", "C", "yellow"),
    Verdict.UNSTABLE: _Look("≈", "~", "yellow"),
    Verdict.UNREFERENCED: _Look("?", "?", "cyan"),
    Verdict.PASS: _Look("✓", "P", "green"),
}

#: Words that have a style wherever they are a cell.
STYLES: Final = {
    **{verdict.value: look.style for verdict, look in LOOKS.items()},
    **{"better": "green", "worse": "bold red"},
}


@dataclass(frozen=True, slots=True)
class Table:
    """Blocks of rows with common columns, numbered notes below them, and lines below those.

    All text may come from outside. A row with an empty first cell continues the row above it.
    """

    columns: Sequence[Column]
    #: Rows by the line above them, with the headings; rows below an empty line stand alone.
    blocks: Mapping[str, Sequence[Sequence[str]]]
    notes: Sequence[str] = ()
    #: Lines below the notes.
    footer: Sequence[str] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """Yield the lines, none of them wider than the console."""
        width = options.max_width
        shape = _Shape.fitting(self, width)
        for heading, rows in self.blocks.items():
            if heading:
                yield from _folded(console, heading, width, style="bold")
                headings = [column.heading for column in self.columns]
                styles = dict.fromkeys(headings, "dim")
                if shape.apart:
                    headings[0] = ""
                yield from shape.lines(console, headings, styles)
            for row in rows:
                yield from shape.lines(console, row, STYLES)
        for number, note in enumerate(self.notes, 1):
            mark = f"[{number}] "
            lines = _folded(console, note, width - len(mark))
            for line in lines:
                yield Text(mark).append_text(line)
                mark = " " * len(mark)
        for text in self.footer:
            yield from _folded(console, text, width)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Widths of the columns, in characters."""

    columns: Sequence[Column]
    widths: Sequence[int]
    #: The first cell of a row gets a line of its own.
    apart: bool
    #: Characters in a line, at most.
    width: int

    @staticmethod
    def fitting(table: Table, width: int) -> _Shape:
        """Return the shape of a table in so many characters."""
        widths = [cell_len(visible(column.heading)) for column in table.columns]
        words = [0] * len(widths)
        for block in table.blocks.values():
            for row in block:
                for n in range(len(widths)):
                    text = visible(row[n])
                    widths[n] = max(widths[n], cell_len(text))
                    words[n] = max([words[n], *map(cell_len, text.split())])
        if _total(widths) <= width:
            return _Shape(table.columns, widths, False, width)
        # The first column becomes the indentation.
        widths[0] = 0
        soft = [n for n, column in enumerate(table.columns) if not column.whole]
        # Words, such as a session's name, are cut only if nothing else helps.
        for least in (words, [0] * len(words)):
            while _total(widths) > width:
                wide = [n for n in soft if widths[n] > max(least[n], _NARROWEST)]
                if not wide:
                    break
                widths[max(wide, key=widths.__getitem__)] -= 1
        return _Shape(table.columns, widths, True, width)

    def lines(
        self, console: Console, cells: Sequence[str], styles: Mapping[str, str]
    ) -> Iterator[Text]:
        """Yield the lines of one row; ``styles`` is the style of cells, by their text."""
        if self.apart and cells[0]:
            yield from _folded(
                console, cells[0], self.width, style=styles.get(cells[0], "")
            )
            if not any(cells[1:]):
                return
            cells = ("", *cells[1:])
        folded = [
            _folded(console, cell, width, style=styles.get(cell, ""))
            for cell, width in zip(cells, self.widths, strict=True)
        ]
        for nth in range(max(map(len, folded))):
            line = Text(no_wrap=True)
            for column, width, texts in zip(
                self.columns, self.widths, folded, strict=True
            ):
                text = texts[nth] if nth < len(texts) else Text()
                room = Text(" " * (width - text.cell_len))
                cell = room + text if column.right else text + room
                line.append_text(cell)
                line.append(" " * _GAP)
            line.rstrip()
            yield line


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _folded(console: Console, text: str, width: int, style: str = "") -> list[Text]:
    """Return outside text as lines of at most so many characters; at least one line."""
    text = visible(text)
    if cell_len(text) <= width:
        return [Text(text, style=style)]
    kept = Text(keep_commands(text, width))
    lines = []
    for line in kept.wrap(console, max(width, 1), overflow="fold"):
        plain = line.plain.rstrip().replace(WHOLE, " ")
        lines.append(Text(plain, style=style))
    return lines or [Text()]
