"""Alerts of the console: claims of messages, and rules tested over 14 days of recorded events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from console_process import append, connected
from penstock.bus.nats import NatsBus
from penstock.config.load import check
from penstock.console.alerts.parts import Alerts
from penstock.console.core.alerts.defaults import DEFAULT_RULES
from penstock.events.envelope import Event
from penstock.events.job import JobDead, JobError
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.events.worker import HostJoined, HostLost
from penstock.runtime.broker import Broker

_DAYS = 14.0


@asynccontextmanager
async def claims(bus: NatsBus) -> AsyncIterator[list[float]]:
    """When the first attempt of each message was claimed, as of ``time.perf_counter``."""
    times: list[float] = []
    subjects = Subjects()

    async def follow() -> None:
        async for stored in bus.follow(subjects.keys_stream, [subjects.key("notification", "*")]):
            if stored.subject.endswith("_1"):
                times.append(time.perf_counter())  # noqa: PERF401 - read while it grows

    following = asyncio.create_task(follow())
    try:
        yield times
    finally:
        following.cancel()


async def backtests(broker: Broker, folder: Path, events: int) -> dict[str, Any]:
    """Each default rule over 14 days of recorded events.

    Args:
        broker: with an empty log.
        folder: for a key.
        events: decisions; and a tenth as many dead jobs.
    """
    settings = check({"nats": {"url": broker.url}})
    async with connected(broker.url) as bus:
        await append(bus, list(_recorded(events)))
        alerts = Alerts(bus, settings, folder, lambda: None)
        seconds: dict[str, float] = {}
        for rule in DEFAULT_RULES:
            began = time.perf_counter()
            await alerts.backtest(rule, _DAYS)
            seconds[rule.id] = round(time.perf_counter() - began, 2)
    return {"worst_seconds": max(seconds.values()), "events": events, "rules": seconds}


def _recorded(count: int) -> Iterator[Event]:
    now = datetime.now(UTC)
    error = JobError(kind="builtins.TimeoutError", message="orders timed out")
    for number in range(count):
        at = now - timedelta(days=_DAYS * (count - number) / count)
        pool = f"pool-{number % 10}"
        workers = 20 + number % 7
        reasons = (
            Reason(step="backlog", rule="backlog", workers=workers + 4, text="1,204 waiting"),
            Reason(step="capacity", rule="hosts", workers=workers, text="room for no more"),
        )
        yield ScalingDecisionMade(
            pool=pool,
            current=workers,
            target=workers,
            strategy="hybrid",
            sla_seconds=30,
            predicted_pickup_seconds=20.0,
            reasons=reasons if number % 5000 < 50 else reasons[:1],
            at=at,
        )
        if number % 10 == 0:
            yield JobDead(
                job_id=f"j{number}", queue=pool, function=f"f{number % 30}", error=error, at=at
            )
        if number % 1000 in (0, 3):
            host = f"h{number // 1000 % 4}"
            lost = HostLost(host=host, silent_seconds=6, at=at)
            yield (
                lost
                if number % 1000 == 0
                else HostJoined(host=host, cpu_cores=1, memory_bytes=1, at=at)
            )
