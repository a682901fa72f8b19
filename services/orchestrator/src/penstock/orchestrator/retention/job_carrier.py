"""Jobs whose events leave the log, and that still count: all of each is stored anew.

One event holds most jobs. A workflow that has recorded more than that has its memo in parts behind
it, all stored in one atomic batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from penstock.bus import bounded
from penstock.bus.protocol import (
    Bus,
    BusError,
    Expect,
    Outgoing,
    PayloadTooLarge,
    WrongSequence,
)
from penstock.events.envelope import encode
from penstock.events.job import JobCarried
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.orchestrator.retention.window import Living

_AT_ONCE = 500
_READ_AT_ONCE = 20
_AT_ONCE_BYTES = 4_000_000
_TRIES = 50
BESIDE_BYTES = 200
"""What the broker counts for an event beside body and subject (measured, 2.15.1)."""


class ChangesTooQuickly(BusError):
    """Jobs went on each time that they were about to be carried; it is tried again."""


class JobCarrier:
    """Carries jobs past the old end of the log.

    Attributes:
        carried: jobs, since the start.
        bytes: stored in this pass over the log.
        oldest: when the oldest of these jobs was dispatched.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._log = JobLog(bus, subjects)
        self.carried = self.bytes = 0
        self.oldest: datetime | None = None

    def begin(self) -> None:
        """A pass begins."""
        self.bytes, self.oldest = 0, None

    async def carry(self, jobs: Sequence[Living], through: int) -> list[Living]:
        """Returns when each of them has an event behind the window.

        Args:
            through: sequence of the window's last message.

        Returns:
            Those that are too large for that, as they are now.

        Raises:
            BusError
        """
        # Of a memo in parts, some may lie behind what was read.
        left = [one for one in jobs if one.is_whole]
        left += await self._latest([one for one in jobs if not one.is_whole], through)
        too_large: list[Living] = []
        # Jobs go on meanwhile: those that lost their compare-and-set are read again and retried.
        for _ in range(_TRIES):
            changed: list[Living] = []
            to_cut: list[Living] = []
            for one, answer in zip(left, await self._store(left), strict=True):
                if isinstance(answer, WrongSequence):
                    changed.append(one)
                elif isinstance(answer, PayloadTooLarge):
                    (too_large if one.is_cut else to_cut).append(one)
                elif isinstance(answer, BusError):
                    raise answer
            left = [_smaller(one) for one in to_cut]
            left += await self._latest(changed, through)
            if not left:
                return await self._latest(too_large, through)
        raise ChangesTooQuickly(f"{len(left)} jobs change too quickly to be carried")

    async def _store(self, jobs: Sequence[Living]) -> list[int | BusError]:
        """The answer for each, in their order."""
        messages = [self._messages(one) for one in jobs]
        answers: list[int | BusError] = []
        for part in _parts(messages):
            if len(part[0]) > 1:
                answers.append(await self._store_in_parts(part[0]))
            else:
                answers += await self._bus.append_many([whole for [whole] in part])
        for one, own, answer in zip(jobs, messages, answers, strict=True):
            if isinstance(answer, int):
                self._count(one, own)
        return answers

    async def _store_in_parts(self, messages: Sequence[Outgoing]) -> int | BusError:
        try:
            return await self._bus.append_atomic(messages)
        except (WrongSequence, PayloadTooLarge) as refusal:
            return refusal

    def _count(self, one: Living, messages: Sequence[Outgoing]) -> None:
        self.carried += 1
        self.bytes += sum(len(m.body) + len(m.subject) + BESIDE_BYTES for m in messages)
        since = one.record.dispatched_at
        self.oldest = min(self.oldest or since, since)

    def _messages(self, one: Living) -> list[Outgoing]:
        first, *parts = lifecycle.carried(one.record, self._source)
        trace = {"traceparent": one.trace} if one.trace else {}
        expect = Expect(one.record.sequence, self._subjects.job(one.record.id))
        return [
            Outgoing(self._subjects.event(first), encode(first), trace, expect),
            *(Outgoing(self._subjects.event(part), encode(part)) for part in parts),
        ]

    async def _latest(self, jobs: Sequence[Living], through: int) -> list[Living]:
        """Those that still rest on the window, as they are now."""
        ask = partial(self._read_again, through=through)
        return [one for one in await bounded.gather(ask, jobs, _READ_AT_ONCE) if one]

    async def _read_again(self, one: Living, through: int) -> Living | None:
        events = await self._log.history(one.record.id)
        record = lifecycle.fold(events)
        if record is None or not events or events[0][0] > through:
            return None
        if record.state is State.COMPLETED and record.changed_by > through:
            return None  # its end stays in the log, with the result
        if any(sequence > through and isinstance(e, JobCarried) for sequence, e in events):
            return None  # another orchestrator has carried it
        return Living(record, one.trace)


def _smaller(one: Living) -> Living:
    """Without what its call, or its result, can do without."""
    record = one.record
    error = record.error and replace(record.error, traceback="")
    cut = replace(record, error=error, payload=b"" if record.state.ended else record.payload)
    return replace(one, record=cut, is_cut=True)


def _parts(messages: Sequence[list[Outgoing]]) -> list[list[list[Outgoing]]]:
    """The messages of each job, in groups of a bounded number and size.

    A job with several messages is a group of its own.
    """
    parts: list[list[list[Outgoing]]] = []
    count = size = 0
    for own in messages:
        length = len(own[0].body)
        is_full = count >= _AT_ONCE or size + length > _AT_ONCE_BYTES
        if not parts or len(own) > 1 or len(parts[-1][0]) > 1 or is_full:
            parts.append([])
            count = size = 0
        parts[-1].append(own)
        count, size = count + 1, size + length
    return parts
