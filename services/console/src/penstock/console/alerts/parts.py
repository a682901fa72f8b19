"""All of alerts that a console runs, and what pages and endpoints ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.bus.protocol import Bus, BusError, BusUnavailable
from penstock.config import Settings
from penstock.console.alerts.backtests import Backtests
from penstock.console.alerts.book import Book
from penstock.console.alerts.heartbeat import Heartbeat
from penstock.console.alerts.leader import Leader
from penstock.console.alerts.record import KIND, RECORD, Record, parse
from penstock.console.alerts.sealing import Sealing
from penstock.console.alerts.senders import Senders
from penstock.console.core.alerts.backtest import Backtest, backtest
from penstock.console.core.alerts.notifying import muted_by
from penstock.console.core.alerts.rules import (
    Absence,
    BudgetCap,
    Burn,
    Condition,
    CrashLoop,
    DeadLetters,
    Expression,
    Health,
    HeldByCapacity,
    HostLost,
    NoLeader,
    PredictedBreach,
    QueueAge,
    Rule,
    Stuck,
)
from penstock.console.core.alerts.states import Alert
from penstock.events.envelope import Event, new_id
from penstock.events.subjects import Subjects
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.event_of_subject import event_of_subject
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console.alerts")

BACKTEST_DAYS = 14
MOST_RECORDED = 200_000
"""Events of one backtest; of more, the newest."""
_RETRY_SECONDS = 1.0
_READ_SECONDS = 60.0
_EVENTS: dict[type[Condition], tuple[tuple[str, str], ...]] = {
    Burn: (("pool", "PromiseBurning"),),
    PredictedBreach: (("pool", "SlaBreachPredicted"), ("pool", "ScalingDecisionMade")),
    HeldByCapacity: (("pool", "ScalingDecisionMade"),),
    BudgetCap: (("pool", "BudgetCapReached"),),
    DeadLetters: (("job", "JobDead"),),
    HostLost: (("host", "*"),),
    CrashLoop: (("worker", "WorkerCrashLooping"), ("worker", "WorkerReady")),
    Stuck: (("worker", "WorkerStuck"), ("worker", "WorkerStopped")),
    Health: (("health", "HealthChanged"),),
    NoLeader: (("decider", "*"), ("pool", "ScalingDecisionMade")),
    Absence: (("pool", "*"), ("host", "*")),
}
"""Noun and name of the recorded events that a kind of rule is tested over."""
_SNAPSHOTS = (QueueAge, Expression)


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An alert as lists show it.

    Attributes:
        rule_name: of its rule.
        muted: why no message of it is sent, as a sentence; empty where they are.
    """

    alert: Alert
    rule_name: str
    muted: str = ""


class Alerts:
    """Rules, states and messages of a console.

    Args:
        bus: a connection of this service.
        settings: of this process.
        folder: of the console's files.
        changed: called when something that pages show has changed.
        answers: whether the broker answers; by default whether the connection stands.
    """

    def __init__(
        self,
        bus: Bus,
        settings: Settings,
        folder: Path,
        changed: Callable[[], None],
        answers: Callable[[], bool] | None = None,
    ) -> None:
        self._bus, self._subjects, self._changed = bus, Subjects(settings.prefix), changed
        self.sealing = Sealing(settings.encryption.key_file, folder)
        self.senders = Senders(
            self.sealing, settings.console.alert_networks, settings.console.public_url
        )
        self.book = Book(bus, self._subjects, self._took)
        console = settings.console
        self.heartbeat = Heartbeat(
            console.heartbeat_url, console.heartbeat_seconds, console.alert_networks
        )
        self.leader = Leader(
            bus, self._subjects, self.book, self.senders, self.heartbeat, new_id(), answers
        )
        self._backtests = Backtests()
        self._record = Record()
        self._is_reader = settings.console.read_only

    async def run(self, service: Service) -> None:
        """Runs until the service stops."""
        service.spawn(self.book.run(service), "rules and channels")
        if not self._is_reader:
            service.spawn(self.leader.run(service), "alerts")
        subject = self._subjects.state(KIND, RECORD)
        while not service.stopping.is_set():
            try:
                stream = self._subjects.state_stream
                async for stored in self._bus.follow(stream, [subject], "last"):
                    self._record = parse(stored)
                    self._changed()
            except BusError as error:
                log.warning("states of alerts cannot be followed, trying again: %s", error)
            await service.pause(_RETRY_SECONDS)

    @property
    def record(self) -> Record:
        """States and messages on their way, as the leading console stored them last."""
        return self._record

    @property
    def key_problem(self) -> str:
        """Why this console cannot send to all channels, as a sentence; empty where it can."""
        if not (unopened := self.leader.unopened):
            return ""
        return (
            f"This console cannot open the address of {', '.join(unopened)}, so it sends messages "
            "only while no other console does: set encryption.key_file to the same keys for all "
            "consoles, or enter the address again"
        )

    def problem(self, rule: Rule) -> str:
        """Why a rule cannot be evaluated, as a sentence; empty where it can."""
        problem = self._record.problems.get(rule.id, "")
        return f"It cannot be evaluated: {problem}" if problem else ""

    def active(self) -> list[Shown]:
        """Alerts that are pending or fire; the most urgent first."""
        order = {"page": 0, "warn": 1, "note": 2}
        phases = {"firing": 0, "keep": 1, "pending": 2}
        alerts = [one for one in self._record.states.alerts.values() if one.phase in phases]
        ranked = sorted(
            alerts, key=lambda one: (phases[one.phase], order[one.severity], one.fired_at, one.key)
        )
        return [self._shown(one) for one in ranked]

    @property
    def firing(self) -> int:
        """Alerts that fire, and that no person has acknowledged."""
        alerts = self._record.states.alerts.values()
        return sum(one.phase == "firing" and not one.acknowledged_by for one in alerts)

    def one(self, key: str) -> Shown | None:
        """An alert that is remembered."""
        alert = self._record.states.alerts.get(key)
        return None if alert is None else self._shown(alert)

    def _shown(self, alert: Alert) -> Shown:
        rule = self.book.rules.get(alert.rule)
        if rule is None:
            return Shown(alert=alert, rule_name=alert.rule)
        alerts = self._record.states.alerts
        config = self.book.configuration
        muted = muted_by(config, alerts, alert, rule, self._bus.now())
        return Shown(alert=alert, rule_name=rule.name, muted=muted)

    def _took(self, _: Event) -> None:
        self.leader.wake()
        self._changed()

    async def backtest(self, rule: Rule, days: float = BACKTEST_DAYS) -> Backtest:
        """What the rule would have done over the recorded events, to the minute.

        Raises:
            BusError: the events cannot be read.
            TooManyComputations: as many are computed as may be.
        """
        stream, patterns = self._tested_over(rule)
        newest = [await self._bus.last(stream, pattern) for pattern in patterns]
        last = max((one.sequence for one in newest if one), default=0)
        end = self._bus.now()

        async def compute() -> Backtest:
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    since = await self._recorded_since(stream)
                    events = await self._recorded(stream, patterns, last)
            except TimeoutError:
                raise BusUnavailable(f"{stream}: not read within {_READ_SECONDS:.0f} s") from None
            since = None if len(events) == MOST_RECORDED else since
            begin = end - days * 86_400
            return await asyncio.to_thread(backtest, rule, events, begin, end, since)

        question = (msgspec.json.encode(rule), days, last, end // 60)
        return await self._backtests.answer(question, compute)

    def _tested_over(self, rule: Rule) -> tuple[str, list[str]]:
        """The stream and the subjects of what a rule is tested over."""
        if isinstance(rule.condition, _SNAPSHOTS):
            return self._subjects.snapshots_stream, [self._subjects.pool_snapshot("*")]
        named = _EVENTS[type(rule.condition)]
        patterns = [self._subjects.events(noun=noun, name=name) for noun, name in named]
        return self._subjects.events_stream, patterns

    async def _recorded_since(self, stream: str) -> float | None:
        """Time of the log's first event; None of snapshots: without any, nothing was measured."""
        if stream != self._subjects.events_stream:
            return None
        _, since = await event_log.begins_at(self._bus, self._subjects)
        return since.timestamp() if since else None

    async def _recorded(self, stream: str, patterns: list[str], last: int) -> list[Event]:
        events: list[Event] = []
        if not last:
            return events
        async for stored in self._bus.follow(stream, patterns, 1):
            if (event := event_of_subject(stored, self._subjects)) is not None:
                events.append(event)
            if stored.sequence >= last:
                break
            if len(events) >= 2 * MOST_RECORDED:
                del events[:MOST_RECORDED]
        return sorted(events[-MOST_RECORDED:], key=lambda one: one.at)
