"""The output of `penstock up`: a live table, or lines where there is no terminal."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from penstock.cli.output import write_json_line, write_lines
from penstock.cli.scaling.pool import oldest, waiting
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.log_lines import LogChunk
from penstock.runtime.supervised import Supervised
from penstock.telemetry.lines import JsonLines, PlainLines, are_json
from penstock.views.event_text import line, named
from penstock.views.pool_board import Board, PoolRow
from penstock.views.wording import clock, seconds

KEPT_LINES = 8
SUMMARY_SECONDS = 10.0


class Screen(Protocol):
    """Receives events, reports and the state of pools, and shows them."""

    def report(self, text: str) -> None:
        """Shows what this process did or noticed."""
        ...

    def happened(self, event: Event) -> None:
        """Shows an event of the log."""
        ...

    def wrote(self, chunk: LogChunk) -> None:
        """Shows what a job wrote."""
        ...

    def draw(self, board: Board, processes: Sequence[Supervised]) -> None:
        """Called twice a second."""
        ...

    def close(self) -> None: ...


class Lines:
    """A line for each event, and one about the pools each ten seconds while they change.

    They look as the log lines of the services do, in whose stream they stand.
    """

    def __init__(self, settings: Settings, as_json: bool) -> None:
        self._settings, self._as_json = settings, as_json
        self._pools = pools(settings).values()
        self._drawn_at, self._drawn = 0.0, ""
        self._formatter = JsonLines() if are_json() else PlainLines()

    def report(self, text: str) -> None:
        if self._as_json:
            self._print_json(msgspec.json.encode({"at": utc_now(), "text": text}))
        else:
            self._print("penstock.up", text, utc_now())

    def happened(self, event: Event) -> None:
        if self._as_json:
            self._print_json(encode(event))
        else:
            self._print("penstock.events", named(event), event.at)

    def wrote(self, chunk: LogChunk) -> None:
        """Nothing: the workers' own lines are in the same stream."""

    def draw(self, board: Board, processes: Sequence[Supervised]) -> None:
        if self._as_json or time.monotonic() - self._drawn_at < SUMMARY_SECONDS:
            return
        self._drawn_at = time.monotonic()
        rows = board.pool_rows(self._pools, self._settings.host.lease_seconds, utc_now())
        summary = "; ".join(_summary(row) for row in rows if row.waiting is not None)
        if summary and summary != self._drawn:
            self._drawn = summary
            self.report(summary)

    def close(self) -> None:
        pass

    def _print(self, logger: str, text: str, at: datetime) -> None:
        record = logging.LogRecord(logger, logging.INFO, "", 0, text, (), None)
        record.created = at.timestamp()
        record.msecs = at.microsecond // 1000
        write_lines(self._formatter.format(record).split("\n"))

    def _print_json(self, text: bytes) -> None:
        write_json_line(text.decode())


def _summary(row: PoolRow) -> str:
    """The pool in a line, with the reason where its jobs wait and no worker is planned."""
    text = (
        f"{row.pool}: {waiting(row)} waiting, oldest {oldest(row)}, "
        f"workers {row.planned} planned {row.started} started {row.ready} ready"
    )
    return f"{text} ({row.reason})" if row.waiting and not row.planned and row.reason else text


class Table:
    """A table that is drawn over itself, with the last lines below it."""

    def __init__(self, settings: Settings, title: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - not needed for lines
        from rich.live import Live  # noqa: PLC0415

        self._settings, self._title = settings, title
        self._pools = list(pools(settings).values())
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._of_jobs: deque[str] = deque(maxlen=KEPT_LINES)
        self._started_at = time.monotonic()
        self._drawn: tuple[Board, Sequence[Supervised]] = (Board(), ())
        self._live = Live(console=Console(), auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def report(self, text: str) -> None:
        self._lines.append(f"{clock(utc_now())} {text}")

    def happened(self, event: Event) -> None:
        self._lines.append(line(event))

    def wrote(self, chunk: LogChunk) -> None:
        about = f"{chunk.function} {chunk.job_id}"
        if chunk.sealed:
            self._of_jobs.append(f"{clock(utc_now())} {about}: (encrypted lines)")
        for entry in chunk.lines[-KEPT_LINES:]:
            self._of_jobs.append(f"{clock(entry.at)} {about}: {entry.text}")

    def draw(self, board: Board, processes: Sequence[Supervised]) -> None:
        from penstock.cli.up.table import picture  # noqa: PLC0415

        self._drawn = (board, processes)
        now, lease = utc_now(), self._settings.host.lease_seconds
        self._live.update(
            picture(
                f"{self._title}, up for {seconds(time.monotonic() - self._started_at)}",
                board.pool_rows(self._pools, lease, now),
                board.host_rows(lease, now),
                [(process.name, process.pid, process.starts) for process in processes],
                list(self._lines),
                list(self._of_jobs),
            ),
            refresh=True,
        )

    def close(self) -> None:
        self.draw(*self._drawn)  # with the last lines
        self._live.stop()
