"""The reconciler's position in the event log, stored so that a restart goes on from there."""

from __future__ import annotations

import logging

import msgspec

from penstock.bus.protocol import Bus, Outgoing
from penstock.events.subjects import Subjects

log = logging.getLogger("penstock.orchestrator")


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Places in the event log.

    Attributes:
        sequence: the first step that may be unfinished.
        dead_letters_from: dead letters of earlier events were looked after.
    """

    sequence: int = 1
    dead_letters_from: int = msgspec.field(default=0, name="letters_from")


class Cursor:
    """The stored position; a double reconciler that writes an older one does no harm.

    Args:
        name: of who reads on from it.
    """

    def __init__(self, bus: Bus, subjects: Subjects, name: str = "orchestrator") -> None:
        self._bus = bus
        self._stream = subjects.state_stream
        self._subject = subjects.state("cursor", name)
        self._kept: Position | None = None

    async def load(self) -> Position:
        """The last position kept; the beginning of the log where there is none."""
        stored = await self._bus.last(self._stream, self._subject)
        if stored is None:
            return Position()
        try:
            self._kept = msgspec.json.decode(stored.body, type=Position)
        except (ValueError, RecursionError) as error:
            log.warning("%s cannot be read, starting from the beginning: %s", self._subject, error)
            return Position()
        return self._kept

    async def keep(self, position: Position) -> None:
        """Stores the position if it changed."""
        if position != self._kept:
            await self._bus.append(Outgoing(self._subject, msgspec.json.encode(position)))
            self._kept = position
