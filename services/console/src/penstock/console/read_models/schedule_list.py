"""Schedules, from their records in the broker."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.console.parts import Console
from penstock.events.envelope import utc_now
from penstock.jobs.client import Client
from penstock.jobs.schedules.schedule import Schedule, next_tick


class ScheduleItem(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a list.

    Attributes:
        next_at: None while it is paused.
        origin: ``code`` or ``settings``, where it is declared there; else ``client``.
    """

    name: str
    cron: str
    zone: str
    function: str
    queue: str
    is_paused: bool
    next_at: datetime | None
    last_at: datetime | None
    dispatched: int
    origin: str


async def schedules(console: Console) -> list[ScheduleItem]:
    """All of them, by name. Raises BusError."""
    stored = await Client.over(console.bus, console.settings, "console").schedules.all()
    return sorted(map(_item, stored), key=lambda item: item.name)


def _item(schedule: Schedule) -> ScheduleItem:
    start = max(schedule.done_until, utc_now())
    return ScheduleItem(
        name=schedule.name,
        cron=schedule.cron,
        zone=schedule.zone,
        function=schedule.function,
        queue=schedule.queue,
        is_paused=schedule.paused,
        next_at=None if schedule.paused else next_tick(schedule, start),
        last_at=schedule.last_tick,
        dispatched=schedule.dispatched,
        origin=schedule.origin or "client",
    )
