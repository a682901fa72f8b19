"""Schedules stand still without an orchestrator: said where schedules and health are looked at."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.health.facts import BrokerFacts, Facts
from penstock.health.rules import judge
from penstock.health.survey import services
from penstock.jobs import Client, job
from penstock.testing.memory.bus import MemoryBus
from penstock.views.overdue_ticks import MOST, overdue, standstill, with_overdue


@job(queue="clock", name="overdue_tests.tell")
def tell() -> None: ...


async def test_ticks_without_an_orchestrator_are_counted_and_told() -> None:
    bus, settings = MemoryBus(), Settings()
    schedules = Client.over(bus, settings).schedules
    often = await schedules.add("often", tell(), "* * * * *")
    await schedules.add("paused", tell(), "* * * * * *")
    await schedules.pause("paused")
    begun = often.done_until.replace(second=0, microsecond=0)
    later = begun + timedelta(minutes=10, seconds=30)

    told = await standstill(bus, settings, await schedules.all(), later)
    facts = Facts(broker=BrokerFacts(), services=await services(bus, settings))
    facts = await with_overdue(facts, bus, settings, later)

    assert told == (
        "no orchestrator has reported yet: schedules, batches and reconciling stand still; "
        "10 ticks overdue"
    )
    assert facts.overdue_ticks == 10
    reasons = [reason for finding in judge(facts, later).findings for reason in finding.reasons]
    assert any("orchestrator" in each and "10 ticks are overdue" in each for each in reasons)


async def test_of_ticks_without_end_a_thousand_are_counted() -> None:
    schedules = Client.over(MemoryBus(), Settings()).schedules
    await schedules.add("each-second", tell(), "* * * * * *")
    assert overdue(await schedules.all(), utc_now() + timedelta(days=1)) == MOST


@pytest.mark.parametrize("seconds", [0, 3])
async def test_a_tick_that_is_hardly_due_is_not_overdue(seconds: float) -> None:
    schedules = Client.over(MemoryBus(), Settings()).schedules
    await schedules.add("each-second", tell(), "* * * * * *")
    assert overdue(await schedules.all(), utc_now() + timedelta(seconds=seconds)) == 0
