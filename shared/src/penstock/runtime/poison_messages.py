"""Poison messages: one that a service cannot handle is logged, counted and skipped.

Each key may store anything on the subjects of its role, and a stream keeps it for days:
an error that it causes in a loop would end the service now and after each start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from penstock.bus.protocol import BusError
from penstock.runtime.limited_log import LimitedLog

_log = LimitedLog(logging.getLogger("penstock"))
_count = 0


@contextmanager
def skipping_poison(message: str) -> Iterator[None]:
    """Around what is done for one message: an unexpected error ends that, and not the loop.

    What decoders refuse is handled where it is read; this is for what they let through. An error of
    the broker is raised: it is no fault of the message, which must not be lost by it.

    Args:
        message: what to call it in the log.
    """
    try:
        yield
    except BusError:
        raise
    except Exception as error:
        note(message, error)


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
