"""Functions that are muted: what the console does not list among failures."""

from __future__ import annotations

import hashlib

from penstock.bus.protocol import Bus, Expect, Outgoing
from penstock.events.envelope import Event, MalformedEvent, UnknownEvent, encode
from penstock.events.muting import MUTE_EVENTS, FunctionMuted, FunctionUnmuted, MuteEvent
from penstock.events.subjects import Subjects

MOST_MUTED = 200
LONGEST_NAME, LONGEST_REASON = 200, 1_000
_PAGE = 1_000
_ID_LENGTH = 32


class MuteRefused(ValueError):
    """A function is not muted: says what was found and what was expected."""


class MutedFunctions:
    """Mutes functions, and reads which are.

    Args:
        bus: a connected bus.
        subjects: of the installation.
        source: what events name as their origin.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    async def all(self) -> dict[str, FunctionMuted]:
        """Those that are muted, by name, the last muted at the end. Raises BusError."""
        return (await self._read())[0]

    async def mute(self, function: str, by: str, reason: str = "") -> int:
        """Mutes a function; of one that is muted, person and reason are replaced.

        Returns:
            The event's sequence.

        Raises:
            MuteRefused: no function can have this name, or too many are muted.
            WrongSequence: another person changed it at the same time.
            BusError
        """
        muted, last = await self._read()
        if function not in muted and len(muted) >= MOST_MUTED:
            raise MuteRefused(f"at most {MOST_MUTED} functions are muted; unmute one")
        event = FunctionMuted(
            mute_id=_mute_id(function),
            function=function,
            by=by,
            reason=reason[:LONGEST_REASON],
            source=self._source,
        )
        return await self._store(event, last.get(function, 0))

    async def unmute(self, function: str, by: str) -> int:
        """Ends that a function is muted; one that is not stays as it is.

        Returns:
            The event's sequence; 0 where there was nothing to do.

        Raises:
            MuteRefused: no function can have this name.
            WrongSequence: another person changed it at the same time.
            BusError
        """
        mute_id = _mute_id(function)
        muted, last = await self._read()
        if function not in muted:
            return 0
        event = FunctionUnmuted(mute_id=mute_id, function=function, by=by, source=self._source)
        return await self._store(event, last[function])

    async def _store(self, event: MuteEvent, version: int) -> int:
        expect = Expect(version, self._subjects.console(event.noun, event.key))
        return await self._bus.append(
            Outgoing(self._subjects.console_event(event), encode(event), {}, expect)
        )

    async def _read(self) -> tuple[dict[str, FunctionMuted], dict[str, int]]:
        """Those that are muted, and the sequence of the last event of each function."""
        muted: dict[str, FunctionMuted] = {}
        last: dict[str, int] = {}
        stream, pattern = self._subjects.console_stream, self._subjects.console(MuteEvent.noun)
        start = 1
        while page := await self._bus.history(stream, pattern, _PAGE, start):
            for message in page:
                try:
                    event = MUTE_EVENTS.decode(message.body)
                except MalformedEvent:
                    continue
                apply(muted, event)
                if isinstance(event, MuteEvent):
                    last[event.function] = message.sequence
            start = page[-1].sequence + 1
        return muted, last


def apply(muted: dict[str, FunctionMuted], event: Event | UnknownEvent) -> None:
    """Changes which functions are muted by an event of one of them."""
    if isinstance(event, MuteEvent):
        muted.pop(event.function, None)
    if isinstance(event, FunctionMuted) and len(muted) < MOST_MUTED:
        muted[event.function] = event


def _mute_id(function: str) -> str:
    """Raises MuteRefused: no function can have this name."""
    is_name = 0 < len(function) <= LONGEST_NAME and function.isprintable()
    if not is_name or "/" in function or " " in function:
        raise MuteRefused(
            f"found the function {function[:80]!r}, expected a registered name such as shop.load"
        )
    return hashlib.sha256(function.encode()).hexdigest()[:_ID_LENGTH]
