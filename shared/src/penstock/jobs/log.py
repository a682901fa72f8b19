"""Appending to, and waiting for, the events of one batch or graph."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from penstock import telemetry
from penstock.bus.protocol import Bus, BusUnavailable, Expect, Outgoing, WrongSequence
from penstock.events.envelope import Event, encode
from penstock.events.subjects import Subjects
from penstock.runtime.waiting import within

T = TypeVar("T")

_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.02, 2.0


async def say(bus: Bus, subjects: Subjects, event: Event, sequence: int) -> bool:
    """Stores the event if ``sequence`` is the last of its aggregate; False when it is not.

    Raises:
        BusError: it could not be stored, or nobody knows.
    """
    guard = Expect(sequence, subjects.events(event.noun, event.key))
    message = Outgoing(subjects.event(event), encode(event), telemetry.inject(), guard)
    try:
        await bus.append(message)
    except WrongSequence:
        return False
    return True


async def until(
    bus: Bus,
    subject: str,
    look: Callable[[], Awaitable[T]],
    enough: Callable[[T], bool],
    timeout_seconds: float | None,
) -> T:
    """Looks whenever something is stored under ``subject``, and seldom without: signals get lost.

    Raises:
        TimeoutError
    """
    woken = asyncio.Event()
    listening = await bus.listen(subject, lambda *_: woken.set())
    pause = _LOOK_SECONDS
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                woken.clear()
                with suppress(BusUnavailable):
                    found = await look()
                    if enough(found):
                        return found
                heard = await within(pause, woken.wait())
                pause = _FIRST_LOOK_SECONDS if heard else min(2 * pause, _LOOK_SECONDS)
    finally:
        await listening.unsubscribe()
