"""When a failed job goes again."""

from __future__ import annotations

import random

import msgspec

_YEAR_SECONDS = 366 * 86_400.0
_MAX_FACTOR = 1000.0


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exponential delay with jitter.

    Attributes:
        first_seconds: delay before the second attempt; doubled for each further one by ``factor``.
        max_seconds: no delay exceeds this.
        jitter: share of the delay that is drawn at random, so that failures that came together do
            not come back together ("equal jitter").

    Raises:
        ValueError: a delay of more than a year, a factor beyond 1 to 1,000, a jitter beyond 0 to 1.
    """

    first_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (
            0 <= self.first_seconds <= _YEAR_SECONDS
            and 1 <= self.factor <= _MAX_FACTOR
            and 0 < self.max_seconds <= _YEAR_SECONDS
            and 0 <= self.jitter <= 1
        ):
            raise ValueError(
                f"{self} is out of bounds: delays are 0 to {_YEAR_SECONDS:g} s, the factor 1 to "
                f"{_MAX_FACTOR:g}, the jitter 0 to 1"
            )

    def delay_seconds(self, attempt: int, draw: float | None = None) -> float:
        """Delay after attempt ``attempt`` (1 for the first) failed.

        Args:
            draw: uniform in [0, 1); None draws one.
        """
        full = min(self.first_seconds * self.factor ** min(attempt - 1, 64), self.max_seconds)
        uniform = random.random() if draw is None else draw  # noqa: S311 - no secret
        return full * (1 - self.jitter * uniform)
