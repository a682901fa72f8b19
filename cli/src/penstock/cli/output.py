"""The output of commands: tables and lines as text, or JSON."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from penstock.cli.session import Session
from penstock.telemetry.lines import printable, printable_json


class Column(NamedTuple):
    """A column of a listing: its title, how a row fills it, and whether it is a number."""

    title: str
    cell: Callable[[Any], str]
    number: bool = False


def write_line(text: str) -> None:
    """Prints a line on standard output."""
    click.echo(printable(text))


def note(text: str) -> None:
    """Prints a remark on standard error."""
    click.echo(printable(text), err=True)


def write_json(value: Any) -> None:
    """Prints any struct, list or table as indented JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(printable_json(text))


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
        _print_table(rows, columns)


def _print_table(rows: Sequence[Any], columns: Sequence[Column]) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - not needed for JSON
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(printable(column.cell(row))) for column in columns))
    if sys.stdout.isatty():
        Console(file=sys.stdout).print(table)
        return
    # Never cut what another program reads, nor make each line as long as the longest text.
    drawn = io.StringIO()
    Console(file=drawn, width=10_000).print(table)
    _, titles, _, *lines = drawn.getvalue().rstrip("\n").split("\n")
    rule = " " + "─" * (len(titles.rstrip()) - 1)
    click.echo("\n".join(["", *(line.rstrip() for line in (titles, rule, *lines))]))
