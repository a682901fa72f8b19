"""The console that leads: steps the engine, stores what it led to, and has messages sent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

import msgspec

from penstock.bus.protocol import Bus, BusError, WrongSequence
from penstock.console.alerts.book import Book
from penstock.console.alerts.delivery import Delivery
from penstock.console.alerts.feed import Feed
from penstock.console.alerts.heartbeat import Heartbeat
from penstock.console.alerts.record import (
    KIND,
    LEASE,
    MOST_OUTGOING,
    Outstanding,
    Record,
    RecordStore,
    moved,
)
from penstock.console.alerts.senders import Senders
from penstock.console.core.alerts.engine import acknowledge, redirect, resolve, step
from penstock.console.core.alerts.reading import read_all
from penstock.console.core.alerts.states import Change
from penstock.console.core.times import instant
from penstock.events.alerting import AlertAcknowledged, AlertFired, AlertResolved
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects
from penstock.runtime.lease import Lease, Term
from penstock.runtime.service import Service
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.console.alerts")

LEASE_SECONDS = 6.0
STEP_SECONDS = 1.0
GATHER_SECONDS = 0.1
_LOAD_SECONDS = 30.0
_MOST_NAMED = 5
_FINISH_SECONDS = 5.0
"""At its end a console waits so long for what it sends, so that the next one need not repeat it."""
TURN_SECONDS = 60.0
"""A console that cannot open all channels leads so long, then lets others go first."""
HEAD_START_LEASES = 2.0
"""How long it lets them, in leases: one that waits takes over at once."""
SAVE_SECONDS = 10.0
"""How often the time of the last step is stored while alerts are there."""


class Leader:
    """Runs alerts while this console holds the lease.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        book: rules, channels, silences.
        senders: how messages are sent.
        heartbeat: sent while this console leads.
        holder: unique among consoles.
        answers: whether the broker answers; by default whether the connection stands.
        lease_seconds: of leadership.

    A console without the key of some channel leads only while no other one does: it lets them go
    first, before its first turn and after each.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        book: Book,
        senders: Senders,
        heartbeat: Heartbeat,
        holder: str,
        answers: Callable[[], bool] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._bus, self._subjects, self._book = bus, subjects, book
        self._answers = answers or (lambda: bus.connected)
        self._heartbeat = heartbeat
        self._records = RecordStore(bus, subjects)
        self._lease = Lease(
            bus, subjects.state_stream, subjects.state(KIND, LEASE), holder, lease_seconds
        )
        self._delivery = Delivery(bus, subjects, book, senders, holder)
        self._sealing = senders.sealing
        self._lease_seconds = lease_seconds
        self._has_yielded = False
        self._woken = asyncio.Event()
        self._record = Record()
        self._saved_at = 0.0
        self._resting = asyncio.Event()
        self._resting.set()
        self._complained = ""
        self.leads = False

    def wake(self) -> None:
        """Makes a step soon: a rule, a channel or a silence changed, or a person acted."""
        self._woken.set()

    async def finish(self) -> None:
        """Waits a moment, after the service was stopped, until what is sent is recorded."""
        self._woken.set()
        await within(2 * _FINISH_SECONDS, self._resting.wait())

    async def run(self, service: Service) -> None:
        """Leads whenever the lease is free, until the service stops."""
        service.spawn(self._lease.watch(), "lease of alerts")
        while not service.stopping.is_set():
            async with self._lease.holding() as term:
                try:
                    await self._lead(service, term)
                except WrongSequence:
                    log.warning("another console leads alerts")
                except BusError as error:
                    log.warning("alerts stop for a moment: %s", error)
                except Exception as error:
                    # The rest of the console goes on, and this begins anew in a moment.
                    self._complain(error)
                finally:
                    self.leads = False
                    self._delivery.stop()
                    self._heartbeat.stop()
                    self._resting.set()
            head_start = HEAD_START_LEASES * self._lease_seconds if self.unopened else 0.0
            await service.pause(max(STEP_SECONDS, head_start))

    @property
    def unopened(self) -> list[str]:
        """Ids of the channels that this console cannot send to: it has not their key."""
        return self._sealing.unopened(self._book.channels.values())

    def _must_yield(self, began: float) -> bool:
        """Whether others go first now.

        Args:
            began: when this turn did, on the monotonic clock.
        """
        if not (unopened := self.unopened):
            self._has_yielded = False
            return False
        if self._has_yielded:
            return monotonic() - began >= TURN_SECONDS
        self._has_yielded = True
        log.warning(
            "this console leads alerts only while no other one does: it cannot open the address of "
            "%s; set encryption.key_file to the same keys for all consoles, or enter it again",
            ", ".join(unopened[:_MOST_NAMED]),
        )
        return True

    def _complain(self, error: Exception) -> None:
        """Logs an error of the program, the same one once."""
        if repr(error) != self._complained:
            self._complained = repr(error)
            log.error("alerts begin anew after an error of the program", exc_info=error)

    async def _lead(self, service: Service, term: Term) -> None:
        self._resting.clear()
        await self._book.catch_up()  # a rule that is not read yet would count as removed
        began = monotonic()
        if self._must_yield(began):
            return
        self._record = await self._records.read()
        self._heartbeat.resume(self._record.heartbeat)
        # Between the leaders nothing was measured: what was due then waits for data.
        states, _ = step(self._book.configuration, self._record.states, {}, self._record.states.at)
        self._record = msgspec.structs.replace(self._record, states=states)
        feed = Feed(self._bus, self._subjects, self._woken.set)
        self.leads = True
        following = asyncio.create_task(feed.run())
        try:
            await within(_LOAD_SECONDS, feed.is_complete.wait())
            while term.held and not service.stopping.is_set() and not self._must_yield(began):
                if following.done():
                    following.result()
                self._woken.clear()
                await self._step(feed, term)
                await within(STEP_SECONDS, self._woken.wait())
                await service.pause(GATHER_SECONDS)
            if term.held:
                await self._delivery.finish(_FINISH_SECONDS)
                await self._save(self._after_deliveries(self._record), self._bus.now())
        finally:
            following.cancel()

    async def _step(self, feed: Feed, term: Term) -> None:
        now = self._bus.now()
        feed.world.is_connected = self._answers() and feed.is_complete.is_set()
        for one in self._record.outgoing[:-MOST_OUTGOING]:
            await self._delivery.abandon(one, f"more than {MOST_OUTGOING} messages wait")
        record = self._after_acts(self._after_deliveries(self._record), now)
        config = self._book.configuration
        feed.world.muted = frozenset(self._book.muted)
        readings, problems = read_all(config, feed.world, now)
        for name, problem in problems.items():
            if self._record.problems.get(name) != problem:
                log.error("the rule of alerts %s cannot be evaluated: %s", name, problem)
        states, effects = step(config, record.states, readings, now)
        fresh = tuple(
            Outstanding(notification=one, channel=one.channel) for one in effects.notifications
        )
        outgoing = (*record.outgoing, *fresh)
        record = msgspec.structs.replace(
            record,
            states=states,
            outgoing=outgoing,
            history=(*record.history, *effects.changes),
            heartbeat=self._heartbeat.last,
            problems=problems,
        )
        await self._save(record, now)
        if term.held:
            self._delivery.start(self._record.outgoing, self._woken.set)
        await self._store_history()
        if self._answers():
            self._heartbeat.beat(now)

    async def _save(self, record: Record, now: float) -> None:
        """Stores the record where it says something new."""
        if not _is_same(record, self._record) or (
            record.states.alerts and now - self._saved_at >= SAVE_SECONDS
        ):
            await self._records.replace(record)
            self._saved_at = now
        self._record = record

    async def _store_history(self) -> None:
        """Stores what happened to alerts as events, and that this is done."""
        if self._record.history:
            events = [_event(change) for change in self._record.history]
            await self._book.store_all([event for event in events if event is not None])
            record = msgspec.structs.replace(self._record, history=())
            await self._records.replace(record)
            self._record = record

    def _after_deliveries(self, record: Record) -> Record:
        """The record after what was sent, or not, since the last step."""
        ended, self._delivery.ended = self._delivery.ended, []
        states, outgoing = record.states, list(record.outgoing)
        for result in ended:
            name = result.outstanding.notification.id
            places = (at for at, one in enumerate(outgoing) if one.notification.id == name)
            if (place := next(places, None)) is None:
                continue
            one = outgoing.pop(place)
            if result.moved_to is not None:
                incidents = frozenset(
                    entry.incident for entry in one.notification.entries if entry.kind != "resolved"
                )
                states = redirect(states, one.channel, result.moved_to, incidents)
                outgoing = [
                    part
                    for other in outgoing
                    for part in moved(other, one.channel, result.moved_to, incidents)
                ]
            if result.retry is not None:
                outgoing.insert(place, result.retry)
        return msgspec.structs.replace(record, states=states, outgoing=tuple(outgoing))

    def _after_acts(self, record: Record, now: float) -> Record:
        states, history, handled = record.states, record.history, record.handled
        for sequence, event in tuple(self._book.acts):
            if sequence <= record.handled:
                continue
            handled = sequence
            if isinstance(event, AlertAcknowledged):
                states = acknowledge(states, event.incident, event.by, now)
            else:
                states, changes = resolve(states, event.incident, event.by, now)
                history = (*history, *changes)
        return msgspec.structs.replace(record, states=states, history=history, handled=handled)


def _is_same(one: Record, other: Record) -> bool:
    """Whether nothing but the time differs."""
    still = msgspec.structs.replace(one.states, at=other.states.at)
    return msgspec.structs.replace(one, states=still) == other


def _event(change: Change) -> Event | None:
    alert, at = change.alert, instant(round(change.at * 1e6))
    about = {"alert": alert.key, "incident": alert.incident}
    identifier = f"{alert.incident}-{change.kind}"
    if change.kind == "fired":
        return AlertFired(
            **about,
            id=identifier,
            at=at,
            rule=alert.rule,
            severity=alert.severity,
            labels=alert.labels,
            text=alert.text,
            advice=alert.advice,
            link=alert.link,
        )
    if change.kind == "resolved":
        seconds = max(0.0, change.at - alert.fired_at)
        return AlertResolved(**about, id=identifier, at=at, seconds=seconds, by=alert.resolved_by)
    return None
