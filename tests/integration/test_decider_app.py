"""The decider service over both buses: what it says, what it commands, what cannot disturb it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.buses import both
from tests.integration.deciding import EMAILS, QUICK, World, world
from tests.waiting import eventually

from penstock.bus.protocol import Bus, BusUnavailable, Expect, Outgoing, WrongSequence
from penstock.config import ConfigError
from penstock.decider import app
from penstock.events.envelope import encode
from penstock.events.scaling import (
    LeaderChanged,
    ScalingDecisionMade,
    SlaBreached,
    SlaBreachPredicted,
    SlaRecovered,
    WorkersScaled,
)
from penstock.events.worker import HostJoined, HostLost

_HUGE = 2**53


BUSY = {"arrival_per_second": 5.0}  # 10 workers by hybrid
BUSIER = {"arrival_per_second": 10.0}  # 20


@pytest.fixture(params=both("memory"))
async def here(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with world(request.param, request.getfixturevalue("settings")) as found:
        yield found


async def working(here: World, **fields: Any) -> None:
    """A decider, a host, and a pool under load, up to the first command."""
    here.host("a")
    await here.report(**(fields or BUSY))
    await here.start()
    await here.plan("a", emails=10)


# --- the way through -------------
async def test_from_snapshots_to_a_decision_and_a_command(here: World):
    here.host("a")
    snapshot = await here.report(**BUSY)
    await here.start()
    command = await here.plan("a", emails=10)
    leader = await here.event(LeaderChanged)
    assert (command.epoch, command.version > 0) == (leader.epoch, True)
    decision = next(
        each for each in here.events(ScalingDecisionMade) if each.id in command.decision_ids
    )
    assert (decision.current, decision.target, decision.placement) == (0, 10, {"a": 10})
    assert [(r.step, r.rule, r.workers) for r in decision.reasons] == [
        ("strategy", "hybrid.steady", 10)
    ]
    assert snapshot.id in decision.snapshot_ids
    assert decision.state["placement"] == {"a": 10}
    assert decision.epoch == leader.epoch
    assert (await here.event(HostJoined)).host == "a"
    said = await here.event(WorkersScaled, pools={"emails": 10})  # on the event log too
    assert said.id == command.id


async def test_a_decision_a_second_but_a_command_only_when_the_plan_changed(here: World):
    await working(here)
    commands = len(here.commands)
    for _ in range(2):
        await here.report(**BUSY)
        await here.decided()
    assert len(here.commands) == commands
    await here.report(**BUSIER)
    command = await here.plan("a", emails=20)
    assert command.version > 1


async def test_a_wakeup_is_decided_at_once(here: World):
    await working(here)
    before = len(here.events(ScalingDecisionMade))
    await here.report(**BUSIER, wakeup="backlog")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await here.plan("a", emails=20)
    assert loop.time() - began < 0.4
    for _ in range(30):  # and not more than ten times a second
        await here.report(**BUSIER, wakeup="backlog")
    await here.decided(3)
    assert len(here.events(ScalingDecisionMade)) - before <= 10 * (loop.time() - began) + 3


async def test_two_hosts_share_and_a_lost_ones_share_moves(settings):
    async with world("memory", settings, host={"name": "x", "lease_seconds": 0.8}) as here:
        here.host("a")
        here.host("b")
        await here.start()
        await here.event(HostJoined, host="a")
        await here.event(HostJoined, host="b")
        await here.report(**BUSY)
        await here.plan("a", emails=5)
        await here.plan("b", emails=5)
        here.vanish("b")
        beating = asyncio.create_task(keep_reporting(here, **BUSY))
        await here.plan("a", emails=10)
        await here.plan("b")
        assert (await here.event(HostLost)).host == "b"
        here.host("b")
        await eventually(lambda: len(here.events(HostJoined, host="b")) == 2)
        beating.cancel()


async def keep_reporting(here: World, **fields: Any) -> None:
    while True:
        await here.report(**fields)
        await asyncio.sleep(0.2)


# --- the promise -------------
async def test_a_breach_is_predicted_told_and_taken_back(here: World):
    await working(here)
    await here.report(waiting=900, oldest_waiting_seconds=31.0, **BUSY)
    predicted = await here.event(SlaBreachPredicted)
    assert predicted.predicted_pickup_seconds > predicted.sla_seconds == 30
    assert predicted.decision_id in {each.id for each in here.events(ScalingDecisionMade)}
    assert (await here.event(SlaBreached)).oldest_waiting_seconds == 31
    await here.report(**BUSY)
    await here.event(SlaRecovered)
    assert len(here.events(SlaBreachPredicted)) == len(here.events(SlaBreached)) == 1


# --- what is stale, missing or malformed -------------
async def test_stale_measurements_never_lower(here: World):
    await working(here)
    await here.report(
        arrival_per_second=0.0, queue_age_seconds=60.0
    )  # an old zero in a new message
    stale = await here.decided(2)
    assert (stale.target, stale.reasons[0].step) == (10, "stale")
    # and then nothing at all: what is there grows old
    await here.report(arrival_per_second=5.0)
    await here.decided(2)
    await eventually(
        lambda: here.events(ScalingDecisionMade)[-1].reasons[0].step == "stale",
        within=QUICK["stale_seconds"] + 3,
    )
    assert here.events(ScalingDecisionMade)[-1].target == 10
    assert here.plan_of("a") == {"emails": 10}


async def test_malformed_messages_are_logged_and_skipped(here: World, caplog):
    await working(here)
    pools, hosts = here.subjects.pool_snapshot, here.subjects.host_snapshot
    other = encode(await here.report("emails", **BUSY))
    for subject, raw in [
        (pools("emails"), b"\xff\x00 no JSON"),
        (pools("emails"), b'{"type":"\xff"}'),
        (pools("emails"), b'{"type":"PoolSnapshot","x":' + b"[" * 100_000),
        (pools("emails"), b'{"type":"PoolSnapshot","pool":"emails","queues":[],"waiting":"many"}'),
        (pools("emails"), b'{"type":"PoolSnapshot","pool":"emails","queues":[],"waiting":-3}'),
        (pools("emails"), b'{"type":"SnapshotOfTheFuture","pool":"emails"}'),
        (pools("other"), other),
        (hosts("a"), b"[]"),
    ]:
        await here.append(subject, raw)
    await here.report(**BUSIER)
    await here.plan("a", emails=20)
    skipped = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert len(skipped) >= 7
    assert any("waiting = -3" in text for text in skipped)


async def test_an_unknown_pool_is_told_once_and_left_alone(settings, caplog):
    caplog.set_level(logging.INFO)
    async with world("memory", settings, excluded=["legacy-*"]) as here:
        await working(here)
        for _ in range(3):
            await here.report("legacy-sync", waiting=99)
            await here.report("strange", waiting=99)
        await here.report(**BUSIER)
        await here.plan("a", emails=20)
        told = [r.getMessage() for r in caplog.records if "left alone" in r.getMessage()]
        assert sum("legacy-sync" in text for text in told) == 1
        assert sum("strange" in text for text in told) == 1


def test_an_unknown_strategy_stops_the_start(settings):
    with pytest.raises(ConfigError, match="unknown strategy 'best'"):
        app.run(settings(pools={"emails": {"strategy": "best"}}))


# --- leaders -------------
async def test_who_is_stopped_in_order_is_replaced_at_once(here: World):
    await working(here)
    first = (await here.event(LeaderChanged)).epoch
    second = await here.start()
    await here.stop(here._services[0].service)
    await eventually(lambda: len(here.events(LeaderChanged)) == 2, within=0.7)
    changed = here.events(LeaderChanged)[-1]
    assert changed.epoch > first
    assert changed.previous == here.events(LeaderChanged)[0].leader
    assert not second.stopping.is_set()


async def test_who_vanishes_is_replaced_and_nothing_is_lowered(here: World):
    await working(here)
    first = here._services[0].service
    await here.start()
    await here.freeze(first)
    await eventually(lambda: len(here.events(LeaderChanged)) == 2, within=5)
    epoch = here.events(LeaderChanged)[-1].epoch
    command = await eventually(lambda: [c for c in here.commands if c.epoch == epoch])
    assert command[0].pools == {"emails": 10}  # said again in the new leader's name
    await eventually(lambda: here.events(ScalingDecisionMade, epoch=epoch))
    assert all(each.target >= 10 for each in here.events(ScalingDecisionMade, epoch=epoch))


async def test_a_restart_goes_on_where_it_was(here: World):
    """Cooldowns too: they come back from the last decision."""
    await working(here)
    await here.stop(here._services[0].service)
    before = here.events(ScalingDecisionMade)[-1]
    await here.start()
    decision = await eventually(
        lambda: [e for e in here.events(ScalingDecisionMade) if e.epoch > before.epoch]
    )
    assert decision[0].current == 10
    assert decision[0].state["up_at"] == before.state["up_at"]


async def test_a_late_command_of_a_deposed_leader_is_refused_by_the_broker(here: World):
    await working(here)
    subject = here.subjects.command("a")
    old = await here.bus.last(here.subjects.commands_stream, subject)
    await here.freeze(here._services[0].service)
    await here.start()
    await eventually(lambda: len(here.events(LeaderChanged)) == 2, within=5)
    await eventually(lambda: here.commands[-1].epoch == here.events(LeaderChanged)[-1].epoch)
    late = WorkersScaled(host="a", epoch=1, version=99, pools={"emails": 0})
    with pytest.raises(WrongSequence):
        await here.bus.append(Outgoing(subject, encode(late), expect=Expect(old.sequence)))
    assert here.plan_of("a") == {"emails": 10}


async def test_a_command_that_got_in_between_is_corrected(here: World):
    """A deposed leader's, before the new one had commanded: the plan is said again."""
    await working(here)
    intruder = WorkersScaled(host="a", epoch=0, version=7, pools={"emails": 1})
    await here.append(here.subjects.command("a"), encode(intruder))
    await here.plan("a", emails=1)
    await here.report(**BUSIER)
    await here.plan("a", emails=20)


async def test_a_newer_leaders_command_deposes(here: World):
    await working(here)
    epoch = here.events(LeaderChanged)[-1].epoch
    newer = WorkersScaled(host="a", epoch=epoch + 1, version=1, pools={"emails": 3})
    await here.append(here.subjects.command("a"), encode(newer))
    await here.report(**BUSIER)
    # it leads again, with a token beyond that one, and starts from what was commanded
    await eventually(lambda: here.events(LeaderChanged)[-1].epoch > epoch)
    await here.plan("a", emails=20)
    assert here.commands[-1].epoch > epoch + 1


@pytest.mark.parametrize("where", ["an epoch nobody had", "our epoch"])
async def test_a_forged_command_is_overwritten_by_one_that_is_obeyed(here: World, where: str):
    await working(here)
    led = here.events(LeaderChanged)[-1].epoch
    epoch, version = (_HUGE, 1) if where == "an epoch nobody had" else (led, _HUGE)
    forged = WorkersScaled(host="a", epoch=epoch, version=version, pools={"emails": 0})
    await here.append(here.subjects.command("a"), encode(forged))
    await here.report(**BUSIER)
    await here.plan("a", emails=20)
    assert here.commands[-1].epoch == here.events(LeaderChanged)[-1].epoch < _HUGE
    assert here.commands[-1].version < _HUGE


async def test_who_begins_to_lead_is_not_kept_out_by_a_forged_command(here: World):
    forged = WorkersScaled(host="a", epoch=_HUGE, version=1, pools={"emails": 0})
    await here.append(here.subjects.command("a"), encode(forged))
    await working(here)
    assert len(here.events(LeaderChanged)) == 1


async def test_lost_answers_of_commands_do_no_harm(here: World):
    """Stored, but the answer was lost: the next round finds its own command and goes on."""

    class Forgetful:
        def __init__(self, bus: Bus) -> None:
            self.bus, self.lose = bus, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.bus, name)

        async def append_many(self, messages: Any) -> Any:
            answers = await self.bus.append_many(messages)
            if self.lose and ".commands." in messages[0].subject:
                self.lose -= 1
                return [BusUnavailable("the answer was lost") for _ in answers]
            return answers

    found: list[Any] = []

    def wrap(bus: Bus) -> Any:
        found.append(Forgetful(bus))
        return found[0]

    here.host("a")
    await here.report(**BUSY)
    await here.start(wrap)
    await here.plan("a", emails=10)
    found[0].lose = 1
    await here.report(**BUSIER)
    await here.plan("a", emails=20)
    await here.report(arrival_per_second=15.0)
    await here.plan("a", emails=30)
    assert len(here.events(LeaderChanged)) == 1


async def test_a_leader_announces_itself_until_the_log_has_it(here: World):
    """`penstock verify` refuses commands of epochs that no leader announced."""

    class Full:
        def __init__(self, bus: Bus) -> None:
            self.bus, self.refusals = bus, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self.bus, name)

        async def append_many(self, messages: Any) -> Any:
            if self.refusals and LeaderChanged.__name__ in messages[0].subject:
                self.refusals -= 1
                return [BusUnavailable("the stream is full") for _ in messages]
            return await self.bus.append_many(messages)

    here.host("a")
    await here.report(**BUSY)
    await here.start(lambda bus: cast("Bus", Full(bus)))
    command = await here.plan("a", emails=10)
    assert (await here.event(LeaderChanged)).epoch == command.epoch


async def test_a_strategy_that_raises_is_reported_and_the_plan_stands(settings, monkeypatch):
    from penstock.decider import plugins
    from penstock.decider.core.registry import BUILTIN
    from penstock.decider.core.strategy import Demand

    class Moody:
        name = "moody"

        def demand(self, inputs: Any) -> Demand:
            if inputs.snapshot.waiting:
                raise ZeroDivisionError("no mood")
            return Demand(workers=4)

    monkeypatch.setattr(plugins, "strategies", lambda: {**BUILTIN, "moody": Moody()})
    pools = {"emails": {**EMAILS["emails"], "strategy": "moody"}}
    async with world("memory", settings, pools=pools) as here:
        here.host("a")
        await here.report()
        await here.start()
        await here.plan("a", emails=4)
        await here.report(waiting=1, wakeup="backlog")
        decision = await eventually(
            lambda: [d for d in here.events(ScalingDecisionMade) if "no mood" in d.reasons[0].text]
        )
        assert decision[0].target == 4
        assert len(here.events(LeaderChanged)) == 1
