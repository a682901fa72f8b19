"""Dead letters as one reads them: one by one, filtered, in groups of the same failure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import LATEST_YEAR
from penstock.events.job import JobError
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import event_log, lifecycle
from penstock.jobs.dead_letters.fingerprint import fingerprint, normalised
from penstock.jobs.errors import NotFound
from penstock.jobs.queues.queue_messages import DeadLetter

PAGE = 100
"""Letters read at a time: each may hold a payload of ``jobs.max_payload_bytes``."""
MOST_GROUPS = 1_000
"""Groups kept apart; further ones are counted together."""
OTHERS = "others"
_LATEST_SECONDS = datetime(LATEST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()


class Letter(msgspec.Struct, frozen=True, dict=True):
    """A dead letter at its place. ``sequence``: in the stream; a later death has a higher one."""

    content: DeadLetter
    sequence: int

    @property
    def job_id(self) -> str:
        return self.content.job_id

    @property
    def at(self) -> datetime:
        """When the job died."""
        return datetime.fromtimestamp(self.content.at, UTC)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.content.error)


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which letters are meant; what is left out fits all.

    Attributes:
        function: name of the job. kind: type of the error, whole or its last part.
        since / until: when the job died.
    """

    queue: str = ""
    function: str = ""
    kind: str = ""
    tag: str = ""
    fingerprint: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def fits(self, letter: Letter) -> bool:
        content = letter.content
        return (
            self.queue in ("", content.queue)
            and self.function in ("", content.function)
            and self.kind in ("", content.error.kind, content.error.kind.rpartition(".")[2])
            and (not self.tag or self.tag in content.tags)
            and (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
            and self.fingerprint in ("", letter.fingerprint)
        )


class Group(msgspec.Struct, kw_only=True):
    """Letters of one failure. ``message`` is normalised; ``example`` is the id of the latest."""

    fingerprint: str
    count: int = 0
    kind: str = ""
    message: str = ""
    functions: list[str] = []
    queues: list[str] = []
    first_at: datetime
    last_at: datetime
    example: str = ""


class Letters:
    """Reads the dead-letter stream a page at a time, however long it is."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects

    async def get(self, job_id: str) -> Letter:
        """The letter of a job. Raises NotFound."""
        subject = self._subjects.dead("*", check_name("job", job_id))
        stored = await self._bus.last(self._subjects.dead_stream, subject)
        if stored is None:
            raise NotFound(f"no dead letter of job {job_id!r}; see 'penstock dead ls'")
        return _letter(stored)

    async def oldest_first(self, wanted: Wanted, end: int = 0) -> AsyncIterator[Letter]:
        """The letters that fit and are there now.

        Args:
            end: sequence of the last one to look at; 0 for the last there is. A job that is
                retried and dies again meanwhile has a later letter.
        """
        first, last = await self._bounds(wanted)
        async for stored in self._between(wanted, first, end or last):
            if wanted.fits(letter := _letter(stored)):
                yield letter

    async def newest_first(self, wanted: Wanted) -> AsyncIterator[Letter]:
        """The letters that fit, the latest before the others."""
        first, last = await self._bounds(wanted)
        for high in range(last, first - 1, -PAGE):
            low = max(first, high - PAGE + 1)
            page = [_letter(stored) async for stored in self._between(wanted, low, high)]
            for letter in reversed(page):
                if wanted.fits(letter):
                    yield letter

    async def end(self) -> int:
        """Sequence of the last letter there is now; 0 when there is none."""
        return (await self._bounds(Wanted()))[1]

    async def groups(self, wanted: Wanted) -> list[Group]:
        """The failures behind the letters that fit, the most frequent first."""
        found: dict[str, Group] = {}
        async for letter in self.oldest_first(wanted):
            _count(found, letter)
        return sorted(found.values(), key=lambda group: -group.count)

    async def _bounds(self, wanted: Wanted) -> tuple[int, int]:
        stream, subject = self._subjects.dead_stream, self._pattern(wanted)
        last = await self._bus.last(stream, subject)
        first = await self._bus.next(stream, subject, 1) if last else None
        return (first.sequence, last.sequence) if first and last else (1, 0)

    async def _between(self, wanted: Wanted, low: int, high: int) -> AsyncIterator[Stored]:
        """Both included. A page that the broker cut short is gone on with."""
        stream, subject = self._subjects.dead_stream, self._pattern(wanted)
        while low <= high:
            page = await self._bus.history(stream, subject, PAGE, low)
            for stored in page:
                if stored.sequence > high:
                    return
                yield stored
            if not page:
                return
            low = page[-1].sequence + 1

    def _pattern(self, wanted: Wanted) -> str:
        return self._subjects.dead(wanted.queue or "*", "*")


def died_at(stored: Stored) -> float:
    """POSIX seconds of the death that a stored letter tells of; of no letter, of its storing."""
    try:
        return _decoded(stored).at
    except (ValueError, RecursionError):
        return stored.at.timestamp()


def _decoded(stored: Stored) -> DeadLetter:
    """Raises ValueError, RecursionError: it is no letter, or of a time that is none."""
    letter = msgspec.json.decode(stored.body, type=DeadLetter)
    if not 0 <= letter.at < _LATEST_SECONDS:
        raise ValueError(f"found at = {letter.at:g}, expected POSIX seconds")
    return letter


async def is_revived(bus: Bus, subjects: Subjects, job_id: str, dead_sequence: int) -> bool:
    """Whether a dead job was given a new life since, so that its letter must not be stored.

    Args:
        dead_sequence: of the last event of the job that is known here.

    Raises:
        BusError
    """
    record = lifecycle.fold(await event_log.read(bus, subjects, job_id))
    return record is not None and record.life > 1 and record.life_from > dead_sequence


def _letter(stored: Stored) -> Letter:
    try:
        content = _decoded(stored)
    except (ValueError, RecursionError) as error:
        _, queue, name = stored.subject.rsplit(".", 2)
        content = DeadLetter(
            job_id=name,
            queue=queue,
            function="",
            payload=b"",
            error=JobError(kind="malformed", message=f"not a dead letter: {error}"),
            attempts=0,
            at=stored.at.timestamp(),
        )
    return Letter(content, stored.sequence)


def _count(groups: dict[str, Group], letter: Letter) -> None:
    content = letter.content
    known = letter.fingerprint in groups or len(groups) < MOST_GROUPS
    name = letter.fingerprint if known else OTHERS
    group = groups.setdefault(name, Group(fingerprint=name, first_at=letter.at, last_at=letter.at))
    group.count += 1
    group.first_at, group.last_at = min(group.first_at, letter.at), max(group.last_at, letter.at)
    if known:
        group.kind, group.message = content.error.kind, normalised(content.error.message)
    group.example = letter.job_id
    _note(group.functions, content.function)
    _note(group.queues, content.queue)


def _note(names: list[str], name: str, most: int = 10) -> None:
    if name not in names and len(names) < most:
        names.append(name)
