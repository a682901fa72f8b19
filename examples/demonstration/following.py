"""Reads the streams while the demo runs: events into the recording, snapshots into the board."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from examples.demonstration.recording import Recording

from penstock.bus.protocol import Bus, Stored
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event, MalformedEvent
from penstock.events.subjects import Subjects
from penstock.views.pool_board import Board


class Following:
    """Keeps a recording and a board up to date.

    Attributes:
        received: called with each event of the log and its time, after it was recorded.
        malformed: a sentence for each message that is no event.
    """

    def __init__(self, bus: Bus, subjects: Subjects, recording: Recording, board: Board) -> None:
        self._bus, self._subjects = bus, subjects
        self._recording, self._board = recording, board
        self._changed = asyncio.Condition()
        self.malformed: list[str] = []
        self.received: Callable[[Event, float], None] = lambda *_: None

    async def run(self) -> None:
        """Follows the streams until cancelled."""
        subjects = self._subjects
        snapshots = [subjects.pool_snapshot("*"), subjects.host_snapshot("*")]
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._read(subjects.events_stream, [subjects.events()], self._take_event)
            )
            group.create_task(self._read(subjects.snapshots_stream, snapshots, self._take_snapshot))

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits for a condition on what was recorded; False when it did not come in time."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def _read(
        self, stream: str, wanted: Sequence[str], take: Callable[[Event, Stored], Awaitable[None]]
    ) -> None:
        async for stored in self._bus.follow(stream, wanted, "all"):
            try:
                event = ALL.decode(stored.body)
            except MalformedEvent as error:
                self.malformed.append(f"{stored.subject}: {error}")
                continue
            if isinstance(event, Event):
                await take(event, stored)

    async def _take_event(self, event: Event, stored: Stored) -> None:
        at = stored.at.timestamp()
        self._recording.take(event, at)
        self._board.take(event)
        self.received(event, at)
        async with self._changed:
            self._changed.notify_all()

    async def _take_snapshot(self, event: Event, _: Stored) -> None:
        self._board.take(event)
        async with self._changed:
            self._changed.notify_all()
