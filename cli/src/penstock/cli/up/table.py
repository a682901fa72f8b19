"""The live table as rich renders it: a function of rows, so that a test can render it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.views import wording
from penstock.views.pool_board import HostRow, PoolRow

_STYLES = {
    "ok": "green",
    "late": "bold red",
    "short": "yellow",
    "spent": "yellow",
    "crash-loop": "bold red",
    "lost": "bold red",
    "draining": "yellow",
    "paused": "yellow",
    "drained": "yellow",
    "unknown": "dim",
}

Process = tuple[str, int | None, int]
"""Name, process id (None while it is down), how often it was started."""


def picture(
    title: str,
    pools: Sequence[PoolRow],
    hosts: Sequence[HostRow],
    processes: Sequence[Process],
    lines: Sequence[str],
    job_lines: Sequence[str] = (),
) -> RenderableType:
    """Everything one screen shows, top to bottom.

    Args:
        lines: what happened last.
        job_lines: what jobs wrote last.
    """
    return Group(
        Text(title, style="bold"),
        _processes(processes),
        Text(),
        _pools(pools),
        Text(),
        *_reasons(pools),
        Text(),
        _hosts(hosts),
        Text(),
        *(_one_line(line) for line in lines),
        *([Text(), Text("jobs write", style="bold")] if job_lines else ()),
        *(_one_line(line) for line in job_lines),
    )


def _processes(processes: Sequence[Process]) -> Text:
    text = Text()
    for name, pid, starts in processes:
        style = "green" if pid else "bold red"
        restarts = f" (restarted {starts - 1}×)" if starts > 1 else ""  # noqa: RUF001
        text.append("● " if pid else "○ ", style).append(f"{name}{restarts}   ")
    return text


def _pools(rows: Sequence[PoolRow]) -> Table:
    table = _table("pool", "promise", "state")
    for title in ("waits", "oldest", "per s", "planned", "started", "ready", "busy"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.pool,
            f"{wording.seconds(row.sla_seconds)} {row.quantile * 100:g}%",
            _state(row.state),
            wording.count(row.waiting),
            wording.seconds(row.oldest_waiting_seconds),
            wording.rate(row.arrival_per_second),
            wording.count(row.planned),
            wording.count(row.started),
            wording.count(row.ready),
            wording.count(row.busy),
        )
    return table


def _reasons(rows: Sequence[PoolRow]) -> list[Text]:
    """Why each pool has as many workers as it has, a line each."""
    width = max((len(row.pool) for row in rows), default=0)
    return [_one_line(f"{row.pool:<{width}} {row.reason}") for row in rows if row.reason]


def _hosts(rows: Sequence[HostRow]) -> Table:
    table = _table("host", "state")
    for title in ("cores busy", "memory used", "planned", "started", "ready", "silent"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.host,
            _state(row.state),
            f"{row.cpu_busy_cores:.1f} of {row.cpu_cores:g}",
            f"{wording.memory(row.memory_used_bytes)} of {wording.memory(row.memory_bytes)}",
            str(row.planned),
            str(row.started),
            str(row.ready),
            wording.seconds(row.age_seconds),
        )
    return table


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _one_line(text: str) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True)


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))
