"""Fair share: which pool gets the next worker in a shortage.

Minimums first; then one worker at a time to the pool whose expected lateness costs most; then the
workers that are only held back from going. No pool's demand comes before all others'.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core.hosts.capacity import Need
from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.assumed import UNKNOWN_JOB_SECONDS

_UNMET_WEIGHT = 1e-3
"""Small enough to settle ties only."""
_NO_WORKER = 0.5
"""Workers that a pool without any is taken to have: its expected wait stays finite."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that a pool asks the hosts for.

    Attributes:
        pool: its name.
        floor: the first tier, served before anything else.
        demand: the second tier.
        workers: the third tier: all that is asked for.
        need: what one worker takes.
        snapshot: what was measured; None where that is stale or missing.
        profile: the pool's settings.
        placement: where its workers were planned so far.
        one_host: all of them on one host (exclusive pools).
        anchor: the host that it must stay on for now, whatever its capacity.
        movable: one of its workers may move to a host that has fewer of them.
        avoided: hosts that get no further workers of this pool, as those there keep ending at once.
        tried: the bytes of its measured need, which fits on no host, where one worker is tried.
    """

    pool: str
    floor: int
    demand: int
    workers: int
    need: Need
    placement: Mapping[str, int]
    snapshot: PoolSnapshot | None
    profile: Profile
    one_host: bool = False
    anchor: str | None = None
    movable: bool = False
    tried: float = 0.0
    avoided: frozenset[str] = frozenset()

    def tiers(self) -> tuple[int, int, int]:
        return self.floor, max(self.floor, self.demand), self.workers


def lateness_cost(claim: Claim, workers: int) -> float:
    """The cost of leaving a pool at ``workers``: expected wait over promise, weighted.

    The wait is that of the last job in line one SLA from now: waiting jobs, plus what arrives
    beyond what the workers can do, over the workers. The unmet share of the demand settles ties.
    """
    snapshot, profile = claim.snapshot, claim.profile
    unmet = (claim.demand - workers) / claim.demand if claim.demand else 0.0
    if snapshot is None:
        return profile.breach_cost * _UNMET_WEIGHT * unmet
    sla = profile.sla_seconds
    job_seconds = snapshot.service.mean_seconds if snapshot.service else UNKNOWN_JOB_SECONDS
    serving = max(float(workers), _NO_WORKER)
    arriving = (snapshot.arrival_per_second or 0.0) * sla * job_seconds
    work = snapshot.waiting * job_seconds + max(arriving - serving * sla, 0.0)
    wait = (snapshot.oldest_waiting_seconds or 0.0) + work / serving
    return profile.breach_cost * (wait / sla + _UNMET_WEIGHT * unmet)


def fill(claims: list[Claim], place: Callable[[Claim, int], bool]) -> dict[str, int]:
    """Workers by pool, given out one at a time.

    Args:
        claims: of the pools to serve.
        place: puts the pool's next worker somewhere; False if it fits nowhere (and never will, as
            capacities only shrink). Its second argument is the tier, 0 for minimums.
    """
    given = {claim.pool: 0 for claim in claims}
    for tier in range(3):
        _fill_tier(claims, tier, given, place)
    return given


def _fill_tier(
    claims: list[Claim], tier: int, given: dict[str, int], place: Callable[[Claim, int], bool]
) -> None:
    heap = [
        (-lateness_cost(claim, given[claim.pool]), claim.pool, claim)
        for claim in claims
        if given[claim.pool] < claim.tiers()[tier]
    ]
    heapq.heapify(heap)
    while heap:
        _, pool, claim = heapq.heappop(heap)
        if not place(claim, tier):
            continue
        given[pool] += 1
        if given[pool] < claim.tiers()[tier]:
            heapq.heappush(heap, (-lateness_cost(claim, given[pool]), pool, claim))
