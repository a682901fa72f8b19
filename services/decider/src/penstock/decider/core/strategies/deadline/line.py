"""The line of jobs: at which place each stands, and by when it has to start.

Places are looked at in a few spots; between them nothing sudden happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

_SPOTS = 8


class Stand(msgspec.Struct, frozen=True, gc=False):
    """A job's place in the line, the first being 1, and the seconds from now until it is late.

    Attributes:
        is_here: it waits already; else it is one that may come.
    """

    place: float
    seconds: float
    is_here: bool = True


_Spot = tuple[float, int, int, float]
"""A share of the way through the line, the known ages before and after, and how far between."""


def waiting(count: int, ages_seconds: Sequence[float], promise_seconds: float) -> tuple[Stand, ...]:
    """The jobs that wait, oldest first.

    Args:
        ages_seconds: ages at evenly spaced places in the line, the oldest first; two are enough.
    """
    behind, found = count - 1, []
    for share, left, right, beyond_left in _spots(min(count, _SPOTS), len(ages_seconds)):
        older = ages_seconds[left]
        age = older + (ages_seconds[right] - older) * beyond_left
        found.append(Stand(1 + share * behind, promise_seconds - age))
    return tuple(found)


@lru_cache(maxsize=256)
def _spots(spots: int, ages: int) -> tuple[_Spot, ...]:
    """Where to look in a line of which so many ages are known."""
    return tuple(_spot(spot / (spots - 1) if spots > 1 else 0.0, ages) for spot in range(spots))


def _spot(share: float, ages: int) -> _Spot:
    at = share * (ages - 1)
    left = min(int(at), ages - 1)
    return share, left, min(left + 1, ages - 1), at - left
