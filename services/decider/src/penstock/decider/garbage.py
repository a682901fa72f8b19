"""The garbage collector's threshold: how often Python searches for reference cycles."""

from __future__ import annotations

import gc

_ALLOCATIONS = 10_000
_LOOKS_AT_THE_YOUNG = 5_000


def look_rarely() -> None:
    """Looks at what is new once in ten thousand values that stay, at the others next to never.

    What is decided on and remembered are plain values, of which none refers back to what holds it:
    there is next to nothing to find. With Python's own thresholds, looking took half the time of a
    round over 10,000 pools. Looking at a hundred thousand values takes a tenth of a second, for
    which an urgent pool waits: so few are looked at at a time, and each value once.
    """
    gc.set_threshold(_ALLOCATIONS, _LOOKS_AT_THE_YOUNG)
