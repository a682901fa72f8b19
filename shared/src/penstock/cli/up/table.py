"""The live table as rich renders it; a function of rows, so that it can be looked at in a test."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli import wording
from penstock.cli.board import HostRow, PoolRow
from penstock.cli.pool import promise

_STYLES = {
    "ok": "green",
    "late": "bold red",
    "short": "yellow",
    "crash-loop": "bold red",
    "lost": "bold red",
    "draining": "yellow",
    "unmeasured": "dim",
}

Process = tuple[str, int | None, int]
"""Name, process id (None while it is down), how often it was started."""


def picture(
    title: str,
    pools: Sequence[PoolRow],
    hosts: Sequence[HostRow],
    processes: Sequence[Process],
    lines: Sequence[str],
) -> RenderableType:
    """Everything one screen shows, top to bottom."""
    return Group(
        Text(title, style="bold"),
        _processes(processes),
        _pools(pools),
        _hosts(hosts),
        *(Text(each, overflow="ellipsis", no_wrap=True) for each in lines),
    )


def _processes(processes: Sequence[Process]) -> Text:
    text = Text()
    for name, pid, starts in processes:
        style = "green" if pid else "bold red"
        again = f" (restarted {starts - 1}×)" if starts > 1 else ""  # noqa: RUF001
        text.append("● " if pid else "○ ", style).append(f"{name}{again}   ")
    return text


def _pools(rows: Sequence[PoolRow]) -> Table:
    table = _table("pool", "promise", "state")
    for title in ("waiting", "oldest", "arrivals/s", "planned", "started", "ready", "busy"):
        table.add_column(title, justify="right")
    table.add_column("last reason", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            row.pool,
            promise(row),
            _state(row.state),
            wording.count(row.waiting),
            wording.seconds(row.oldest_waiting_seconds),
            wording.rate(row.arrival_per_second),
            wording.count(row.planned),
            wording.count(row.started),
            wording.count(row.ready),
            wording.count(row.busy),
            Text(row.reason),
        )
    return table


def _hosts(rows: Sequence[HostRow]) -> Table:
    table = _table("host", "state")
    for title in ("cores busy", "memory used", "planned", "started", "ready", "heard"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.host,
            _state(row.state),
            f"{row.cpu_busy_cores:.1f} of {row.cpu_cores:g}",
            f"{wording.memory(row.memory_used_bytes)} of {wording.memory(row.memory_bytes)}",
            str(row.planned),
            str(row.started),
            str(row.ready),
            wording.ago(row.age_seconds),
        )
    return table


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, expand=False)
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))
