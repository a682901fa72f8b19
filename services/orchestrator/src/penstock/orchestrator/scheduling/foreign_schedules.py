"""Removes schedules of the broker's that belong to no delayed job.

The broker keeps schedules as messages with headers, and permissions do not look at headers: a key
that may dispatch can store one that repeats for ever, that copies a message of another queue or
that empties one. It would go on after the key was revoked.
"""

from __future__ import annotations

import logging
import time

from penstock.bus.headers import parse_lines
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError
from penstock.events.subjects import Subjects
from penstock.orchestrator.core.foreign_schedule import oddity
from penstock.runtime.service import Service

log = logging.getLogger("penstock.orchestrator")

ROUND_SECONDS = 1.0
_PAGE = 500
_PAGES_OF_SCHEDULES, _PAGES_OF_QUEUES = 20, 2
"""A look reads so much: each message once, and of those in queues few wait for long."""
_BETWEEN_PAGES_SECONDS = 0.02
_LOGGED_EVERY_SECONDS = 60.0


class ForeignSchedules:
    """Looks at all that is stored, from the first message at each start.

    Attributes:
        removed: how many, since this process started.
    """

    def __init__(self, running: Service, bus: NatsBus) -> None:
        self._service, self._bus = running, bus
        self._subjects = Subjects(running.settings.prefix)
        self.removed = 0
        self._logged, self._logged_at = 0, float("-inf")
        self._pages = {
            self._subjects.schedule("*", "*"): _PAGES_OF_SCHEDULES,
            self._subjects.queue("*"): _PAGES_OF_QUEUES,
        }
        self._positions = dict.fromkeys(self._pages, 1)

    async def run(self) -> None:
        """Until the service ends."""
        while True:
            try:
                for pattern in self._positions:
                    await self._look(pattern)
            except BusError as error:
                log.debug("schedules of the broker: %s", error)
            if not await self._service.pause(ROUND_SECONDS):
                return

    async def _look(self, pattern: str) -> None:
        for _ in range(self._pages[pattern]):
            page = await self._bus.reader.raw_page(
                self._subjects.jobs_stream, pattern, _PAGE, self._positions[pattern]
            )
            for message, block in page:
                why = oddity(message.subject, parse_lines(block), message.at, self._subjects)
                if why:
                    await self._remove(message.subject, message.sequence, why)
                self._positions[pattern] = message.sequence + 1
            if not page or not await self._service.pause(_BETWEEN_PAGES_SECONDS):
                return

    async def _remove(self, subject: str, sequence: int, why: str) -> None:
        await self._bus.remove_message(self._subjects.jobs_stream, sequence)
        self.removed += 1
        now = time.monotonic()
        if now - self._logged_at < _LOGGED_EVERY_SECONDS:
            return
        log.warning(
            "removed %d schedules from the broker that belong to no delayed job, the last at %s: "
            "%s. Only a key that may dispatch can have stored them: see the broker's log, and "
            "'penstock deploy key revoke'",
            self.removed - self._logged,
            subject,
            why,
        )
        self._logged, self._logged_at = self.removed, now
