"""Hosts that do not begin what they are commanded get no further workers; others are tried."""

from __future__ import annotations

from typing import Any

from tests.unit.decider.given import GIB, NOW, host, inputs, one_round, pool, snapshot, story
from tests.unit.decider.playing import Wants

from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.hosts.liveness import assess
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules, take_host
from penstock.decider.core.state import State, restore
from penstock.events.scaling import WorkersScaled

LEASE = Rules().lease_seconds


class Stage:
    """Hosts that obey and hosts that do not, round after round, one a second.

    A true host shows in its next snapshot that it obeyed, as executors do. A ghost shows nothing.
    """

    def __init__(self, *hosts: str, ghosts: tuple[str, ...] = (), state: State | None = None):
        self.hosts, self.ghosts = list(hosts), list(ghosts)
        self.state = state or State(watching_since=NOW)
        self.now, self.version = NOW, 0
        self.plans: dict[str, dict[str, int]] = {}
        self.seen: dict[str, int] = {}
        self.repeated: set[str] = set()

    def round(self, wanted: int, seconds: float = 1.0) -> Outcome:
        outcome = decide(self.state, self._inputs(wanted), self.now)
        for name, plan in outcome.plans.items():
            if self.plans.get(name) != plan or name in outcome.repeat:
                self.version += 1
                self.plans[name] = plan
                if name in self.hosts:
                    self.seen[name] = self.version
        self.repeated |= outcome.repeat
        self.state, self.now = outcome.state, self.now + seconds
        return outcome

    def _inputs(self, wanted: int) -> Inputs:
        one = pool(strategy="wants", min_workers=0)
        return Inputs(
            pools={one.name: one},
            measured_pools={one.name: MeasuredPool(snapshot(waiting=1), self.now)},
            measured_hosts={
                name: MeasuredHost(
                    host(
                        name, epoch=1 if self.seen.get(name) else 0, version=self.seen.get(name, 0)
                    ),
                    self.now,
                )
                for name in (*self.hosts, *self.ghosts)
            },
            strategies={"wants": Wants(wanted)},
            rules=Rules(),
        )

    def placed(self) -> dict[str, int]:
        return dict(self.state.pools["emails"].placement)


def test_a_host_that_obeys_nothing_never_gets_a_worker() -> None:
    # given a true host, at rest, and ghosts that would be filled first
    stage = Stage("real")
    for _ in range(3):
        stage.round(0)
    stage.ghosts = ["a-ghost", "b-ghost"]
    stage.round(0)
    # when workers are wanted, for as long as one likes
    for _ in range(20):
        stage.round(3)
        # then the true host has all of them
        assert stage.placed() == {"real": 3}
    assert stage.repeated == {"a-ghost", "b-ghost"}  # it is asked again, once a lease


def test_a_host_that_joins_takes_workers_as_soon_as_it_obeys() -> None:
    stage = Stage("real")
    stage.round(0)
    stage.round(0)
    stage.hosts.append("a-new")
    stage.round(2)
    assert stage.placed() == {"real": 2}
    stage.round(4)
    assert stage.placed() == {"real": 2, "a-new": 2}


def test_hosts_that_all_say_nothing_are_taken_for_good() -> None:
    """A first start: no host has obeyed anything yet, and somebody has to begin."""
    stage = Stage(ghosts=("a", "b"))
    for _ in range(40):
        stage.round(2)
        assert stage.placed() == {"a": 1, "b": 1}


def test_a_host_that_stops_obeying_gives_up_what_it_did_not_begin() -> None:
    # given two true hosts with a worker each, of which one hears no commands any more
    stage = Stage("a", "b")
    for _ in range(3):
        stage.round(2)
    assert stage.placed() == {"a": 1, "b": 1}
    stage.hosts.remove("a")
    stage.ghosts.append("a")
    # when more are wanted
    stage.round(4)
    assert stage.placed() == {"a": 2, "b": 2}
    stage.round(4, seconds=LEASE)
    # then after a lease the worker that it did not begin starts elsewhere, what it runs stays
    stage.round(4)
    assert stage.placed() == {"a": 1, "b": 3}
    # and after five it is planned nothing
    stage.round(4, seconds=5 * LEASE)
    stage.round(4)
    assert stage.placed() == {"b": 4}
    # when it obeys again, then it is given workers again
    stage.hosts.append("a")
    stage.ghosts.remove("a")
    stage.round(4, seconds=LEASE)
    stage.round(4)
    stage.round(6)
    assert stage.placed()["a"] > 0


def test_a_new_leader_keeps_what_hosts_run_and_waits_for_its_own_commands() -> None:
    command = WorkersScaled(host="a", epoch=3, version=9, pools={"emails": 2})
    state = restore(["emails"], {}, {"a": command}, NOW)
    assert (state.pending["a"].epoch, state.pending["a"].version) == (3, 9)
    assert state.pending["a"].held == {"emails": 2}


def test_the_reasons_name_hosts_that_do_not_begin() -> None:
    stage = Stage("a", "b")
    for _ in range(3):
        stage.round(2)
    stage.hosts.remove("a")
    stage.ghosts.append("a")
    stage.round(4, seconds=LEASE + 5 * LEASE)
    reasons = stage.round(4).decisions[0].reasons
    assert "moved away from a: its commands are not begun" in [each.text for each in reasons]


# --- how many are remembered ----------------------------------------------------------------------
def test_invented_hosts_cannot_fill_the_memory_nor_push_out_true_ones() -> None:
    hosts: dict[str, MeasuredHost] = {}
    rules = Rules(most_hosts=50)
    for number in range(20_000):
        if number % 100 == 0:
            assert take_host(hosts, MeasuredHost(host("real"), NOW + number / 100), rules) == ""
        take_host(hosts, MeasuredHost(host(f"h{number}"), NOW + number / 100), rules)
        assert len(hosts) <= 50
    assert "real" in hosts


def test_a_host_is_forgotten_after_ten_leases() -> None:
    hosts: dict[str, MeasuredHost] = {}
    take_host(hosts, MeasuredHost(host("old"), NOW), Rules())
    take_host(hosts, MeasuredHost(host("new"), NOW + 10 * LEASE), Rules())
    assert list(hosts) == ["old", "new"]
    take_host(hosts, MeasuredHost(host("new"), NOW + 10 * LEASE + 1), Rules())
    assert list(hosts) == ["new"]


def test_hosts_that_are_not_allowed_are_refused() -> None:
    hosts: dict[str, MeasuredHost] = {}
    rules = Rules(allowed_hosts=("rack-*", "big"))
    assert "hosts.allowed" in take_host(hosts, MeasuredHost(host("ghost"), NOW), rules)
    assert take_host(hosts, MeasuredHost(host("rack-7"), NOW), rules) == ""
    assert list(hosts) == ["rack-7"]


def test_the_state_forgets_hosts_that_are_not_remembered() -> None:
    before = State(
        joined=frozenset({"gone", "a"}), lost=frozenset({"gone"}), watching_since=NOW - 1000
    )
    _, after, _ = assess(before, inputs([], [], [host("a")]), set(), NOW)
    assert (after.joined, after.lost) == ({"a"}, set())


# --- one worker is tried --------------------------------------------------------------------------
def used(memory: int, **fields: Any) -> Any:
    return snapshot(waiting=5, arrival_per_second=2.0, worker_memory_bytes=memory, **fields)


def test_a_measure_that_fits_on_no_host_is_tried_with_one_worker() -> None:
    """A forged report, or a worker that leaked until the kernel ended it: nobody measures anew."""
    outcome = one_round(pool(min_workers=1), used(10**14), hosts=[host("a", memory=4 * GIB)])
    assert outcome.plans["a"] == {"emails": 1}
    assert story(outcome)[-1] == ("capacity", 1)
    text = outcome.decisions[0].reasons[-1].text
    assert text.startswith("1: tried with the configured 134 MB, as the 100,000,000 MB")


def test_the_worker_that_is_tried_stays_while_the_measure_does() -> None:
    one, hosts = pool(min_workers=1), [host("a", memory=4 * GIB)]
    first = one_round(one, used(10**14), hosts=hosts)
    again = one_round(one, used(10**14), first.state, hosts=hosts)
    assert again.plans["a"] == {"emails": 1}


def test_a_poisoned_pool_leaves_the_others_their_room() -> None:
    pools = [pool("emails", min_workers=1), pool("images", min_workers=3)]
    snapshots = [used(10**14), snapshot("images", worker_memory_bytes=GIB)]
    outcome = decide(State(), inputs(pools, snapshots, [host("a", memory=8 * GIB)]), NOW)
    assert outcome.plans["a"] == {"emails": 1, "images": 3}


def test_a_host_that_is_proven_full_tries_nothing() -> None:
    full = host("a", memory=4 * GIB, memory_used_bytes=4 * GIB)
    outcome = one_round(pool(min_workers=1), used(10**14), hosts=[full])
    assert outcome.plans["a"] == {}
