"""All bulk actions of the last weeks as they are now: followed from the stream ``CONSOLE``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, Expect, Outgoing
from penstock.console.core.bulk.actions import Action, advance
from penstock.events.bulk import BULK_EVENTS, BulkEvent
from penstock.events.envelope import MalformedEvent, encode
from penstock.events.subjects import Subjects
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console.bulk")

MOST_ACTIONS = 500
"""That are remembered; the oldest are forgotten first."""
KEPT_DAYS = 30
_HEADERS = {"Nats-TTL": f"{KEPT_DAYS * 86_400}s"}
_RETRY_SECONDS = 1.0
_OWN_WRITE_SECONDS = 5.0


class Directory:
    """Follows the events of all consoles of the installation.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
        changed: called when an action has changed.
    """

    def __init__(self, bus: Bus, subjects: Subjects, changed: Callable[[], None]) -> None:
        self._bus, self._subjects, self._changed = bus, subjects, changed
        self._actions: dict[str, Action] = {}
        self._position = 0
        self._advanced = asyncio.Condition()

    async def run(self, service: Service) -> None:
        """Follows until the service stops; goes on where it was when the broker was away."""
        stream, pattern = self._subjects.console_stream, self._subjects.console(BulkEvent.noun)
        while not service.stopping.is_set():
            try:
                start = self._position + 1 if self._position else "all"
                async for message in self._bus.follow(stream, [pattern], start):
                    self._take(message.body, message.sequence)
                    async with self._advanced:
                        self._position = message.sequence
                        self._advanced.notify_all()
                    self._changed()
            except BusError as error:
                log.warning("bulk actions cannot be followed, trying again: %s", error)
            await service.pause(_RETRY_SECONDS)

    def newest_first(self) -> Iterator[Action]:
        """All that are remembered."""
        return reversed(self._actions.values())

    def get(self, action_id: str) -> Action | None:
        """The action with an id; None where there is none, or none any more."""
        return self._actions.get(action_id)

    async def changed_since(self, sequence: int, action_id: str, seconds: float) -> Action | None:
        """Waits until an action has a further event; the action then, or when it takes too long."""

        def has_changed() -> bool:
            action = self._actions.get(action_id)
            return action is None or action.sequence > sequence

        await self._until(has_changed, seconds)
        return self._actions.get(action_id)

    async def store(self, event: BulkEvent, expected: int) -> Action | None:
        """Appends an event to an action, and waits a moment until it is applied here.

        Args:
            event: what happened.
            expected: sequence of the action's last event; 0 for a new action.

        Raises:
            WrongSequence: it has another event since.
        """
        every = self._subjects.console(event.noun, event.bulk_id)
        sequence = await self._bus.append(
            Outgoing(
                self._subjects.console_event(event),
                encode(event),
                _HEADERS,
                Expect(expected, every),
            )
        )
        await self._until(lambda: self._position >= sequence, _OWN_WRITE_SECONDS)
        return self._actions.get(event.bulk_id)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Waits until something holds, or the time has passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._advanced:
                await self._advanced.wait_for(is_so)

    def _take(self, body: bytes, sequence: int) -> None:
        try:
            event = BULK_EVENTS.decode(body)
        except MalformedEvent as error:
            log.warning("event %d of the console cannot be read: %s", sequence, error)
            return
        if not isinstance(event, BulkEvent):
            return  # of a later version
        action = advance(self._actions.get(event.bulk_id), event, sequence)
        if action is not None:
            self._actions[action.id] = action
        while len(self._actions) > MOST_ACTIONS:
            self._actions.pop(next(iter(self._actions)))
