"""From calls to jobs that the broker holds: what client, batches, graphs and schedules send by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

from msgspec.structs import replace

from penstock.bus.protocol import Bus, BusError
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.dispatch.job_factory import JobFactory, Terms
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.dispatch.uniqueness import UniqueSender, effective_unique, unique_token
from penstock.jobs.errors import AlreadyDispatched
from penstock.jobs.job_type import Call
from penstock.jobs.middleware import Unique
from penstock.jobs.outbox.offline import OfflineSender

CHUNK_JOBS = 500
CHUNKS_AT_ONCE = 2
"""One chunk is encoded while the broker stores the other."""


class Dispatcher:
    """Encodes calls as jobs and sends them.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        factory: as the attribute.
        offline: as the attribute.

    Attributes:
        factory: makes the first events of jobs.
        sender: sends prepared jobs.
        offline: sends while the broker is away, as ``dispatch.when_away`` asks; None: an error.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        factory: JobFactory,
        offline: OfflineSender | None = None,
    ) -> None:
        self.factory = factory
        self.sender = Sender(bus, subjects)
        self._unique = UniqueSender(bus, subjects, self.sender)
        self.offline = offline

    @property
    def source(self) -> str:
        """What events name as their origin."""
        return self.factory.source

    async def dispatch(self, call: Call, terms: Terms, unique_for: float | timedelta = 0.0) -> str:
        """Sends one job; returns its id.

        Args:
            call: what runs.
            terms: queue, times, tags and so on.
            unique_for: see :meth:`penstock.jobs.Client.dispatch`.

        Raises:
            AlreadyDispatched, JobRefused, StreamFull, BusError
        """
        event = self.factory.event(call, terms)
        if unique := effective_unique(call, unique_for):
            await self._send_unique(event, call, unique)
        elif self.offline is not None:
            await self.offline.send(event)
        else:
            await self.sender.send(event)
        return event.job_id

    async def dispatch_many(self, calls: Sequence[Call], terms: Terms | None = None) -> list[str]:
        """Sends many jobs, pipelined; returns their ids in order.

        Unique jobs are sent one by one; where another job counts, its id is returned.

        Args:
            calls: what runs.
            terms: of each job; without an id.

        Raises:
            BusError: at a job that was not accepted; others were.
        """
        ids: list[str] = [""] * len(calls)
        terms = terms or Terms()
        plain: list[int] = []
        for index, call in enumerate(calls):
            if unique := effective_unique(call, 0):
                ids[index] = await self._unique_id(call, terms, unique)
            else:
                plain.append(index)

        async def send_chunks() -> None:
            for chunk in chunks:
                events = [self.factory.event(calls[index], terms) for index in chunk]
                await self._send_all(events)
                for index, event in zip(chunk, events, strict=True):
                    ids[index] = event.job_id

        starts = range(0, len(plain), CHUNK_JOBS)
        chunks: Iterator[list[int]] = iter([plain[start : start + CHUNK_JOBS] for start in starts])
        await asyncio.gather(*(send_chunks() for _ in range(CHUNKS_AT_ONCE)))
        return ids

    async def _send_all(self, events: Sequence[JobDispatched]) -> None:
        if self.offline is not None:
            return await self.offline.send_many(events)
        for answer in await self.sender.send_many(events):
            if isinstance(answer, BusError):
                raise answer
        return None

    async def _unique_id(self, call: Call, terms: Terms, unique: Unique) -> str:
        event = self.factory.event(call, terms)
        try:
            await self._send_unique(event, call, unique)
        except AlreadyDispatched as error:
            return error.job_id
        return event.job_id

    async def _send_unique(self, event: JobDispatched, call: Call, unique: Unique) -> None:
        key = unique_token(call, unique)
        if self.offline is None:
            return await self._unique.send(event, key, unique)
        return await self.offline.wait(lambda: self._unique.send(event, key, unique))

    def prepare(
        self, call: Call, job_id: str, queue: str = "", terms: Terms | None = None
    ) -> JobDispatched:
        """A job's first event, for :meth:`Sender.send_many`. Raises as :meth:`dispatch` does."""
        return self.factory.event(
            call, replace(terms or Terms(), queue=queue, job_id=check_name("job", job_id))
        )
