"""Host advice: how many hosts are needed, and when that is worth telling.

Too few are told after a minute, too many after ten, with the number that held all that time; one
host less must leave room to spare. So the advice does not flap, and a provisioner may act on each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from penstock.decider.core.hosts.capacity import Budget, Need, Room, carries
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import HostAdvice
from penstock.events.scaling import HostCountAdvised

EVERY_SECONDS = 10.0
MORE_AFTER_SECONDS = 60.0
FEWER_AFTER_SECONDS = 600.0
SPARE_SHARE = 0.15
"""Of each host's room, to be left free before one host is called too many."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """What a round says about hosts.

    Attributes:
        hosts: those that take workers; needed: as many as are needed.
        short_workers: by pool, workers that fit nowhere. homeless: of those, pools of which no
            worker fits on a host of the usual size, however many there are.
    """

    hosts: int
    needed: int
    short_workers: dict[str, int]
    homeless: tuple[str, ...] = ()


def is_due(advice: HostAdvice, now: float) -> bool:
    return not 0 <= now - advice.looked_at < EVERY_SECONDS


def count(
    claims: Sequence[Claim],
    shares: Mapping[str, Mapping[str, int]],
    rooms: Mapping[str, Room],
) -> Count | None:
    """How many hosts this round's claims need; None where there is none to go by.

    Args:
        shares: what they got of these rooms.
    """
    open_rooms = [room for room in rooms.values() if room.accepts]
    if not open_rooms:
        return None
    short = {
        claim.pool: missing
        for claim in claims
        if (missing := claim.workers - sum(shares[claim.pool].values())) > 0
    }
    hosts = len(open_rooms)
    if not short:
        spare = _spare(claims, shares, rooms)
        return Count(hosts=hosts, needed=hosts - spare, short_workers={})
    usual = _usual(open_rooms)
    each = {claim.pool: carries(usual, claim.need)[0] for claim in claims if claim.pool in short}
    more = math.ceil(sum(short[pool] / fits for pool, fits in each.items() if fits) - 1e-9)
    homeless = tuple(sorted(pool for pool, fits in each.items() if not fits))
    return Count(hosts=hosts, needed=hosts + more, short_workers=short, homeless=homeless)


def advise(advice: HostAdvice, found: Count, now: float) -> tuple[HostAdvice, list[Notice]]:
    """The advice with what this round says, and the event if that has become worth one."""
    known = advice.told or found.hosts
    direction = (found.needed > known) - (found.needed < known)
    if not direction:
        return HostAdvice(looked_at=now, told=advice.told), []
    if direction != advice.direction or advice.since > now:
        advice = HostAdvice(told=advice.told, direction=direction, since=now, needed=found.needed)
    nearest = min if direction > 0 else max
    needed = nearest(advice.needed, found.needed)
    if now - advice.since < (MORE_AFTER_SECONDS if direction > 0 else FEWER_AFTER_SECONDS):
        return msgspec.structs.replace(advice, looked_at=now, needed=needed), []
    fields = {
        "hosts": found.hosts,
        "needed": needed,
        "text": _text(found, needed),
        "short_workers": found.short_workers,
    }
    return HostAdvice(looked_at=now, told=needed), [Notice(event=HostCountAdvised, fields=fields)]


def _text(found: Count, needed: int) -> str:
    short = ", ".join(f"{count} of {pool}" for pool, count in sorted(found.short_workers.items()))
    homeless = f"; no host is large enough for {', '.join(found.homeless)}" * bool(found.homeless)
    if short:
        return f"{needed} hosts are needed, there are {found.hosts}: {short} fit nowhere{homeless}"
    return (
        f"{needed} hosts are enough, there are {found.hosts}: "
        f"all workers would fit with {SPARE_SHARE:.0%} to spare"
    )


def _spare(
    claims: Sequence[Claim], shares: Mapping[str, Mapping[str, int]], rooms: Mapping[str, Room]
) -> int:
    """How many hosts could go, those with fewest workers first; the last one stays."""
    running: Counter[str] = Counter()
    for share in shares.values():
        running.update(share)
    going = sorted(
        (
            name
            for name, room in rooms.items()
            if room.accepts and not room.workers  # workers of a pool that cannot move are there
        ),
        key=lambda host: (running[host], host),
    )
    least, most = 0, min(len(going), sum(room.accepts for room in rooms.values()) - 1)
    while least < most:
        middle = (least + most + 1) // 2
        gone = frozenset(going[:middle])
        staying = [room for name, room in rooms.items() if room.accepts and name not in gone]
        if _fits(claims, [_tight(room) for room in staying]):
            least = middle
        else:
            most = middle - 1
    return least


def _fits(claims: Sequence[Claim], rooms: list[Room]) -> bool:
    """Whether everything finds room, each pool filling one host after the other."""
    first, smallest = 0, _smallest(claims)
    for claim in sorted(claims, key=lambda claim: not claim.one_host):
        left = claim.workers
        for room in rooms[first:]:
            count = min(room.free(claim.need), left)
            if count == left or not claim.one_host:
                room.add(claim.need, count)
                left -= count
            if not left:
                break
        if left:
            return False
        while first < len(rooms) and not rooms[first].free(smallest):
            first += 1
    return True


def _smallest(claims: Sequence[Claim]) -> Need:
    needs = [claim.need for claim in claims]
    return Need(
        min((each.cpu_cores for each in needs), default=1.0),
        min((each.memory_bytes for each in needs), default=1.0),
    )


def _tight(room: Room) -> Room:
    share, limit, twin = 1 - SPARE_SHARE, room.limit, room.copy()
    twin.limit = Budget(limit.cpu_cores * share, limit.memory_bytes * share, limit.workers)
    return twin


def _usual(rooms: Sequence[Room]) -> Budget:
    """A host as there are."""
    return Budget(
        median(room.limit.cpu_cores for room in rooms),
        median(room.limit.memory_bytes for room in rooms),
        median(room.limit.workers for room in rooms),
    )
