"""Dispatches the ticks of schedules. Every orchestrator does; the record lets one of them win."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.bus.protocol import Bus, BusError, Stored, broker_time
from penstock.events.subjects import Subjects
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.errors import AlreadyDispatched, BadSchedule
from penstock.jobs.schedules import schedule as core
from penstock.jobs.schedules.client import put, read
from penstock.jobs.schedules.schedule import Schedule
from penstock.runtime.poison_messages import note
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.orchestrator")

_LEFT_SECONDS = 2.0
"""A tick that was begun and not dispatched for so long: the orchestrator that began it died."""
_LONGEST_SECONDS = 1.0
_RETRY_SECONDS = 0.2
_AT_ONCE = 50


@dataclass(slots=True)
class _Followed:
    """A record, and when to look at it: seconds of the monotonic clock, and a wall clock's time."""

    schedule: Schedule
    sequence: int
    read_at: float
    next_tick: datetime | None


class Ticker:
    """Follows the records and acts on those that are due.

    Attributes:
        dispatched: ticks that this process made jobs of.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source
        self._sender = Sender(bus, subjects)
        self._schedules: dict[str, _Followed] = {}
        self._changed = asyncio.Event()
        self.dispatched = 0

    async def follow(self) -> None:
        """Keeps up with what is added and changed. Runs beside :meth:`run`."""
        subject = self._subjects.state("schedule", "*")
        stream: Any = self._bus.follow(self._subjects.state_stream, [subject], start="last")
        async with aclosing(stream) as messages:
            async for stored in messages:
                self._note(stored)

    async def run(self) -> None:
        """Dispatches each tick when it is due."""
        while True:
            self._changed.clear()
            now = broker_time(self._bus)
            due = [one for one in self._schedules.values() if self._is_due(one, now)]
            for start in range(0, len(due), _AT_ONCE):
                group = due[start : start + _AT_ONCE]
                await asyncio.gather(*(self._act(one, now) for one in group))
            # Bounded: the broker's time, which ticks go by, may be corrected meanwhile.
            await within(self._pause_seconds(broker_time(self._bus)), self._changed.wait())

    def _is_due(self, followed: _Followed, now: datetime) -> bool:
        if followed.schedule.firing:
            return time.monotonic() - followed.read_at >= _LEFT_SECONDS
        return followed.next_tick is not None and followed.next_tick <= now

    def _pause_seconds(self, now: datetime) -> float:
        ticks = [one.next_tick for one in self._schedules.values() if one.next_tick]
        if not ticks:
            return _LONGEST_SECONDS
        return min(max((min(ticks) - now).total_seconds(), 0.001), _LONGEST_SECONDS)

    async def _act(self, followed: _Followed, now: datetime) -> None:
        try:
            if followed.schedule.firing:
                if await self._is_current(followed):
                    await self._dispatch(followed)
            elif (due := core.step(followed.schedule, now)) and (
                written := await self._put(followed, due)
            ):
                if due.firing:
                    await self._dispatch(written)
                else:
                    log.warning("schedule %s: ticks until %s are skipped", due.name, due.done_until)
        except BusError as error:
            log.warning("schedule %s waits: %s", followed.schedule.name, error)
            await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:  # of one schedule: the others go on
            note(f"schedule {followed.schedule.name}", error)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _is_current(self, followed: _Followed) -> bool:
        """Whether the record is as it was; of one that another finished, the job may be long over.

        What the log keeps of a job's id ends with its history, so a tick is not left to that alone.
        """
        subject = self._subjects.state("schedule", followed.schedule.name)
        stored = await self._bus.last(self._subjects.state_stream, subject)
        if stored is not None and stored.sequence == followed.sequence:
            return True
        if stored is None:
            self._schedules.pop(followed.schedule.name, None)
        else:
            self._note(stored)
        return False

    async def _dispatch(self, followed: _Followed) -> None:
        """Dispatches the job of a tick that is due; however many orchestrators do, there is one."""
        schedule = followed.schedule
        assert schedule.firing is not None
        event = core.dispatched(schedule, schedule.firing, self._source, broker_time(self._bus))
        try:
            await self._sender.ensure_sent(event)
        except AlreadyDispatched as error:
            log.error("schedule %s: %s", schedule.name, error)
        if await self._put(followed, core.fired(schedule)):
            self.dispatched += 1
            late = (broker_time(self._bus) - schedule.firing).total_seconds()
            log.info("schedule %s: job %s, %.3f s late", schedule.name, event.job_id, late)

    async def _put(self, followed: _Followed, schedule: Schedule) -> _Followed | None:
        """The new record; None, and the one that is there is looked up, if another was quicker."""
        if sequence := await put(self._bus, self._subjects, schedule, followed.sequence):
            return self._remember(schedule, sequence)
        subject = self._subjects.state("schedule", schedule.name)
        stored = await self._bus.last(self._subjects.state_stream, subject)
        if stored is None:
            self._schedules.pop(schedule.name, None)
        else:
            self._note(stored)
        return None

    def _note(self, stored: Stored) -> None:
        try:
            self._remember(read(stored), stored.sequence)
        except (BadSchedule, ValueError, RecursionError, OverflowError) as error:
            log.error("%s holds no schedule and is ignored: %s", stored.subject, error)

    def _remember(self, schedule: Schedule, sequence: int) -> _Followed:
        before = self._schedules.get(schedule.name)
        if before and before.sequence >= sequence:
            return before
        idle = schedule.paused or schedule.removed or schedule.firing
        tick = None if idle else core.next_tick(schedule, schedule.done_until)
        followed = _Followed(schedule, sequence, time.monotonic(), tick)
        if schedule.removed:
            self._schedules.pop(schedule.name, None)
        else:
            self._schedules[schedule.name] = followed
        self._changed.set()
        return followed
