"""The schedule of decisions: all pools once a period, single ones at once on request."""

from __future__ import annotations

from collections.abc import Collection


class Rhythm:
    """Times are seconds of any one clock.

    Args:
        period_seconds: between two rounds over all pools.
        least_seconds: between two decisions of one pool.
    """

    def __init__(self, period_seconds: float = 1.0, least_seconds: float = 0.1) -> None:
        self._period, self._least = period_seconds, least_seconds
        self._all_at = float("-inf")
        self._next_all = float("-inf")
        self._decided: dict[str, float] = {}
        self._requested: dict[str, float] = {}

    def request(self, pool: str, now: float) -> None:
        """Requests a decision of one pool at once."""
        last = max(self._decided.get(pool, self._all_at), self._all_at)
        self._requested.setdefault(pool, max(now, last + self._least))

    def request_all(self, now: float) -> None:
        """Requests a decision of all pools at once."""
        self._next_all = min(self._next_all, max(now, self._all_at + self._least))

    def follow(self, now: float) -> None:
        """Notes a regular measurement: the next round over all pools follows right behind it."""
        # a round that has just been made has used most of this measurement already
        if now - self._all_at > self._period / 2:
            self._next_all = min(self._next_all, now + self._least / 2)

    def due(self, pools: Collection[str], now: float) -> frozenset[str]:
        """The pools to decide now; they count as decided."""
        if now >= self._next_all:
            self._all_at, self._next_all = now, now + self._period
            self._requested.clear()
            self._decided.clear()
            return frozenset(pools)
        due = frozenset(pool for pool, at in self._requested.items() if at <= now)
        for pool in due:
            del self._requested[pool]
            self._decided[pool] = now
        return due.intersection(pools)

    def wait_seconds(self, now: float) -> float:
        return max(min([self._next_all, *self._requested.values()]) - now, 0.0)
