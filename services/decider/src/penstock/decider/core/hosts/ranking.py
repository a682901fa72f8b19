"""The hosts in the order in which they are filled, so that a worker's place is candidates at once.

Looking at every host for every worker takes the square of an installation's size: 12 s for the
first round over 10,000 pools on 200 hosts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from penstock.decider.core.hosts.capacity import HostCapacity, Need

Placed = tuple[float, str]
"""The rank of a host (by the share of its memory that is in use), and its name."""


class Ranking:
    """Hosts while workers are being placed on them; changes their capacities.

    Args:
        capacities: by host.
        style: ``spread`` fills the emptiest first, ``pack`` the fullest.
    """

    def __init__(self, capacities: Mapping[str, HostCapacity], style: str) -> None:
        self.capacities, self.spread = capacities, style == "spread"
        self._order: list[Placed] = []
        self._ordered = False

    def add(self, host: str, need: Need, count: int = 1) -> None:
        """Adds workers to a host; a host without a capacity (it is lost) is left out."""
        capacity = self.capacities.get(host)
        if capacity is None:
            return
        if not (self._ordered and capacity.accepts):
            capacity.add(need, count)
            return
        del self._order[bisect_left(self._order, self._placed(capacity))]
        capacity.add(need, count)
        insort(self._order, self._placed(capacity))

    def choose(
        self,
        need: Need,
        share: Mapping[str, int],
        *,
        whatever_cores: bool,
        avoided: frozenset[str] = frozenset(),
    ) -> str | None:
        """The host for one more worker of a pool that has ``share``; None if it fits nowhere.

        One of ``avoided`` only where it fits on no other.

        Spread: where the pool has fewest; pack: where it has most. Then by the order of filling,
        then by name.
        """
        first, second = (
            (self._untouched, self._own) if self.spread else (self._own, self._untouched)
        )
        for left_out in (avoided, frozenset[str]()) if avoided else (avoided,):
            for find in (first, second):
                if host := find(need, share, whatever_cores, left_out):
                    return host
        return None

    def _untouched(
        self,
        need: Need,
        share: Mapping[str, int],
        whatever_cores: bool,
        avoided: frozenset[str],
    ) -> str | None:
        """The first in order where the pool has no worker yet."""
        if not self._ordered:
            self._order = sorted(
                self._placed(capacity) for capacity in self.capacities.values() if capacity.accepts
            )
            self._ordered = True
        for _, host in self._order:
            if share.get(host) or host in avoided:
                continue
            if self.capacities[host].fits(need, whatever_cores=whatever_cores):
                return host
        return None

    def _own(
        self,
        need: Need,
        share: Mapping[str, int],
        whatever_cores: bool,
        avoided: frozenset[str],
    ) -> str | None:
        sign, candidates = 1 if self.spread else -1, []
        for host, count in share.items():
            capacity = self.capacities.get(host)
            if (
                count
                and host not in avoided
                and capacity
                and capacity.accepts
                and capacity.fits(need, whatever_cores=whatever_cores)
            ):
                candidates.append((sign * count, *self._placed(capacity)))
        return min(candidates)[2] if candidates else None

    def _placed(self, capacity: HostCapacity) -> Placed:
        return (capacity.full_share if self.spread else -capacity.full_share, capacity.host)
