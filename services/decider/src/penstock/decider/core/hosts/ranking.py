"""The hosts in the order in which they are filled, so that a worker's place is found at once.

Looking at every host for every worker takes the square of an installation's size: 12 s for the
first round over 10,000 pools on 200 hosts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

from penstock.decider.core.hosts.capacity import Need, Room

Placed = tuple[float, str]
"""How soon a room is filled (by the share of its memory that is taken), and its host."""


class Ranking:
    """Rooms while workers are being placed in them; changes the rooms.

    Args:
        style: ``spread`` fills the emptiest first, ``pack`` the fullest.
    """

    def __init__(self, rooms: Mapping[str, Room], style: str) -> None:
        self.rooms, self.spread = rooms, style == "spread"
        self._order: list[Placed] = []
        self._ordered = False

    def add(self, host: str, each: Need, count: int = 1) -> None:
        """Workers more in a room; a host beyond all rooms is nobody's concern."""
        room = self.rooms.get(host)
        if room is None:
            return
        if not (self._ordered and room.accepts):
            room.add(each, count)
            return
        del self._order[bisect_left(self._order, self._placed(room))]
        room.add(each, count)
        insort(self._order, self._placed(room))

    def choose(self, each: Need, share: Mapping[str, int], *, whatever_cores: bool) -> str | None:
        """The host for one more worker of a pool that has ``share``; None if it fits nowhere.

        Spread: where the pool has fewest; pack: where it has most. Then by the order of filling,
        then by name.
        """
        if self.spread:
            return self._untouched(each, share, whatever_cores) or self._own(
                each, share, whatever_cores
            )
        return self._own(each, share, whatever_cores) or self._untouched(
            each, share, whatever_cores
        )

    def _untouched(self, each: Need, share: Mapping[str, int], whatever_cores: bool) -> str | None:
        """The first in order where the pool has nobody yet."""
        if not self._ordered:
            self._order = sorted(self._placed(room) for room in self.rooms.values() if room.accepts)
            self._ordered = True
        for _, host in self._order:
            if not share.get(host) and self.rooms[host].fits(each, whatever_cores=whatever_cores):
                return host
        return None

    def _own(self, each: Need, share: Mapping[str, int], whatever_cores: bool) -> str | None:
        sign, found = 1 if self.spread else -1, []
        for host, count in share.items():
            room = self.rooms.get(host)
            if count and room and room.accepts and room.fits(each, whatever_cores=whatever_cores):
                found.append((sign * count, *self._placed(room)))
        return min(found)[2] if found else None

    def _placed(self, room: Room) -> Placed:
        return (room.full_share if self.spread else -room.full_share, room.host)
