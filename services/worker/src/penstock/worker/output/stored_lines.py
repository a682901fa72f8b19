"""Lines of jobs on their way to the stream of logs: collected in any thread, published in the loop.

Everything is bounded, and what is too much is dropped and counted: a job that writes without end,
or a broker that is away, neither slows a job nor fails it. A worker that is killed loses what it
collected since the last publish, ``PUBLISH_SECONDS`` at most while the broker answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

import msgspec

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Outgoing
from penstock.config import Settings
from penstock.config.masking import MASK, masked
from penstock.config.settings import Logs
from penstock.events.log_lines import LogChunk, LogLine
from penstock.events.subjects import Subjects
from penstock.jobs.payloads import redaction
from penstock.jobs.payloads.encryption import KeyRing, about_result, holds_sealed
from penstock.jobs.payloads.payload import Payload
from penstock.runtime.limited_log import LimitedLog
from penstock.telemetry.job_lines import STREAM, RunningJob, failure_of, job_of

log = logging.getLogger("penstock.worker")

PUBLISH_SECONDS = 0.2
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_LONGEST_LINE, _LONGEST_TRACEBACK = 8_000, 16_000
_SHORTEST_MARGIN, _LONGEST_MARGIN = 1_000, 50_000
"""Characters beyond a bound that are masked too, since a secret may lie across it."""
_CHUNK_BYTES = 100_000
_MESSAGES_AT_ONCE = 20
_PENDING_BYTES = 1_000_000
"""Of lines that wait for the broker, of all jobs of this worker."""
_FAILURE_BYTES = 32_000
"""Beyond a job's bound: why it failed is stored although it wrote too much."""
_LINE_BYTES = 100
"""What a line takes besides its text."""


def stored_lines(bus: Bus, settings: Settings, host: str, ring: KeyRing) -> StoredLines | None:
    """The handler of a worker; None where the settings turn it off."""
    if not settings.logs.enabled:
        return None
    return StoredLines(bus, Subjects(settings.prefix), settings.logs, host, ring)


class Attempt(RunningJob, kw_only=True, eq=False):
    """A running job, with the call that says what of its lines is hidden.

    It does not refer to the claimed job, which refers to it: jobs are many, and without a cycle
    they need no garbage collection.

    Attributes:
        payload: the call.
    """

    payload: Payload


@dataclass(slots=True)
class _Collected:
    """Lines of one attempt that are not published yet, and what it has written so far."""

    attempt: Attempt
    hidden: tuple[str, ...]
    stored_bytes: int = 0
    lines: list[LogLine] = field(default_factory=list)
    dropped: int = 0


class StoredLines(logging.Handler):
    """A log handler that publishes the lines of jobs.

    Args:
        settings: bounds.
        host: of the worker, for the messages.
        ring: seals the lines of jobs whose arguments are sealed.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, settings: Logs, host: str, ring: KeyRing
    ) -> None:
        super().__init__()
        self._bus, self._subjects, self._settings = bus, subjects, settings
        self._host, self._ring = host, ring
        self._loop, self._process = asyncio.get_running_loop(), os.getpid()
        self._attempts: dict[Attempt, _Collected] = {}
        self._unsent: deque[tuple[Outgoing, int]] = deque()
        self._pending_bytes = self._number = 0
        self._is_due, self._answers = False, True
        self._publishing: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self._trouble = LimitedLog(log)
        self._plain = logging.Formatter()
        self._guard = threading.Lock()

    # --- in the thread that writes ----------------------------------------------------------------
    def emit(self, record: logging.LogRecord) -> None:
        attempt = job_of(record)
        if not isinstance(attempt, Attempt) or os.getpid() != self._process:
            return  # no line of a job, or a process that the job forked
        with self._guard:
            collected = self._attempts.get(attempt) or self._begin(attempt)
        line = self._line(record, collected)
        size = _size(line)
        bound = self._settings.max_attempt_bytes + (_FAILURE_BYTES if line.error_type else 0)
        with self._guard:
            is_pending = self._pending_bytes + size > _PENDING_BYTES
            if is_pending or collected.stored_bytes + size > bound:
                collected.dropped += 1
                return
            collected.stored_bytes += size
            self._pending_bytes += size
            collected.lines.append(line)
        self._publish_soon()

    def ended(self, attempt: RunningJob) -> None:
        """The function of an attempt that has written has returned; called in the job's thread."""
        if attempt in self._attempts:
            self._publish_soon()

    def _begin(self, attempt: Attempt) -> _Collected:
        attempt.has_written = True
        hidden = redaction.hidden_texts(attempt.payload)
        collected = self._attempts[attempt] = _Collected(attempt, hidden)
        return collected

    def _line(self, record: logging.LogRecord, collected: _Collected) -> LogLine:
        failure = failure_of(record, lambda: _traceback(self._plain, record))
        names = collected.attempt.payload.masked

        def shown(text: str) -> str:
            for secret in collected.hidden:
                text = text.replace(secret, MASK)
            return str(masked(text, names)).encode("utf-8", "backslashreplace").decode()

        longest = len(collected.hidden[0]) if collected.hidden else 0
        text, traceback = record.getMessage(), str(failure.get("traceback", ""))
        return LogLine(
            at=datetime.fromtimestamp(record.created, UTC),
            level=record.levelname.lower(),
            logger=record.name,
            text=_beginning(text, shown, longest),
            stream=getattr(record, STREAM, ""),
            error_type=str(failure.get("error_type", "")),
            traceback=_end(traceback, shown, longest),
        )

    def _publish_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed
                # without the job's context: what the loop logs is not the job's
                self._loop.call_soon_threadsafe(self._begin_publishing, context=Context())

    # --- in the worker's loop ---------------------------------------------------------------------
    def _begin_publishing(self) -> None:
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish_until_empty())

    async def _publish_until_empty(self) -> None:
        while self._is_due or self._unsent:
            await asyncio.sleep(PUBLISH_SECONDS if self._answers else _RETRY_SECONDS)
            async with self._sending:  # `finish` publishes beside the task
                await self.publish()

    async def publish(self) -> None:
        """Publishes what was collected; what the broker does not answer waits for the next time."""
        self._is_due = False
        self._unsent.extend(self._chunks())
        # one message alone shows whether the broker answers again
        sending = list(islice(self._unsent, _MESSAGES_AT_ONCE if self._answers else 1))
        try:
            answers = await self._bus.append_many([message for message, _ in sending])
        except BusUnavailable as error:
            answers = [error] * len(sending)
        self._answers = True
        for (_, size), answer in zip(sending, answers, strict=True):
            if isinstance(answer, BusError):
                self._trouble.write(
                    logging.WARNING, "", "log lines of jobs cannot be stored: %s", answer
                )
            if isinstance(answer, BusUnavailable):
                self._answers = False
                return
            self._unsent.popleft()
            with self._guard:
                self._pending_bytes -= size

    def _chunks(self) -> list[tuple[Outgoing, int]]:
        """What was collected, as messages, each with its share of the pending bytes."""
        with self._guard:
            every = [(one, one.attempt.has_ended) for one in self._attempts.values()]
            taken = [(one, one.lines, one.dropped, end) for one, end in every if one.lines or end]
            for one, _, _, has_ended in taken:
                one.lines, one.dropped = [], 0
                if has_ended:
                    del self._attempts[one.attempt]
        chunks = []
        for one, lines, dropped, ended in taken:
            *parts, last = _parts(lines)
            chunks += [self._chunk(one.attempt, part, 0, False) for part in parts]
            chunks.append(self._chunk(one.attempt, last, dropped, ended))
        return chunks

    def _chunk(
        self, attempt: Attempt, lines: tuple[LogLine, ...], dropped: int, ended: bool
    ) -> tuple[Outgoing, int]:
        call, sealed = attempt.payload, b""
        size = sum(map(_size, lines))
        if lines and holds_sealed(call):
            about = about_result(call.id, call.function, call.queue)
            sealed, lines = self._ring.seal(msgspec.json.encode(lines), about), ()
        self._number += 1
        chunk = LogChunk(
            job_id=call.id,
            attempt=attempt.attempt,
            function=call.function,
            queue=call.queue,
            worker=attempt.worker,
            host=self._host,
            number=self._number,
            lines=lines,
            sealed=sealed,
            dropped=dropped,
            ended=ended,
        )
        return Outgoing(self._subjects.log_lines(call.id), msgspec.json.encode(chunk)), size

    async def finish(self) -> None:
        """Publishes what is left, for a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                self._is_due = True
                await self._publish_until_empty()
        if self._publishing:
            self._publishing.cancel()


def _size(line: LogLine) -> int:
    return _LINE_BYTES + len(line.text) + len(line.traceback)


def _parts(lines: Sequence[LogLine]) -> list[tuple[LogLine, ...]]:
    """The lines cut into messages; one without lines where there are none."""
    parts: list[list[LogLine]] = [[]]
    size = 0
    for line in lines:
        if parts[-1] and size + _size(line) > _CHUNK_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(line)
        size += _size(line)
    return [tuple(part) for part in parts]


def _beginning(text: str, shown: Callable[[str], str], longest: int) -> str:
    """The first ``_LONGEST_LINE`` characters of a line, masked before the line is cut.

    Args:
        shown: masks a text.
        longest: characters of the longest text that it looks for. What is read beyond the limit
            may end within such a text, so as much of its end is dropped.
    """
    margin = min(max(longest, _SHORTEST_MARGIN), _LONGEST_MARGIN)
    part = shown(text[: _LONGEST_LINE + margin])
    if len(text) > _LONGEST_LINE + margin:
        part = part[: max(len(part) - max(longest, margin), 0)]
    if len(text) <= _LONGEST_LINE:
        return part
    return f"{part[:_LONGEST_LINE]}… ({len(text):,} characters)"


def _end(text: str, shown: Callable[[str], str], longest: int) -> str:
    """The last ``_LONGEST_TRACEBACK`` characters of a traceback; see :func:`_beginning`."""
    margin = min(max(longest, _SHORTEST_MARGIN), _LONGEST_MARGIN)
    part = shown(text[-_LONGEST_TRACEBACK - margin :])
    if len(text) > _LONGEST_TRACEBACK + margin:
        part = part[max(longest, margin) :]
    return part[-_LONGEST_TRACEBACK:]


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
