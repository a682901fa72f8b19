"""Placement of workers on hosts: placed workers stay where they are if they can.

Draining hosts get nothing new and their share moves; a silent host keeps its share until its lease
ends; a pool that must be on one host is there or nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.decider.core.hosts import fairshare
from penstock.decider.core.hosts.capacity import HostCapacity
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.ranking import Ranking

Placement = dict[str, int]
Placements = dict[str, Placement]
Capacities = Mapping[str, HostCapacity]
_UNEVEN = 2
"""Workers of a pool that one host has more than another before one of them moves."""


def allocate(
    claims: list[Claim], capacities: Capacities, style: str, *, all_pools: bool
) -> Placements:
    """Workers by pool and host.

    First as if there were enough, which costs next to nothing. If anything does not fit, all is
    placed anew by fair share; but a round over some pools only takes workers from no other pool:
    these get what is left. Pure: the capacities handed in stay as they are.

    Args:
        claims: of the pools to place.
        capacities: by host, already holding what belongs to pools that are not decided now.
        style: ``spread`` a pool over hosts, or ``pack`` it.
        all_pools: whether the round decides all pools.
    """
    # where all fits, the order among pools does not matter: fair share is needed only in a shortage
    placed, complete = _as_if_enough(claims, _copy(capacities), style)
    return placed if complete or not all_pools else _Fair(claims, _copy(capacities), style).shares()


def _as_if_enough(
    claims: list[Claim], capacities: dict[str, HostCapacity], style: str
) -> tuple[Placements, bool]:
    """The workers that stay or fit, and whether these are all that was asked for."""
    ranking = Ranking(capacities, style)
    placed = {claim.pool: _kept(claim, capacities, style) for claim in claims}
    for claim in claims:
        for host, count in placed[claim.pool].items():
            ranking.add(host, claim.need, count)
    # kept workers may need more memory by now than when they were placed: that is a shortage too
    complete = not any(capacity.overfull for capacity in capacities.values())
    for claim in claims:
        complete &= _grow(claim, placed[claim.pool], ranking)
    if ranking.spread and complete:
        for claim in claims:
            if claim.movable and placed[claim.pool] == claim.placement:
                _level(claim, placed[claim.pool], ranking)
    return placed, complete


def _level(claim: Claim, share: Placement, ranking: Ranking) -> None:
    """Moves one worker from where most are to a host with at least two fewer."""
    if len(ranking.capacities) == 1 or max(share.values(), default=0) < _UNEVEN:
        return
    fullest = _dismiss(share, "spread")
    capacity = ranking.capacities.get(fullest)
    host = ranking.choose(claim.need, share, whatever_cores=False, avoided=claim.avoided)
    # a silent host may not receive the command to end one
    if capacity is None or not capacity.accepts:
        return
    if host is None or host in claim.avoided or share[fullest] - share.get(host, 0) < _UNEVEN:
        return
    ranking.add(host, claim.need)
    share[host] = share.get(host, 0) + 1
    share[fullest] -= 1


def _grow(claim: Claim, share: Placement, ranking: Ranking) -> bool:
    """Adds what is missing where it fits; False if not all of it does."""
    for _ in range(claim.workers - sum(share.values())):
        host = _choose(claim, share, ranking, whatever_cores=_within_floor(claim, share))
        if host is None:
            return False
        ranking.add(host, claim.need)
        share[host] = share.get(host, 0) + 1
    return True


def _kept(claim: Claim, capacities: Capacities, style: str) -> Placement:
    """The workers that stay where they are, without the surplus."""
    if claim.anchor is not None:
        return {claim.anchor: claim.workers}
    share = {}
    for host in sorted(claim.placement):
        capacity, count = capacities.get(host), claim.placement[host]
        if capacity is not None and capacity.keeps and count > 0:
            share[host] = count
    # planned on two hosts, an exclusive pool keeps the one with more of its workers
    if claim.one_host and share:
        home = max(share, key=lambda host: share[host])
        share = {home: share[home]}
    for _ in range(sum(share.values()) - claim.workers):
        dismissing = _dismiss(share, style)
        share[dismissing] -= 1
        if not share[dismissing]:
            del share[dismissing]
    return share


def _dismiss(share: Placement, style: str) -> str:
    """The host that gives up a worker: of a spread pool the fullest, else the emptiest."""
    pick = max if style == "spread" else min
    return pick(sorted(share), key=lambda host: share[host])


def _within_floor(claim: Claim, share: Placement) -> bool:
    """Minimums are bounded by memory, not by cores: a busy neighbour must not starve a pool."""
    return sum(share.values()) < claim.floor


def _choose(
    claim: Claim, share: Placement, ranking: Ranking, *, whatever_cores: bool
) -> str | None:
    """A host for one more worker, None if it fits nowhere."""
    if not claim.one_host:
        return ranking.choose(
            claim.need, share, whatever_cores=whatever_cores, avoided=claim.avoided
        )
    if share:
        capacity = ranking.capacities.get(next(iter(share)))
        fits = (
            capacity and capacity.keeps and capacity.fits(claim.need, whatever_cores=whatever_cores)
        )
        return capacity.host if capacity and fits else None
    whole = {  # rather where all of them fit
        host: capacity
        for host, capacity in ranking.capacities.items()
        if capacity.fits(claim.need, count=claim.workers)
    }
    style = "spread" if ranking.spread else "pack"
    return Ranking(whole, style).choose(
        claim.need, share, whatever_cores=whatever_cores
    ) or ranking.choose(claim.need, share, whatever_cores=whatever_cores)


def _copy(capacities: Capacities) -> dict[str, HostCapacity]:
    return {host: capacities[host].copy() for host in sorted(capacities)}


class _Fair:
    """Fair share by placing one worker after another, each first where its pool already is."""

    def __init__(
        self, claims: list[Claim], capacities: dict[str, HostCapacity], style: str
    ) -> None:
        self._claims, self._capacities, self._style = claims, capacities, style
        self._ranking = Ranking(capacities, style)
        self._placed: Placements = {claim.pool: {} for claim in claims}

    def shares(self) -> Placements:
        fairshare.fill(self._claims, self._place)
        return self._placed

    def _place(self, claim: Claim, tier: int) -> bool:
        share = self._placed[claim.pool]
        if claim.anchor is not None:
            host: str | None = claim.anchor
        else:
            free = tier == 0
            host = self._home(claim, share, free) or _choose(
                claim, share, self._ranking, whatever_cores=free
            )
        if host is None:
            return False
        self._ranking.add(host, claim.need)
        share[host] = share.get(host, 0) + 1
        return True

    def _home(self, claim: Claim, share: Placement, whatever_cores: bool) -> str | None:
        """A host with a worker of this pool that has not been placed again yet."""
        homes = [
            host
            for host, count in sorted(claim.placement.items())
            if share.get(host, 0) < count
            and host in self._capacities
            and self._capacities[host].keeps
            and (not claim.one_host or not share or host in share)
            and self._capacities[host].fits(claim.need, whatever_cores=whatever_cores)
        ]
        if not homes:
            return None
        spread = self._style == "spread"
        return min(homes, key=lambda host: share.get(host, 0) * (1 if spread else -1))
