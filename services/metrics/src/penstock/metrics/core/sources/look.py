"""What a look at a queue of another system, or at a streaming query, found.

What the system does not report is None.
"""

from __future__ import annotations

from math import isfinite

import msgspec

from penstock.events.stream_report import StreamReport

MOST_MESSAGES = 10**12
"""A larger number is no number of messages, but a mistake of the system."""
_MOST_SECONDS = 100 * 366 * 86_400.0
_MOST_EPOCH = 300


class SourceLook(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at an instant. Absent is absent, never zero.

    Attributes:
        waiting: messages that could start now.
        claimed: messages that were delivered and not acknowledged.
        delayed: messages that become due later.
        oldest_seconds: age of the oldest waiting message; 0 where none waits.
        arrived: messages that ever came; only grows while ``epoch`` stays.
        ended: messages that were ever handled; only grows while ``epoch`` stays.
        epoch: another text: the counters began anew.
        behind_seconds: age of these figures.
        exact: counted, not estimated by the system itself.
        misses_ends: ``ended`` may be too few: more by the run time, as the settings have it, count.
        late_counters: ``waiting`` is exact and of now; the others are late, and ``arrived`` was
            brought up to now, so that a later look may correct it downwards.
        stuck: of those that wait, the ones that no worker gets on with.
        cap: more workers than this, each with one message at a time, find nothing to do.
    """

    waiting: int
    claimed: int | None = None
    delayed: int | None = None
    oldest_seconds: float | None = None
    arrived: int | None = None
    ended: int | None = None
    epoch: str = ""
    behind_seconds: float = 0.0
    exact: bool = True
    misses_ends: bool = False
    late_counters: bool = False
    stuck: int = 0
    cap: int | None = None


class StreamLook(msgspec.Struct, frozen=True, kw_only=True):
    """The newest report of a streaming query; its numbers are bounded by its type.

    Attributes:
        report: as its session's listener sent it.
        behind_seconds: since it came.
    """

    report: StreamReport
    behind_seconds: float = 0.0


AnyLook = SourceLook | StreamLook
"""What a source has found of a queue."""


class SourceFault(msgspec.Struct, frozen=True):
    """Why a queue could not be looked at: what was found, without secrets."""

    text: str


def checked(look: AnyLook | SourceFault) -> AnyLook | SourceFault:
    """The look itself, or a fault where its figures cannot be those of a queue."""
    if isinstance(look, SourceFault | StreamLook):
        return look
    for name in ("waiting", "stuck", "claimed", "delayed", "arrived", "ended", "cap"):
        count = getattr(look, name)
        if count is None and name not in ("waiting", "stuck"):
            continue
        if type(count) is not int or not 0 <= count <= MOST_MESSAGES:
            return SourceFault(f"found {name} = {_shown(count)}, expected a number of messages")
    for name in ("oldest_seconds", "behind_seconds"):
        seconds = getattr(look, name)
        if seconds is None and name == "oldest_seconds":
            continue
        if type(seconds) not in (int, float) or not _is_duration(seconds):
            return SourceFault(f"found {name} = {_shown(seconds)}, expected seconds, 0 or more")
    if len(look.epoch) > _MOST_EPOCH:
        return SourceFault(f"found epoch of {len(look.epoch)} characters, at most {_MOST_EPOCH}")
    return look


def age_of(seconds: float) -> float | None:
    """Age of a message by the time that its sender wrote into it; None where it can be none.

    A sender's mistake is no fault of the queue: else one message could hide all others.
    """
    return max(seconds, 0.0) if seconds <= _MOST_SECONDS else None


def _is_duration(seconds: float) -> bool:
    return 0 <= seconds <= _MOST_SECONDS and isfinite(seconds)


def _shown(value: object) -> str:
    return repr(value)[:40] if isinstance(value, int | float) else type(value).__name__
