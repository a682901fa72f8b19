"""Alerts of the console on a real broker, with the keys of its roles and of others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.component.console.alerts.receivers import http_receiver
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.access import NotPermitted
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusRefused, Outgoing
from penstock.console.alerts.parts import Alerts
from penstock.console.alerts.record import KIND, LEASE, RECORD
from penstock.console.core.alerts import rules
from penstock.console.core.alerts.channels import Channel, Secrets
from penstock.console.core.alerts.rules import Matcher, Rule, Silence
from penstock.events.alerting import (
    AlertAcknowledged,
    AlertChannelRemoved,
    AlertChannelSaved,
    AlertNotified,
    AlertResolveRequested,
    AlertRuleRemoved,
    AlertRuleSaved,
    SilenceEnded,
    SilenceSet,
)
from penstock.events.envelope import Event, encode
from penstock.events.subjects import Subjects
from penstock.events.worker import HostJoined, HostLost
from penstock.runtime.service import Service

SUBJECTS = Subjects("penstock")
NETWORKS = {"console": {"alert_networks": ["127.0.0.0/8"]}}
RULE = Rule(
    id="lost", name="A host is lost", condition=rules.HostLost(), for_seconds=0, keep_seconds=0,
    channels=("hook",),
)  # fmt: skip
ABOUT = {"alert": "k", "incident": "k-1"}
DECISIONS: tuple[Event, ...] = (
    AlertRuleSaved(name="lost", definition={}),
    AlertRuleRemoved(name="lost"),
    AlertChannelSaved(name="hook", definition={}),
    AlertChannelRemoved(name="hook"),
    SilenceSet(name="s", definition={}),
    SilenceEnded(name="s"),
    AlertAcknowledged(**ABOUT, by="eve"),
    AlertResolveRequested(**ABOUT, by="eve"),
    AlertNotified(notification="n", channel="hook", result="sent"),
)
OTHERS = (
    "console-reader", "operator", "dispatcher", "worker", "executor", "orchestrator", "decider",
    "metrics", "pipeline", "subscriber",
)  # fmt: skip


@pytest.fixture(autouse=True)
async def streams(guarded: GuardedBroker, settings: MakeSettings) -> None:
    """The orchestrator makes them."""
    settings.prefix = "penstock"
    bus = await connect(guarded.settings(settings, "orchestrator"))
    await bus.close()


async def store(bus: NatsBus, event: Event) -> None:
    await bus.append(Outgoing(SUBJECTS.console_event(event), encode(event)))


async def test_the_console_s_key_does_all_of_alerts_and_nothing_is_refused(
    guarded: GuardedBroker, settings: MakeSettings, tmp_path: Path
) -> None:
    bus = await connect(guarded.settings(settings, "console"))
    executor = await connect(guarded.settings(settings, "executor"))
    service = Service("console", settings(**NETWORKS), bus)
    alerts = Alerts(bus, service.settings, tmp_path, lambda: None)
    alerts.book.group_seconds = 0.0
    before = guarded.violations()
    service.spawn(alerts.run(service), "alerts")
    async with http_receiver() as receiver:
        box = alerts.sealing.seal("hook", Secrets(url=receiver.url))
        hook = Channel(id="hook", name="hook", kind="webhook", sealed=box)
        await alerts.book.store(
            AlertChannelSaved(name="hook", definition=msgspec.to_builtins(hook))
        )
        await alerts.book.store(AlertRuleSaved(name="lost", definition=msgspec.to_builtins(RULE)))
        lost = HostLost(host="h1", silent_seconds=6)
        await executor.append(Outgoing(SUBJECTS.event(lost), encode(lost)))
        await receiver.until(1)
        await eventually(lambda: bool(alerts.book.notifications), 10, "what was sent")
        await eventually(lambda: bool(alerts.active()), 10, "what the leader recorded")
        alert = alerts.active()[0].alert
        about = {"alert": alert.key, "incident": alert.incident, "by": "ada"}
        await alerts.book.store(AlertAcknowledged(**about))
        await eventually(lambda: alerts.active()[0].alert.acknowledged_by == "ada", 10, "ada")
        silence = Silence(
            id="s", matchers=(Matcher(label="host", glob="*"),), author="ada", reason="moving",
            begins=bus.now(), ends=bus.now() + 600,
        )  # fmt: skip
        await alerts.book.store(SilenceSet(name="s", definition=msgspec.to_builtins(silence)))
        await alerts.book.store(SilenceEnded(name="s"))
        assert (await alerts.backtest(RULE)).fired == 1
        joined = HostJoined(host="h1", cpu_cores=1, memory_bytes=1)
        await executor.append(Outgoing(SUBJECTS.event(joined), encode(joined)))
        await receiver.until(2)
    assert receiver.states == ["firing", "resolved"]
    service.stopping.set()
    await alerts.leader.finish()
    await service.end_tasks()
    assert guarded.violations() == before
    # The history of alerts stays, like the audit log on the same stream.
    with pytest.raises((BusRefused, NotPermitted)):
        await bus.remove(SUBJECTS.console_stream, SUBJECTS.console("alert"))
    for one in (bus, executor):
        await one.close()


@pytest.mark.parametrize("role", OTHERS)
async def test_no_other_key_decides_about_alerts_or_leads_them(
    guarded: GuardedBroker, settings: MakeSettings, role: str
) -> None:
    bus = await connect(guarded.settings(settings, role))
    for event in DECISIONS:
        with pytest.raises(NotPermitted):
            await store(bus, event)
    for name in (LEASE, RECORD):
        with pytest.raises(NotPermitted):
            await bus.append(Outgoing(SUBJECTS.state(KIND, name), b"{}"))
    await bus.close()


async def test_a_console_that_only_reads_shows_alerts_and_leads_none(
    guarded: GuardedBroker, settings: MakeSettings, tmp_path: Path
) -> None:
    writer = await connect(guarded.settings(settings, "console"))
    await store(writer, AlertRuleSaved(name="own", definition=msgspec.to_builtins(RULE)))
    bus = await connect(guarded.settings(settings, "console-reader"))
    before = guarded.violations()
    service = Service("console", settings(console={"read_only": True}), bus)
    alerts = Alerts(bus, service.settings, tmp_path, lambda: None)
    service.spawn(alerts.run(service), "alerts")
    await eventually(lambda: "own" in alerts.book.rules, 10, "the rule")
    assert not alerts.leader.leads
    assert (await alerts.backtest(RULE)).examined_days >= 0
    await service.end_tasks()
    assert guarded.violations() == before
    for one in (bus, writer):
        await one.close()
