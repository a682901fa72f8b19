"""The workers that each host is planned to run, kept from one round to the next.

A round over a few of many pools shall cost what these pools cost. But what a host carries is a sum
over all its pools, and its last bits depend on the order of the additions, which is that of the
settings. So the terms of these sums are kept by host, in that order. A round looks up which pools
changed, and adds up the hosts of these pools only.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial, reduce
from itertools import compress
from operator import add, is_not

from penstock.config import Pool
from penstock.decider.core.hosts.capacity import Load, Need
from penstock.decider.core.hosts.needs import Needs
from penstock.decider.core.inputs import Inputs, MeasuredPool
from penstock.decider.core.state import PoolState, State

Plan = dict[str, int]
PoolStates = Mapping[str, PoolState]

if sys.version_info >= (3, 12):  # whose ``sum`` corrects for rounding
    _sum: Callable[[Iterable[float], float], float] = partial(reduce, add)
else:  # the same additions in the same order, five times as fast
    _sum = sum


class PlannedWorkers:
    """Belongs to one sequence of rounds.

    Used for a state that is not what the last round left, it starts anew from that state: it only
    ever saves time.
    """

    def __init__(self) -> None:
        self._states: PoolStates = {}
        self._pools: Mapping[str, Pool] = {}
        self._positions: dict[str, int] = {}
        self._needs: dict[str, Need] = {}
        self._hosts: dict[str, _Host] = {}
        self._names: list[str] = []
        self._measurements: list[MeasuredPool] = []
        self._largest_need_bytes, self._largest_host_bytes = 0.0, 0
        self._keeps_for_jobs = self._tries = False

    def follows(self, state: State, inputs: Inputs) -> bool:
        """Whether the state is what the last round left, under the same settings."""
        return state.pools is self._states and inputs.pools is self._pools

    def hosts(self, state: State, inputs: Inputs) -> Set[str]:
        """Hosts that any pool is on."""
        if self.follows(state, inputs):
            return self._hosts.keys()
        return set().union(*[pool.placement for pool in state.pools.values() if pool.placement])

    def begin(self, state: State, inputs: Inputs, needs: Needs) -> None:
        """Takes in what workers need in a round that begins with ``state``."""
        follows = self.follows(state, inputs) and not self._tries
        if self._pools is not inputs.pools:
            self._pools = inputs.pools
            self._positions = {name: position for position, name in enumerate(inputs.pools)}
            self._keeps_for_jobs = any(p.profile.jobs_memory_bytes for p in inputs.pools.values())
        names, measurements = list(inputs.measured_pools), list(inputs.measured_pools.values())
        largest_host = self._largest_host(inputs)
        if follows and names == self._names and largest_host == self._largest_host_bytes:
            self._weigh(compress(names, map(is_not, measurements, self._measurements)), needs)
        else:
            follows = False
        most = needs.most_started_bytes
        if not follows or self._largest_need_bytes > most:
            self._build(state, inputs, needs)
        # of needs that fit on no host, others may be tried, by what hosts can start: see `Needs`
        self._tries = self._largest_need_bytes > most
        self._names, self._measurements = names, measurements
        self._largest_host_bytes = largest_host

    def load(self, host: str) -> Load:
        """What a host was planned to carry before the round."""
        planned = self._hosts.get(host)
        return planned.load() if planned else Load()

    def loads_without(self, pools: Iterable[str]) -> dict[str, Load]:
        """By host of these pools: what it carries without them."""
        leaving: dict[str, list[int]] = {}
        for name in pools:
            for host in self._states[name].placement:
                leaving.setdefault(host, []).append(self._positions[name])
        return {host: self._hosts[host].load_without(left) for host, left in leaving.items()}

    def plan(self, host: str) -> Plan:
        """Workers by pool; not to be changed."""
        planned = self._hosts.get(host)
        return planned.plan() if planned else {}

    def plans(self, hosts: Iterable[str]) -> dict[str, Plan]:
        """The full plan of each host, also of those that get nothing; not to be changed."""
        plans: dict[str, Plan] = {host: {} for host in hosts}
        for host, planned in self._hosts.items():
            plans[host] = planned.plan()
        return plans

    def end(self, state: State, pools: Iterable[str], needs: Needs) -> None:
        """Takes in the state that a round left, in which it decided some pools."""
        before, self._states = self._states, {}  # so that it starts anew where this raises
        for name in pools:
            old, new = before[name].placement, state.pools[name].placement
            if old is new or old == new:
                continue
            need = self._needs[name] = needs.measured(self._pools[name])
            self._largest_need_bytes = max(self._largest_need_bytes, need.memory_bytes)
            for host in old.keys() - new.keys():
                self._hosts[host].drop(self._positions[name])
                if not self._hosts[host].positions:
                    del self._hosts[host]
            for host, count in new.items():
                self._host(host).put(self._positions[name], name, need, count)
        self._states = state.pools

    def _weigh(self, pools: Iterable[str], needs: Needs) -> None:
        """The needs of pools that were measured anew."""
        for name in pools:
            before = self._needs.get(name)
            if before is None:  # no host has any of its workers
                continue
            need = needs.measured(self._pools[name])
            if need == before:
                continue
            self._needs[name] = need
            self._largest_need_bytes = max(self._largest_need_bytes, need.memory_bytes)
            for host, count in self._states[name].placement.items():
                self._hosts[host].put(self._positions[name], name, need, count)

    def _build(self, state: State, inputs: Inputs, needs: Needs) -> None:
        self._states = {}
        self._needs, self._hosts, self._largest_need_bytes = {}, {}, 0.0
        for position, (name, remembered) in enumerate(state.pools.items()):
            if not remembered.placement:
                continue
            need = self._needs[name] = needs.of(inputs.pools[name], remembered)
            measured = needs.measured(inputs.pools[name])
            self._largest_need_bytes = max(self._largest_need_bytes, measured.memory_bytes)
            for host, count in remembered.placement.items():
                self._host(host).append(position, name, need, count)
        self._states = state.pools

    def _largest_host(self, inputs: Inputs) -> int:
        """Bytes of the largest host, where needs depend on it."""
        if not self._keeps_for_jobs:
            return 0
        sizes = (measured.snapshot.memory_bytes for measured in inputs.measured_hosts.values())
        return max(sizes, default=0)

    def _host(self, host: str) -> _Host:
        planned = self._hosts.get(host)
        if planned is None:
            planned = self._hosts[host] = _Host()
        return planned


class _Host:
    """One host's pools in the order of the settings, with the terms of its load.

    Attributes:
        positions: of its pools among all that are configured; ascending.
    """

    __slots__ = ("_cores", "_counts", "_load", "_memory", "_names", "_plan", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self._names: list[str] = []
        self._counts: list[int] = []
        self._cores: list[float] = []
        self._memory: list[float] = []
        self._load: Load | None = None
        self._plan: Plan | None = None

    def load(self) -> Load:
        if self._load is None:
            self._load = _load(self._cores, self._memory, self._counts)
        return self._load

    def load_without(self, leaving: list[int]) -> Load:
        """Without the pools at these positions."""
        if len(leaving) == len(self.positions):
            return Load()
        cores, memory, counts = self._cores[:], self._memory[:], self._counts[:]
        for position in sorted(leaving, reverse=True):
            index = bisect_left(self.positions, position)
            del cores[index], memory[index], counts[index]
        return _load(cores, memory, counts)

    def plan(self) -> Plan:
        """The same value until it changes, so that what was compared is known by its identity."""
        if self._plan is None:
            self._plan = dict(zip(self._names, self._counts, strict=True))
        return self._plan

    def append(self, position: int, name: str, need: Need, count: int) -> None:
        """Adds a pool that comes after all others."""
        self.positions.append(position)
        self._names.append(name)
        self._counts.append(count)
        self._cores.append(need.cpu_cores * count)
        self._memory.append(float(need.memory_bytes * count))
        self._load = self._plan = None

    def put(self, position: int, name: str, need: Need, count: int) -> None:
        """Adds a pool, or takes in its number of workers and what they need."""
        index = bisect_left(self.positions, position)
        if index == len(self.positions) or self.positions[index] != position:
            self.positions.insert(index, position)
            self._names.insert(index, name)
            self._counts.insert(index, -1)
            self._cores.insert(index, 0.0)
            self._memory.insert(index, 0.0)
        if self._counts[index] != count:
            self._counts[index], self._plan = count, None
        self._cores[index] = need.cpu_cores * count
        self._memory[index] = float(need.memory_bytes * count)
        self._load = None

    def drop(self, position: int) -> None:
        index = bisect_left(self.positions, position)
        for terms in (self.positions, self._names, self._counts, self._cores, self._memory):
            del terms[index]
        self._load = self._plan = None


def _load(cores: list[float], memory: list[float], counts: list[int]) -> Load:
    load = Load()
    load.cpu_cores, load.memory_bytes = _sum(cores, 0.0), _sum(memory, 0.0)
    load.workers = sum(counts)
    return load
