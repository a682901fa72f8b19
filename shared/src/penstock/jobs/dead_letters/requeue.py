"""A new life for jobs that died or were cancelled: the same job, its attempts counted anew.

In this order, so that nothing is lost and nothing runs twice wherever it is cut off:

1. `JobRevived`, by compare-and-set on the event that ended the job: of two who retry, one wins;
2. the dead letter goes, before the job can run and die again;
3. the message in its queue. The orchestrator finishes what was cut off before this.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, WrongSequence
from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import encode
from penstock.events.job import JobRevived
from penstock.events.subjects import Subjects
from penstock.jobs import event_log, lifecycle, registry
from penstock.jobs.dead_letters.reader import Letter, died_at
from penstock.jobs.errors import JobRefused, JobsError, PayloadTooLarge
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.encryption import is_sealed
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.queues import queue_messages

ENDS = ("JobDead", "JobCancelled")
"""Names of the events after which a job may go again."""

Refusal = JobsError | BusError


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A job that ended.

    Attributes:
        payload: the encoded call. sequence: of the event that ended it; 0 when its events are gone.
        letter: sequence of its dead letter; 0 for none. trace: W3C ``traceparent`` to go on with.
        commits: output that stands, by name, as its letter has it.
    """

    job_id: str
    payload: bytes
    sequence: int
    letter: int = 0
    trace: str = ""
    commits: dict[str, str] = {}

    __repr__ = brief
    __rich_repr__ = brief_fields


def changed(call: Payload, changes: Mapping[str, Any]) -> Payload:
    """The call with some arguments replaced, checked against the job's signature.

    Raises:
        UnknownJob, BadArguments
        JobRefused: they are encrypted.
    """
    if is_sealed(call.arguments):
        raise JobRefused(
            f"the arguments of job {call.id} are encrypted and cannot be replaced; "
            "retry it as it is, or dispatch another"
        )
    kind = registry.find(call.function)
    before = msgspec.msgpack.decode(call.all_arguments())
    made = kind(**{**before, **changes})
    return replace(call, arguments=msgspec.Raw(made.arguments), handed=None)


class Reviver:
    """Lets jobs go again.

    Args:
        source: who says so, for the events.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, source: str, max_payload_bytes: int = 512_000
    ) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._max_payload_bytes = max_payload_bytes

    async def letters(
        self, letters: Sequence[Letter], changes: Mapping[str, Any] | None = None, reason: str = ""
    ) -> list[Refusal | None]:
        """The jobs of these letters; for each None, or why it does not go again."""
        ended = await asyncio.gather(*map(self._ended, letters))
        found = [each for each in ended if isinstance(each, Ended)]
        answers = iter(await self.jobs(found, changes, reason))
        return [next(answers) if isinstance(each, Ended) else each for each in ended]

    async def jobs(
        self, ended: Sequence[Ended], changes: Mapping[str, Any] | None = None, reason: str = ""
    ) -> list[Refusal | None]:
        """Jobs of which the last event is known; for each None, or why it does not go again."""
        outcomes: dict[str, Refusal | None] = {}
        events: dict[str, JobRevived] = {}
        for each in ended:
            try:
                events[each.job_id] = self._event(each, changes or {}, reason)
            except JobsError as refusal:
                outcomes[each.job_id] = refusal
        won: list[Outgoing] = []
        gone: list[Ended] = []
        asked = [each for each in ended if each.job_id in events]
        firsts = [self._first(each, events[each.job_id]) for each in asked]
        for each, answer in zip(asked, await self._bus.append_many(firsts), strict=True):
            outcomes[each.job_id] = _refusal(each, answer)
            if isinstance(answer, int):
                gone.append(each)
                record = lifecycle.evolve(None, events[each.job_id], answer)
                won.append(queue_messages.ready(self._subjects, record, _trace(each)))
        await self._remove_letters((each, events[each.job_id]) for each in gone)
        for each, answer in zip(gone, await self._bus.append_many(won), strict=True):
            if isinstance(answer, BusError):
                outcomes[each.job_id] = answer
        return [outcomes[each.job_id] for each in ended]

    async def _ended(self, letter: Letter) -> Ended | Refusal:
        content = letter.content
        if not content.function:
            return JobRefused(
                f"{letter.job_id} is a message that could not be read, not a job: "
                "it can be shown and deleted, not retried"
            )
        last = await self._bus.last(
            self._subjects.events_stream, self._subjects.job(content.job_id)
        )
        name = last.subject.rpartition(".")[2] if last else ""
        if last and name not in ENDS:  # a later life, unless that event does not count
            record = lifecycle.fold(await event_log.read(self._bus, self._subjects, content.job_id))
            if record is None or record.state not in (State.DEAD, State.CANCELLED):
                await self._remove(content.queue, content.job_id, letter.sequence)
                return JobRefused(
                    f"job {content.job_id} is not dead any more: its last event is {name}"
                )
        return Ended(
            job_id=content.job_id,
            payload=content.payload,
            sequence=last.sequence if last else 0,
            letter=letter.sequence,
            trace=content.trace,
            commits=content.commits,
        )

    def _event(self, ended: Ended, changes: Mapping[str, Any], reason: str) -> JobRevived:
        try:
            call = payload.decode(ended.payload)
            call = changed(call, changes) if changes else call
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise JobRefused(f"the call of job {ended.job_id} cannot be read: {error}") from error
        body = payload.encode(replace(call, dispatched_at=time.time()))
        if len(body) > self._max_payload_bytes:
            raise PayloadTooLarge(
                f"job {ended.job_id}: with these arguments the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {self._max_payload_bytes}"
            )
        return JobRevived(
            job_id=ended.job_id,
            correlation_id=ended.job_id,
            source=self._source,
            queue=call.queue,
            function=call.function,
            payload=body,
            tags=call.tags,
            tries=call.tries,
            changed=bool(changes),
            reason=reason,
            commits={} if changes else ended.commits,
        )

    def _first(self, ended: Ended, event: JobRevived) -> Outgoing:
        expect = Expect(ended.sequence, self._subjects.job(event.job_id))
        return Outgoing(self._subjects.event(event), encode(event), _trace(ended), expect)

    async def _remove_letters(self, jobs: Iterable[tuple[Ended, JobRevived]]) -> None:
        await asyncio.gather(*(self._remove_letter(each, event) for each, event in jobs))

    async def _remove_letter(self, ended: Ended, event: JobRevived) -> None:
        """Looked up now, since it may have been stored after the job was seen to be dead."""
        subject = self._subjects.dead(event.queue, ended.job_id)
        stored = await self._bus.last(self._subjects.dead_stream, subject)
        is_older = stored is not None and died_at(stored) <= event.at.timestamp()
        if sequence := stored.sequence if stored and is_older else ended.letter:
            await self._remove(event.queue, ended.job_id, sequence)

    async def _remove(self, queue_name: str, job_id: str, sequence: int) -> None:
        """Just this letter: that of a later death has a higher sequence."""
        subject = self._subjects.dead(queue_name, job_id)
        await self._bus.remove(self._subjects.dead_stream, subject, sequence + 1)


def _refusal(ended: Ended, answer: int | BusError) -> Refusal | None:
    if isinstance(answer, WrongSequence):
        return JobRefused(f"job {ended.job_id} was retried by somebody else just now")
    return answer if isinstance(answer, BusError) else None


def _trace(ended: Ended) -> dict[str, str]:
    return {"traceparent": ended.trace} if ended.trace else telemetry.inject()
