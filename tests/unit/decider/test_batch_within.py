"""Strategy `batch_within`: slots for streaming queries."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import NOW, snapshot, took

from penstock.config import Pool, Profile
from penstock.decider.core.strategies.batch_within import (
    BatchWithin,
    Options,
    batch_seconds,
    need_slots,
)
from penstock.decider.core.strategy import Demand, StrategyInputs, whole
from penstock.events.snapshot import StreamLoad

PROMISE = 10.0


def load(query: str = "orders", **fields: Any) -> StreamLoad:
    """100 rows a second of 20 ms: two slots' worth of work."""
    usual = {
        "rows_per_second": 100.0, "task_seconds_per_row": 0.02, "fixed_seconds": 0.0,
        "interval_seconds": 4.0, "batch_rows": 400, "batch_seconds": 2.0, "slots": 4.0,
    }  # fmt: skip
    return StreamLoad(query=query, **{**usual, **fields})


def demand(*loads: StreamLoad, current: int = 1, slots: int = 1, **fields: Any) -> Demand:
    pool = Pool(
        name="stream", kind="spark", queues=(), slots=slots, source="progress",
        profile=Profile(sla_seconds=PROMISE, min_workers=0, max_workers=100),
    )  # fmt: skip
    values = {"now": NOW, "memory": {}, "options": Options(headroom_share=0.0), **fields}
    measured = snapshot("stream", streams=loads, spawn=took(3.0))
    inputs = StrategyInputs(
        pool=pool, snapshot=measured, age_seconds=0.5, current=current, **values
    )
    return BatchWithin().demand(inputs)


GOLDEN = [
    # what is measured, slots: N = 10 s
    ({}, 2.0),  # 20 task seconds a second, all of it in the promise
    ({"fixed_seconds": 2.0}, 2.5),  # 20 / (10 - 2)
    ({"fixed_seconds": 60.0}, 4.0),  # never more than half of the promise
    ({"interval_seconds": 30.0}, 6.0),  # 30 s of rows in 10 s
    ({"lag_rows": 1000}, 4.0),  # 20 s of work behind, in 10 s
    ({"growth_per_second": 5.0}, 2.7),  # 35 more by the time that a Worker is ready
    ({"growth_per_second": 50.0}, 3.0),  # no more than half as many
    ({"rows_per_second": 0.0}, 0.0),
    ({"task_seconds_per_row": None}, 0.0),
    # 40 task seconds under way that came in 4 s, so at least (sqrt(2000) - 1)^2 rows
    ({"running_seconds": 1.0, "running_task_seconds": 40.0}, 9.557786),
    # 2 rows under way where 1.6 are usual are no more than chance
    (
        {
            "rows_per_second": 0.4,
            "task_seconds_per_row": 5.0,
            "running_seconds": 1.0,
            "running_task_seconds": 10.0,
        },
        2.0,
    ),
    # the same with rows held back: as many rows as the source lets through say nothing of the rate
    ({"running_seconds": 1.0, "running_task_seconds": 40.0, "lag_rows": 1}, 2.002),
    # late already: what gathers meanwhile is to be done in time
    ({"running_seconds": 15.0, "running_task_seconds": 8.0}, 3.0),
    # held up by something else
    ({"running_seconds": 900.0, "running_task_seconds": 8.0}, 6.0),
]


@pytest.mark.parametrize(("measured", "slots"), GOLDEN)
def test_slots_by_hand(measured: dict[str, Any], slots: float) -> None:
    assert need_slots(load(**measured), PROMISE, 3.0) == pytest.approx(slots)


def test_headroom_is_a_share_of_the_need() -> None:
    assert need_slots(load(), PROMISE, 3.0, 0.25) == pytest.approx(2.5)


def test_with_the_slots_that_it_asks_for_each_batch_is_done_in_time() -> None:
    """Whatever the trigger's interval: batch by batch, by the model."""
    for interval in (0.0, 1.0, 4.0, 9.0, 40.0):
        for fixed in (0.0, 0.5, 3.0):
            slots = need_slots(load(interval_seconds=interval, fixed_seconds=fixed), PROMISE, 3.0)
            seconds = interval
            for _ in range(50):
                rows = 100.0 * max(interval, seconds)
                seconds = fixed + 0.02 * rows / slots
                assert seconds <= PROMISE + 1e-6


loads = st.builds(
    load,
    rows_per_second=st.floats(0, 1e5),
    growth_per_second=st.floats(0, 1e3),
    lag_rows=st.one_of(st.none(), st.integers(0, 10**6)),
    interval_seconds=st.floats(0, 100),
    batch_seconds=st.floats(0, 100),
    task_seconds_per_row=st.floats(1e-6, 1),
    fixed_seconds=st.floats(0, 100),
    running_seconds=st.floats(0, 100),
    running_task_seconds=st.floats(0, 1e4),
    slots=st.floats(0, 100),
)
times = st.floats(0.5, 600)


@given(loads, times, times, st.floats(0, 1e4))
def test_more_rows_never_need_fewer_slots(one, promise, spawn, rows) -> None:
    slots = need_slots(one, promise, spawn)
    assert slots >= 0
    faster = msgspec.structs.replace(one, rows_per_second=one.rows_per_second + rows)
    growing = msgspec.structs.replace(one, growth_per_second=one.growth_per_second + rows)
    for more in (faster, growing):
        assert need_slots(more, promise, spawn) >= slots * (1 - 1e-9)


@given(loads, times, times, st.integers(0, 10**6))
def test_more_lag_never_needs_fewer_slots(one, promise, spawn, lag) -> None:
    """Between two batches: of one under way, rows that were held back say nothing of the rate."""
    one = msgspec.structs.replace(one, running_seconds=0.0, running_task_seconds=0.0)
    further = msgspec.structs.replace(one, lag_rows=(one.lag_rows or 0) + lag)
    assert need_slots(further, promise, spawn) >= need_slots(one, promise, spawn) * (1 - 1e-9)


@given(loads, times, times)
def test_a_shorter_promise_never_needs_fewer_slots(one, promise, spawn) -> None:
    assert need_slots(one, promise / 2, spawn) >= need_slots(one, promise, spawn) * (1 - 1e-9)


@given(loads, st.floats(0, 2000), st.floats(0, 1e6), times, times)
def test_slots_are_bounded_by_the_work_that_shows(one, running, tasks, promise, spawn) -> None:
    under_way = msgspec.structs.replace(one, running_seconds=running, running_task_seconds=tasks)
    slots = need_slots(under_way, promise, spawn)
    assert 0 <= slots < float("inf")


def test_workers_are_slots_by_the_workerful_over_all_queries() -> None:
    assert demand(load(), load("clicks", rows_per_second=125.0), slots=2).workers == 3


def test_a_query_that_runs_keeps_a_worker_and_one_that_ended_none() -> None:
    assert demand(load(rows_per_second=0.0), current=0).workers == 1
    assert demand(load(task_seconds_per_row=None), current=0).workers == 1
    assert demand(load(task_seconds_per_row=None), current=7).workers == 7
    assert demand(load(rows_per_second=None), current=7).workers == 7
    assert demand(load(ended="it was stopped"), current=0).workers == 0
    assert demand(current=0).workers == 0


@pytest.mark.parametrize("running_seconds", [5.0, 60.0])
def test_what_gathered_while_the_query_did_not_run_asks_for_workers(running_seconds) -> None:
    """Of a run's first batch only the tasks are known, and that it will be late, or is."""
    first = load(
        task_seconds_per_row=None, rows_per_second=None, slots=1.0,
        running_seconds=running_seconds, running_task_seconds=200.0,
    )  # fmt: skip
    asked = demand(first, current=1)
    assert asked.workers > 5
    assert "the one under way needs" in asked.reasons[-1].text
    small = msgspec.structs.replace(first, running_seconds=0.5, running_task_seconds=2.0)
    assert demand(small, current=1).workers == 1


def test_workers_go_when_fewer_were_enough_for_a_while() -> None:
    memory: dict[str, Any] = {}
    workers = []
    for second, rows in ((0, 300.0), (1, 100.0), (10, 100.0), (21, 100.0)):
        asked = demand(
            load(rows_per_second=rows), current=6, now=NOW + second, memory=memory,
            options=Options(headroom_share=0.0, hold_seconds=20.0),
        )  # fmt: skip
        memory = msgspec.json.decode(msgspec.json.encode(asked.memory))
        workers.append(whole(asked.workers))
    assert workers == [6, 6, 6, 2]


def test_a_hold_keeps_what_is_there_and_adds_nothing() -> None:
    high = demand(load(rows_per_second=300.0), current=2)
    asked = demand(load(), current=2, now=NOW + 1, memory=high.memory)
    assert asked.workers == 2


def test_the_memory_is_bounded() -> None:
    memory: dict[str, Any] = {}
    for second in range(500):
        falling = load(rows_per_second=1000.0 - second)
        memory = dict(demand(falling, now=NOW + second, memory=memory).memory)
    assert len(memory["needs"]) <= 10


def test_the_memory_of_another_strategy_is_ignored() -> None:
    assert demand(load(), memory={"needs": "many"}).workers == 2


def test_it_says_why_and_predicts_the_batch() -> None:
    asked = demand(load(lag_rows=100, fixed_seconds=0.5), current=1)
    [reason] = asked.reasons
    assert reason.text == (
        "3 wanted by batch_within: query orders needs 2.3 slots for 100 rows/s of 20 ms, "
        "0.5 s a batch beside that, so that a batch is done within 10 s, with 100 rows behind"
    )
    assert asked.predicted_pickup_seconds == pytest.approx(0.5 + (400 + 100) * 0.02 / 3)
    assert batch_seconds(load(), 2, PROMISE) == pytest.approx(4.0)
