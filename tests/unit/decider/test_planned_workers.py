"""What hosts are planned to run, kept from round to round: the same bits as without."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import GIB, NOW, host, inputs, pool, snapshot, state

from penstock.config import Pool
from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.hosts.capacity import Load
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.hosts.needs import Needs
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool
from penstock.decider.core.state import State

HOSTS = ("a", "b", "c", "d")
NAMES = tuple(f"pool-{number}" for number in range(9, -1, -1))  # not in the order of their names
_ROUNDS = 12


class Installation:
    """Pools and hosts that change at random, a few of them from round to round."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.pools = {name: self._pool(name) for name in NAMES}
        self.snapshots = {name: self._snapshot(name) for name in NAMES[1:]}
        self.hosts = {name: self._host(name) for name in HOSTS}

    def change(self) -> None:
        for name in self._chance.sample(NAMES, 3):
            self.snapshots[name] = self._snapshot(name)
        if self._chance.random() < 0.3:
            name = self._chance.choice(HOSTS)
            self.hosts[name] = self._host(name)

    def inputs(self, now: float) -> Inputs:
        due = self._chance.choice([None, self._chance.sample(NAMES, 2), [NAMES[0]]])
        found = inputs([], [], [], due=None if due is None else set(due))
        return msgspec.structs.replace(
            found,
            pools=self.pools,
            measured_pools={n: MeasuredPool(s, now) for n, s in self.snapshots.items()}
            if self._chance.random() < 0.2
            else dict(self._measured(now)),
            measured_hosts={name: MeasuredHost(each, now) for name, each in self.hosts.items()},
        )

    def _measured(self, now: float) -> dict[str, MeasuredPool]:
        """The same values as before where nothing was measured anew."""
        kept: dict[str, MeasuredPool] = getattr(self, "_kept", {})
        self._kept = {
            name: kept[name]
            if name in kept and kept[name].snapshot is each
            else MeasuredPool(each, now)
            for name, each in self.snapshots.items()
        }
        return self._kept

    def _pool(self, name: str) -> Pool:
        kind = "exclusive" if self._chance.random() < 0.1 else "queue"
        return pool(
            name,
            kind,
            advisor=self._chance.random() < 0.1,
            cpu_cores=self._chance.choice([0.1, 0.3, 0.7]),
            memory_bytes=self._chance.choice([GIB // 7, GIB]),
            jobs_memory_bytes=self._chance.choice([0, 0, 0, 0, 5 * GIB]),
        )

    def _snapshot(self, name: str) -> Any:
        chance = self._chance
        return snapshot(
            name,
            waiting=chance.choice([0, 3, 40]),
            oldest_waiting_seconds=chance.choice([0.0, 25.0, 40.0]),
            arrival_per_second=chance.choice([0.0, 0.3, 2.0]),
            worker_cpu_cores=chance.choice([None, 0.1, 0.2, 1 / 3]),
            worker_memory_bytes=chance.choice([None, None, GIB // 3, 300 * GIB]),
        )

    def _host(self, name: str) -> Any:
        chance = self._chance
        return host(
            name,
            cores=chance.choice([4, 16]),
            memory=chance.choice([16, 64, 500]) * GIB,
            memory_used_bytes=chance.choice([0, GIB]),
        )


def encoded(outcome: Outcome) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(outcome, plans={}, notices=()))


@given(st.integers(0, 2**32))
def test_a_round_decides_the_same_with_what_was_kept_and_without(seed: int) -> None:
    installation, planned = Installation(Random(seed)), PlannedWorkers()
    before = State(watching_since=NOW - 1000)
    for number in range(_ROUNDS):
        now = NOW + number
        found = installation.inputs(now)
        outcome = decide(before, found, now, planned)
        anew = decide(before, found, now)
        assert encoded(outcome) == encoded(anew)
        assert outcome.plans == anew.plans
        assert [list(plan) for plan in outcome.plans.values()] == [
            list(plan) for plan in anew.plans.values()
        ]
        before = outcome.state
        installation.change()


@given(st.integers(0, 2**32))
def test_a_load_is_the_sum_over_all_pools_in_the_order_of_the_settings(seed: int) -> None:
    chance = Random(seed)
    installation, planned, before = Installation(chance), PlannedWorkers(), State()
    for number in range(_ROUNDS):
        found = installation.inputs(NOW + number)
        before = decide(before, found, NOW + number, planned).state
        installation.change()
        found, moving = installation.inputs(NOW + number), set(chance.sample(NAMES, 3))
        needs = Needs(HostLiveness(fresh=frozenset(found.measured_hosts)), found)
        planned.begin(before, found, needs)
        without = planned.loads_without(moving)
        for name in HOSTS:
            assert values(planned.load(name)) == values(added_up(name, before, found, needs, ()))
            if name in without:
                alone = added_up(name, before, found, needs, moving)
                assert values(without[name]) == values(alone)


def added_up(name: str, before: State, found: Inputs, needs: Needs, left_out: Any) -> Load:
    load = Load()
    for pool_name, remembered in before.pools.items():
        if name in remembered.placement and pool_name not in left_out:
            need = needs.of(found.pools[pool_name], remembered)
            load.add(need, remembered.placement[name])
    return load


def values(load: Load) -> tuple[str, str, int]:
    return load.cpu_cores.hex(), load.memory_bytes.hex(), load.workers


def test_the_plan_of_a_host_stays_the_same_value_until_it_changes() -> None:
    quiet, busy = pool("quiet"), pool("busy")
    first = inputs([quiet, busy], [snapshot("busy"), snapshot("quiet")], [host("a"), host("b")])
    before, planned = state(quiet={"a": 1}, busy={"b": 1}), PlannedWorkers()
    outcome = decide(before, msgspec.structs.replace(first, due=frozenset({"quiet"})), NOW, planned)
    plan = outcome.plans["b"]
    again = msgspec.structs.replace(first, due=frozenset({"quiet"}))
    outcome = decide(outcome.state, again, NOW + 1, planned)
    assert outcome.plans["b"] is plan
    more = snapshot("busy", waiting=50, oldest_waiting_seconds=40.0)
    measured = {**first.measured_pools, "busy": MeasuredPool(more, NOW + 1)}
    again = msgspec.structs.replace(first, measured_pools=measured, due=frozenset({"busy"}))
    outcome = decide(outcome.state, again, NOW + 2, planned)
    assert outcome.plans["b"] != plan == {"busy": 1}


def test_plans_are_full_and_name_every_host() -> None:
    found = inputs([pool("x")], [], [host("a"), host("b")])
    assert decide(state(x={"a": 2}), found, NOW).plans == {"a": {"x": 2}, "b": {}}
