"""When the event log is shortened, and how far. Pure."""

from __future__ import annotations

import msgspec

BEGIN, TARGET = 0.9, 0.75
"""History is shortened when it takes this share of its limit, down to that one."""
_FAR = 0.5
_HARDLY = 0.05
"""Where what lives is more than the target, a pass begins when the log holds so much besides."""
KEPT_AGE = 0.98
"""What has reached the greatest age leaves the log with all that is older than this share of it: a
pass for each moment's events would cost more than it frees."""
_LEAST_PAUSE_SECONDS, _PAUSE_TIMES = 10.0, 10.0
"""Between passes over a log that accepts no jobs: so long at least, so many times the last pass."""


class Pace(msgspec.Struct):
    """When to begin and to stop.

    Attributes:
        limit: bytes that history may take.
        max_age_seconds: how old it may become.
        accepted: bytes in the log beyond which no job is accepted; 0 for none.
        begin_at: bytes at which it is shortened next.
        again_at: seconds of a monotonic clock from which a log that accepts no jobs is tried again.
    """

    limit: int
    max_age_seconds: float
    accepted: int = 0
    begin_at: int = 0
    again_at: float = 0.0

    def __post_init__(self) -> None:
        self.begin_at = self.begin_at or int(self.limit * BEGIN)

    def is_due(self, held: int, age_seconds: float, now: float) -> bool:
        """Whether a pass is to begin.

        Args:
            held: bytes in the log. age_seconds: of its first message. now: of a monotonic clock.
        """
        return age_seconds > self.max_age_seconds or self.needs_space(held, now)

    def needs_space(self, held: int, now: float) -> bool:
        """Whether a pass is to begin that frees space, however young what leaves is."""
        is_refusing = bool(self.accepted) and held > self.accepted
        return held > self.begin_at or (is_refusing and now >= self.again_at)

    def is_far(self, held: int, age_seconds: float) -> bool:
        """Whether the log will not be due within seconds, in bytes as well as in age."""
        return held < self.limit * _FAR and age_seconds < self.max_age_seconds * _FAR

    def has_space(self, held: int) -> bool:
        """Whether a pass that frees space has freed enough."""
        return held <= self.limit * TARGET

    @property
    def kept_seconds(self) -> float:
        """What is younger stays, unless space is needed."""
        return self.max_age_seconds * KEPT_AGE

    def passed(self, living: int, began: float, now: float) -> None:
        """A pass over the whole log has ended, or one that reached the target.

        What was stored during the pass does not count: the log may hold more than jobs are
        accepted for by then, and would not grow to the next beginning any more.

        Args:
            living: bytes that it carried, which may be more than the target. began, now: of a
                monotonic clock.
        """
        self.begin_at = max(int(self.limit * BEGIN), living + int(self.limit * _HARDLY))
        self.again_at = now + max(_LEAST_PAUSE_SECONDS, _PAUSE_TIMES * (now - began))
