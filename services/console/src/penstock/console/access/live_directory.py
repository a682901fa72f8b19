"""Accounts, tokens and sessions as they are now: followed from the stream ``CONSOLE``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.bus.protocol import Bus, BusError
from penstock.events.envelope import Event
from penstock.events.subjects import Subjects
from penstock.operations.console_access import readable
from penstock.operations.console_directory import Directory
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console")

_RETRY_SECONDS = 1.0
_NOUNS = ("token", "account", "session")


class LiveDirectory(Directory):
    """Follows the events of all consoles of the installation.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        super().__init__()
        self._bus, self._subjects = bus, subjects
        self._position = 0
        self._advanced = asyncio.Condition()

    async def run(self, service: Service) -> None:
        """Follows until the service stops; goes on where it was when the broker was away."""
        patterns = [self._subjects.console(noun) for noun in _NOUNS]
        while not service.stopping.is_set():
            try:
                start = self._position + 1 if self._position else "all"
                stream = self._subjects.console_stream
                async for message in self._bus.follow(stream, patterns, start):
                    if (event := readable(message.body)) is not None:
                        self.apply(event)
                    await self._advance(message.sequence)
            except BusError as error:
                log.warning("accounts and tokens cannot be followed, trying again: %s", error)
            await service.pause(_RETRY_SECONDS)

    async def reached(self, sequence: int, seconds: float = 5.0) -> bool:
        """Waits until the event of this sequence is applied; False when that takes too long."""
        return await self.until(lambda: self._position >= sequence, seconds)

    async def until(self, is_so: Callable[[], bool], seconds: float = 5.0) -> bool:
        """Waits until something holds of what was read; False when that takes too long."""
        try:
            async with asyncio.timeout(seconds), self._advanced:
                await self._advanced.wait_for(is_so)
        except TimeoutError:
            return False
        return True

    def apply_here(self, event: Event) -> None:
        """Takes an event that is stored nowhere: a session that ends with this process."""
        self.apply(event)

    async def _advance(self, sequence: int) -> None:
        async with self._advanced:
            self._position = sequence
            self._advanced.notify_all()
