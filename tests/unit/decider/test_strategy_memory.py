"""What a strategy remembers: comes back with the next inputs, and survives what interrupts it."""

from __future__ import annotations

import msgspec
from tests.unit.decider.given import NOW, inputs, pool, snapshot, state

from penstock.decider.core.decide import decide
from penstock.decider.core.state import PoolState, dump
from penstock.decider.core.strategy import Demand


class Counts:
    """One worker more each time it is asked."""

    name = "counts"

    def demand(self, inputs):
        asked = inputs.memory.get("asked", 0) + 1
        return Demand(workers=asked, memory={"asked": asked})


def round_of_counts(before, **more):
    given = inputs([pool(strategy="counts")], [snapshot()], strategies={"counts": Counts()}, **more)
    return decide(before, given, NOW)


def test_it_comes_back_with_the_next_inputs():
    first = round_of_counts(state())
    second = round_of_counts(first.state)
    assert [each.decisions[0].target for each in (first, second)] == [1, 2]
    assert second.state.pools["emails"].memory == {"asked": 2}


def test_it_is_part_of_the_decision_so_that_a_new_leader_goes_on_from_it():
    before = round_of_counts(state()).state.pools["emails"]
    stored = msgspec.json.encode(dump(before))
    assert msgspec.json.decode(stored, type=PoolState) == before


def test_it_stands_while_the_strategy_is_not_asked():
    before = round_of_counts(state()).state
    assert round_of_counts(before, age=60).state.pools["emails"].memory == {"asked": 1}
