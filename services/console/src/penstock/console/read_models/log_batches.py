"""Messages of the event log in batches, as they are folded."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import msgspec

from penstock.bus.protocol import Stored
from penstock.console.core.log_entry import LogEntry, micros
from penstock.events.catalogue import LOGGED
from penstock.events.envelope import Event
from penstock.events.job import JobDispatched, JobRevived
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.event_of_subject import no_later
from penstock.runtime.tasks import within

MOST_AT_ONCE = 2_000
FIRST_AT_ONCE = 100
"""Messages of the first batch; each next one may have twice as many. A console that is killed soon
after each start stores the position of a small batch before that, and so moves forward."""
GATHER_SECONDS = 0.05
UNWATCHED_SECONDS = 0.5
"""While nothing reads the rows. A short job is then stored once, not three times: an event costs a
third less CPU than in batches of 50 ms."""
_LONGEST_ON_ITS_WAY = timedelta(days=1)
_WATCHED_SECONDS = 10.0
"""For so long after something read the rows they are kept as current as for open pages."""


def entry(stored: Stored) -> LogEntry:
    """A message of the log as it is folded.

    Its event is no later than the broker stored it, and a job's dispatch no more than a day
    earlier: lists are ordered by these times, and ages counted from them.
    """
    _, noun, key, _ = stored.subject.rsplit(".", 3)
    event = event_log.read_event(stored, LOGGED)
    if isinstance(event, Event):
        event = no_later(event, stored)
        if isinstance(event, JobDispatched | JobRevived):
            event = _not_long_before(event, stored.at)
    return LogEntry(stored.sequence, noun, key, event, micros(stored.at))


def _not_long_before(event: Event, stored_at: datetime) -> Event:
    earliest = stored_at - _LONGEST_ON_ITS_WAY
    return event if event.at >= earliest else msgspec.structs.replace(event, at=earliest)


class Pace:
    """For how long messages are gathered for one transaction.

    Args:
        has_viewers: whether pages are open that are sent changes.
    """

    def __init__(self, has_viewers: Callable[[], bool] = lambda: True) -> None:
        self._has_viewers = has_viewers
        self._read_at = float("-inf")
        self._changed = asyncio.Event()

    def watch(self) -> None:
        """Something reads the rows, or waits for one: what was gathered is stored soon."""
        self._read_at = time.monotonic()
        self._changed.set()

    def look(self) -> None:
        """Further messages have come: they may be enough."""
        self._changed.set()

    async def gather(self, since: float, is_enough: Callable[[], bool]) -> None:
        """Waits until it is time to store.

        Args:
            since: when the last transaction began, by the monotonic clock.
            is_enough: whether there are messages for a full one.
        """
        await asyncio.sleep(0)
        while (left := since + self._seconds - time.monotonic()) > 0 and not is_enough():
            self._changed.clear()
            await within(left, self._changed.wait())

    @property
    def _seconds(self) -> float:
        is_read = time.monotonic() - self._read_at < _WATCHED_SECONDS
        return GATHER_SECONDS if is_read or self._has_viewers() else UNWATCHED_SECONDS


async def batches(
    messages: AsyncIterator[Stored], most: int, pace: Pace
) -> AsyncIterator[tuple[list[Stored], bool]]:
    """What has come, in lists: the first at once, the next ones at a pace.

    Yields:
        At most ``most`` messages, the first times fewer, and whether no further one was waiting.
    """
    waiting: deque[Stored] = deque()
    has_message, has_room = asyncio.Event(), asyncio.Event()

    async def gather() -> None:
        async for message in messages:
            waiting.append(message)
            has_message.set()
            if len(waiting) == most:
                pace.look()
            if message.behind == 0:  # else each few messages are a request to the broker
                await pace.gather(time.monotonic(), lambda: False)
            if len(waiting) >= 4 * most:
                has_room.clear()
                await has_room.wait()

    gathering = asyncio.create_task(gather())
    gathering.add_done_callback(lambda _: has_message.set())
    began, at_most = float("-inf"), min(FIRST_AT_ONCE, most)
    try:
        while True:
            await has_message.wait()
            if gathering.done() and not waiting:
                gathering.result()  # raises what ended it
                return
            if len(waiting) < at_most:
                await pace.gather(began, lambda: len(waiting) >= most)
            batch = [waiting.popleft() for _ in range(min(len(waiting), at_most))]
            at_most = min(2 * at_most, most)
            if not waiting and not gathering.done():
                has_message.clear()
            has_room.set()
            began = time.monotonic()
            yield batch, not waiting
    finally:
        gathering.cancel()
