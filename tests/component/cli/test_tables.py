"""Tables on terminals of any width: columns are left out, names and ids never broken."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime

import pytest
from rich.console import Console

from penstock.cli import config_in_force
from penstock.cli.jobs import dead_view, job_view, queue, schedule
from penstock.cli.output import Column, write_rows
from penstock.cli.scaling import host, pool, worker
from penstock.cli.session import Session
from penstock.cli.tables import FittedTable, fit
from penstock.cli.up.table import picture
from penstock.views.pool_board import HostRow, PoolRow

JOB_ID = "01890a5d2b3c7d4e8f90123456789abc"
LISTINGS = {
    "pool": pool.COLUMNS,
    "job": job_view.COLUMNS,
    "worker": worker.COLUMNS,
    "host": host.COLUMNS,
    "queue": queue.COLUMNS,
    "schedule": schedule.COLUMNS,
    "dead": dead_view.LETTER_COLUMNS,
    "dead groups": dead_view.GROUP_COLUMNS,
    "config diff": config_in_force.COLUMNS,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(columns: tuple[Column, ...], rows: list[tuple[str, ...]], width: int) -> list[str]:
    """The lines of a table whose rows hold the cells themselves."""
    plain = tuple(
        column._replace(cell=lambda row, index=index: row[index])
        for index, column in enumerate(columns)
    )
    console = Console(file=io.StringIO(), width=width)
    console.print(FittedTable(rows, plain, "use --wide"), crop=False)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("listing", LISTINGS)
def test_no_listing_is_wider_than_the_terminal_nor_breaks_a_name(listing: str, width: int) -> None:
    columns = LISTINGS[listing]
    cells = tuple(
        "a sentence that goes on and on " * 9 if column.sentence else f"{JOB_ID[:18]}-{index}"
        for index, column in enumerate(columns)
    )
    lines = drawn(columns, [cells], width)
    titles, _, row, *_ = lines[1:]
    assert all(len(line) <= width for line in lines)
    assert cells[0] in row
    assert len([line for line in lines if JOB_ID[:18] in line]) == 1  # one line a row
    shown = [column.title for column in columns if re.search(rf"\b{column.title}\b", titles)]
    for column, cell in zip(columns, cells, strict=True):
        if column.title in shown and not column.sentence:
            assert cell in row
    hidden = len(columns) - len(shown)
    if hidden:
        assert re.fullmatch(rf"{hidden} columns? hidden; use --wide", lines[-1])
    else:
        assert "hidden" not in lines[-1]


def test_columns_of_a_higher_rank_are_left_out_first_then_empty_ones_before_all() -> None:
    columns = (
        Column("name", str),
        Column("less", str, rank=3),
        Column("empty", str, rank=1),
        Column("more", str, rank=1),
    )
    cells = [["a" * 10, "b" * 10, "-", "c" * 10]]
    assert list(fit(columns, cells, 100)) == [0, 1, 2, 3]
    assert list(fit(columns, cells, 40)) == [0, 1, 3]
    assert list(fit(columns, [["a", "b" * 30, "-", "c"]], 30)) == [0, 3]
    assert list(fit(columns, cells, 30)) == [0, 3]
    assert list(fit(columns, cells, 5)) == [0]


def test_a_sentence_takes_what_is_left_and_is_cut_with_an_ellipsis() -> None:
    columns = (Column("id", str), Column("error", str, sentence=True))
    [titles, _, row] = drawn(columns, [(JOB_ID, "no such table " * 20)], 80)[1:4]
    assert len(row) == 79
    assert row.endswith("…")
    assert JOB_ID in row
    assert titles.split() == ["id", "error"]


def test_a_sentence_is_readable_before_columns_of_a_higher_rank_are_shown() -> None:
    columns = (
        Column("id", str),
        Column("less", str, rank=3),
        Column("functions", str, rank=2, sentence=True),
        Column("error", str, rank=1, sentence=True),
    )
    cells = [["i" * 10, "l" * 10, "function " * 9, "no such table " * 9]]
    assert fit(columns, cells, 60) == {0: 10, 3: 46}
    assert fit(columns, cells, 90) == {0: 10, 2: 34, 3: 40}
    assert fit(columns, cells, 120) == {0: 10, 1: 10, 2: 40, 3: 52}


def test_a_name_wider_than_the_terminal_is_still_whole() -> None:
    lines = drawn((Column("id", str), Column("state", str)), [(JOB_ID, "completed")], 20)
    assert JOB_ID in lines[3]


ROWS = [PoolRow(pool="reports", kind="exclusive", sla_seconds=5, quantile=0.95, reason="r" * 200)]


def test_a_terminal_gets_what_fits_and_all_with_wide(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = {}
    for wide in (False, True):
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        write_rows(Session(wide=wide), ROWS, pool.COLUMNS, "nothing")
        shown[wide] = terminal.getvalue()
    assert "columns hidden; widen the terminal, or use --wide or --json" in shown[False]
    assert "r" * 200 not in shown[False]
    assert "hidden" not in shown[True]
    assert "r" * 200 in shown[True]


def test_the_live_table_leaves_columns_out_as_well() -> None:
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    hosts = [
        HostRow(
            host="reports-and-mails-1.example",
            state="ok",
            cpu_cores=64,
            cpu_busy_cores=12.5,
            memory_bytes=8 << 30,
            memory_used_bytes=1 << 30,
            planned=1,
            started=1,
            ready=1,
            age_seconds=at.second,
        )
    ]
    for width, hint in ((50, True), (200, False)):
        console = Console(file=io.StringIO(), width=width)
        console.print(picture("Penstock", ROWS, hosts, [], []))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        assert "reports-and-mails-1.example" in shown
        assert ("columns hidden; widen the terminal" in shown) is hint
        assert all(len(line) <= width for line in shown.splitlines())
