"""Host advice: how many hosts are needed, and when that is worth an event.

Too few are reported after a minute, too many after ten, with the number that held all that time;
one host less must leave capacity to spare. So the advice does not flap, and a provisioner may act
on each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from penstock.decider.core.hosts.capacity import Budget, HostCapacity, Need, carries
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import HostAdvice
from penstock.events.scaling import HostCountAdvised

EVERY_SECONDS = 10.0
MORE_AFTER_SECONDS = 60.0
FEWER_AFTER_SECONDS = 600.0
SPARE_SHARE = 0.15
"""Share of each host's capacity to be left free before one host is reported as surplus."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that one round needs.

    Attributes:
        hosts: that take workers.
        needed: hosts that are needed.
        short_workers: by pool, workers that fit nowhere.
        homeless: of those, pools of which no worker fits on a host of the usual size, however many
            there are.
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
    capacities: Mapping[str, HostCapacity],
) -> Count | None:
    """The hosts that this round's claims need; None where no host accepts workers.

    Args:
        claims: of the pools that act.
        shares: what each pool got, by pool and host.
        capacities: of the hosts.
    """
    accepting = [capacity for capacity in capacities.values() if capacity.accepts]
    if not accepting:
        return None
    short = {
        claim.pool: missing
        for claim in claims
        if (missing := claim.workers - sum(shares[claim.pool].values())) > 0
    }
    hosts = len(accepting)
    if not short:
        spare = _spare(claims, shares, capacities)
        return Count(hosts=hosts, needed=hosts - spare, short_workers={})
    usual = _usual(accepting)
    per_host = {
        claim.pool: carries(usual, claim.need)[0] for claim in claims if claim.pool in short
    }
    missing_hosts = math.ceil(
        sum(short[pool] / workers for pool, workers in per_host.items() if workers) - 1e-9
    )
    homeless = tuple(sorted(pool for pool, workers in per_host.items() if not workers))
    return Count(hosts=hosts, needed=hosts + missing_hosts, short_workers=short, homeless=homeless)


def advise(advice: HostAdvice, count: Count, now: float) -> tuple[HostAdvice, list[Notice]]:
    """The advice with this round's count, and the event if that has become worth one."""
    base = advice.advised or count.hosts
    direction = (count.needed > base) - (count.needed < base)
    if not direction:
        return HostAdvice(looked_at=now, advised=advice.advised), []
    if direction != advice.direction or advice.since > now:
        advice = HostAdvice(
            advised=advice.advised, direction=direction, since=now, needed=count.needed
        )
    nearest = min if direction > 0 else max
    needed = nearest(advice.needed, count.needed)
    if now - advice.since < (MORE_AFTER_SECONDS if direction > 0 else FEWER_AFTER_SECONDS):
        return msgspec.structs.replace(advice, looked_at=now, needed=needed), []
    fields = {
        "hosts": count.hosts,
        "needed": needed,
        "text": _text(count, needed),
        "short_workers": count.short_workers,
    }
    return HostAdvice(looked_at=now, advised=needed), [
        Notice(event=HostCountAdvised, fields=fields)
    ]


def _text(count: Count, needed: int) -> str:
    pools = sorted(count.short_workers.items())
    short = ", ".join(f"{workers} of {pool}" for pool, workers in pools)
    homeless = f"; no host is large enough for {', '.join(count.homeless)}" * bool(count.homeless)
    if short:
        return f"{needed} hosts are needed, there are {count.hosts}: {short} fit nowhere{homeless}"
    return (
        f"{needed} hosts are enough, there are {count.hosts}: "
        f"all workers would fit with {SPARE_SHARE:.0%} to spare"
    )


def _spare(
    claims: Sequence[Claim],
    shares: Mapping[str, Mapping[str, int]],
    capacities: Mapping[str, HostCapacity],
) -> int:
    """The number of hosts that could be removed, those with fewest workers first; one stays."""
    running: Counter[str] = Counter()
    for share in shares.values():
        running.update(share)
    # the hosts with fewest workers first, as the fewest workers then move
    going = sorted(
        (
            name
            for name, capacity in capacities.items()
            # workers there before anything is placed belong to pools that cannot move
            if capacity.accepts and not capacity.workers
        ),
        key=lambda host: (running[host], host),
    )
    accepting = {name: host for name, host in capacities.items() if host.accepts}
    least, most = 0, min(len(going), len(accepting) - 1)
    while least < most:
        middle = (least + most + 1) // 2
        leaving = frozenset(going[:middle])
        staying = [host for name, host in accepting.items() if name not in leaving]
        if _fits(claims, [_tight(host) for host in staying]):
            least = middle
        else:
            most = middle - 1
    return least


def _fits(claims: Sequence[Claim], hosts: list[HostCapacity]) -> bool:
    """Whether everything fits, each pool filling one host after the other."""
    first, smallest = 0, _smallest(claims)
    for claim in sorted(claims, key=lambda claim: not claim.one_host):
        left = claim.workers
        for host in hosts[first:]:
            count = min(host.free(claim.need), left)
            if count == left or not claim.one_host:
                host.add(claim.need, count)
                left -= count
            if not left:
                break
        if left:
            return False
        while first < len(hosts) and not hosts[first].free(smallest):
            first += 1
    return True


def _smallest(claims: Sequence[Claim]) -> Need:
    needs = [claim.need for claim in claims]
    return Need(
        min((need.cpu_cores for need in needs), default=1.0),
        min((need.memory_bytes for need in needs), default=1.0),
    )


def _tight(host: HostCapacity) -> HostCapacity:
    """The host without the share that must stay free."""
    share, limit, twin = 1 - SPARE_SHARE, host.limit, host.copy()
    twin.limit = Budget(limit.cpu_cores * share, limit.memory_bytes * share, limit.workers)
    return twin


def _usual(hosts: Sequence[HostCapacity]) -> Budget:
    """The median of the hosts that there are."""
    return Budget(
        median(host.limit.cpu_cores for host in hosts),
        median(host.limit.memory_bytes for host in hosts),
        median(host.limit.workers for host in hosts),
    )
