"""What the console knows as one page for Prometheus: pools, hosts, decisions, and the console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice

from penstock.console.parts import Console
from penstock.console.watching import readings
from penstock.telemetry import metrics, snapshot_readings
from penstock.telemetry.exposition import Exposition
from penstock.telemetry.meters import Meters, Reading

MOST_READINGS = 50_000
"""Further ones are left out: 100 hosts with 30 pools are 15,600."""
_SAME_SECONDS = 1.0
"""Snapshots are published once a second: within it all scrapers are sent the same page."""


class ScrapedPage:
    """The page, made at most once a second however many ask for it.

    Args:
        console: whose numbers it has.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._making = asyncio.Lock()
        self._made_at, self._text = float("-inf"), b""

    async def text(self) -> bytes:
        """In Prometheus' text format, version 0.0.4, which every scraper reads."""
        async with self._making:
            if time.monotonic() - self._made_at >= _SAME_SECONDS:
                samples = list(islice(_all_readings(self._console), MOST_READINGS))
                self._text = await asyncio.to_thread(_page, samples)
                self._made_at = time.monotonic()
            return self._text


def _all_readings(console: Console) -> Iterator[Reading]:
    yield from readings(console)
    board, now = console.present.board, time.time()
    for name, pool in console.present.pools.items():
        yield Reading(metrics.PROMISED, pool.profile.sla_seconds, (name,))
        yield Reading(metrics.PROMISED_SHARE, pool.profile.quantile, (name,))
        if name in board.pools:
            yield from snapshot_readings.of_pool(
                board.pools[name], now, is_elsewhere=bool(pool.source)
            )
        if name in board.decisions:
            yield from snapshot_readings.of_decision(board.decisions[name])
    for host in board.hosts.values():
        yield from snapshot_readings.of_host(host)


def _page(samples: list[Reading]) -> bytes:
    meters = Meters()
    meters.read(lambda: samples)
    return Exposition(meters).page("text/plain")[1]
