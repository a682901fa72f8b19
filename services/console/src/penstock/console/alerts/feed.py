"""Feeds events and snapshots to the facts that rules look at, while a console leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.bus.protocol import Bus
from penstock.console.core.alerts.world import World
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.jobs.event_store.event_of_subject import event_of_subject
from penstock.runtime.poison_messages import skipping_poison

_FREQUENT = (PoolSnapshot, HostSnapshot, ScalingDecisionMade)
NOUNS = ("pool", "host", "worker", "health", "decider")
_STREAMS = 2


class Feed:
    """Follows what rules look at.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        woken: called when something came for which the engine should not wait for its next second.

    Attributes:
        is_complete: set when what was stored before the start is taken.
    """

    def __init__(self, bus: Bus, subjects: Subjects, woken: Callable[[], None]) -> None:
        self._bus, self._subjects, self._woken = bus, subjects, woken
        self.world = World()
        self.is_complete = asyncio.Event()
        self._loaded: set[str] = set()

    async def run(self) -> None:
        """Follows until cancelled: the last of each subject, then what comes."""
        events = [self._subjects.events(noun=noun) for noun in NOUNS]
        events.append(self._subjects.events(noun="job", name="JobDead"))
        snapshots = [self._subjects.pool_snapshot("*"), self._subjects.host_snapshot("*")]
        following = [
            asyncio.create_task(self._follow(self._subjects.snapshots_stream, snapshots)),
            asyncio.create_task(self._follow(self._subjects.events_stream, events)),
        ]
        try:
            await asyncio.gather(*following)
        finally:
            for task in following:
                task.cancel()

    async def _follow(self, stream: str, subjects: Sequence[str]) -> None:
        newest = [await self._bus.last(stream, pattern) for pattern in subjects]
        end = max((one.sequence for one in newest if one), default=0)
        if not end:
            self._complete(stream)
        async for message in self._bus.follow(stream, subjects, "last"):
            event = event_of_subject(message, self._subjects)
            if event is not None:
                with skipping_poison(f"{message.subject}, message {message.sequence}"):
                    self.world.take(event)
                if not isinstance(event, _FREQUENT):
                    self._woken()
            if message.sequence >= end:
                self._complete(stream)

    def _complete(self, stream: str) -> None:
        self._loaded.add(stream)
        if len(self._loaded) == _STREAMS:
            self.is_complete.set()
