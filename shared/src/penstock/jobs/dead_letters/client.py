"""What one does with dead letters: look, retry, delete; one, or all that fit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.events.dead import DeadLettersDeleted
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects
from penstock.jobs.dead_letters.reader import PAGE, Group, Letter, Letters, Wanted
from penstock.jobs.dead_letters.requeue import Reviver

ALL = Wanted()


class Outcome(msgspec.Struct, frozen=True):
    """What became of one letter; ``error`` says why nothing did."""

    id: str
    error: str | None = None


class DeadLetters:
    """The dead letters of an installation.

    Each verb works a page at a time, so that a million letters take no more memory than a hundred,
    and means the letters that were there when it began.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, source: str, max_payload_bytes: int = 512_000
    ) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._letters = Letters(bus, subjects)
        self._reviver = Reviver(bus, subjects, source, max_payload_bytes)

    # --- looking ----------------------------------------------------------------------------------
    async def get(self, job_id: str) -> Letter:
        """The letter of a job. Raises NotFound."""
        return await self._letters.get(job_id)

    def find(self, wanted: Wanted = ALL) -> AsyncIterator[Letter]:
        """Those that fit, the latest first."""
        return self._letters.newest_first(wanted)

    async def count(self, wanted: Wanted = ALL) -> int:
        """How many fit."""
        count = 0
        async for _ in self._letters.oldest_first(wanted):
            count += 1
        return count

    async def groups(self, wanted: Wanted = ALL) -> list[Group]:
        """The failures behind those that fit, the most frequent first."""
        return await self._letters.groups(wanted)

    # --- retrying ---------------------------------------------------------------------------------
    async def retry(
        self, job_id: str, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> None:
        """Lets a dead job go again, with some arguments replaced.

        Raises:
            NotFound: no such letter.
            JobRefused: the job is not dead any more; BadArguments: they do not fit its signature.
        """
        [refusal] = await self._reviver.letters([await self.get(job_id)], arguments, reason)
        if refusal:
            raise refusal

    async def retry_all(
        self, wanted: Wanted, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> AsyncIterator[list[Outcome]]:
        """The same for all that fit; outcomes a page at a time.

        Raises:
            BusError: before the first page, or between two; what was told is done.
        """
        async for page in self._pages(wanted):
            refusals = await self._reviver.letters(page, arguments, reason)
            yield [
                Outcome(letter.job_id, str(refusal) if refusal else None)
                for letter, refusal in zip(page, refusals, strict=True)
            ]

    # --- deleting ---------------------------------------------------------------------------------
    async def delete(self, job_id: str, reason: str = "") -> None:
        """Gives one letter up; the job stays dead. Raises NotFound."""
        letter = await self.get(job_id)
        await self._remove([letter])
        await self._tell({letter.content.queue: 1}, {"job_id": job_id}, reason)

    async def delete_all(self, wanted: Wanted, reason: str = "") -> AsyncIterator[list[Outcome]]:
        """Gives up all that fit; outcomes a page at a time."""
        counts: Counter[str] = Counter()
        try:
            async for page in self._pages(wanted):
                await self._remove(page)
                counts.update(letter.content.queue for letter in page)
                yield [Outcome(letter.job_id) for letter in page]
        finally:
            await self._tell(counts, msgspec.to_builtins(wanted), reason)

    async def _pages(self, wanted: Wanted) -> AsyncIterator[list[Letter]]:
        page: list[Letter] = []
        async for letter in self._letters.oldest_first(wanted):
            page.append(letter)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    async def _remove(self, letters: Sequence[Letter]) -> None:
        """Just these: the letter of a later death has a higher sequence."""
        stream = self._subjects.dead_stream
        subjects = [self._subjects.dead(each.content.queue, each.job_id) for each in letters]
        work = zip(subjects, letters, strict=True)
        await asyncio.gather(*(self._bus.remove(stream, s, x.sequence + 1) for s, x in work))

    async def _tell(self, counts: Mapping[str, int], matching: dict[str, Any], reason: str) -> None:
        events = [
            DeadLettersDeleted(
                source=self._source, queue=queue, count=count, matching=matching, reason=reason
            )
            for queue, count in counts.items()
        ]
        messages = [Outgoing(self._subjects.event(event), encode(event)) for event in events]
        for answer in await self._bus.append_many(messages):
            if isinstance(answer, BusError):
                raise answer
