"""Follows the event log for each hook, and delivers at least once.

A hook's position is stored behind each delivery: an orchestrator that is killed between the two
delivers the event again, with the same ``event_id``. Of several orchestrators one runs the hooks,
by a lease; one that was stopped for longer than that may deliver an event that the next one
delivers, too. Each hook follows for itself, so that a slow one delays no other.

A notice that fails some times is put aside: it is stored with the position, and tried again beside
the later ones. While as many wait as may, the hook reads no further, so that an endpoint that is
away for an hour loses what waited, not what came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, BusError, Outgoing, Stored
from penstock.config import Settings
from penstock.config.hooks import HookTable
from penstock.events.job import JOB_EVENTS
from penstock.events.notice import JobNotice
from penstock.events.subjects import Subjects
from penstock.health.hooks import MOST_ERROR
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.event_log import read_event, read_subject
from penstock.orchestrator.core import hook as core
from penstock.orchestrator.hooks.delivery import Deliver, NotDelivered, Refused, delivery_of
from penstock.runtime.lease import Lease, Term
from penstock.runtime.service import Service
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters

log = logging.getLogger("penstock.orchestrator")

_LEASE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 60.0
_TRIES_AT_HEAD = 3
"""After so many the later notices of the hook go on."""
_MOST_WAITING = 100
_KEEP_SECONDS = 5.0
"""A position that only passed over events is stored so often."""


class _Waiting(msgspec.Struct, frozen=True):
    """A notice that was put aside.

    Attributes:
        subject: of its event.
        since: of its first try, in seconds since 1970.
    """

    subject: str
    since: float
    tries: int


class _Position(msgspec.Struct, frozen=True):
    """How far a hook is.

    Attributes:
        sequence: of the first event that was not tried yet.
        waiting: by the sequence of their events.
        error: why the last notice that failed was not delivered.
        dropped_at: when a notice was dropped, in seconds since 1970; 0 once a later one was
            delivered.
    """

    sequence: int
    waiting: dict[int, _Waiting] = {}
    error: str = ""
    dropped_at: float = 0.0


class HookRunner:
    """One hook.

    Args:
        name: in the settings.
        deliver: instead of what the hook names.
        meters: where notices are counted.
        hook_jobs: the functions that the hooks of the settings dispatch; its own if None.
    """

    def __init__(
        self,
        name: str,
        hook: HookTable,
        bus: Bus,
        client: Client,
        subjects: Subjects,
        deliver: Deliver | None = None,
        meters: Meters | None = None,
        hook_jobs: frozenset[str] | None = None,
    ) -> None:
        self._name, self._hook, self._bus, self._subjects = name, hook, bus, subjects
        self._deliver = deliver or delivery_of(hook, client)
        self._meters = meters or Meters()
        self._hook_jobs = frozenset({hook.job}) if hook_jobs is None else hook_jobs
        self._stream, self._state = subjects.events_stream, subjects.state_stream
        self._subject = subjects.state("cursor", f"hook-{name}")
        self._position = _Position(1)
        self._has_room = asyncio.Event()
        self._kept_at = 0.0
        self._keeping = asyncio.Lock()

    @property
    def position(self) -> int:
        """Sequence of the first event that was not tried yet."""
        return self._position.sequence

    def patterns(self) -> list[str]:
        """Subjects of the events that it follows."""
        kinds = [core.EVENTS[occasion].__name__ for occasion in self._hook.on]
        return [self._subjects.events("job", "*", kind) for kind in kinds]

    async def follow(self, held: Callable[[], bool]) -> None:
        """Delivers while ``held()``. Raises BusError."""
        position = await self.begin()
        self._position = position
        self._change(position.sequence, position.waiting)
        tasks = [asyncio.ensure_future(part(held)) for part in (self._follow, self._retry)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, held: Callable[[], bool]) -> None:
        following = self._bus.follow(self._stream, self.patterns(), self.position)
        async with aclosing(following) as messages:  # type: ignore[type-var]
            async for stored in messages:
                notice = await self._notice(stored)
                if not held():
                    return
                if notice is not None and not await self._try_at_head(stored, notice, held):
                    return
                is_due = time.monotonic() - self._kept_at >= _KEEP_SECONDS
                self._change(stored.sequence + 1, self._position.waiting)
                if notice is not None or is_due:
                    await self._keep()
                await self._has_room.wait()

    async def _notice(self, stored: Stored) -> JobNotice | None:
        """What is delivered for a message: nothing where its event may not follow in its job."""
        event = read_event(stored, JOB_EVENTS)
        if not core.may_concern(event, self._hook):
            return None
        subject = self._subjects.job(event.job_id)
        history = await read_subject(self._bus, self._stream, subject, JOB_EVENTS)
        job = core.job_before(history, stored.sequence, event)
        if job is not None:
            return core.notice(self._name, self._hook, event, job, self._hook_jobs)
        log.warning(
            "hook %s: %s of job %s is passed over: it does not follow from the job's events",
            self._name,
            event.name,
            event.job_id,
        )
        return None

    # --- trying ----------------------------------------------------------------------------------
    async def _try_at_head(
        self, stored: Stored, notice: JobNotice, held: Callable[[], bool]
    ) -> bool:
        """Delivers it, drops it, or puts it aside; False when another process does it now."""
        began = time.time()
        for number in range(1, _TRIES_AT_HEAD + 1):
            if not held():
                return False
            if await self._is_done(notice, began, _pause_seconds(number)):
                return True
            if number < _TRIES_AT_HEAD:
                await asyncio.sleep(_pause_seconds(number))
        waiting = _Waiting(stored.subject, began, _TRIES_AT_HEAD)
        self._put_aside(stored.sequence, waiting)
        return True

    async def _retry(self, held: Callable[[], bool]) -> None:
        """Tries those that were put aside, each in its own time, the first one first."""
        due: dict[int, float] = {}
        while held():
            now = time.monotonic()
            for sequence, waiting in sorted(self._position.waiting.items()):
                at = due.setdefault(sequence, now + _pause_seconds(waiting.tries))
                if at <= time.monotonic() and held():
                    del due[sequence]
                    with suppress(BusError):  # it is tried again
                        await self._retry_one(sequence, waiting)
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)

    async def _retry_one(self, sequence: int, waiting: _Waiting) -> None:
        stored = await self._bus.next(self._stream, waiting.subject, sequence)
        notice = None
        if stored is not None and stored.sequence == sequence:
            notice = await self._notice(stored)
        else:
            self._meters.count(metrics.HOOK_NOTICES, self._name, "dropped")
            log.error("hook %s: event %d left the log undelivered", self._name, sequence)
        pause = _pause_seconds(waiting.tries + 1)
        if notice is not None and not await self._is_done(notice, waiting.since, pause):
            next_try = msgspec.structs.replace(waiting, tries=waiting.tries + 1)
            self._put_aside(sequence, next_try)
            return
        rest = {key: one for key, one in self._position.waiting.items() if key != sequence}
        self._change(self._position.sequence, rest)
        await self._keep()

    async def _is_done(self, notice: JobNotice, since: float, pause: float) -> bool:
        """One try: whether the notice is delivered or given up.

        Args:
            since: of the first try, in seconds since 1970.
            pause: seconds until the next try.
        """
        try:
            await self._deliver(notice)
        except NotDelivered as error:
            self._note(error=core.error_text(self._hook, error)[:MOST_ERROR])
            if time.time() - since >= self._hook.give_up_seconds:
                self._give_up(notice, error)
                return True
            log.warning(
                "hook %s: %s of job %s is not delivered, next try in %.1f s: %s",
                self._name,
                notice.event,
                notice.job_id,
                pause,
                error,
            )
            return False
        except (Refused, JobsError, ValueError) as error:  # another try would be refused, too
            self._give_up(notice, error)
            return True
        self._meters.count(metrics.HOOK_NOTICES, self._name, "delivered")
        self._note(dropped_at=0.0)
        return True

    def _give_up(self, notice: JobNotice, error: Exception) -> None:
        self._meters.count(metrics.HOOK_NOTICES, self._name, "dropped")
        text = core.error_text(self._hook, error)[:MOST_ERROR]
        self._note(error=text, dropped_at=time.time())
        log.error(
            "hook %s: %s of job %s is dropped: %s", self._name, notice.event, notice.job_id, error
        )

    # --- the position ----------------------------------------------------------------------------
    async def begin(self, first: int | None = None) -> _Position:
        """Where to go on; a hook that is new begins at ``first``, else behind the last event."""
        stored = await self._bus.last(self._state, self._subject)
        if stored is not None:
            try:
                return msgspec.json.decode(stored.body, type=_Position)
            except (ValueError, RecursionError) as error:
                log.error("hook %s: its position cannot be read: %s", self._name, error)
        if first is None:
            first = (await self._bus.extent(self._stream)).last + 1
        self._position = _Position(first)
        await self._keep()
        return self._position

    def _put_aside(self, sequence: int, notice: _Waiting) -> None:
        self._change(self._position.sequence, {**self._position.waiting, sequence: notice})

    def _change(self, sequence: int, waiting: dict[int, _Waiting]) -> None:
        self._note(sequence=sequence, waiting=waiting)
        if len(waiting) < _MOST_WAITING:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _note(self, **changes: Any) -> None:
        self._position = msgspec.structs.replace(self._position, **changes)

    async def _keep(self) -> None:
        async with self._keeping:  # the later position is stored last
            body = msgspec.json.encode(self._position)
            await self._bus.append(Outgoing(self._subject, body))
        self._kept_at = time.monotonic()


def _pause_seconds(tries: int) -> float:
    """Behind so many tries."""
    return min(_FIRST_PAUSE_SECONDS * 2.0 ** min(tries - 1, 20), _LONGEST_PAUSE_SECONDS)


class Hooks:
    """All hooks of the settings, run by one orchestrator at a time."""

    def __init__(
        self, bus: Bus, settings: Settings, client: Client, source: str, meters: Meters
    ) -> None:
        subjects = Subjects(settings.prefix)
        hook_jobs = frozenset(hook.job for hook in settings.hooks.values() if hook.job)
        self._runners = [
            HookRunner(name, hook, bus, client, subjects, meters=meters, hook_jobs=hook_jobs)
            for name, hook in settings.hooks.items()
        ]
        subject = subjects.state("cursor", "hooks")
        self._lease = Lease(bus, subjects.state_stream, subject, source, _LEASE_SECONDS)

    async def run(self, running: Service) -> None:
        """Until the service ends; at once where there are no hooks."""
        while self._runners and not running.stopping.is_set():
            async with self._lease.holding() as term:
                following = [
                    asyncio.ensure_future(self._follow(runner, term)) for runner in self._runners
                ]
                try:
                    await term.ended.wait()
                finally:
                    for task in following:
                        task.cancel()
                    await asyncio.gather(*following, return_exceptions=True)

    async def _follow(self, runner: HookRunner, term: Term) -> None:
        while term.held:
            try:
                await runner.follow(lambda: term.held)
            except BusError as error:
                log.warning("hooks wait for the broker: %s", error)
            except Exception:
                log.exception("a hook failed, and is started again")
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)
