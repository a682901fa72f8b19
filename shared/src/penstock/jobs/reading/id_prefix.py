"""Jobs by the beginning of their id.

An id that Penstock gives is a UUIDv7, which begins with its time in milliseconds: its first eight
digits name a minute, where the job's first events are looked for. Other ids, and jobs whose first
events have left the log, are found among the newest messages of the log.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from penstock.bus import lookback
from penstock.bus.protocol import Bus, BusRefused
from penstock.bus.since import first_since
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import derived_ids
from penstock.jobs.errors import AmbiguousId, NotFound

SHORTEST = 4
LONGEST_LIST = 10
_MOST_MESSAGES = 64_000
_WHOLE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIMED = re.compile(r"[0-9a-f]{8}(-?[0-9a-f-]*)")
_MAY_BEGIN = re.compile(r"0[0-9a-f-]{3,}")
"""What an id that Penstock gives begins with: its time is below 2 ** 44 ms until the year 2527."""
_DIGITS_OF_TIME = 12
_SLACK = timedelta(seconds=60)
"""Clocks of clients and of the broker differ, and a dispatch takes its time."""


async def find_id(bus: Bus, subjects: Subjects, text: str) -> str:
    """The id that ``text`` is, or that alone begins with it.

    Raises:
        AmbiguousId: several begin with it, or it is the id of one job and the beginning of an id
            that Penstock gave; names them.
        NotFound: none does.
        BusError
    """
    check_name("job", text)
    if _WHOLE.fullmatch(text):
        return text
    matching: set[str] = set()
    if await _is_an_id(bus, subjects, text):
        if not _MAY_BEGIN.fullmatch(text):
            return text
        # Applications choose ids too: one like the beginning of another job's does not stand for it
        matching = {other for other in await _longer(bus, subjects, text) if _WHOLE.match(other)}
        matching.add(text)
    elif len(text) >= SHORTEST:
        matching = await _longer(bus, subjects, text)
        matching = {job_id for job_id in matching if _owner(job_id) not in matching}
    if len(matching) == 1:
        return matching.pop()
    if matching:
        raise AmbiguousId(text, sorted(matching), LONGEST_LIST)
    raise NotFound(
        f"no job has the id {text!r}, or one that begins so (give at least {SHORTEST} characters; "
        "the events of old jobs have left the log)"
    )


def _owner(job_id: str) -> str:
    """Id of the workflow or graph that a job is a step of; empty for other jobs."""
    step = derived_ids.step(job_id)
    return step[0] if step else ""


async def _is_an_id(bus: Bus, subjects: Subjects, text: str) -> bool:
    if await bus.last(subjects.events_stream, subjects.job(text)):
        return True
    with suppress(BusRefused):  # a key that reads events alone
        return await bus.last(subjects.dead_stream, subjects.dead("*", text)) is not None
    return False


async def _longer(bus: Bus, subjects: Subjects, text: str) -> set[str]:
    """The other ids that begin so."""
    events, letters = subjects.events_stream, subjects.dead_stream
    matching = await _at_its_time(bus, subjects, text) - {text}
    if not matching:
        matching = await _newest(text, bus, events, subjects.events(noun="job"), -2) - {text}
    if not matching:
        with suppress(BusRefused):  # a key that reads events alone
            matching = await _newest(text, bus, letters, subjects.dead("*", "*"), -1) - {text}
    return matching


async def _at_its_time(bus: Bus, subjects: Subjects, text: str) -> set[str]:
    if not _TIMED.fullmatch(text):
        return set()
    digits = text.replace("-", "")[:_DIGITS_OF_TIME]
    try:
        earliest, latest = (
            datetime.fromtimestamp(int(digits.ljust(_DIGITS_OF_TIME, fill), 16) / 1000, UTC)
            for fill in "0f"
        )
    except (ValueError, OverflowError, OSError):  # no time that a clock shows
        return set()
    stream, dispatched = subjects.events_stream, subjects.events("job", "*", "JobDispatched")
    last = await bus.last(stream, dispatched)
    start = await first_since(bus, stream, dispatched, earliest - _SLACK)
    if last is None or start > last.sequence:
        return set()
    matching: set[str] = set()
    end = min(last.sequence, start + _MOST_MESSAGES)
    async for stored in lookback.between(bus, stream, dispatched, start, last.sequence):
        job_id = stored.subject.split(".")[-2]
        if job_id.startswith(text):
            matching.add(job_id)
        if stored.at > latest + _SLACK or stored.sequence >= end:
            break
    return matching


async def _newest(text: str, bus: Bus, stream: str, subject: str, token: int) -> set[str]:
    """Ids that begin so among the newest messages; ``token`` of their subjects is the id."""
    matching: set[str] = set()
    async for messages, _ in lookback.back(bus, stream, subject):
        ids = {stored.subject.split(".")[token] for stored in messages}
        matching = {job_id for job_id in ids if job_id.startswith(text)}
    return matching
