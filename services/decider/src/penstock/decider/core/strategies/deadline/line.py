"""The line of jobs: at which place each stands, and by when it has to start.

Places are looked at in a few spots; between them nothing sudden happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

_SPOTS = 8


class Stand(msgspec.Struct, frozen=True):
    """A job's place in the line, the first being 1, and the seconds from now until it is late.

    Attributes:
        is_here: it waits already; else it is one that may come.
    """

    place: float
    seconds: float
    is_here: bool = True


def waiting(count: int, ages_seconds: Sequence[float], promise_seconds: float) -> Iterator[Stand]:
    """The jobs that wait, oldest first.

    Args:
        ages_seconds: ages at evenly spaced places in the line, the oldest first; two are enough.
    """
    spots = min(count, _SPOTS)
    for spot in range(spots):
        share = spot / (spots - 1) if spots > 1 else 0.0
        age = _between(ages_seconds, share)
        yield Stand(1 + share * (count - 1), promise_seconds - age)


def _between(values: Sequence[float], share: float) -> float:
    """The value at a share of the way through evenly spaced ones."""
    at = share * (len(values) - 1)
    left = min(int(at), len(values) - 1)
    right = min(left + 1, len(values) - 1)
    return values[left] + (values[right] - values[left]) * (at - left)
