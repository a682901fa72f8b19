"""Stored schedules that differ from those that the settings declare, for the report on health."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError
from penstock.config import Settings
from penstock.health.facts import Facts
from penstock.jobs.client import Client
from penstock.jobs.errors import BadSchedule
from penstock.jobs.schedules.declaration import in_settings
from penstock.jobs.schedules.drift import of_settings


async def with_drift(facts: Facts, bus: Bus, settings: Settings) -> Facts:
    """The facts with what differs. What code declares is known where its modules are imported."""
    if facts.broker.error:
        return facts
    try:
        stored = await Client.over(bus, settings, "health").schedules.all()
        differences = of_settings(in_settings(settings), {one.name: one for one in stored})
        texts = [f"schedule {one.name} is {one.drift}: {one.text}" for one in differences]
    except BadSchedule as error:
        texts = [str(error)]
    except BusError:
        return facts
    return replace(facts, schedule_drift=tuple(texts))
