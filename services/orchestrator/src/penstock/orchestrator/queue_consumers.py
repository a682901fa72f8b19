"""Makes the consumers of queues, which no other role may: consumers decide where jobs go.

A queue is made at its first sign: the settings name it, a job is dispatched to it, it holds jobs,
or a worker asks for it. A job that comes before its consumer waits in the stream. Any number of
orchestrators may do this; making one that exists changes nothing.

A key that may dispatch can invent names of queues, and each consumer costs the broker memory.
Queues that the settings name always have theirs; of others only so many do, and those that no
worker pulls from give way to those that one asks for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError
from penstock.config import Settings
from penstock.config.serving import serving
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.orchestrator.core.unresolved import Step

log = logging.getLogger("penstock.orchestrator")

MOST_WANTED = 10_000
"""Names kept while the broker is away; what is dropped is asked for again."""
MOST_UNNAMED = 2_000
"""Consumers of queues that the settings do not name: about 100 kB of the broker's memory each
(measured, nats-server 2.15.1). Half of them are kept for queues that a worker asks for."""
_SURVEY_SECONDS = 10.0
_COUNT_SECONDS = 60.0
_RETRY_SECONDS = 1.0
"""A queue is made at most so often, however many ask for it."""


class QueueConsumers:
    """The queues of one installation."""

    def __init__(self, bus: NatsBus, subjects: Subjects, settings: Settings) -> None:
        self._bus, self._subjects = bus, subjects
        self._named = frozenset(serving(settings).owners)
        self._wanted = dict.fromkeys(self._named)
        self._unnamed: set[str] = set()
        self._counted_at, self._is_crowded = float("-inf"), False
        self._made: dict[str, float] = {}
        self._signs = asyncio.Event()
        bus.queues.makes_consumers = True

    def see(self, step: Step) -> None:
        """A step of a job, which may be the first of its queue."""
        if step.queue and step.queue not in self._made:
            self._want(step.queue)

    def _want(self, queue: str, most: int | None = None) -> None:
        with suppress(BadName):
            if len(self._wanted) < MOST_WANTED and self._has_capacity(
                queue, most or MOST_UNNAMED // 2
            ):
                self._wanted[check_name("queue", queue)] = None
                self._signs.set()

    def _has_capacity(self, queue: str, most: int) -> bool:
        if queue in self._named or queue in self._unnamed:
            return True
        if len(self._unnamed) + len(self._wanted.keys() - self._named) < most:
            return True
        self._is_crowded = True
        return False

    def _on_request(self, subject: str, _: bytes) -> None:
        """A worker found no consumer, whatever was made before."""
        queue = subject.rpartition(".")[2]
        if time.monotonic() - self._made.get(queue, -_RETRY_SECONDS) >= _RETRY_SECONDS:
            self._want(queue, MOST_UNNAMED)

    async def run(self) -> None:
        """Without end."""
        await self._bus.listen(self._subjects.queue_wanted("*"), self._on_request)
        while True:
            try:
                await self._count()
                await self._make_wanted()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SURVEY_SECONDS):
                        await self._signs.wait()
                        continue
                await self._look()
            except BusError as error:
                log.debug("queues: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _make_wanted(self) -> None:
        self._signs.clear()
        for queue in tuple(self._wanted):
            await self._bus.queues.make(queue)
            self._made[queue] = time.monotonic()
            if queue not in self._named:
                self._unnamed.add(queue)
            del self._wanted[queue]

    async def _count(self) -> None:
        """Other orchestrators make queues too; those without a worker are removed for others."""
        if time.monotonic() - self._counted_at < _COUNT_SECONDS:
            return
        self._counted_at = time.monotonic()
        # Only when a queue was refused: an idle queue costs nothing while there is capacity.
        if self._is_crowded:
            removed = await self._bus.queues.remove_idle(self._named)
            for queue in removed:
                self._made.pop(queue, None)
            log.warning(
                "more than %d queues that no pool names: consumers of %d were removed, from which "
                "no worker pulled; their jobs stay. See 'penstock queue ls'",
                MOST_UNNAMED // 2,
                len(removed),
            )
            self._is_crowded = False
        self._unnamed = {*await self._bus.depths()} - self._named

    async def _look(self) -> None:
        """Queues that hold jobs and have no consumer, whatever became of their signs."""
        held = await self._bus.count(self._subjects.jobs_stream, self._subjects.queue("*"))
        names = {subject.rpartition(".")[2] for subject in held}
        for queue in names - self._made.keys():
            self._want(queue)
