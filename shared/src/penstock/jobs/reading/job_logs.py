"""Reading what jobs wrote: the lines that workers published, of one job, attempt by attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from hashlib import blake2b

import msgspec

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import Bus, BusRefused, Stored
from penstock.events.log_lines import LogChunk, LogLine
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.errors import MissingKey, NotFound, Undecryptable
from penstock.jobs.job_log import JobLog
from penstock.jobs.payloads.encryption import KeyRing, about_result

_MESSAGES_AT_ONCE = 20
_LOOK_SECONDS = 0.25
_STATE_SECONDS = 1.0
"""A job's state is looked up so often while its lines are followed; once it has ended, lines of its
last moments may come for as long."""

_read_chunk = msgspec.json.Decoder(LogChunk).decode
_read_lines = msgspec.json.Decoder(tuple[LogLine, ...]).decode


class AttemptLines(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of one attempt, in the order in which they were written.

    Attributes:
        dropped: lines that were lost after these: the attempt wrote more than
            ``logs.max_attempt_bytes``, or the broker was away for long.
        ended: the function has returned. An attempt without such a part runs, or its worker was
            lost with the lines of its last 0.2 s.
        unreadable: why the lines cannot be shown here: they are encrypted, or are none.
        sequence: of the message that holds them, to read on from there.
    """

    job_id: str
    attempt: int
    worker: str
    host: str
    lines: tuple[LogLine, ...] = ()
    dropped: int = 0
    ended: bool = False
    unreadable: str = ""
    sequence: int = 0


class JobLogs:
    """What jobs wrote.

    Args:
        log: the events of jobs, to see whether a job has ended.
        ring: keys that open encrypted lines.
    """

    def __init__(self, bus: Bus, subjects: Subjects, log: JobLog, ring: KeyRing) -> None:
        self._bus, self._subjects, self._log, self._ring = bus, subjects, log, ring

    async def read(self, job_id: str, attempt: int = 0) -> list[AttemptLines]:
        """The lines that are stored now.

        Args:
            job_id: of the job.
            attempt: only of this one; 0 for all.

        Raises:
            NotFound: the broker keeps no lines, as ``logs.enabled`` is off.
            BusError
        """
        return [part async for part in self._stored(job_id, attempt, _Read())]

    def stored(self, job_id: str, attempt: int = 0, start: int = 1) -> AsyncIterator[AttemptLines]:
        """The lines that are stored now, a few messages at a time, so that a reader may stop.

        Args:
            job_id: of the job.
            attempt: only of this one; 0 for all.
            start: sequence of the first message that is looked at.

        Raises:
            NotFound: the broker keeps no lines, as ``logs.enabled`` is off.
            BusError
        """
        return self._stored(job_id, attempt, _Read(start))

    async def follow(self, job_id: str, attempt: int = 0) -> AsyncIterator[AttemptLines]:
        """The lines that are stored, then each as it comes, until the job has ended.

        Raises:
            NotFound: neither events nor lines of the job are stored, or no lines of any job.
            BusError
        """
        read, checked_at, has_ended = _Read(), 0.0, False
        clock = asyncio.get_running_loop().time
        while True:
            came = 0
            async for part in self._stored(job_id, attempt, read):
                came += 1
                yield part
            if has_ended:
                if not came:
                    return
                continue
            if clock() - checked_at >= _STATE_SECONDS:
                checked_at = clock()
                record = await self._log.read(job_id)
                if record is None and not read.start > 1:
                    raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
                if record is None or record.state.ended:
                    await asyncio.sleep(_STATE_SECONDS)
                    has_ended = True
                    continue
            await asyncio.sleep(_LOOK_SECONDS)

    async def _stored(self, job_id: str, attempt: int, read: _Read) -> AsyncIterator[AttemptLines]:
        stream = self._subjects.logs_stream
        subject = self._subjects.log_lines(check_name("job", job_id))
        while True:
            try:
                messages = await self._bus.history(stream, subject, _MESSAGES_AT_ONCE, read.start)
            except NotPermitted:
                raise
            except BusRefused as error:
                raise NotFound(
                    f"the broker keeps no lines of jobs ({error}): logs.enabled is off"
                ) from error
            if not messages:
                return
            read.start = messages[-1].sequence + 1
            for part in self._parts(messages, job_id, read):
                if attempt in {0, part.attempt}:
                    yield part

    def _parts(self, messages: Sequence[Stored], job_id: str, read: _Read) -> list[AttemptLines]:
        parts = []
        for stored in messages:
            try:
                chunk = _read_chunk(stored.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                reason = f"message {stored.sequence} holds no log lines: {error}"
                parts.append(_unreadable(job_id, reason, stored.sequence))
                continue
            if read.is_new(stored.body):
                parts.append(self._part(chunk, job_id, stored.sequence))
        return parts

    def _part(self, chunk: LogChunk, job_id: str, sequence: int) -> AttemptLines:
        lines, unreadable = chunk.lines, ""
        if chunk.job_id != job_id:
            reason = f"lines of job {chunk.job_id[:80]} are stored as its own"
            return _unreadable(job_id, reason, sequence)
        if chunk.sealed:
            try:
                about = about_result(chunk.job_id, chunk.function, chunk.queue)
                lines = _read_lines(self._ring.open(chunk.sealed, about))
            except (MissingKey, Undecryptable, msgspec.MsgspecError) as error:
                unreadable = f"the lines are encrypted: {error}"
        return AttemptLines(
            job_id=job_id,
            attempt=chunk.attempt,
            worker=chunk.worker,
            host=chunk.host,
            lines=lines,
            dropped=chunk.dropped,
            ended=chunk.ended,
            unreadable=unreadable,
            sequence=sequence,
        )


class _Read:
    """How far the lines of a job were read."""

    def __init__(self, start: int = 1) -> None:
        self.start = start
        self._received: set[bytes] = set()

    def is_new(self, body: bytes) -> bool:
        """Whether this is not a message that was stored twice, as its answer was lost.

        By the whole body: any worker's key could store another one under a worker's name and
        number first, which would hide the true one.
        """
        digest = blake2b(body, digest_size=16).digest()
        is_new = digest not in self._received
        self._received.add(digest)
        return is_new


def _unreadable(job_id: str, reason: str, sequence: int) -> AttemptLines:
    return AttemptLines(
        job_id=job_id, attempt=0, worker="", host="", unreadable=reason, sequence=sequence
    )
