"""The garbage collector's threshold: how often Python searches for reference cycles."""

from __future__ import annotations

import gc

_ALLOCATIONS = 100_000


def look_rarely() -> None:
    """Once in a hundred thousand values that stay.

    What is decided on and remembered are plain values, of which none refers back to what holds it:
    there is next to nothing to find, and looking took half the time of a round over 10,000 pools.
    """
    gc.set_threshold(_ALLOCATIONS)
