"""When a failed job is retried."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

_MOST_DELAYS = 1000
_YEAR_SECONDS = 366 * 86_400.0
_MAX_FACTOR = 1000.0


class Backoff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exponential delay with jitter, or a list of delays.

    Attributes:
        first_seconds: delay before the second attempt; doubled for each further one by ``factor``.
        max_seconds: no delay exceeds this.
        jitter: share of the delay that is drawn at random, so that failures that came together do
            not come back together ("equal jitter").
        delays_seconds: instead of the exponential ones; the last one stands for all further ones.

    Raises:
        ValueError: a delay of more than a year, a factor beyond 1 to 1,000, a jitter beyond 0 to 1.
    """

    first_seconds: float = 1.0
    factor: float = 2.0
    max_seconds: float = 600.0
    jitter: float = 0.5
    delays_seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (
            0 <= self.first_seconds <= _YEAR_SECONDS
            and 1 <= self.factor <= _MAX_FACTOR
            and 0 < self.max_seconds <= _YEAR_SECONDS
            and 0 <= self.jitter <= 1
            and len(self.delays_seconds) <= _MOST_DELAYS
            and all(0 <= delay <= _YEAR_SECONDS for delay in self.delays_seconds)
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
        full = self._full_seconds(attempt)
        uniform = random.random() if draw is None else draw  # noqa: S311 - no secret
        return full * (1 - self.jitter * uniform)

    def _full_seconds(self, attempt: int) -> float:
        if self.delays_seconds:
            return self.delays_seconds[min(attempt, len(self.delays_seconds)) - 1]
        return min(self.first_seconds * self.factor ** min(attempt - 1, 64), self.max_seconds)


DEFAULT_BACKOFF = Backoff()
Delay = Callable[[int, BaseException], float | None]
"""Seconds to wait after attempt ``attempt`` failed with an error; None: it is not tried again."""


class Retries(msgspec.Struct, frozen=True):
    """When a job is retried, as its author declared.

    Attributes:
        backoff: travels with each call.
        delay: called where the job runs; takes precedence over ``backoff``.
        fatal: errors after which no attempt follows.
        harmless: errors that count as success.
    """

    backoff: Backoff = DEFAULT_BACKOFF
    delay: Delay | None = None
    fatal: tuple[type[BaseException], ...] = ()
    harmless: tuple[type[BaseException], ...] = ()


class Outlook(msgspec.Struct, frozen=True):
    """What an error leads to. ``delay_seconds``: None leaves it to the call's own backoff."""

    harmless: bool = False
    fatal: bool = False
    delay_seconds: float | None = None


def retries(
    backoff: Backoff | Sequence[float] | Delay,
    fatal: Sequence[type[BaseException]] = (),
    harmless: Sequence[type[BaseException]] = (),
) -> Retries:
    """What an author wrote, put in order. Raises ValueError, TypeError."""
    for kind in (*fatal, *harmless):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"fatal and harmless are types of errors, found {kind!r}")
    if isinstance(backoff, Backoff):
        return Retries(backoff, None, tuple(fatal), tuple(harmless))
    if callable(backoff):
        return Retries(DEFAULT_BACKOFF, backoff, tuple(fatal), tuple(harmless))
    listed = Backoff(delays_seconds=tuple(map(float, backoff)), jitter=0.0)
    return Retries(listed, None, tuple(fatal), tuple(harmless))


def outlook(retries: Retries, attempt: int, error: BaseException) -> Outlook:
    """What ``error`` leads to after attempt ``attempt`` (1 for the first).

    Raises:
        Exception: whatever the author's own function raises.
    """
    if isinstance(error, retries.harmless):
        return Outlook(harmless=True)
    if isinstance(error, retries.fatal):
        return Outlook(fatal=True)
    if retries.delay is None:
        return Outlook()
    seconds = retries.delay(attempt, error)
    if seconds is None:
        return Outlook(fatal=True)
    return Outlook(delay_seconds=min(max(float(seconds), 0.0), _YEAR_SECONDS))
