"""The screen while the demo runs: a live table on a terminal, else a few lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from examples.demonstration.view import Line
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.runtime.supervised import Supervised
from penstock.views.pool_board import PoolRow
from penstock.views.wording import seconds

KEPT_LINES = 8
KEY = "p95 of recent pickups; workers ready/planned, ● busy ◉ idle ○ starting, ending"
STATUS_EACH_SECONDS = 10.0
_STATES = {
    "ok": "green",
    "late": "bold red",
    "short": "yellow",
    "spent": "yellow",
    "crash-loop": "bold red",
}


class Screen(Protocol):
    """Shows the demo while it runs."""

    def report(self, at: float, text: str, style: str = "") -> None:
        """Shows an event, ``at`` seconds after the first job (negative: before)."""
        ...

    def draw(self, at: float, phase: str, pools: Sequence[Line]) -> None:
        """Called a few times a second."""
        ...

    def close(self) -> None: ...


class Words:
    """For logs: a line for each event, and each ten seconds one about the pools."""

    def __init__(self, console: Console) -> None:
        self._console, self._next = console, 0.0

    def report(self, at: float, text: str, style: str = "") -> None:
        self._console.print(Text(f"{stamp(at)}  {text}"), soft_wrap=True)

    def draw(self, at: float, phase: str, pools: Sequence[Line]) -> None:
        if at < self._next:
            return
        self._next = (at // STATUS_EACH_SECONDS + 1) * STATUS_EACH_SECONDS
        now = "   ".join(
            f"{line.row.pool} {line.row.ready}/{line.row.target or 0} workers, "
            f"{line.row.waiting or 0} waiting"
            for line in pools
        )
        self.report(at, f"{phase}: {now}")

    def close(self) -> None:
        pass


class LiveTable:
    """A table that is drawn over itself, with the last events below it."""

    def __init__(self, console: Console, lasts: float, processes: Sequence[Supervised]) -> None:
        self._lasts, self._processes = lasts, processes
        self._lines: deque[Text] = deque(maxlen=KEPT_LINES)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def report(self, at: float, text: str, style: str = "") -> None:
        line = Text(f"{stamp(at)}  ", "dim", overflow="ellipsis", no_wrap=True)
        self._lines.append(line.append(text, style or "default"))

    def draw(self, at: float, phase: str, pools: Sequence[Line]) -> None:
        self._live.update(
            picture(at, self._lasts, phase, self._processes, pools, list(self._lines)), refresh=True
        )

    def close(self) -> None:
        self._live.stop()


def picture(
    at: float,
    lasts: float,
    phase: str,
    processes: Sequence[Supervised],
    pools: Sequence[Line],
    lines: Sequence[Text],
) -> RenderableType:
    """Everything one screen shows, top to bottom."""
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text("Penstock demo", "bold"),
        Text(stamp(at), "bold cyan"),
        ProgressBar(total=lasts, completed=min(max(at, 0.0), lasts), width=36),
        Text(phase, "cyan"),
    )
    return Group(head, _processes(processes), _pools(pools), Text(KEY, "dim"), *lines)


def stamp(at: float) -> str:
    """``00:34``, minutes and seconds after the first job; blank before."""
    return f"{int(at) // 60:02d}:{int(at) % 60:02d}" if at >= 0 else "  -  "


def _processes(processes: Sequence[Supervised]) -> Text:
    text = Text()
    for process in processes:
        restarts = f" ↻{process.starts - 1}" if process.starts > 1 else ""
        text.append("● " if process.pid else "○ ", "green" if process.pid else "bold red")
        text.append(f"{process.name}{restarts}  ")
    return text


def _pools(pools: Sequence[Line]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("pool", no_wrap=True)
    table.add_column("promise", no_wrap=True)
    for title, width in (("done", 7), ("waiting", 11), ("p95", 7), ("late", 4)):
        table.add_column(title, justify="right", no_wrap=True, min_width=width)
    table.add_column("workers", no_wrap=True, min_width=18)
    for line in pools:
        row = line.row
        table.add_row(
            Text(row.pool, _STATES.get(row.state, "")),
            f"{row.quantile:.0%} in {row.sla_seconds:g} s",
            f"{line.done}/{line.jobs}",
            f"{row.waiting} ({seconds(row.oldest_waiting_seconds)})" if row.waiting else "0",
            seconds(line.pickup_p95_seconds),
            Text(str(line.late), "bold red" if line.late else "green"),
            _workers(row),
        )
    return table


def _workers(row: PoolRow) -> Text:
    """One mark for each worker that is planned or still there."""
    busy = min(row.busy or 0, row.ready)
    starting = max((row.target or 0) - row.ready, row.started - row.ready, 0)
    text = Text(f"{row.ready:>2}/{row.target or 0:<2}  ")
    text.append("●" * busy, "green").append("◉" * (row.ready - busy), "cyan")
    return text.append("○" * starting, "yellow")
