"""Orders of an operator reach a living decider, outlast it, and stand in what it records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.integration.deciding import World, world

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import utc_now
from penstock.events.orders import HostDrained, HostResumed
from penstock.events.scaling import ScalingDecisionMade
from penstock.operations.orders import OperatorOrders, read_orders

HOUR = timedelta(hours=1)


@pytest.fixture
async def here(settings) -> AsyncIterator[World]:
    async with world("memory", settings) as found:
        yield found


def orders(here: World) -> OperatorOrders:
    return OperatorOrders(here.bus, here.subjects, "cli/ann")


async def until_planned(here: World, workers: int) -> None:
    """Measures on until host `a` has this plan; the test's own time limit ends it."""
    while here.plan_of("a") != {"emails": workers}:
        await here.report(arrival_per_second=1.0)
        await here.decided()


async def test_a_pool_is_held_at_once_and_after_the_decider_is_replaced(here: World) -> None:
    here.host("a")
    await here.report(arrival_per_second=1.0)
    first = await here.start()
    await here.plan("a", emails=2)
    await orders(here).hold("emails", utc_now() + HOUR, 7, 7, "month end")
    await here.plan("a", emails=7)
    decision = await here.event(ScalingDecisionMade, target=7)
    assert decision.reasons[-1].step == "hold"
    assert "by cli/ann: month end" in decision.reasons[-1].text
    await here.stop(first)
    await here.start()
    await here.report(arrival_per_second=1.0)
    assert (await here.decided(2)).target == 7
    assert all(command.pools in ({}, {"emails": 2}, {"emails": 7}) for command in here.commands)
    await orders(here).release("emails")
    await until_planned(here, 2)


async def test_a_hold_ends_by_itself(here: World) -> None:
    here.host("a")
    await here.report(arrival_per_second=1.0)
    await here.start()
    await orders(here).hold("emails", utc_now() + timedelta(seconds=1), 7, 7)
    await here.plan("a", emails=7)
    await until_planned(here, 2)
    assert (await read_orders(here.bus, here.subjects)).holds == {}


async def test_a_host_is_drained_and_resumed(here: World) -> None:
    for name in ("a", "b"):
        here.host(name)
    await here.report(arrival_per_second=2.0)
    await here.start()
    await here.plan("a", emails=2)
    await orders(here).set_host(HostDrained, "a", "new kernel")
    await here.plan("b", emails=4)
    await here.plan("a")
    await orders(here).set_host(HostResumed, "a")
    await here.report(arrival_per_second=3.0)
    await here.plan("a", emails=2)


async def test_a_record_that_is_no_order_changes_nothing(here: World) -> None:
    here.host("a")
    await here.report(arrival_per_second=1.0)
    for name, body in (("emails", b"{"), ("other", b'{"type": "HostPaused", "host": "a"}')):
        await here.bus.append(Outgoing(here.subjects.state("hold", name), body))
    await here.start()
    await here.plan("a", emails=2)
    assert (await read_orders(here.bus, here.subjects)).hosts == {}
