"""One leadership: loads the last decisions, then runs rounds until the term ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

import msgspec

from penstock import telemetry
from penstock.bus.clock import BrokerClock
from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.config import Pool
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs, Rules
from penstock.decider.core.policies.policy import Policies
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import State, restore
from penstock.decider.intake import Intake
from penstock.decider.own_metrics import Readings
from penstock.decider.publishing.commands import Commander, Deposed
from penstock.decider.publishing.event_filter import EventFilter
from penstock.decider.publishing.journal import Journal, Made
from penstock.decider.publishing.recorder import Recorder
from penstock.decider.publishing.spans import DecisionSpans
from penstock.decider.rhythm import Rhythm
from penstock.decider.standing_orders import StandingOrders
from penstock.events.envelope import encode
from penstock.events.scaling import LeaderChanged, ScalingDecisionMade
from penstock.events.subjects import Subjects
from penstock.events.telling import chain, headline
from penstock.runtime.lease import Term
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.decider")

_RETRY_SECONDS = 0.2
_NAMED = 5
"""Hosts that one round names in the log."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all of a process's leaderships share.

    Attributes:
        holder: this process's name in the lease.
        source: in its events.
    """

    bus: Bus
    subjects: Subjects
    holder: str
    source: str
    pools: Mapping[str, Pool]
    strategies: Strategies
    policies: Policies
    rules: Rules
    clock: BrokerClock
    intake: Intake
    rhythm: Rhythm
    orders: StandingOrders
    repeat_seconds: float
    readings: Readings


class Leader:
    """Acts for one term."""

    def __init__(self, setting: Setting, term: Term) -> None:
        self._setting, self._term = setting, term
        self._journal = Journal(setting.bus, setting.subjects, setting.source)
        self._commander = Commander(setting.bus, setting.subjects, setting.source, term.epoch)
        self._spans = DecisionSpans()
        self._filter = EventFilter(setting.repeat_seconds)
        self._recorder = Recorder(
            setting.subjects, setting.source, term.epoch, setting.pools, setting.rules
        )
        self._decision_ids: dict[str, str] = {}
        self._state, self._planned = State(), PlannedWorkers()
        self._keeps_commands = False
        self._announcement = LeaderChanged(
            source=setting.source,
            leader=setting.holder,
            epoch=term.epoch,
            previous=term.previous,
        )
        self._is_announced = False

    async def lead(self) -> None:
        """Returns when the term has ended."""
        try:
            await self._load()
            log.info(
                "leading, epoch %d, after %s",
                self._term.epoch,
                self._term.previous or "no other leader",
            )
            await self._announce()
            self._setting.rhythm.request_all(time.monotonic())
            while self._term.held:
                await self._step()
        except Deposed as deposed:
            self._term.end(str(deposed))

    async def _load(self) -> None:
        """Commands first: they are the truth about where workers are."""
        while self._term.held:
            try:
                commands = await self._commander.load()
                decisions = await self._journal.last_decisions(self._setting.pools)
                await self._setting.orders.load()
            except BusError as error:
                log.warning("cannot load the last decisions: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            now = self._setting.clock.now()
            self._state = restore(self._setting.pools, decisions, commands, now)
            return

    async def _announce(self) -> None:
        """Publishes this leader's name, again with each round until the log has it.

        `penstock verify` finds by it that a command is of a leader. A log that takes no events
        keeps no workers from being started.
        """
        if not self._is_announced:
            event = self._announcement
            record = Outgoing(self._setting.subjects.event(event), encode(event))
            (answer,) = await self._journal.publish([], records=[record])
            self._is_announced = isinstance(answer, int)

    async def _step(self) -> None:
        """Waits until pools are due and decides for them. A fault ends no loop."""
        setting = self._setting
        setting.intake.changed.clear()
        due = setting.rhythm.due(setting.pools, time.monotonic())
        if not due:
            wait = setting.rhythm.wait_seconds(time.monotonic())
            await within(wait, setting.intake.changed.wait())
            return
        try:
            await self._round(due)
        except BusError as error:
            setting.readings.failed()
            log.warning("a round was not recorded: %s", error)
        except (Deposed, asyncio.CancelledError):
            raise
        except Exception:
            setting.readings.failed()
            log.exception("a round failed; the last plan stands")

    async def _round(self, due: frozenset[str]) -> None:
        """Decides, publishes and commands."""
        setting = self._setting
        began_at, now = time.time(), setting.clock.now()
        inputs, through = self._inputs(due, now), setting.intake.through
        before, since = self._state, time.perf_counter()
        outcome = decide(before, inputs, now, self._planned)
        setting.rhythm.took(time.perf_counter() - since)
        if not self._term.held:
            return
        self._state = outcome.state
        if outcome.short:
            setting.rhythm.request_whole()
        # a replay of the stream would use snapshots that this round did not have
        if not setting.intake.complete:
            self._recorder.start_anew()
        records = self._recorder.round(before, inputs, through, outcome, now)
        made = Made(epoch=self._term.epoch, round=self._recorder.number, through=through, now=now)
        published = await self._publish(outcome, made, records, began_at)
        await self._announce()
        if self._term.held:  # it may have ended while the events were stored
            sent = await self._commander.send(
                outcome.plans, self._decision_ids, self._spans, outcome.repeat
            )
            await self._journal.publish(sent)
            setting.readings.commanded(len(sent))
            self._report_unresponsive(outcome, now)
            await self._forget(outcome)
        setting.readings.round(outcome.decisions, published, time.time() - began_at)

    def _report_unresponsive(self, outcome: Outcome, now: float) -> None:
        for host in sorted(outcome.repeat)[:_NAMED]:
            log.warning(
                "host %s has not begun its last command for %.0f s: it gets no further workers; "
                "does its executor run, and may it read commands?",
                host,
                now - outcome.state.pending[host].at,
            )

    async def _forget(self, outcome: Outcome) -> None:
        """Deletes the commands of forgotten hosts; if the key may not, that is logged once."""
        if self._keeps_commands:
            return
        try:
            await self._commander.forget(outcome.plans)
        except BusError as error:
            self._keeps_commands = True
            log.warning("commands of forgotten hosts are kept: %s", error)

    def _inputs(self, due: frozenset[str], now: float) -> Inputs:
        setting = self._setting
        return Inputs(
            pools=setting.pools,
            measured_pools=dict(setting.intake.pools),
            measured_hosts=dict(setting.intake.hosts),
            strategies=setting.strategies,
            policies=setting.policies,
            rules=setting.rules,
            due=None if len(due) == len(setting.pools) else due,
            orders=setting.orders.in_force(now),
        )

    async def _publish(
        self, outcome: Outcome, made: Made, records: list[Outgoing], began_at: float
    ) -> list[ScalingDecisionMade]:
        """Publishes the decisions that are news; returns their events."""
        intake = self._setting.intake
        urgent = {notice.fields.get("pool", "") for notice in outcome.notices}
        news = self._filter.pick(outcome.decisions, urgent, made.now)
        decisions = self._journal.decisions(news, made)
        self._decision_ids.update({event.pool: event.id for event in decisions})
        notices = self._journal.notices(outcome.notices, self._decision_ids, made.now)
        hosts = [measurement.snapshot.id for measurement in intake.hosts.values()]
        with self._spans.decisions(decisions, intake.headers, hosts, began_at) as headers:
            for decision in decisions:
                if decision.current != decision.target:
                    with telemetry.within(headers.get(decision.id)):
                        log.info("%s: %s", headline(decision), chain(decision))
            answers = await self._journal.publish([*decisions, *notices], headers, records)
        self._recorder.stored(answers)
        return decisions
