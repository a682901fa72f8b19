"""When the event log is shortened, and how far. Pure."""

from __future__ import annotations

import msgspec

BEGIN, TARGET = 0.9, 0.75
"""History is shortened when it takes this share of its limit, down to that one."""
_HARDLY = 0.05
"""A pass over the whole log that did not reach the target is repeated after so much growth."""


class Pace(msgspec.Struct):
    """When to begin and to stop.

    Attributes:
        limit: bytes that history may take. max_age_seconds: how old it may become.
        begin_at: bytes at which it is shortened next.
    """

    limit: int
    max_age_seconds: float
    begin_at: int = 0

    def __post_init__(self) -> None:
        self.begin_at = self.begin_at or int(self.limit * BEGIN)

    def is_due(self, held: int, age_seconds: float) -> bool:
        """Args: held: bytes in the log. age_seconds: of its first message."""
        return held > self.begin_at or age_seconds > self.max_age_seconds

    def is_enough(self, held: int, age_seconds: float) -> bool:
        return held <= self.limit * TARGET and age_seconds <= self.max_age_seconds

    def ended(self, held: int) -> None:
        """A pass has ended with so many bytes left: what lives may be more than the target."""
        usual = int(self.limit * BEGIN)
        self.begin_at = max(usual, held + int(self.limit * _HARDLY))
