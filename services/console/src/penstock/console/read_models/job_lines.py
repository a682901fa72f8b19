"""Some of the lines that a job wrote: the newest, or those from a position on; bounded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.events.envelope import Instant
from penstock.events.log_lines import LogLine
from penstock.jobs.client import Client
from penstock.jobs.reading.job_logs import AttemptLines

MOST_CHARACTERS = 1_000_000
"""Of the lines of one answer."""
_MOST_SECONDS = 2.0
"""How long older lines are passed over; then the answer is of what was read."""
Position = tuple[int, int]
"""A message's sequence, and how many of its lines were read."""
BEGINNING: Position = (1, 0)


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line, or a remark about lines that are not there.

    Attributes:
        at: when it was written; None of a remark.
        stream: ``stdout`` or ``stderr`` where it was printed.
        is_remark: ``text`` says that lines were dropped here, or cannot be read.
    """

    at: Instant | None = None
    attempt: int
    worker: str
    host: str
    level: str = ""
    logger: str = ""
    stream: str = ""
    text: str
    error_type: str = ""
    traceback: str = ""
    is_remark: bool = False


class JobLines(msgspec.Struct, frozen=True, kw_only=True):
    """What was read.

    Attributes:
        lines: in the order in which they were stored, newest last.
        left_out: how many before them were passed over.
        until: where they end.
        is_complete: whether all that is stored up to now was looked at.
    """

    lines: list[JobLine]
    left_out: int
    until: Position
    is_complete: bool


async def newest(client: Client, job_id: str, attempt: int, limit: int) -> JobLines:
    """The last lines that are stored.

    Args:
        client: reads them.
        job_id: of the job.
        attempt: only of this one; 0 for all.
        limit: lines at most.
    """
    clock = asyncio.get_running_loop().time
    begun_at = clock()
    kept, characters, left_out, until = deque[JobLine](), 0, 0, BEGINNING
    async for part in client.jobs.stored_logs(job_id, attempt):
        for line in _lines(part):
            kept.append(line)
            characters += _length(line)
            while len(kept) > limit or (characters > MOST_CHARACTERS and len(kept) > 1):
                characters -= _length(kept.popleft())
                left_out += 1
        until = (part.sequence + 1, 0)
        if clock() - begun_at > _MOST_SECONDS:
            return JobLines(lines=[*kept], left_out=left_out, until=until, is_complete=False)
    return JobLines(lines=[*kept], left_out=left_out, until=until, is_complete=True)


async def following(
    client: Client, job_id: str, attempt: int, limit: int, after: Position
) -> JobLines:
    """The lines from a position on, oldest first; see :func:`newest`."""
    kept, characters, until = list[JobLine](), 0, after
    start, passed = after
    async for part in client.jobs.stored_logs(job_id, attempt, start):
        for place, line in enumerate(_lines(part)):
            if part.sequence == start and place < passed:
                continue
            if len(kept) == limit or (kept and characters + _length(line) > MOST_CHARACTERS):
                until = (part.sequence, place)
                return JobLines(lines=kept, left_out=0, until=until, is_complete=False)
            kept.append(line)
            characters += _length(line)
        until = (part.sequence + 1, 0)
    return JobLines(lines=kept, left_out=0, until=until, is_complete=True)


def _lines(part: AttemptLines) -> Iterator[JobLine]:
    about: dict[str, Any] = {"attempt": part.attempt, "worker": part.worker, "host": part.host}
    for line in part.lines:
        yield JobLine(**about, **{name: getattr(line, name) for name in LogLine.__struct_fields__})
    if part.dropped:
        yield JobLine(**about, text=f"{part.dropped:,} lines were dropped here", is_remark=True)
    if part.unreadable:
        yield JobLine(**about, text=part.unreadable, is_remark=True)


def _length(line: JobLine) -> int:
    return len(line.text) + len(line.traceback)
