"""A lease kept by compare-and-set, whose winning sequence is the fencing token.

The holder renews each third of the lease. Others watch the record and take over when their own
monotonic clock has seen no renewal for a whole lease, or at once when the holder let go. A holder
that could not renew for two thirds of the lease stops acting by itself, before anybody else can
start. That is all the time there is: who must not overlap with a successor ends within the lease,
and what must not be done by two is appended by compare-and-set.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.bus.protocol import Bus, BusError, Expect, Headers, Outgoing, Stored, WrongSequence
from penstock.runtime.waiting import within

log = logging.getLogger("penstock.lease")

_LONGEST_LEASE_SECONDS = 60.0


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the STATE stream keeps. ``epoch`` 0: this message's own sequence is the epoch."""

    holder: str
    lease_seconds: float
    epoch: int = 0
    released: bool = False


class Term:
    """One holding of a lease.

    Attributes:
        epoch: its fencing token. previous: who held the lease before.
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
        """It was let go in an orderly way."""
        if not self.ended.is_set():
            log.info("lease released (epoch %d)", self.epoch)
            self.ended.set()


class Lease:
    """One process's part in the contest.

    Args:
        stream / subject: where the record is kept.
        holder: unique among processes. headers: of each record.
        monotonic: seconds of a clock that never jumps.
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
    ) -> None:
        self.holder = holder
        self._bus, self._lease_seconds = bus, lease_seconds
        self._stream, self._subject = stream, subject
        self._headers = headers or {}
        self._monotonic = monotonic
        self._seen: LeaseRecord | None = None
        self._sequence = 0
        self._seen_at = 0.0
        self._changed = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """By this process or another, as far as is known here."""
        return (
            bool(self._sequence)
            and not (self._seen and self._seen.released)
            and (self._seen_at + self._lease_seconds > self._monotonic())
        )

    async def watch(self) -> None:
        """Follows the record, so that a release is noticed at once. Runs beside the rest."""
        async for stored in self._bus.follow(self._stream, [self._subject], start="last"):
            self._note(stored)

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
        self._note(await self._bus.last(self._stream, self._subject))
        return await self._take() if self._free_in_seconds() <= 0 else None

    async def keep(self, term: Term) -> None:
        """Renews until the term ends; what failed is tried again soon."""
        pause = self._lease_seconds / 3
        while not term.ended.is_set():
            await within(pause, term.ended.wait())
            if not term.ended.is_set():
                renewed = await self._renew(term)
                pause = self._lease_seconds / (3 if renewed else 20)

    async def release(self, term: Term) -> None:
        """Lets go, so that another can lead at once. Of no effect if the lease was lost."""
        if term.ended.is_set():
            return
        with suppress(BusError, TimeoutError):
            await self._recover(term)
            if not term.ended.is_set():
                await self._put(self._record(term.epoch, released=True), term.sequence)
        term.released()

    def _free_in_seconds(self) -> float:
        """Until the lease may be taken; our own last term's record never stands in the way."""
        record = self._seen
        if not self._sequence or (record and (record.released or record.holder == self.holder)):
            return 0.0
        theirs = min(record.lease_seconds, _LONGEST_LEASE_SECONDS) if record else 0.0
        return self._seen_at + max(theirs, self._lease_seconds) - self._monotonic()

    async def _take(self) -> Term | None:
        """The new term, or None if somebody was faster."""
        previous = self._seen.holder if self._seen else None
        began = self._monotonic()
        try:
            epoch = await self._put(self._record(), self._sequence)
        except WrongSequence:
            self._sequence = 0  # look again, from whatever is there
            return None
        await self._stored(epoch, began)
        return Term(epoch, previous, self._until(began), self._monotonic)

    async def _stored(self, sequence: int, began: float) -> None:
        """Our record was just put; ``began``: by ``monotonic``, before it was sent."""

    async def _renew(self, term: Term) -> bool:
        began = self._monotonic()
        if not term.held:
            term.end("could not renew the lease in time")
            return False
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                term.sequence = await self._put(self._record(term.epoch), term.sequence)
                term.extend(self._until(began))
                await self._stored(term.sequence, began)
        except WrongSequence:
            await self._recover(term)
        except (BusError, TimeoutError) as error:
            log.warning("could not renew the lease: %s", error or "no answer in time")
        else:
            return True
        return False

    async def _recover(self, term: Term) -> None:
        """Looks whose record is in the way: a write of ours without an answer, or another's."""
        try:
            async with asyncio.timeout(self._lease_seconds / 3):
                stored = await self._bus.last(self._stream, self._subject)
        except (BusError, TimeoutError):
            return
        record = _read(stored) if stored else None
        ours = record and record.holder == self.holder
        if stored and record and ours and (record.epoch or stored.sequence) == term.epoch:
            term.sequence = stored.sequence
        else:
            term.end(f"the lease is held by {record.holder if record else 'nobody'}")

    def _record(self, epoch: int = 0, *, released: bool = False) -> LeaseRecord:
        return LeaseRecord(
            holder=self.holder, lease_seconds=self._lease_seconds, epoch=epoch, released=released
        )

    async def _put(self, record: LeaseRecord, expected: int) -> int:
        body, expect = msgspec.json.encode(record), Expect(expected)
        message = Outgoing(self._subject, body, self._headers, expect)
        sequence = await self._bus.append(message)
        self._remember(sequence, record)
        return sequence

    def _note(self, stored: Stored | None) -> None:
        if stored is None:
            self._sequence, self._seen = 0, None
            return
        record = _read(stored) or LeaseRecord(holder="?", lease_seconds=self._lease_seconds)
        self._remember(stored.sequence, record)

    def _remember(self, sequence: int, record: LeaseRecord) -> None:
        if sequence > self._sequence:
            self._sequence, self._seen, self._seen_at = sequence, record, self._monotonic()
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
