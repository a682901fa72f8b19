"""When a failed job goes again."""

from __future__ import annotations

import random
from typing import Annotated

import msgspec
from msgspec import Meta


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exponential delay with jitter.

    Attributes:
        first_seconds: delay before the second attempt; doubled for each further one by ``factor``.
        max_seconds: no delay exceeds this.
        jitter: share of the delay that is drawn at random, so that failures that came together do
            not come back together ("equal jitter").
    """

    first_seconds: Annotated[float, Meta(ge=0)] = 1.0
    factor: Annotated[float, Meta(ge=1)] = 2.0
    max_seconds: Annotated[float, Meta(gt=0)] = 600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.5

    def delay_seconds(self, attempt: int, draw: float | None = None) -> float:
        """Delay after attempt ``attempt`` (1 for the first) failed.

        Args:
            draw: uniform in [0, 1); None draws one.
        """
        full = min(self.first_seconds * self.factor ** min(attempt - 1, 64), self.max_seconds)
        uniform = random.random() if draw is None else draw  # noqa: S311 - no secret
        return full * (1 - self.jitter * uniform)
