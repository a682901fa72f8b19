"""What the broker lets this console's key do: settings say what a console should do, keys decide.

A console with a key of the role ``console-reader`` is read-only, whatever its settings say: it
offers no act, and tries none by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, WrongSequence
from penstock.config import Settings
from penstock.events.subjects import Subjects

T = TypeVar("T")
log = logging.getLogger("penstock.console")

BY_SETTING = "console.read_only is set"
BY_KEY = "its key of the broker is one of console-reader"
NOT_READABLE = "not readable with this key: a key of console-reader has no access to it"
_NEVER = 2**53
"""A sequence that no message has: what expects it is refused in any case."""


class Rights(NamedTuple):
    """What a console may do.

    Attributes:
        read_only_because: why it changes nothing, as the end of a sentence; empty where it may.
        has_reader_key: the broker takes nothing from it that a person might do.
    """

    read_only_because: str = ""
    has_reader_key: bool = False


async def rights(bus: Bus, settings: Settings) -> Rights:
    """Asks the broker, once, by a message that is never stored.

    Args:
        bus: a connection of this console.
        settings: of this process.
    """
    because = BY_SETTING if settings.console.read_only else ""
    subject = Subjects(settings.prefix).state("console", "rights")
    try:
        await bus.append(Outgoing(subject, b"", expect=Expect(_NEVER, subject)))
    except NotPermitted:
        if not because:
            log.warning("this console changes nothing: %s", BY_KEY)
        return Rights(because or BY_KEY, has_reader_key=True)
    except WrongSequence:
        return Rights(because)
    except BusError as error:
        log.warning("what this console's key may do is not known: %s", error)
    return Rights(because)


class Readable:
    """Reads streams; one that the broker refuses to this key is asked for once."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    async def read(self, stream: str, request: Callable[[], Awaitable[T]]) -> T:
        """What ``request`` reads of the stream.

        Raises:
            NotPermitted: this key may not read it.
        """
        if stream not in self._refused:
            try:
                return await request()
            except NotPermitted:
                self._refused.add(stream)
        raise NotPermitted(NOT_READABLE)
