"""A lease kept by compare-and-set, whose winning sequence is the fencing token.

The holder renews each third of the lease. Others watch the record and take over when their own
monotonic clock has seen no renewal for a whole lease, or at once when the holder released it. A
holder that could not renew for two thirds of the lease stops acting by itself, before any other can
start. That is all the time there is: a holder that must not overlap with its successor ends within
the lease, and what must not be done by two is appended by compare-and-set.

Every lease of Penstock is one of these: leadership of the deciders, shortening of the history,
exclusive queues, semaphore slots.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from penstock.bus.protocol import Bus, BusError, Expect, Headers, Outgoing, Stored, WrongSequence
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.lease")

_LONGEST_LEASE_SECONDS = 60.0
"""Of another holder's record: a larger value is not believed."""

OnStored = Callable[[int, float], Awaitable[None]]
"""Called with the sequence of a record of this process, and the monotonic time before it was sent.
"""


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the STATE stream keeps. ``epoch`` 0: this message's own sequence is the epoch."""

    holder: str
    lease_seconds: float
    epoch: int = 0
    released: bool = False


class Term:
    """One holding of a lease.

    Attributes:
        epoch: its fencing token.
        previous: the holder before; None where the lease was never held.
        sequence: of its last record, what the next renewal is compared with.
        ended: set when it is over for good.
    """

    def __init__(
        self,
        epoch: int,
        previous: str | None,
        until: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch, self.previous, self.sequence = epoch, previous, epoch
        self.ended = asyncio.Event()
        self._until, self._monotonic = until, monotonic

    @property
    def held(self) -> bool:
        """Whether this process may act now; asked right before each act."""
        return not self.ended.is_set() and self._monotonic() < self._until

    def extend(self, until: float) -> None:
        self._until = until

    def end(self, why: str) -> None:
        if not self.ended.is_set():
            log.warning("lease lost (epoch %d): %s", self.epoch, why)
            self.ended.set()

    def released(self) -> None:
        """The holder gave it up by itself."""
        if not self.ended.is_set():
            log.info("lease released (epoch %d)", self.epoch)
            self.ended.set()


class Lease:
    """One process's part in the contest.

    Args:
        stream: where the record is kept.
        subject: of the record.
        holder: unique among processes.
        headers: of each record.
        monotonic: seconds of a clock that never jumps.
        on_stored: called whenever the lease was taken or renewed.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        subject: str,
        holder: str,
        lease_seconds: float,
        *,
        headers: Headers | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_stored: OnStored | None = None,
    ) -> None:
        self.holder, self.subject = holder, subject
        self._bus, self._lease_seconds = bus, lease_seconds
        self._stream = stream
        self._headers = headers or {}
        self._monotonic, self._on_stored = monotonic, on_stored
        self._record: LeaseRecord | None = None
        self._sequence = 0
        self._noted_at = 0.0
        self._changed = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """By this process or another, as far as is known here."""
        return (
            bool(self._sequence)
            and not (self._record and self._record.released)
            and (self._noted_at + self._lease_seconds > self._monotonic())
        )

    async def watch(self) -> None:
        """Follows the record, so that a release is noticed at once. Runs beside the rest.

        It is a courtesy: while the record cannot be followed, a release is noticed when the lease
        has passed.
        """
        while True:
            with suppress(BusError):
                async for stored in self._bus.follow(self._stream, [self.subject], start="last"):
                    self._note(stored)
            await asyncio.sleep(self._lease_seconds / 3)

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Term]:
        """Waits for the lease, renews it meanwhile, and gives it up at the end, whatever that is.

        The term may end before the work does: ask :attr:`Term.held` before each act.
        """
        term = await self.campaign()
        keeping = asyncio.create_task(self.keep(term))
        try:
            yield term
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await self.release(term)

    async def campaign(self) -> Term:
        """Waits until this process holds the lease."""
        while True:
            self._changed.clear()
            try:
                if term := await self.attempt():
                    return term
            except BusError as error:
                log.warning("cannot reach the lease: %s", error)
                await asyncio.sleep(self._lease_seconds / 3)
                continue
            await within(max(self._free_in_seconds(), 0.01), self._changed.wait())

    async def attempt(self) -> Term | None:
        """Takes the lease if it is free now. Raises BusError."""
        self._note(await self._bus.last(self._stream, self.subject))
        return await self._take() if self._free_in_seconds() <= 0 else None

    async def keep(self, term: Term) -> None:
        """Renews until the term ends; what failed is tried again soon."""
        pause = self._lease_seconds / 3
        while not term.ended.is_set():
            await within(pause, term.ended.wait())
            if not term.ended.is_set():
                renewed = await self._renew(term)
                # Two thirds of the lease are all the time there is: a failure is retried at once.
                pause = self._lease_seconds / (3 if renewed else 20)

    async def release(self, term: Term) -> None:
        """Gives the lease up, so that another can take it at once. No effect if it was lost."""
        if term.ended.is_set():
            return
        with suppress(BusError, TimeoutError):
            await self._recover(term)
            if not term.ended.is_set():
                await self._put(self._new_record(term.epoch, released=True), term.sequence)
        term.released()

    def _free_in_seconds(self) -> float:
        """Until the lease may be taken; a record of this holder's own never stands in the way."""
        record = self._record
        if not self._sequence or (record and (record.released or record.holder == self.holder)):
            return 0.0
        other_seconds = min(record.lease_seconds, _LONGEST_LEASE_SECONDS) if record else 0.0
        return self._noted_at + max(other_seconds, self._lease_seconds) - self._monotonic()

    async def _take(self) -> Term | None:
        """The new term, or None if another process was faster."""
        previous = self._record.holder if self._record else None
        began = self._monotonic()
        try:
            epoch = await self._put(self._new_record(), self._sequence)
        except WrongSequence:
            self._sequence = 0  # read again, whatever is stored there now
            return None
        if self._on_stored:
            await self._on_stored(epoch, began)
        return Term(epoch, previous, self._until(began), self._monotonic)

    async def _renew(self, term: Term) -> bool:
        began = self._monotonic()
        if not term.held:
            term.end("could not renew the lease in time")
            return False
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                term.sequence = await self._put(self._new_record(term.epoch), term.sequence)
                term.extend(self._until(began))
                if self._on_stored:
                    await self._on_stored(term.sequence, began)
        except WrongSequence:
            await self._recover(term)
        except (BusError, TimeoutError) as error:
            log.warning("could not renew the lease: %s", error or "no answer in time")
        else:
            return True
        return False

    async def _recover(self, term: Term) -> None:
        """Reads whose record was first: an own one whose answer was lost, or another's."""
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                stored = await self._bus.last(self._stream, self.subject)
        except (BusError, TimeoutError):
            return
        record = _read(stored) if stored else None
        is_own = record and record.holder == self.holder
        if stored and record and is_own and (record.epoch or stored.sequence) == term.epoch:
            term.sequence = stored.sequence
        else:
            term.end(f"it is held by {record.holder}" if record else "its record is gone")

    def _new_record(self, epoch: int = 0, *, released: bool = False) -> LeaseRecord:
        return LeaseRecord(
            holder=self.holder, lease_seconds=self._lease_seconds, epoch=epoch, released=released
        )

    async def _put(self, record: LeaseRecord, expected: int) -> int:
        body, expect = msgspec.json.encode(record), Expect(expected)
        message = Outgoing(self.subject, body, self._headers, expect)
        sequence = await self._bus.append(message)
        self._remember(sequence, record)
        return sequence

    def _note(self, stored: Stored | None) -> None:
        if stored is None:
            self._sequence, self._record = 0, None
            return
        record = _read(stored) or LeaseRecord(holder="?", lease_seconds=self._lease_seconds)
        self._remember(stored.sequence, record)

    def _remember(self, sequence: int, record: LeaseRecord) -> None:
        if sequence > self._sequence:
            self._sequence, self._record, self._noted_at = sequence, record, self._monotonic()
            self._changed.set()

    def _until(self, began: float) -> float:
        return began + self._lease_seconds * 2 / 3


def _read(stored: Stored) -> LeaseRecord | None:
    """The record, or None where something else was written: free when a lease has passed."""
    try:
        return msgspec.json.decode(stored.body, type=LeaseRecord)
    except (ValueError, RecursionError) as error:
        log.warning("%s, message %d, is no lease: %s", stored.subject, stored.sequence, error)
        return None
