"""Deciders as real processes, killed and stopped; and their spans on a real collector."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import pytest
from tests.integration.deciding import World, world
from tests.integration.otlp import Collector
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock import telemetry
from penstock.bus.protocol import Outgoing
from penstock.decider.core.state import PoolState
from penstock.events.envelope import encode
from penstock.events.scaling import LeaderChanged, ScalingDecisionMade
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import HostLost
from penstock.runtime.broker import Broker

BUSY = {"arrival_per_second": 5.0}  # 10 workers
BUSIER = {"arrival_per_second": 10.0}  # 20
START = 15.0
HALF, ALL = {"emails": 5}, {"emails": 10}


@pytest.fixture
async def here(settings: MakeSettings) -> AsyncIterator[World]:
    """With the shipped lease of 3 s."""
    async with world(
        "nats", settings, decider={"stale_seconds": 5.0, "repeat_seconds": 0.0}
    ) as found:
        found.host("a")
        await found.report(**BUSY)
        yield found


def epochs(here: World) -> list[int]:
    return [event.epoch for event in here.events(LeaderChanged)]


async def test_a_killed_leader_is_replaced_within_five_seconds(here: World):
    leader = here.process()
    await here.plan("a", within=START, emails=10)
    here.process()
    await eventually_standing_by(here)
    leader.signal(signal.SIGKILL)
    await eventually(lambda: len(epochs(here)) == 2, within=5.0)
    await here.report(**BUSIER)
    command = await here.plan("a", within=2.0, emails=20)
    assert command.epoch == epochs(here)[-1]


async def test_a_leader_that_is_stopped_and_continued_does_no_harm(here: World):
    leader = here.process()
    await here.plan("a", within=START, emails=10)
    here.process()
    await eventually_standing_by(here)
    leader.signal(signal.SIGSTOP)
    await eventually(lambda: len(epochs(here)) == 2, within=5.0)
    first, second = epochs(here)
    await here.report(**BUSIER)
    await here.plan("a", within=2.0, emails=20)
    leader.signal(signal.SIGCONT)  # with a plan of 10 in mind
    await here.report(arrival_per_second=15.0)
    await here.plan("a", within=2.0, emails=30)
    await here.decided(2)
    assert epochs(here) == [first, second], "it stands by"
    after = here.commands[[command.epoch for command in here.commands].index(second) :]
    assert all(command.epoch == second for command in after)


async def test_a_stop_in_order_hands_over_at_once(here: World):
    leader = here.process()
    await here.plan("a", within=START, emails=10)
    here.process()
    await eventually_standing_by(here)
    leader.signal(signal.SIGTERM)
    await eventually(lambda: len(epochs(here)) == 2, within=1.5)
    assert await leader.ended() == 0


async def eventually_standing_by(here: World) -> None:
    """The second process has connected, follows, and waits for the lease."""
    log = here.processes[-1].log

    def waits() -> bool:
        return bool(log and log.exists() and "standing by" in log.read_text())

    await eventually(waits, within=START, what="standing by")


async def test_the_story_of_a_scaling(settings: MakeSettings):
    """measure ► decide ► command: one trace, and the command carries it on."""
    with Collector() as collector:
        tables = {"telemetry": {"endpoint": collector.endpoint}}
        async with world("nats", settings, **tables) as here:
            here.host("a")
            await here.start()
            end = telemetry.setup("penstock-metrics", "test", here.settings)
            with telemetry.span("measure emails", parent={}, kind=telemetry.SpanKind.PRODUCER):
                headers = telemetry.inject()
            snapshot = PoolSnapshot(
                pool="emails", queues=("emails",), waiting=9, oldest_waiting_seconds=40.0
            )
            subject = here.subjects.pool_snapshot("emails")
            await here.bus.append(Outgoing(subject, encode(snapshot), headers))
            command = await here.plan("a", emails=9)
            stored = await here.bus.last(here.subjects.commands_stream, here.subjects.command("a"))
            end()
        measure = collector.wait_for("measure emails")
        commanding = collector.wait_for(
            lambda span: (
                span.name == "command a"
                and span.attributes["penstock.command.version"] == command.version
            )
        )
        decide = collector.wait_for(lambda span: span.span_id == commanding.parent_id)
    assert decide.name == "decide emails"
    assert (decide.kind, commanding.kind) == ("consumer", "producer")
    assert decide.parent_id == measure.span_id
    assert (measure.trace_id, measure.span_id) in decide.links
    assert measure.trace_id == decide.trace_id == commanding.trace_id
    assert decide.attributes["penstock.decision.target_workers"] == 9
    assert decide.attributes["penstock.decision.id"] in command.decision_ids
    assert stored is not None
    assert commanding.span_id in stored.headers["traceparent"]


async def test_a_thousand_pools(settings: MakeSettings):
    """Each decided every second, and a wake-up turned into a command without delay."""
    pool = {"strategy": "hybrid", "min_workers": 0, "max_workers": 5}
    pools = {f"p{number}": pool for number in range(1000)}
    async with world("nats", settings, pools=pools) as here:
        here.host("a")
        await here.start()
        for name in pools:
            await here.report(name)
        await eventually(
            lambda: (
                {
                    each.pool
                    for each in here.events(ScalingDecisionMade)
                    if each.reasons[0].step == "strategy"
                }
                == set(pools)
            ),
            within=20,
        )
        await here.report("p7", waiting=3, oldest_waiting_seconds=40.0, wakeup="backlog")
        await eventually(lambda: (here.plan_of("a") or {}).get("p7"), within=2.0)
        assert PoolState(placement={"a": 2}).workers == (here.plan_of("a") or {})["p7"]


async def test_a_frozen_broker_costs_the_lease_and_no_worker(
    settings: MakeSettings, broker: Broker, caplog: pytest.LogCaptureFixture
):
    """Deaf for longer than every lease: it stops acting, leads again, and lowers nothing."""
    tables = {
        "decider": {"lease_seconds": 0.9, "stale_seconds": 1.5, "repeat_seconds": 0.0},
        "nats": {"request_timeout_seconds": 0.5},
        "host": {"name": "x", "lease_seconds": 1.0},
    }
    async with world("nats", settings, **tables) as here:
        here.host("a")
        here.host("b")
        await here.report(**BUSY)
        await here.start()
        await eventually(lambda: (here.plan_of("a"), here.plan_of("b")) == (HALF, HALF))
        broker.freeze()
        await eventually(lambda: "lease lost" in caplog.text)
        broker.thaw()
        await eventually(lambda: len(epochs(here)) >= 2, within=8)
        decision = await here.decided(3)
        assert decision.target == 10
        assert (here.plan_of("a"), here.plan_of("b")) == (HALF, HALF)
        assert all(each.target >= 10 for each in here.events(ScalingDecisionMade)[-3:])
        assert not here.events(HostLost)
        await here.report(**BUSIER)
        await eventually(lambda: (here.plan_of("a"), here.plan_of("b")) == (ALL, ALL), within=8)
