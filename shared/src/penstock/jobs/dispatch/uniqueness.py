"""Uniqueness at dispatch: a record of the job that counts for a key, taken by compare-and-set.

The record holds the job's whole first event. Who finds the record of a dispatch that was cut in two
finishes it, so that a refusal never names a job that nobody will run.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, timedelta

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence, broker_time
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import event_log, lifecycle
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import AlreadyDispatched, JobRefused
from penstock.jobs.middleware import Unique, key_of
from penstock.jobs.middleware import token as name_of
from penstock.jobs.registry import Call

_TRIES = 10


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The job that counts for a key, for so long from when this was stored."""

    event: JobDispatched
    seconds: float
    until_ended: bool = False


def wanted(call: Call, unique_for: float | timedelta) -> Unique | None:
    """What a dispatch or the job's author asks for; the dispatch has the last word."""
    if isinstance(unique_for, timedelta):
        unique_for = unique_for.total_seconds()
    own = next((each for each in call.job.middleware if isinstance(each, Unique)), None)
    if not unique_for:
        return own
    return msgspec.structs.replace(own, seconds=unique_for) if own else Unique(unique_for)


def token(call: Call, unique: Unique) -> str:
    """Different for each key. Raises BadArguments."""
    name = unique.name or call.job.name
    if not unique.key:
        return name_of(name, hashlib.sha256(call.arguments).hexdigest())
    return name_of(name, key_of(unique.key, call.job.decode(call.arguments)))


class UniqueSender:
    """Sends jobs of which only one counts at a time."""

    def __init__(self, bus: Bus, subjects: Subjects, sender: Sender) -> None:
        self._bus, self._subjects, self._sender = bus, subjects, sender

    async def send(self, event: JobDispatched, token: str, unique: Unique) -> None:
        """Raises AlreadyDispatched, which names the job that counts; BusError."""
        await self._sender.check_room()
        subject = self._subjects.key("unique", token)
        claimed = Claimed(event=event, seconds=unique.seconds, until_ended=unique.until_ended)
        body = msgspec.json.encode(claimed)
        headers = {"Nats-TTL": f"{math.ceil(unique.seconds)}s"}
        expected = 0
        for _ in range(_TRIES):
            try:
                await self._bus.append(Outgoing(subject, body, headers, Expect(expected)))
                return await self._sender.send_again(event)
            except WrongSequence:
                stored = await self._bus.last(self._subjects.keys_stream, subject)
                expected = stored.sequence if stored else 0
                other = _read(stored)
                if other is None:
                    continue
                if other.event.id == event.id:  # our own, whose answer was lost
                    return await self._sender.send_again(event)
                if stored and await self._counts(other, stored):
                    raise AlreadyDispatched(
                        f"job {other.event.job_id} of the same key counts until "
                        f"{_until(other, stored):%Y-%m-%d %H:%M:%S} UTC",
                        other.event.job_id,
                    ) from None
        raise JobRefused(f"{event.function}: too many dispatch the same key at once; try again")

    async def _counts(self, other: Claimed, stored: Stored) -> bool:
        if broker_time(self._bus) >= _until(other, stored):
            return False
        history = await event_log.read(self._bus, self._subjects, other.event.job_id)
        record = lifecycle.fold(history)
        if record is None:
            first, history_from = await event_log.begins_at(self._bus, self._subjects)
            if first > 1 and (history_from is None or history_from > stored.at):
                return not other.until_ended  # it has ended, and its events are gone
            return await self._finish(other)
        return not (other.until_ended and record.state.ended)

    async def _finish(self, other: Claimed) -> bool:
        """Dispatches what somebody began to. False when that cannot be: it does not count then."""
        try:
            await self._sender.send_again(other.event)
        except AlreadyDispatched:
            return False
        return True


def _until(claimed: Claimed, stored: Stored) -> datetime:
    return stored.at + timedelta(seconds=claimed.seconds)


def _read(stored: Stored | None) -> Claimed | None:
    if stored is None:
        return None
    try:
        return msgspec.json.decode(stored.body, type=Claimed)
    except (ValueError, RecursionError):  # not ours
        return None
