"""How many requests a caller may send in a minute."""

from __future__ import annotations

import math
import time

from litestar.exceptions import TooManyRequestsException

ACTS_PER_MINUTE = 600
"""Of one caller, all acting requests together."""
READS_PER_MINUTE = 600
"""Of one caller, of what is only read and stands in the audit log."""
SMALL_ACTS_PER_MINUTE = 60
"""Of one caller, acts that the scope ``read`` is enough for: each adds to the audit log, too."""
_MOST_CALLERS = 10_000


class RateLimits:
    """Counts requests of each caller within the present minute.

    Args:
        per_minute: that are allowed.
        what: they are, with what else there is to do, for the refusal.
    """

    def __init__(
        self,
        per_minute: int = ACTS_PER_MINUTE,
        what: str = "requests that act are allowed a minute; bulk actions act on many jobs by one",
    ) -> None:
        self.per_minute, self._what = per_minute, what
        self._minute, self._counts = 0, dict[str, int]()

    def take(self, caller: str) -> dict[str, str]:
        """Counts one request; returns the headers of its answer.

        Raises:
            TooManyRequestsException: the caller has used up this minute.
        """
        minute, second = divmod(time.time(), 60)
        if int(minute) != self._minute or len(self._counts) >= _MOST_CALLERS:
            self._minute, self._counts = int(minute), {}
        count = self._counts[caller] = self._counts.get(caller, 0) + 1
        left, reset = max(0, self.per_minute - count), math.ceil(60 - second)
        headers = {
            "RateLimit-Limit": str(self.per_minute),
            "RateLimit-Remaining": str(left),
            "RateLimit-Reset": str(reset),
        }
        if count > self.per_minute:
            raise TooManyRequestsException(
                f"{self.per_minute} {self._what}",
                headers={**headers, "Retry-After": str(reset)},
            )
        return headers


class CallerLimits:
    """What one caller may send: acts, and what else stands in the audit log."""

    def __init__(self) -> None:
        self._acts = RateLimits()
        self._reads = RateLimits(READS_PER_MINUTE, "recorded views are allowed a minute")
        self._small = RateLimits(
            SMALL_ACTS_PER_MINUTE, "acts of the scope read are allowed a minute"
        )

    def take(self, caller: str, person: str, *, is_acting: bool, is_small: bool) -> dict[str, str]:
        """Counts one request before anything of it is recorded; returns headers of its answer.

        Args:
            caller: the token or account.
            person: behind it, whose tokens count together where they need no rights of their own.
            is_acting: else it is a recorded view.
            is_small: the scope ``read`` is enough for it.

        Raises:
            TooManyRequestsException: the caller has used up this minute.
        """
        if not is_acting:
            return self._reads.take(person)
        headers = self._acts.take(caller)
        return self._small.take(person) if is_small else headers
