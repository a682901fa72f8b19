"""Dead letters: read, filter, group, requeue and delete them; one, or all that match."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, Outgoing, Stored
from penstock.events.dead import DeadLettersDeleted
from penstock.events.envelope import encode
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.dead_letters import handled_steps
from penstock.jobs.dead_letters.letter import (
    Group,
    Letter,
    LetterFilter,
    add_to_groups,
    read_letter,
)
from penstock.jobs.dead_letters.requeue import Requeuer
from penstock.jobs.errors import NotFound
from penstock.jobs.job_log import JobLog

ALL = LetterFilter()
PAGE = 100
"""Letters read at a time: each may hold a payload of ``jobs.max_payload_bytes``."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of one letter; ``error`` is why nothing did."""

    id: str
    error: str | None = None


class DeadLetters:
    """The dead letters of an installation; reached as ``client.dead``.

    Each method works a page at a time, so that a million letters take no more memory than a
    hundred, and covers the letters that were stored when it began.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        source: what events name as their origin.
        requeuer: lets dead jobs run again.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str, requeuer: Requeuer) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._requeuer = requeuer

    # --- reading ----------------------------------------------------------------------------------
    async def get(self, job_id: str) -> Letter:
        """The letter of a job. Raises NotFound."""
        subject = self._subjects.dead("*", check_name("job", job_id))
        stored = await self._bus.last(self._subjects.dead_stream, subject)
        if stored is None:
            raise NotFound(f"no dead letter of job {job_id!r}; see 'penstock dead ls'")
        return read_letter(stored)

    async def find(self, matching: LetterFilter = ALL) -> AsyncIterator[Letter]:
        """The letters that match, the latest first."""
        first, last = await self._bounds(matching)
        for high in range(last, first - 1, -PAGE):
            low = max(first, high - PAGE + 1)
            page = [read_letter(stored) async for stored in self._between(matching, low, high)]
            for letter in reversed(page):
                if matching.fits(letter):
                    yield letter

    async def count(self, matching: LetterFilter = ALL) -> int:
        """How many letters match."""
        count = 0
        async for _ in self._oldest_first(matching):
            count += 1
        return count

    async def groups(self, matching: LetterFilter = ALL) -> list[Group]:
        """The failures behind the letters that match, the most frequent first."""
        groups: dict[str, Group] = {}
        async for letter in self._oldest_first(matching):
            add_to_groups(groups, letter)
        return sorted(groups.values(), key=lambda group: -group.count)

    # --- requeueing -------------------------------------------------------------------------------
    async def retry(
        self, job_id: str, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> None:
        """Requeues a dead job.

        Args:
            job_id: of the job.
            arguments: some that are replaced.
            reason: for people, stored with the event.

        Raises:
            NotFound: no such letter.
            JobRefused: the job is not dead any more; BadArguments: they do not fit its signature.
        """
        letter = await self.get(job_id)
        [refusal] = await self._requeuer.requeue_letters([letter], arguments, reason)
        if refusal:
            raise refusal

    async def retry_all(
        self, matching: LetterFilter, arguments: Mapping[str, Any] | None = None, reason: str = ""
    ) -> AsyncIterator[list[Outcome]]:
        """Requeues the jobs of all letters that match; outcomes a page at a time.

        Steps of workflows that took note of the failure are refused: only :meth:`retry` runs them.

        Args:
            matching: which letters.
            arguments: some that are replaced, in each job.
            reason: for people, stored with the events.

        Raises:
            BusError: before the first page, or between two; what was yielded is done.
        """
        refusal = partial(handled_steps.refusal, JobLog(self._bus, self._subjects))
        async for page in self._pages(matching):
            handled = await bounded.gather(refusal, [letter.job_id for letter in page], PAGE)
            others = [letter for letter, refused in zip(page, handled, strict=True) if not refused]
            answers = iter(await self._requeuer.requeue_letters(others, arguments, reason))
            yield [
                Outcome(letter.job_id, str(error) if error else None)
                for letter, refused in zip(page, handled, strict=True)
                for error in [refused or next(answers)]
            ]

    # --- deleting ---------------------------------------------------------------------------------
    async def delete(self, job_id: str, reason: str = "") -> None:
        """Deletes one letter; the job stays dead. Raises NotFound."""
        letter = await self.get(job_id)
        await self._remove([letter])
        await self._report_deleted({letter.content.queue: 1}, {"job_id": job_id}, reason)

    async def delete_all(
        self, matching: LetterFilter, reason: str = ""
    ) -> AsyncIterator[list[Outcome]]:
        """Deletes all letters that match; outcomes a page at a time."""
        counts: Counter[str] = Counter()
        try:
            async for page in self._pages(matching):
                await self._remove(page)
                counts.update(letter.content.queue for letter in page)
                yield [Outcome(letter.job_id) for letter in page]
        finally:
            await self._report_deleted(counts, msgspec.to_builtins(matching), reason)

    async def _remove(self, letters: Sequence[Letter]) -> None:
        """Removes these letters only: the letter of a later death has a higher sequence."""
        await asyncio.gather(*map(self._remove_one, letters))

    async def _remove_one(self, letter: Letter) -> None:
        subject = self._subjects.dead(letter.content.queue, letter.job_id)
        await self._bus.remove(self._subjects.dead_stream, subject, letter.sequence + 1)

    async def _report_deleted(
        self, counts: Mapping[str, int], matching: dict[str, Any], reason: str
    ) -> None:
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

    # --- the stream -------------------------------------------------------------------------------
    async def _pages(self, matching: LetterFilter) -> AsyncIterator[list[Letter]]:
        page: list[Letter] = []
        async for letter in self._oldest_first(matching):
            page.append(letter)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    async def _oldest_first(self, matching: LetterFilter) -> AsyncIterator[Letter]:
        """A job that is requeued and dies again meanwhile has a letter beyond the last one."""
        first, last = await self._bounds(matching)
        async for stored in self._between(matching, first, last):
            if matching.fits(letter := read_letter(stored)):
                yield letter

    async def _bounds(self, matching: LetterFilter) -> tuple[int, int]:
        stream, subject = self._subjects.dead_stream, self._pattern(matching)
        last = await self._bus.last(stream, subject)
        first = await self._bus.next(stream, subject, 1) if last else None
        return (first.sequence, last.sequence) if first and last else (1, 0)

    async def _between(self, matching: LetterFilter, low: int, high: int) -> AsyncIterator[Stored]:
        """Both included. Reads on where the broker cut a page short."""
        stream, subject = self._subjects.dead_stream, self._pattern(matching)
        while low <= high:
            page = await self._bus.history(stream, subject, PAGE, low)
            for stored in page:
                if stored.sequence > high:
                    return
                yield stored
            if not page:
                return
            low = page[-1].sequence + 1

    def _pattern(self, matching: LetterFilter) -> str:
        return self._subjects.dead(matching.queue or "*", "*")
