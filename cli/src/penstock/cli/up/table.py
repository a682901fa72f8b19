"""The live table as rich renders it: a function of rows, so that a test can render it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.output import Column
from penstock.cli.scaling.pool import oldest, waiting
from penstock.cli.tables import FittedTable
from penstock.telemetry.lines import one_line
from penstock.views import wording
from penstock.views.pool_board import HostRow, PoolRow
from penstock.views.source_state import marked, remarks

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

_WIDER = "widen the terminal"
_POOL_COLUMNS = (
    Column("pool", lambda row: row.pool),
    Column("promise", lambda row: f"{wording.seconds(row.sla_seconds)} {row.quantile * 100:g}%"),
    Column("state", lambda row: row.state, rank=1, styles=_STYLES),
    Column("waits", waiting, number=True, rank=1),
    Column("oldest", oldest, number=True),
    Column(
        "per s",
        lambda row: marked(wording.rate(row.arrival_per_second), row.source, "arrival_per_second"),
        number=True,
    ),
    Column("planned", lambda row: wording.count(row.planned), number=True, rank=3),
    Column("started", lambda row: wording.count(row.started), number=True, rank=3),
    Column("ready", lambda row: wording.count(row.ready), number=True, rank=1),
    Column("busy", lambda row: wording.count(row.busy), number=True, rank=1),
)
_HOST_COLUMNS = (
    Column("host", lambda row: row.host),
    Column("state", lambda row: row.state, rank=1, styles=_STYLES),
    Column("cores busy", lambda row: f"{row.cpu_busy_cores:.1f} of {row.cpu_cores:g}", number=True),
    Column(
        "memory used",
        lambda row: (
            f"{wording.memory(row.memory_used_bytes)} of {wording.memory(row.memory_bytes)}"
        ),
        number=True,
    ),
    Column("planned", lambda row: str(row.planned), number=True, rank=3),
    Column("started", lambda row: str(row.started), number=True, rank=3),
    Column("ready", lambda row: str(row.ready), number=True, rank=1),
    Column("silent", lambda row: wording.seconds(row.age_seconds), number=True),
)

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


def _pools(rows: Sequence[PoolRow]) -> FittedTable:
    return FittedTable(rows, _POOL_COLUMNS, _WIDER, edge=False)


def _reasons(rows: Sequence[PoolRow]) -> list[Text]:
    """Why each pool has as many workers as it has, and what is wrong at its source, in lines."""
    width = max((len(row.pool) for row in rows), default=0)
    return [
        _one_line(f"{row.pool:<{width}} {text}")
        for row in rows
        for text in (row.reason, *remarks(row.source))
        if text
    ]


def _hosts(rows: Sequence[HostRow]) -> FittedTable:
    return FittedTable(rows, _HOST_COLUMNS, _WIDER, edge=False)


def _one_line(text: str) -> Text:
    return Text(one_line(text), overflow="ellipsis", no_wrap=True)
