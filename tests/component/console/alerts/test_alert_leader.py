"""Alerts from events to messages: retries, fallbacks, and leaders that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.component.console.alerts.receivers import HttpReceiver, http_receiver
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.console.alerts import leader
from penstock.console.alerts.parts import Alerts
from penstock.console.alerts.record import Outstanding, Record, RecordStore
from penstock.console.core.alerts import reading
from penstock.console.core.alerts.channels import Channel, Secrets
from penstock.console.core.alerts.engine import step
from penstock.console.core.alerts.rules import Burn, Configuration, HostLost, Rule
from penstock.console.core.alerts.states import Observation, Reading, States
from penstock.events.alerting import (
    AlertAcknowledged,
    AlertChannelSaved,
    AlertResolveRequested,
    AlertRuleSaved,
)
from penstock.events.envelope import Event, encode
from penstock.events.subjects import Subjects
from penstock.events.worker import HostJoined
from penstock.events.worker import HostLost as HostLostEvent
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus

RULE = Rule(
    id="host-lost", name="A host is lost", condition=HostLost(), for_seconds=0, keep_seconds=0,
    channels=("hook",), repeat_seconds=0,
)  # fmt: skip


class Consoles:
    """Consoles over one bus, which share a folder and so a key."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.bus, self.settings, self.folder = MemoryBus(), settings, folder
        self.subjects = Subjects(settings.prefix)
        self.running: list[tuple[Service, Alerts]] = []

    def start(self, lease_seconds: float = 0.9, *, reads: bool = True, folder: str = "") -> Alerts:
        """Starts a console.

        Args:
            lease_seconds: of leadership.
            reads: else it follows no rules and channels yet.
            folder: of its own, with a key of its own; empty: that of the others.
        """
        service = Service("console", self.settings, self.bus)
        alerts = Alerts(self.bus, self.settings, self.folder / folder, lambda: None)
        alerts.leader._lease._lease_seconds = alerts.leader._lease_seconds = lease_seconds
        alerts.book.group_seconds = 0.0
        alerts.leader._delivery.retry_seconds = (0.05, 0.05)
        service.spawn(alerts.run(service) if reads else alerts.leader.run(service), "alerts")
        self.running.append((service, alerts))
        return alerts

    async def kill(self) -> None:
        """Ends the first console without its end: nothing is released or stored."""
        service, alerts = self.running.pop(0)

        async def nothing(*_: Any) -> None:
            await asyncio.sleep(0)

        alerts.leader._lease.release = nothing  # type: ignore[method-assign]
        for task in list(alerts.leader._delivery._tasks.values()):
            task.cancel()
        await service.end_tasks()

    async def end(self) -> None:
        """Ends the first console in an orderly way."""
        service, alerts = self.running.pop(0)
        service.stopping.set()
        await alerts.leader.finish()
        await service.end_tasks()

    async def stop(self) -> None:
        for service, _ in self.running:
            service.stopping.set()
            await service.end_tasks()

    async def store(self, event: Event) -> None:
        await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))

    async def configure(self, alerts: Alerts, receiver: HttpReceiver, fallback: str = "") -> None:
        box = alerts.sealing.seal("hook", Secrets(url=receiver.url))
        hook = Channel(id="hook", name="hook", kind="webhook", sealed=box, fallback=fallback)
        await self.save(alerts, hook)
        definition = msgspec.to_builtins(RULE)
        await alerts.book.store(AlertRuleSaved(name=RULE.id, definition=definition))

    async def configure_with_spare(
        self, alerts: Alerts, receiver: HttpReceiver, spare_receiver: HttpReceiver
    ) -> None:
        """What the first receiver does not take goes to the other one."""
        box = alerts.sealing.seal("spare", Secrets(url=spare_receiver.url))
        await self.save(alerts, Channel(id="spare", name="spare", kind="webhook", sealed=box))
        await self.configure(alerts, receiver, fallback="spare")

    async def save(self, alerts: Alerts, channel: Channel) -> None:
        definition = msgspec.to_builtins(channel)
        await alerts.book.store(AlertChannelSaved(name=channel.id, definition=definition))

    async def lose_host(self) -> None:
        await self.store(HostLostEvent(host="h1", silent_seconds=6))

    async def return_host(self) -> None:
        await self.store(HostJoined(host="h1", cpu_cores=1, memory_bytes=1))


@pytest.fixture
async def consoles(tmp_path: Path) -> AsyncIterator[Consoles]:
    settings = check(
        {
            "host": {"run_dir": str(tmp_path / "run")},
            "console": {"alert_networks": ["127.0.0.0/8"]},
        }
    )
    consoles = Consoles(settings, tmp_path / "console")
    yield consoles
    await consoles.stop()


async def test_a_lost_host_is_reported_once_and_resolved(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(alerts, receiver)
        await consoles.lose_host()
        await receiver.until(1)
        await consoles.return_host()
        await receiver.until(2)
    assert receiver.states == ["firing", "resolved"]
    await eventually(lambda: len(alerts.book.notifications) == 2, 5, "what was sent")
    (past,) = alerts.book.history.values()
    assert past.resolved_at is not None
    assert past.labels == {"host": "h1"}


async def test_a_failing_receiver_is_tried_again_with_the_same_id(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as receiver:
        receiver.answers = [500, 0]
        await consoles.configure(alerts, receiver)
        await consoles.lose_host()
        await receiver.until(3)
        await consoles.return_host()
        await receiver.until(4)
    assert receiver.states == ["firing", "firing", "firing", "resolved"]
    ids = [headers["penstock-notification"] for headers, _ in receiver.requests]
    assert len(set(ids[:3])) == 1
    assert ids[3] != ids[0]


async def test_after_the_last_try_the_fallback_gets_it_and_its_end(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as broken, http_receiver() as receiver:
        broken.answers = [500] * 99
        await consoles.configure_with_spare(alerts, broken, receiver)
        await consoles.lose_host()
        await receiver.until(1)
        await consoles.return_host()
        await receiver.until(2)
    assert broken.states == ["firing"] * 3
    assert receiver.states == ["firing", "resolved"]


async def test_the_fallback_gets_what_a_receiver_refuses_slowly_each_time(
    consoles: Consoles,
) -> None:
    """The leader makes its steps meanwhile."""
    alerts = consoles.start()
    async with http_receiver() as broken, http_receiver() as receiver:
        broken.answers = [500] * 3
        await consoles.configure_with_spare(alerts, broken, receiver)
        broken.delay = asyncio.Event()
        await consoles.lose_host()
        for attempt in (1, 2, 3):
            await broken.until(attempt)
            began = alerts.leader._record.states.at
            alerts.leader.wake()
            await eventually(lambda at=began: alerts.leader._record.states.at > at, 5, "a step")
            answered, broken.delay = broken.delay, asyncio.Event()
            answered.set()
        await receiver.until(1)
        broken.delay.set()
    assert broken.states == ["firing"] * 3
    assert receiver.states == ["firing"]


async def test_two_consoles_send_each_message_once(consoles: Consoles) -> None:
    alerts, _ = consoles.start(), consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(alerts, receiver)
        await consoles.lose_host()
        await receiver.until(1)
        await consoles.return_host()
        await receiver.until(2)
        await eventually(lambda: len(alerts.book.notifications) == 2, 5, "what was sent")
    assert receiver.states == ["firing", "resolved"]


async def test_a_leader_that_is_killed_while_it_sends_loses_nothing(consoles: Consoles) -> None:
    first = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(first, receiver)
        receiver.delay = asyncio.Event()
        await consoles.lose_host()
        await receiver.until(1)  # it was sent, and its answer does not come
        await consoles.kill()
        receiver.delay.set()
        consoles.start()
        await receiver.until(2)
        await consoles.return_host()
        await receiver.until(3)
    assert receiver.states == ["firing", "firing", "resolved"]
    ids = [headers["penstock-notification"] for headers, _ in receiver.requests]
    assert ids[0] == ids[1]


async def test_what_is_recorded_as_sent_is_not_sent_by_the_next_leader(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(first, receiver)
        await receiver_of_one_host(consoles, receiver)
        never = asyncio.Event()
        monkeypatch.setattr(first.leader._records, "replace", lambda _: never.wait())
        receiver.delay.set()  # type: ignore[union-attr]
        await eventually(lambda: bool(first.book.notifications), 5, "what was sent")
        await consoles.kill()
        second = consoles.start()
        await eventually(lambda: second.leader.leads, 5, "a leader")
        await consoles.return_host()
        await receiver.until(2)
    assert receiver.states == ["firing", "resolved"]


async def receiver_of_one_host(consoles: Consoles, receiver: HttpReceiver) -> None:
    """A host is lost, and its message is held where it is sent to."""
    receiver.delay = asyncio.Event()
    await consoles.lose_host()
    await receiver.until(1)


async def test_a_console_that_ends_records_what_it_sends(consoles: Consoles) -> None:
    first = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(first, receiver)
        await receiver_of_one_host(consoles, receiver)
        ending = asyncio.create_task(consoles.end())
        await eventually(first.leader._woken.is_set, 5, "the end")
        receiver.delay.set()  # type: ignore[union-attr]
        await ending
        consoles.start()
        await consoles.return_host()
        await receiver.until(2)
    assert receiver.states == ["firing", "resolved"]


async def test_what_a_person_did_between_two_leaders_is_applied_once(consoles: Consoles) -> None:
    first = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(first, receiver)
        await consoles.lose_host()
        await receiver.until(1)
        await eventually(lambda: bool(first.book.notifications), 5, "what was sent")
        alert = first.active()[0].alert
        about = {"alert": alert.key, "incident": alert.incident, "by": "ada"}
        await consoles.kill()
        asked = AlertResolveRequested(**about)
        handled = await consoles.bus.append(
            Outgoing(consoles.subjects.console_event(asked), encode(asked))
        )
        second = consoles.start()
        await receiver.until(2)
        await eventually(lambda: second.record.handled == handled, 5, "the act")
        await consoles.return_host()  # the condition ends, and comes again
        await eventually(
            lambda: not any(one.is_met for one in second.record.states.alerts.values()), 5, "an end"
        )
        await consoles.lose_host()
        await receiver.until(3)
        await eventually(lambda: len(second.book.notifications) == 3, 5, "what was sent")
        await consoles.kill()
        third = consoles.start()
        await eventually(lambda: third.leader.leads, 5, "a leader")
        await consoles.return_host()
        await receiver.until(4)
    assert receiver.states == ["firing", "resolved", "firing", "resolved"]
    assert [past.resolved_by for past in third.book.history.values()] == ["ada", ""]


async def test_a_leader_steps_only_when_it_has_read_all_rules(consoles: Consoles) -> None:
    first = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(first, receiver)
        await first.book.store(
            AlertRuleSaved(
                name="own",
                definition=msgspec.to_builtins(msgspec.structs.replace(RULE, id="own", name="own")),
            )
        )
        await consoles.lose_host()
        await receiver.until(2)
        await consoles.end()
        second = consoles.start(reads=False)
        await eventually(lambda: not second.leader._resting.is_set(), 5, "the lease")
        service, _ = consoles.running[-1]
        service.spawn(second.run(service), "alerts")
        await eventually(lambda: second.leader.leads, 5, "a leader")
        await consoles.return_host()
        await receiver.until(4)
    assert receiver.states == ["firing", "firing", "resolved", "resolved"]
    assert {past.resolved_by for past in second.book.history.values()} == {""}


async def test_what_waits_behind_a_failed_message_goes_on_at_once(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as broken, http_receiver() as receiver:
        broken.answers = [500] * 99
        await consoles.configure_with_spare(alerts, broken, receiver)
        broken.delay = asyncio.Event()
        await consoles.store(HostLostEvent(host="h1", silent_seconds=6))
        await broken.until(1)
        for host in ("h2", "h3"):
            await consoles.store(HostLostEvent(host=host, silent_seconds=6))
            count = len(alerts.record.outgoing)
            await eventually(lambda n=count: len(alerts.record.outgoing) > n, 5, "its message")
        broken.delay.set()
        await receiver.until(3)
    hosts = [body["alerts"][0]["labels"]["host"] for _, body in broken.requests]
    assert hosts == ["h1", "h1", "h1", "h2", "h3"]


async def test_the_end_of_what_no_channel_took_is_not_sent(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as receiver:
        receiver.answers = [500] * 3
        await consoles.configure(alerts, receiver)
        await receiver_of_one_host(consoles, receiver)
        await consoles.return_host()
        await eventually(lambda: len(alerts.record.outgoing) == 2, 5, "the end's message")
        receiver.delay.set()  # type: ignore[union-attr]
        await eventually(lambda: not alerts.record.outgoing, 5, "all given up")
    assert receiver.states == ["firing"] * 3
    assert [event.result for event in alerts.book.notifications.values()] == ["failed"]


async def test_an_outage_of_everything_fits_into_a_message_of_the_broker() -> None:
    channels = tuple(f"channel-{number}" for number in range(10))
    rule = msgspec.structs.replace(RULE, channels=channels)
    labels = ({"host": f"host-{number}.rack-7.example.org"} for number in range(500))
    seen = [
        Observation(
            labels=tuple(one.items()),
            is_met=True,
            text=f"Host {one['host']} is silent since 12:00:00 UTC: its jobs are given back.",
            advice="Look whether the machine is up, and start its executor again.",
            link="/capacity",
        )
        for one in labels
    ]
    config = Configuration(rules={rule.id: rule}, channels=frozenset(channels))
    reading = {rule.id: Reading(observations=tuple(seen))}
    states, effects = step(config, States(at=1000.0), reading, 1001.0)
    outgoing = tuple(
        Outstanding(notification=one, channel=one.channel) for one in effects.notifications
    )
    record = Record(states=states, outgoing=outgoing, history=effects.changes)
    bus = MemoryBus()
    store = RecordStore(bus, Subjects("penstock"))
    await store.replace(record)
    (stored,) = bus.stored(Subjects("penstock").state_stream, store.subject)
    assert len(stored.body) < 500_000
    assert await store.read() == record


async def test_what_a_person_does_reaches_the_leader(consoles: Consoles) -> None:
    alerts = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(alerts, receiver)
        await consoles.lose_host()
        await receiver.until(1)
        await eventually(lambda: bool(alerts.active()), 5, "the alert")
        alert = alerts.active()[0].alert
        about = {"alert": alert.key, "incident": alert.incident, "by": "ada"}
        await alerts.book.store(AlertAcknowledged(**about))
        await eventually(
            lambda: alerts.active()[0].alert.acknowledged_by == "ada", 5, "the acknowledgement"
        )
        await alerts.book.store(AlertResolveRequested(**about))
        await receiver.until(2)
    assert receiver.states == ["firing", "resolved"]


async def test_a_rule_is_tested_over_what_was_recorded(consoles: Consoles) -> None:
    alerts = consoles.start()
    await consoles.return_host()
    await consoles.lose_host()
    await consoles.return_host()
    answer = await alerts.backtest(RULE)
    assert answer.fired == 1
    assert answer.summary.startswith("Would have fired once in less than a day")


async def test_a_rule_that_cannot_be_evaluated_is_shown_and_the_others_go_on(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Reading:
        raise OverflowError("too large")

    monkeypatch.setitem(reading._KINDS, Burn, fails)
    alerts = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(alerts, receiver)
        burning = Rule(id="burning", name="Burning", condition=Burn())
        definition = msgspec.to_builtins(burning)
        await alerts.book.store(AlertRuleSaved(name="burning", definition=definition))
        expected = "It cannot be evaluated: OverflowError: too large"
        await eventually(lambda: alerts.problem(burning) == expected, 5, "the problem")
        await consoles.lose_host()
        await receiver.until(1)
    lines = [one.message for one in caplog.records if "burning cannot be" in one.message]
    assert len(lines) == 1


async def test_an_error_of_the_program_ends_neither_alerts_nor_the_console(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [RuntimeError("of the program")]

    def fails_once(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return step(*arguments)

    monkeypatch.setattr(leader, "step", fails_once)
    alerts = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(alerts, receiver)
        await consoles.lose_host()
        await receiver.until(1)
    assert not consoles.running[0][0].stopping.is_set()


async def test_a_console_without_the_key_of_a_channel_lets_others_lead(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever was there first, and whenever the key is found to be missing."""
    monkeypatch.setattr(leader, "TURN_SECONDS", 0.2)
    keyless = consoles.start(folder="other")
    await eventually(lambda: keyless.leader.leads, 10, "the first console leads")
    keyed = consoles.start()
    async with http_receiver() as receiver:
        await consoles.configure(keyed, receiver)
        await eventually(lambda: keyed.leader.leads, 20, "the one with the key leads")
        assert not keyless.leader.leads
        assert (keyed.key_problem, "of hook" in keyless.key_problem) == ("", True)
        await consoles.lose_host()
        await receiver.until(1)
    assert receiver.states == ["firing"]


async def test_without_another_console_it_leads_says_why_and_uses_the_fallback(
    consoles: Consoles, caplog: pytest.LogCaptureFixture
) -> None:
    keyed = consoles.start()
    keyless = consoles.start(folder="other")
    async with http_receiver() as receiver, http_receiver() as spare:
        await consoles.configure(keyed, receiver)
        box = keyless.sealing.seal("spare", Secrets(url=spare.url))
        await consoles.save(keyed, Channel(id="spare", name="spare", kind="webhook", sealed=box))
        await consoles.configure(keyed, receiver, fallback="spare")
        await eventually(lambda: "hook" in keyless.book.channels, 10, "the channel is read")
        await consoles.kill()
        await eventually(lambda: keyless.leader.leads, 20, "the other one leads")
        await consoles.lose_host()
        await spare.until(1)
    assert "cannot open the address of hook" in caplog.text
    assert keyless.key_problem.startswith("This console cannot open the address of hook")
