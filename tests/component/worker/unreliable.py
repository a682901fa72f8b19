"""The bus in memory with a line that fails: answers get lost, reads lag, claims lapse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from penstock.bus.protocol import (
    BusError,
    BusUnavailable,
    Delivery,
    Outgoing,
    Stored,
    TooManyBatches,
)
from penstock.config import Settings
from penstock.testing.memory.bus import MemoryBus


class Unreliable(MemoryBus):
    """One client's side of the line; :meth:`client` gives others a good one.

    Attributes:
        lost_answers: names of events; the next append of each is stored, and its answer lost.
        refused: names of events, and what the broker says to each append of it, until removed.
        held_up: names of events whose appends wait until the event is set.
        full_of_batches: no atomic batch is taken.
        lags: bulk reads come from a replica that knows nothing. extends: whether claims are kept.
    """

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        super().__init__(settings=settings, now=now)
        self.lost_answers: list[str] = []
        self.refused: dict[str, BusError] = {}
        self.held_up: dict[str, asyncio.Event] = {}
        self.lags, self.extends, self.full_of_batches = False, True, False

    async def append(self, message: Outgoing) -> int:
        [answer] = await self.append_many([message])
        if isinstance(answer, BusError):
            raise answer
        return answer

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        return [await self._append_one(message) for message in messages]

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        if self.full_of_batches:
            raise TooManyBatches("atomic publish too many inflight")
        sequence = await super().append_atomic(messages)
        for message in messages:
            if self._loses(message):
                raise BusUnavailable("no answer in time")
        return sequence

    async def _append_one(self, message: Outgoing) -> int | BusError:
        name = message.subject.rpartition(".")[2]
        if gate := self.held_up.get(name):
            await gate.wait()
        if refusal := self.refused.get(name):
            return refusal
        [answer] = await super().append_many([message])
        return BusUnavailable("no answer in time") if self._loses(message) else answer

    def _loses(self, message: Outgoing) -> bool:
        name = message.subject.rpartition(".")[2]
        if name not in self.lost_answers:
            return False
        self.lost_answers.remove(name)
        return True

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        return [] if self.lags else await super().history(stream, subject, limit, start)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        if self.extends:
            await super().extend(deliveries)
