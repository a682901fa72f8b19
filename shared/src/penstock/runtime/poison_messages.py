"""Poison messages: one that a service cannot handle is logged, counted and skipped.

Each key may store anything on the subjects of its role, and a stream keeps it for days:
an error that it causes in a loop would end the service now and after each start.
"""

from __future__ import annotations

import logging
from pathlib import Path
from traceback import extract_tb

from penstock.bus.protocol import BusError
from penstock.runtime.limited_log import LimitedLog

_log = LimitedLog(logging.getLogger("penstock"))
_count = 0


class skipping_poison:
    """Around what is done for one message: an unexpected error ends that, and not the loop.

    What decoders refuse is handled where it is read; this is for what they let through. An error of
    the broker is raised: it is no fault of the message, which must not be lost by it.

    A class, since all events of the log pass through it, and a generator's context costs four times
    as much.

    Args:
        message: what to call it in the log.
    """

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, BusError):
            return False
        note(self._message, error)
        return True


def note(message: str, error: Exception) -> None:
    """Logs and counts a message that is skipped; one line a minute for each place in the code.

    Args:
        message: what to call it in the log.
    """
    global _count  # noqa: PLW0603 - one counter a process
    _count += 1
    frame = extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    _log.write(logging.ERROR, where, "%s is skipped: %r in %s", message, error, where)


def poison_count() -> int:
    """How many messages this process skipped because of an unexpected error."""
    return _count
