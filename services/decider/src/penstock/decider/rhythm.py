"""When which pools are decided: all of them once a period, single ones at once when asked."""

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
        self._asked: dict[str, float] = {}

    def ask(self, pool: str, now: float) -> None:
        """A pool wants to be decided at once."""
        last = max(self._decided.get(pool, self._all_at), self._all_at)
        self._asked.setdefault(pool, max(now, last + self._least))

    def ask_all(self, now: float) -> None:
        """Something happened that concerns all pools."""
        self._next_all = min(self._next_all, max(now, self._all_at + self._least))

    def follow(self, now: float) -> None:
        """A regular measurement came: the next round over all follows right behind it."""
        if now - self._all_at > self._period / 2:
            self._next_all = min(self._next_all, now + self._least / 2)

    def due(self, pools: Collection[str], now: float) -> frozenset[str]:
        """The pools to decide now; they count as decided."""
        if now >= self._next_all:
            self._all_at, self._next_all = now, now + self._period
            self._asked.clear()
            self._decided.clear()
            return frozenset(pools)
        due = frozenset(pool for pool, at in self._asked.items() if at <= now)
        for pool in due:
            del self._asked[pool]
            self._decided[pool] = now
        return due.intersection(pools)

    def wait_seconds(self, now: float) -> float:
        return max(min([self._next_all, *self._asked.values()]) - now, 0.0)
