"""Uniqueness at dispatch: a record of the job that counts for a key, taken by compare-and-set.

The record holds the job's whole first event. A client that finds the record of an interrupted
dispatch completes it, so that a refusal never names a job that no worker will run.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, timedelta

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence, broker_time
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import AlreadyDispatched
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import Call
from penstock.jobs.middleware import Unique, key_of, token


class UniqueClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The job that counts for a key.

    Attributes:
        event: its first event.
        seconds: how long it counts from when this was stored.
        until_ended: it does not count any more once it has ended.
    """

    event: JobDispatched
    seconds: float
    until_ended: bool = False


def effective_unique(call: Call, unique_for: float | timedelta) -> Unique | None:
    """The rule for a dispatch: the caller's, else that of the job's author; None for neither.

    Args:
        call: the call to be dispatched.
        unique_for: seconds that the caller names; 0 for none.
    """
    if isinstance(unique_for, timedelta):
        unique_for = unique_for.total_seconds()
    rules = (rule for rule in call.job.middleware if isinstance(rule, Unique))
    own: Unique | None = next(rules, None)
    if not unique_for:
        return own
    return msgspec.structs.replace(own, seconds=unique_for) if own else Unique(unique_for)


def unique_token(call: Call, unique: Unique) -> str:
    """Different for each key. Raises BadArguments."""
    name = unique.name or call.job.name
    if not unique.key:
        return token(name, hashlib.sha256(call.arguments).hexdigest())
    return token(name, key_of(unique.key, call.job.decode(call.arguments)))


class UniqueSender:
    """Sends jobs of which only one counts at a time.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        sender: sends the job once its key is taken.
    """

    def __init__(self, bus: Bus, subjects: Subjects, sender: Sender) -> None:
        self._bus, self._subjects, self._sender = bus, subjects, sender
        self._log = JobLog(bus, subjects)

    async def send(self, event: JobDispatched, key: str, unique: Unique) -> None:
        """Sends a job unless another one counts for its key.

        Args:
            event: the job's first event.
            key: of :func:`unique_token`.
            unique: how long the job counts.

        Raises:
            AlreadyDispatched: names the job that counts.
            JobRefused: too many clients dispatch the same key at once.
            BusError
        """
        await self._sender.check_headroom()
        claim = UniqueClaim(event=event, seconds=unique.seconds, until_ended=unique.until_ended)
        subject = self._subjects.key("unique", key)

        async def current() -> Stored | None:
            return await self._bus.last(self._subjects.keys_stream, subject)

        async def replace(stored: Stored | None) -> bool | None:
            if await self._may_replace(stored, claim):
                return await self._put(subject, claim, stored.sequence if stored else 0) or None
            return True  # the claim is this dispatch's own, whose answer was lost

        if not await self._put(subject, claim, 0):  # most keys are free: without reading first
            await compare_and_set(current, replace, f"the unique key of {event.function}")
        await self._sender.ensure_sent(event)

    async def _put(self, subject: str, claim: UniqueClaim, expected: int) -> bool:
        headers = {"Nats-TTL": f"{math.ceil(claim.seconds)}s"}
        body = msgspec.json.encode(claim)
        try:
            await self._bus.append(Outgoing(subject, body, headers, Expect(expected)))
        except WrongSequence:
            return False
        return True

    async def _may_replace(self, stored: Stored | None, claim: UniqueClaim) -> bool:
        """Whether the stored claim counts no more; False when it is ``claim`` itself.

        Raises:
            AlreadyDispatched: it counts.
        """
        other = _read(stored)
        if stored is None or other is None:
            return True
        if other.event.id == claim.event.id:
            return False
        if await self._counts(other, stored):
            raise AlreadyDispatched(
                f"job {other.event.job_id} of the same key counts until "
                f"{_until(other, stored):%Y-%m-%d %H:%M:%S} UTC",
                other.event.job_id,
            )
        return True

    async def _counts(self, claim: UniqueClaim, stored: Stored) -> bool:
        if broker_time(self._bus) >= _until(claim, stored):
            return False
        record = await self._log.read(claim.event.job_id)
        if record is None:
            first, history_from = await event_log.begins_at(self._bus, self._subjects)
            if first > 1 and (history_from is None or history_from > stored.at):
                return not claim.until_ended  # it has ended, and its events were removed
            return await self._complete(claim)
        return not (claim.until_ended and record.state.ended)

    async def _complete(self, claim: UniqueClaim) -> bool:
        """Sends the job of an interrupted dispatch; False when it cannot be: it does not count."""
        try:
            await self._sender.ensure_sent(claim.event)
        except AlreadyDispatched:
            return False
        return True


def _until(claim: UniqueClaim, stored: Stored) -> datetime:
    return stored.at + timedelta(seconds=claim.seconds)


def _read(stored: Stored | None) -> UniqueClaim | None:
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.body, type=UniqueClaim)
    except (ValueError, RecursionError):  # written by another program
        return None
