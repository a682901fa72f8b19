"""Ticks of schedules that are due and that no orchestrator has dispatched."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError
from penstock.config import Settings
from penstock.health.facts import Facts, ServiceFacts
from penstock.health.rules import ORCHESTRATOR
from penstock.health.survey import services
from penstock.jobs.client import Client
from penstock.jobs.schedules.schedule import Schedule, next_tick

MOST = 1000
"""Further ticks are not counted."""
_GRACE = timedelta(seconds=5)
"""A living orchestrator dispatches a tick within a second."""


def overdue(schedules: Iterable[Schedule], now: datetime) -> int:
    """Ticks that should have been dispatched by now; at most a thousand are counted."""
    count = 0
    for schedule in schedules:
        tick = None if schedule.paused else next_tick(schedule, schedule.done_until)
        while tick and tick + _GRACE < now and count < MOST:
            count += 1
            tick = next_tick(schedule, tick)
    return count


async def with_overdue(facts: Facts, bus: Bus, settings: Settings, now: datetime) -> Facts:
    """The facts with the ticks that wait for an orchestrator, where none lives."""
    if all(_lives(service) for service in facts.services):
        return facts
    try:
        schedules = await Client.over(bus, settings, "cli").schedules.all()
    except BusError:
        return facts
    return replace(facts, overdue_ticks=overdue(schedules, now))


async def standstill(
    bus: Bus, settings: Settings, schedules: Iterable[Schedule], now: datetime
) -> str:
    """Why no schedule is dispatched, and since when; empty while an orchestrator lives."""
    states = await services(bus, settings)
    orchestrator = next(state for state in states if state.name == ORCHESTRATOR)
    if _lives(orchestrator):
        return ""
    silent = "yet"
    if orchestrator.silent_seconds is not None:
        silent = f"for {orchestrator.silent_seconds:.0f} s"
    return (
        f"no orchestrator has reported {silent}: schedules, batches and reconciling stand still; "
        f"{overdue(schedules, now)} ticks overdue"
    )


def _lives(service: ServiceFacts) -> bool:
    if service.name != ORCHESTRATOR:
        return True
    silent_seconds = service.silent_seconds
    return silent_seconds is not None and silent_seconds <= service.allowed_seconds
