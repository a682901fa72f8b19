"""A worker that is killed at a chosen event, as by SIGKILL: nothing that it does then is stored."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus.patterns import matches
from penstock.bus.protocol import BusError, BusUnavailable, Outgoing
from penstock.testing.memory.bus import MemoryBus


class Crash:
    """One kill.

    Args:
        at: number of the event, among those that workers store from now on.
        after: killed as soon as the event is stored; else just before that.

    Attributes:
        happened: whether workers have stored so many events.
        event: name of the event at which it happened; empty before.
    """

    def __init__(self, at: int, *, after: bool = False) -> None:
        if at < 1:
            raise ValueError(f"events are counted from 1 on, found {at}")
        self.after = after
        self.happened, self.event = False, ""
        self._left = at

    def strikes(self, message: Outgoing, pattern: str) -> bool:
        """Whether it happens at this message, which is about to be stored."""
        if self.happened or not matches(pattern, message.subject):
            return False
        self._left -= 1
        if self._left:
            return False
        self.happened, self.event = True, message.subject.rpartition(".")[2]
        return True


class MortalBus(MemoryBus):
    """The connection of one worker, which is cut when the worker is killed.

    Attributes:
        is_dead: whether that happened.
    """

    is_dead: bool
    _crash: Crash

    @staticmethod
    def of(bus: MemoryBus, crash: Crash) -> MortalBus:
        """A client of the same broker."""
        mortal = bus.share(MortalBus)
        mortal._crash, mortal.is_dead = crash, False
        return mortal

    async def append(self, message: Outgoing) -> int:
        if self._strikes(message) and not self._crash.after:
            raise self._killed()
        sequence = await super().append(message)
        if self.is_dead:
            raise self._killed()
        return sequence

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        answers: list[int | BusError] = []
        for message in messages:
            try:
                answers.append(await self.append(message))
            except BusUnavailable:
                raise
            except BusError as error:
                answers.append(error)
        return answers

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        strikes = any(map(self._strikes, messages))
        if strikes and not self._crash.after:
            raise self._killed()
        sequence = await super().append_atomic(messages)
        if strikes:
            raise self._killed()
        return sequence

    def _strikes(self, message: Outgoing) -> bool:
        strikes = self._crash.strikes(message, self.subjects.events("job"))
        self.is_dead = self.is_dead or strikes
        return strikes

    def _killed(self) -> BusUnavailable:
        self.cut()
        return BusUnavailable("this worker was killed by the test")
