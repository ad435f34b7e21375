"""Columns of text that fit the width of a terminal or of a log, without boxes.

Rich gives the width: the terminal's, or ``COLUMNS``. If a row does not fit, its first cell gets a
line of its own above the others, the last column is folded, and then the widest one.
"""

import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.text import Text

from iogauge.core.text import visible
from iogauge.judge.verdict import Verdict

_GAP: Final = 2

#: Characters of the last column, at least, if its texts are longer.
_FOLDED: Final = 20

#: A command within a sentence, with its options, and a character that keeps it on one line.
_COMMAND: Final = re.compile(
    r"\biogauge [a-z]+( [a-z]+(?=[ ']-))?( --?[a-z][\w=:.-]*( [\w.:][\w.:-]*)?)*"
)
_WHOLE: Final = "\ue000"


def fold(line: str, width: int, indent: str = "") -> str:
    """Return a line broken between words, with an indentation of all lines but the first.

    A longer word, such as a path, stays whole. So does a command that fits the width.
    """

    def kept(command: re.Match[str]) -> str:
        if len(command[0]) > width:
            return command[0]
        return command[0].replace(" ", _WHOLE)

    lines = textwrap.fill(
        _COMMAND.sub(kept, line),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_WHOLE, " ")


def _line(text: str, width: int, indent: str = "", style: str = "") -> Text:
    """Return outside text with a style, folded by words."""
    lines = fold(visible(text), width, indent)
    return Text(lines, style, no_wrap=True, overflow="ignore")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    heading: str
    #: Its cells are aligned to the right.
    right: bool = False


def columns(*headings: str, right: Collection[str] = ()) -> tuple[Column, ...]:
    """Return columns; ``right`` are the headings of those that are aligned to the right."""
    return tuple(Column(heading, heading in right) for heading in headings)


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
    ) -> Iterator[RenderableType]:
        """Yield the blocks, the notes and the lines."""
        headings = [column.heading for column in self.columns]
        every: list[Sequence[str]] = [headings]
        for rows in self.blocks.values():
            every += rows
        widths = []
        for cells in zip(*every, strict=True):
            widths.append(max(cell_len(visible(cell)) for cell in cells))
        room = options.max_width - _GAP * (len(widths) - 1)
        is_narrow = sum(widths) > room
        if is_narrow:
            headings[0], widths[0] = "", 0
            widths[-1] = min(widths[-1], _FOLDED)
            widest = max(range(len(widths)), key=widths.__getitem__)
            widths[widest] -= min(widths[widest] // 2, max(sum(widths) - room, 0))
        for heading, rows in self.blocks.items():
            if heading:
                yield _line(heading, options.max_width, style="bold")
                yield self._grid(widths, [headings], dict.fromkeys(headings, "dim"))
            if not is_narrow:
                yield self._grid(widths, rows, STYLES)
                continue
            for first, *others in rows:
                if first:
                    yield _line(first, options.max_width)
                yield self._grid(widths, [["", *others]], STYLES)
        for number, note in enumerate(self.notes, 1):
            mark = f"[{number}] "
            yield _line(f"{mark}{note}", options.max_width, " " * len(mark))
        for line in self.footer:
            yield _line(line, options.max_width)

    def _grid(
        self,
        widths: Sequence[int],
        rows: Sequence[Sequence[str]],
        styles: Mapping[str, str],
    ) -> rich.table.Table:
        """Return rows, of which the last column takes what is left of the width."""
        grid = rich.table.Table.grid(padding=(0, _GAP, 0, 0))
        for column, width in zip(self.columns[:-1], widths, strict=False):
            justify: JustifyMethod = "left"
            if column.right:
                justify = "right"
            grid.add_column(width=width, justify=justify, overflow="fold")
        grid.add_column(overflow="fold")
        for row in rows:
            cells = [Text(visible(cell), styles.get(cell, "")) for cell in row]
            grid.add_row(*cells)
        return grid
