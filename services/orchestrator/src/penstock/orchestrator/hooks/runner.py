"""Follows the event log for each hook, and delivers at least once.

A hook's position is stored behind each delivery: an orchestrator that is killed between the two
delivers the event again, with the same ``event_id``. Of several orchestrators one runs the hooks,
by a lease; one that was stopped for longer than that may deliver an event that the next one
delivers, too. Each hook follows for itself, so that a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing, suppress

import msgspec

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.config import Settings
from penstock.config.hooks import HookTable
from penstock.events.job import JOB_EVENTS
from penstock.events.notice import JobNotice
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.event_log import read_event
from penstock.orchestrator.core import hook as core
from penstock.orchestrator.hooks.delivery import Deliver, NotDelivered, delivery_of
from penstock.runtime.lease import Lease, Term
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

_LEASE_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 60.0
_KEEP_SECONDS = 5.0
"""A position that only passed over events is stored so often."""


class _Position(msgspec.Struct, frozen=True):
    """Sequence of the first event that is not delivered yet."""

    sequence: int


class HookRunner:
    """One hook.

    Args:
        name: in the settings.
        deliver: instead of what the hook names.
    """

    def __init__(
        self,
        name: str,
        hook: HookTable,
        bus: Bus,
        client: Client,
        subjects: Subjects,
        deliver: Deliver | None = None,
    ) -> None:
        self._name, self._hook, self._bus, self._subjects = name, hook, bus, subjects
        self._deliver = deliver or delivery_of(hook, client)
        self._stream, self._state = subjects.events_stream, subjects.state_stream
        self._subject = subjects.state("cursor", f"hook-{name}")
        self._kept_at = 0.0

    async def follow(self, held: Callable[[], bool]) -> None:
        """Delivers while ``held()``. Raises BusError."""
        kinds = [core.EVENTS[occasion].__name__ for occasion in self._hook.on]
        subjects = [self._subjects.events("job", "*", kind) for kind in kinds]
        start = await self._begin()
        async with aclosing(self._bus.follow(self._stream, subjects, start)) as messages:  # type: ignore[type-var]
            async for stored in messages:
                notice = core.notice(self._name, self._hook, read_event(stored, JOB_EVENTS))
                if not held():
                    return
                if notice is not None and not await self._delivered(notice, held):
                    return
                is_due = time.monotonic() - self._kept_at >= _KEEP_SECONDS
                if notice is not None or is_due:
                    await self._keep(stored.sequence + 1)

    async def _begin(self) -> int:
        """Where to go on; behind the last event where the hook is new."""
        stored = await self._bus.last(self._state, self._subject)
        if stored is not None:
            try:
                return msgspec.json.decode(stored.body, type=_Position).sequence
            except (ValueError, RecursionError) as error:
                log.error("hook %s: its position cannot be read: %s", self._name, error)
        start = (await self._bus.extent(self._stream)).last + 1
        await self._keep(start)
        return start

    async def _keep(self, sequence: int) -> None:
        await self._bus.append(Outgoing(self._subject, msgspec.json.encode(_Position(sequence))))
        self._kept_at = time.monotonic()

    async def _delivered(self, notice: JobNotice, held: Callable[[], bool]) -> bool:
        """Tries until it is delivered or given up; False when another process does it now."""
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while held():
            try:
                await self._deliver(notice)
                return True
            except NotDelivered as error:
                if time.monotonic() - began >= self._hook.give_up_seconds:
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
            except (JobsError, ValueError) as error:  # another try would be refused, too
                self._give_up(notice, error)
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        return False

    def _give_up(self, notice: JobNotice, error: Exception) -> None:
        log.error(
            "hook %s: %s of job %s is dropped: %s", self._name, notice.event, notice.job_id, error
        )


class Hooks:
    """All hooks of the settings, run by one orchestrator at a time."""

    def __init__(self, bus: Bus, settings: Settings, client: Client, source: str) -> None:
        subjects = Subjects(settings.prefix)
        self._runners = [
            HookRunner(name, hook, bus, client, subjects) for name, hook in settings.hooks.items()
        ]
        subject = subjects.state("cursor", "hooks")
        self._lease = Lease(bus, subjects.state_stream, subject, source, _LEASE_SECONDS)

    async def run(self, running: Service) -> None:
        """Until the service ends; at once where there are no hooks."""
        while self._runners and not running.stopping.is_set():
            term = await self._lease.campaign()
            keeping = asyncio.ensure_future(self._lease.keep(term))
            following = [
                asyncio.ensure_future(self._follow(runner, term)) for runner in self._runners
            ]
            try:
                await term.ended.wait()
            finally:
                for task in (keeping, *following):
                    task.cancel()
                await asyncio.gather(keeping, *following, return_exceptions=True)
                with suppress(BusError):
                    await self._lease.release(term)

    async def _follow(self, runner: HookRunner, term: Term) -> None:
        while term.held:
            try:
                await runner.follow(lambda: term.held)
            except BusError as error:
                log.warning("hooks wait for the broker: %s", error)
            except Exception:
                log.exception("a hook failed, and is started again")
            await asyncio.sleep(_FIRST_PAUSE_SECONDS)
