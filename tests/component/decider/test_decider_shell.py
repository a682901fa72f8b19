"""The small parts of the shell: rhythm, clock, installed strategies."""

from __future__ import annotations

import sys

from penstock.bus.clock import BrokerClock
from penstock.decider import plugins
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.registry import BUILTIN
from penstock.decider.rhythm import SLICE_SECONDS, Rhythm

POOLS = ("x", "y")
ALL = frozenset(POOLS)
NOBODY: frozenset[str] = frozenset()


def test_all_pools_once_a_period():
    rhythm = Rhythm()
    assert rhythm.due(POOLS, 0.0) == ALL
    assert rhythm.due(POOLS, 0.9) == NOBODY
    assert rhythm.wait_seconds(0.75) == 0.25
    assert rhythm.due(POOLS, 1.0) == ALL


def test_a_pool_that_asks_is_due_at_once_but_ten_times_a_second_at_most():
    rhythm = Rhythm()
    rhythm.due(POOLS, 0.0)
    rhythm.request("x", 0.5)
    assert rhythm.due(POOLS, 0.5) == {"x"}
    rhythm.request("x", 0.51)
    assert rhythm.due(POOLS, 0.55) == NOBODY
    assert rhythm.due(POOLS, 0.6) == {"x"}
    rhythm.request("gone", 0.7)
    assert rhythm.due(POOLS, 0.7) == NOBODY


def test_asking_right_after_a_round_waits_too():
    rhythm = Rhythm()
    rhythm.due(POOLS, 0.0)
    rhythm.request("x", 0.01)
    rhythm.request_all(0.02)
    assert rhythm.due(POOLS, 0.05) == NOBODY
    assert rhythm.due(POOLS, 0.1) == ALL


def test_rounds_follow_the_regular_measurements():
    rhythm = Rhythm()
    rhythm.due(POOLS, 0.0)
    rhythm.follow(0.3)  # early: the next round is not yet
    assert rhythm.due(POOLS, 0.4) == NOBODY
    rhythm.follow(0.7)
    assert rhythm.due(POOLS, 0.76) == ALL


def test_many_pools_are_decided_in_slices_and_requested_ones_in_between():
    pools = tuple(f"pool-{number}" for number in range(10))
    rhythm = Rhythm(slice_pools=4)
    assert rhythm.due(pools, 0.0) == frozenset(pools)  # the first round is over all at a time
    slices = [rhythm.due(pools, 1.0)]
    rhythm.request("pool-9", 1.01)
    rhythm.request("pool-0", 1.01)
    assert rhythm.wait_seconds(1.11) == 0
    assert rhythm.due(pools, 1.02) == {"pool-0", "pool-9"}  # also one that was just in a slice
    rhythm.request("pool-1", 1.2)
    slices.append(rhythm.due(pools, 1.2))  # in turns, whatever is requested
    assert rhythm.due(pools, 1.3) == {"pool-1"}
    slices.append(rhythm.due(pools, 1.4))
    assert [len(pools) for pools in slices] == [4, 4, 2]
    assert frozenset().union(*slices) == frozenset(pools)
    assert rhythm.due(pools, 1.5) == NOBODY
    assert rhythm.wait_seconds(1.5) == 0.5


def test_a_slice_is_as_large_as_can_be_decided_in_its_time():
    pools = tuple(f"pool-{number}" for number in range(1000))
    rhythm = Rhythm(slice_pools=100)
    rhythm.due(pools, 0.0)
    rhythm.took(10.0)  # a round over all is no slice
    assert len(rhythm.due(pools, 1.0)) == 100
    rhythm.took(100 * SLICE_SECONDS / 50)
    assert len(rhythm.due(pools, 1.1)) == 50
    rhythm.request("pool-999", 1.2)
    assert rhythm.due(pools, 1.2) == {"pool-999"}
    rhythm.took(10.0)  # nor is one that was requested
    assert len(rhythm.due(pools, 1.3)) == 50
    rhythm.took(50 * SLICE_SECONDS)
    assert len(rhythm.due(pools, 1.4)) == 20  # at the least
    sizes = []
    for _ in range(30):
        rhythm.took(1e-6)
        sizes.append(len(rhythm.due(pools, 1.5)))
    assert max(sizes) == 100  # at the most


def test_a_shortage_is_settled_by_a_round_over_all_pools_at_a_time():
    pools = tuple(f"pool-{number}" for number in range(10))
    rhythm = Rhythm(slice_pools=4, whole_seconds=60)
    rhythm.due(pools, 0.0)
    assert len(rhythm.due(pools, 1.0)) == 4
    rhythm.request_whole()
    assert [len(rhythm.due(pools, 1.1)), len(rhythm.due(pools, 1.2))] == [4, 2]
    assert rhythm.due(pools, 2.0) == frozenset(pools)
    assert len(rhythm.due(pools, 3.0)) == 4
    assert [len(rhythm.due(pools, 3.1)), len(rhythm.due(pools, 3.2))] == [4, 2]
    assert rhythm.due(pools, 62.0) == frozenset(pools)  # now and then without a shortage


def test_the_brokers_clock_is_learnt():
    clock = BrokerClock(wall=lambda: 5000.0, monotonic=lambda: 100.0)
    assert clock.now() == 5000.0
    clock.learn(stored_at=5000.004, sent_at=99.99, answered_at=100.01)
    assert clock.now() == 5000.0  # may be right
    clock.learn(stored_at=5010.0, sent_at=99.9, answered_at=100.0)
    assert abs(clock.now() - 5010.05) < 1e-6


def installed(tmp_path, monkeypatch, source: str, entry_points: str) -> None:
    """A package of this module and these entry points, as if it were installed."""
    (tmp_path / "tidal_package.py").write_text(source)
    info = tmp_path / "tidal-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tidal\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tidal_package", raising=False)


def test_strategies_of_installed_packages(tmp_path, monkeypatch, caplog):
    installed(
        tmp_path,
        monkeypatch,
        "class Tidal:\n    name = 'tidal'\n    def demand(self, inputs): ...\n",
        "[penstock.strategies]\n"
        "tidal = tidal_package:Tidal\n"
        "broken = tidal_package:Missing\n"
        "odd = tidal_package:__name__\n",
    )
    found = plugins.strategies()
    assert {*BUILTIN, "tidal"} == set(found)
    assert callable(found["tidal"].demand)
    assert sum("cannot be loaded" in record.getMessage() for record in caplog.records) == 2


def test_policies_of_installed_packages(tmp_path, monkeypatch, caplog):
    installed(
        tmp_path,
        monkeypatch,
        "from penstock.decider.core.policies.policy import Policy\n"
        "NEAP = Policy(name='x', before=lambda proposal: None)\n"
        "ODD = Policy(name='y', options=int)\n",
        "[penstock.policies]\n"
        "neap = tidal_package:NEAP\n"
        "broken = tidal_package:Missing\n"
        "odd = tidal_package:ODD\n"
        "none = tidal_package:Policy\n",
    )
    found = plugins.policies()
    assert {*SHIPPED, "neap"} == set(found)
    assert found["neap"].name == "neap"
    assert sum("cannot be loaded" in record.getMessage() for record in caplog.records) == 3
