"""The columns of the list of jobs: chosen in its address, so that links and views keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode


class Column(NamedTuple):
    """A column besides the job's id.

    Attributes:
        name: in the address.
        label: of its head.
        is_number: set to the right.
    """

    name: str
    label: str
    is_number: bool = False


COLUMNS = (
    Column("function", "Function"),
    Column("queue", "Queue"),
    Column("state", "State"),
    Column("tries", "Tries", True),
    Column("dispatched", "Dispatched"),
    Column("started", "Started"),
    Column("finished", "Finished"),
    Column("waited", "Waited", True),
    Column("took", "Took", True),
    Column("host", "Host"),
    Column("worker", "Worker"),
    Column("batch", "Batch"),
    Column("why", "Why"),
)
"""In their order on the page."""
USUAL = tuple(one for one in COLUMNS if one.name not in ("started", "finished", "worker", "batch"))


class UnknownColumn(ValueError):
    """A name that is none of a column's; says which there are."""


def read(names: Sequence[str]) -> tuple[Column, ...]:
    """The columns that an address names, in the order of the page; the usual ones for no name.

    Args:
        names: each one name, or several with commas between them.

    Raises:
        UnknownColumn: there is no such column.
    """
    wanted = {part.strip() for text in names for part in text.split(",") if part.strip()}
    if unknown := wanted - {one.name for one in COLUMNS}:
        offered = ", ".join(one.name for one in COLUMNS)
        raise UnknownColumn(
            f"found the column {sorted(unknown)[0][:40]!r}, expected some of {offered}"
        )
    return tuple(one for one in COLUMNS if one.name in wanted) or USUAL


def address(words: str, columns: Sequence[Column], cursor: str = "") -> str:
    """The list of jobs of a filter with these columns."""
    query = {"q": words} if words else {}
    if tuple(columns) != USUAL:
        query["columns"] = ",".join(one.name for one in columns)
    if cursor:
        query["cursor"] = cursor
    return f"/jobs?{urlencode(query, safe=',:')}" if query else "/jobs"
