"""The schedule of decisions: all pools once a period, single ones at once on request."""

from __future__ import annotations

from collections.abc import Collection

SLICE_POOLS = 250
"""The most pools that are decided at a time where there are more."""
SLICE_SECONDS = 0.008
"""Deciding a slice takes so long, for which a requested pool waits: what all slices cost beside
their pools grows as this shrinks."""
_LEAST_SLICE_POOLS = 20
_SMOOTHING = 0.2
WHOLE_SECONDS = 120.0
"""Between two rounds over all pools at a time, which count the hosts that are needed."""


class Rhythm:
    """Times are seconds of any one clock.

    Many pools are decided a slice at a time, and requested pools between two slices. Only a round
    over all of them at a time takes from one pool to give to another: it is made where it is
    requested, and now and then.

    Args:
        period_seconds: between two rounds over all pools.
        least_seconds: between two decisions of one pool that were requested, and after a round over
            all pools at a time.
        slice_pools: decided at a time, at the most.
        whole_seconds: between two rounds that are not sliced.
    """

    def __init__(
        self,
        period_seconds: float = 1.0,
        least_seconds: float = 0.1,
        slice_pools: int = SLICE_POOLS,
        whole_seconds: float = WHOLE_SECONDS,
    ) -> None:
        self._period, self._least = period_seconds, least_seconds
        self._most, self._whole_every = slice_pools, whole_seconds
        self._slice, self._taken, self._pool_seconds = slice_pools, 0, 0.0
        self._all_at = self._whole_at = float("-inf")
        self._next_all = float("-inf")
        self._decided: dict[str, float] = {}
        self._requested: dict[str, float] = {}
        self._left: list[str] = []
        self._whole_requested = self._served = False

    def request(self, pool: str, now: float) -> None:
        """Requests a decision of one pool at once."""
        # what a slice has just decided is decided again at once: its turn came by chance
        last = max(self._decided.get(pool, self._whole_at), self._whole_at)
        self._requested.setdefault(pool, max(now, last + self._least))

    def request_all(self, now: float) -> None:
        """Requests a decision of all pools at once."""
        self._next_all = min(self._next_all, max(now, self._all_at + self._least))

    def request_whole(self) -> None:
        """Requests that the next round over all pools is not sliced: there is a shortage."""
        self._whole_requested = True

    def follow(self, now: float) -> None:
        """Notes a regular measurement: the next round over all pools follows right behind it."""
        # a round that has just been made has used most of this measurement already
        if now - self._all_at > self._period / 2:
            self._next_all = min(self._next_all, now + self._least / 2)

    def took(self, seconds: float) -> None:
        """Notes how long it took to decide the pools that were due last.

        Slices take no longer than they should by that.
        """
        if not self._taken:  # they were no slice
            return
        last = self._pool_seconds or seconds / self._taken
        self._pool_seconds = last + _SMOOTHING * (seconds / self._taken - last)
        pools = round(SLICE_SECONDS / max(self._pool_seconds, 1e-9))
        self._slice = min(max(pools, _LEAST_SLICE_POOLS), self._most)

    def due(self, pools: Collection[str], now: float) -> frozenset[str]:
        """The pools to decide now; they count as decided."""
        self._taken = 0
        if now >= self._next_all and not self._left:
            self._all_at, self._next_all = now, now + self._period
            if self._is_whole(pools, now):
                self._whole_at, self._whole_requested = now, False
                self._requested.clear()
                self._decided.clear()
                return frozenset(pools)
            self._left = list(pools)[::-1]
        # in turns with the slices: requests without end must not keep all other pools waiting
        turn_of_slice = bool(self._left) and self._served
        due = frozenset[str]() if turn_of_slice else self._take_requested(now)
        self._served = bool(due)
        return frozenset(pool for pool in due or self._take_slice() if pool in pools)

    def wait_seconds(self, now: float) -> float:
        if self._left:
            return 0.0
        return max(min([self._next_all, *self._requested.values()]) - now, 0.0)

    def _is_whole(self, pools: Collection[str], now: float) -> bool:
        small = len(pools) <= self._most
        return small or self._whole_requested or now - self._whole_at >= self._whole_every

    def _take_requested(self, now: float) -> frozenset[str]:
        """The first that were requested, no more than a slice."""
        due = [pool for pool, at in self._requested.items() if at <= now][: self._slice]
        for pool in due:
            del self._requested[pool]
            self._decided[pool] = now
        return frozenset(due)

    def _take_slice(self) -> frozenset[str]:
        due = self._left[-self._slice :]
        del self._left[-self._slice :]
        self._taken = len(due)
        for pool in due:
            self._requested.pop(pool, None)
        return frozenset(due)
