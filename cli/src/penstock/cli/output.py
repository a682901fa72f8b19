"""The output of commands: tables and lines as text, or JSON.

Names, keys, reasons and error texts come from outside. Every command prints through this module,
where whatever they hold neither begins a line of its own nor steers the terminal.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import msgspec

from penstock.cli.session import Session
from penstock.telemetry.lines import one_line, printable_json

_UNLIMITED = 1_000_000
"""Characters of a line that no row reaches."""


class Column(NamedTuple):
    """A column of a listing.

    Attributes:
        title: above it.
        cell: its text in a row.
        number: aligned to the right.
        rank: on a narrow terminal columns of a higher rank are left out first, of equal ones the
            rightmost; the first column of a table never is.
        sentence: text that may be cut, unlike ids and numbers.
        styles: the colour of a cell by its text.
    """

    title: str
    cell: Callable[[Any], str]
    number: bool = False
    rank: int = 2
    sentence: bool = False
    styles: Mapping[str, str] = MappingProxyType({})


def write_line(text: str) -> None:
    """Prints one line on standard output, also where the text has line breaks."""
    click.echo(one_line(text))


def write_lines(lines: Iterable[str]) -> None:
    """Prints each text as one line on standard output."""
    for text in lines:
        write_line(text)


def note(text: str) -> None:
    """Prints a remark, one line, on standard error."""
    # err=True would write past the progress bar, which takes what is written to sys.stderr
    click.echo(one_line(text), file=sys.stderr)


def write_progress(text: str) -> None:
    """Prints a text over the last line of standard error, which the next one replaces."""
    click.echo(f"\r{one_line(text)}", nl=False, err=True)


def write_json(value: Any) -> None:
    """Prints any struct, list or table as indented JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(printable_json(text))


def write_json_line(text: str) -> None:
    """Prints a JSON value that is text already, on one line."""
    click.echo(printable_json(text))


def terminal_width(session: Session) -> int:
    """Characters of a line of the terminal; 0 where lines are not to be cut.

    That is with ``--wide``, and where another program reads them.
    """
    if session.wide or not sys.stdout.isatty():
        return 0
    return shutil.get_terminal_size().columns


def write_rows(
    session: Session, rows: Sequence[Any], columns: Sequence[Column], nothing: str
) -> None:
    """Prints a list, as a table or as JSON.

    Args:
        session: of this command; its ``--json`` decides.
        rows: one object each.
        columns: of the table.
        nothing: the remark where there are no rows.
    """
    if session.as_json:
        write_json(rows)
    elif not rows:
        note(nothing)
    else:
        _print_table(rows, columns, whole=session.wide or not sys.stdout.isatty())


def _print_table(rows: Sequence[Any], columns: Sequence[Column], *, whole: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - not needed for JSON

    from penstock.cli.tables import FittedTable  # noqa: PLC0415

    table = FittedTable(rows, columns, "widen the terminal, or use --wide or --json")
    if not whole:
        # a name wider than the terminal is continued on the next line, not cut
        Console(file=sys.stdout).print(table, crop=False)
        return
    # Never cut what another program reads, nor make each line as long as the longest text.
    drawn = io.StringIO()
    Console(file=drawn, width=_UNLIMITED).print(table)
    _, titles, _, *lines = drawn.getvalue().rstrip("\n").split("\n")
    rule = " " + "─" * (len(titles.rstrip()) - 1)
    click.echo("\n".join(["", *(line.rstrip() for line in (titles, rule, *lines))]))
