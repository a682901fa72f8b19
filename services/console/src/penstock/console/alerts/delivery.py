"""Sends what is outstanding: claim, send, record; retries, then the fallback channel.

Messages to one channel are sent one after the other, so that ``resolved`` never overtakes
``firing``; a slow channel delays no other. Each attempt is claimed by a key that only one console
can make, so a leader that was replaced without noticing sends nothing twice. A leader that takes
over sends what was claimed and is not recorded as sent once more, with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, WrongSequence
from penstock.console.alerts.book import Book
from penstock.console.alerts.record import Outstanding
from penstock.console.alerts.senders import Senders
from penstock.console.alerts.webhook import SendFailed
from penstock.console.core.alerts import messages
from penstock.console.core.times import instant
from penstock.events.alerting import AlertNotified
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.console.alerts")

RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0)
"""After each failed attempt; after the last one the fallback channel is given the message."""
CLAIM_SECONDS = 3600


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended.

    Attributes:
        retry: the message as it waits now; None where it is done with.
        moved_to: the channel that is given it instead; empty for none; None: not moved.
    """

    outstanding: Outstanding
    retry: Outstanding | None = None
    moved_to: str | None = None


class Delivery:
    """Has messages sent, one task for each channel.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        book: channels, and where results are stored.
        senders: how messages are sent.
        holder: unique among consoles.

    Attributes:
        ended: results that the record does not hold yet.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, book: Book, senders: Senders, holder: str
    ) -> None:
        self._bus, self._subjects, self._book = bus, subjects, book
        self._senders, self._holder = senders, holder
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failing: set[str] = set()
        self.retry_seconds: tuple[float, ...] = RETRY_SECONDS
        self.ended: list[Result] = []

    def start(self, outgoing: Iterable[Outstanding], done: Callable[[], None]) -> None:
        """Begins the first message of each channel that is idle.

        Args:
            outgoing: what the stored record holds, in order.
            done: called when one has ended.
        """
        unstored = {result.outstanding.channel for result in self.ended}
        for one in outgoing:
            channel = one.channel
            if channel in self._tasks or channel in unstored:
                continue
            unstored.add(channel)  # the first of each channel only
            if one.next_at <= self._bus.now():
                task = asyncio.create_task(self._deliver(one))
                self._tasks[channel] = task
                task.add_done_callback(partial(self._end, channel, done))

    async def finish(self, seconds: float) -> None:
        """Waits for what is under way, at most that long."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=seconds)

    async def abandon(self, one: Outstanding, error: str) -> None:
        """Gives up a message that is not under way. Raises BusError."""
        if one.channel not in self._tasks:
            await self._note(one, "failed", error)
            self.ended.append(Result(outstanding=one, moved_to=""))

    def stop(self) -> None:
        """Ends what is under way: another console leads."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._failing.clear()
        self.ended.clear()

    def _end(self, channel: str, done: Callable[[], None], task: asyncio.Task[None]) -> None:
        if self._tasks.get(channel) is task:
            del self._tasks[channel]
        done()

    async def _deliver(self, one: Outstanding) -> None:
        try:
            result = await self._attempt(one)  # meanwhile the leader may have taken the list
            self.ended.append(result)
        except BusError as error:
            log.warning("message %s is tried again: %s", one.notification.id, error)
            await asyncio.sleep(1.0)

    async def _attempt(self, one: Outstanding) -> Result:
        begun = msgspec.structs.replace(one, attempts=one.attempts + 1, tries=one.tries + 1)
        channel = self._book.channels.get(one.channel)
        if channel is None:
            return await self._give_up(begun, "there is no such channel any more")
        if self._book.was_sent(one.notification.id, one.channel):
            return Result(outstanding=one)  # by a leader that ended before it stored the record
        if not await self._claim(begun):
            # Begun by a leader that ended before it stored how: sent once more, with the same id.
            return Result(outstanding=one, retry=begun)
        try:
            await self._senders.send(channel, one.notification)
        except SendFailed as error:
            return await self._failed(begun, str(error))
        except Exception as error:
            log.exception("message %s failed", one.notification.id)
            return await self._failed(begun, f"the sender failed: {type(error).__name__}")
        self._failing.discard(begun.channel)
        await self._note(begun, "sent", "")
        return Result(outstanding=one)

    async def _failed(self, begun: Outstanding, error: str) -> Result:
        # Behind a message that was given up, its time ran while it waited: else a queue of them
        # would reach the fallback hours late.
        waited = self._bus.now() - begun.notification.at
        has_waited = begun.channel in self._failing and waited > sum(self.retry_seconds)
        if begun.tries <= len(self.retry_seconds) and not has_waited:
            pause = self.retry_seconds[begun.tries - 1]
            log.warning("channel %s: %s; tried again in %g s", begun.channel, error, pause)
            retry = msgspec.structs.replace(begun, next_at=self._bus.now() + pause)
            return Result(outstanding=begun, retry=retry)
        return await self._give_up(begun, error)

    async def _give_up(self, begun: Outstanding, error: str) -> Result:
        self._failing.add(begun.channel)
        channel = self._book.channels.get(begun.channel)
        fallback = channel.fallback if channel else ""
        is_first = begun.channel == begun.notification.channel
        if fallback in self._book.channels and fallback != begun.channel and is_first:
            await self._note(begun, "fallback", error)
            retry = msgspec.structs.replace(begun, channel=fallback, tries=0, next_at=0.0)
            return Result(outstanding=begun, retry=retry, moved_to=fallback)
        await self._note(begun, "failed", error)
        return Result(outstanding=begun, moved_to="")

    async def _claim(self, begun: Outstanding) -> bool:
        name = f"{begun.notification.id}_{begun.attempts}"
        subject = self._subjects.key("notification", name)
        headers = {"Nats-TTL": f"{CLAIM_SECONDS}s"}
        try:
            await self._bus.append(Outgoing(subject, self._holder.encode(), headers, Expect(0)))
        except WrongSequence:
            return False
        return True

    async def _note(self, begun: Outstanding, result: str, error: str) -> None:
        notification = begun.notification
        event = AlertNotified(
            id=f"{notification.id}-{begun.attempts}",
            notification=notification.id,
            channel=begun.channel,
            result=result,
            attempts=begun.attempts,
            title=messages.title(notification),
            error=error[:300],
            alerts=tuple(dict.fromkeys(entry.alert for entry in notification.entries))[:50],
            made_at=instant(round(notification.at * 1e6)),
        )
        await self._book.store_all([event])  # the next message of the channel waits for this
