"""Tables that fit a terminal: whole columns are left out, names and ids are never broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.telemetry.lines import one_line
from penstock.views.wording import UNKNOWN

if TYPE_CHECKING:
    from penstock.cli.output import Column

SHORTEST_TEXT = 24
"""A column of sentences is cut to no less than this many characters; it is left out before."""
_FAIR_TEXT = 40
"""A column of sentences has this many characters before columns of a higher rank are shown."""
_GAP = 2
_EDGES = 2


class FittedTable:
    """A table as wide as the console, of the columns that matter most.

    Args:
        rows: one object each.
        columns: in the order in which they are shown.
        wider: what shows the columns that do not fit; a line below the table names it.
        edge: blank lines and columns surround the table.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        columns: Sequence[Column],
        wider: str,
        edge: bool = True,
    ) -> None:
        self._columns, self._wider, self._edge = columns, wider, edge
        self._cells = [[one_line(column.cell(row)) for column in columns] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = fit(self._columns, self._cells, options.max_width)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=self._edge)
        shown = [(index, self._columns[index]) for index in widths]
        for index, column in shown:
            table.add_column(
                column.title,
                justify="right" if column.number else "left",
                width=widths[index],
                no_wrap=True,
                overflow="ellipsis",
            )
        for cells in self._cells:
            table.add_row(
                *(Text(cells[i], self._columns[i].styles.get(cells[i], "")) for i in widths)
            )
        # a single name may be wider than the console, which breaks the line, not the table
        width = max(options.max_width, total(list(widths.values())))
        yield from console.render(table, options.update_width(width))
        if hidden := len(self._columns) - len(widths):
            columns = "1 column" if hidden == 1 else f"{hidden} columns"
            yield Text(f"{columns} hidden; {self._wider}", "dim")


def fit(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], available: int
) -> dict[int, int]:
    """The columns to show, by index in their order, with their widths.

    The first column identifies the row and is always shown; another one is where it fits beside
    those of a lower rank, and of its own rank those on its left. Columns that hold nothing are
    shown only beside all others. Sentences take what is left, those of a lower rank first, each no
    more than it is long.

    Args:
        columns: of the table.
        cells: the texts of each row.
        available: characters of a line.
    """
    natural = [
        max(cell_len(text) for text in (column.title, *texts))
        for column, texts in zip(columns, _by_column(columns, cells), strict=True)
    ]
    least = [
        min(width, max(SHORTEST_TEXT, cell_len(column.title))) if column.sentence else width
        for column, width in zip(columns, natural, strict=True)
    ]
    fair = [
        min(width, max(_FAIR_TEXT, shortest)) if column.sentence else width
        for column, width, shortest in zip(columns, natural, least, strict=True)
    ]
    empty = _empty(columns, cells)
    order = sorted(range(len(columns)), key=lambda i: (i > 0, empty[i], columns[i].rank, i))
    chosen: list[int] = []
    for index in order:
        if chosen and empty[index] and len(chosen) < empty.count(False):
            break
        needed = [fair[i] if columns[i].rank < columns[index].rank else least[i] for i in chosen]
        if not chosen or total([*needed, least[index]]) <= available:
            chosen.append(index)
    widths = {index: least[index] for index in sorted(chosen)}
    for wanted in (fair, natural):
        for index in chosen:
            spare = max(0, available - total(list(widths.values())))
            widths[index] = min(wanted[index], widths[index] + spare)
    return widths


def total(widths: Sequence[int]) -> int:
    """Characters of a line with columns of these widths."""
    return sum(widths) + _GAP * (len(widths) - 1) + _EDGES


def _by_column(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return list(zip(*cells, strict=True)) if cells else [() for _ in columns]


def _empty(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[bool]:
    """Of each column, whether it holds nothing."""
    return [set(texts) <= {"", UNKNOWN} for texts in _by_column(columns, cells)]
