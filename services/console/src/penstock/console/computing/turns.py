"""One place that people take in turns, however many wait in one person's name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """One place. The person who had it last gets it again only when no other person waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._last, self._is_taken = "", False

    @asynccontextmanager
    async def turn(self, person: str) -> AsyncIterator[None]:
        """Waits for the place, and holds it inside the block."""
        if self._is_taken:
            await self._wait(person)
        self._is_taken, self._last = True, person
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, person: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(person, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had just come
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            people = iter(self._waiting)
            first = next(people)
            person = next(people, first) if first == self._last else first
            turns = self._waiting.pop(person)
            turn = turns.popleft()
            if turns:
                self._waiting[person] = turns  # behind the other people
            if not turn.done():  # else it was cancelled while it waited
                turn.set_result(None)
                return
        self._is_taken = False
