"""The strategies besides `hybrid` and `deadline`: worked examples, and what holds for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.asking import demand, wanted
from tests.unit.decider.given import NOW, took

SLA = 30.0
NAMES = (
    "backlog_only",
    "simple_rate",
    "conservative",
    "jobs_per_worker",
    "queue_size",
    "throughput",
    "wait_time",
    "combined",
    "schedule",
    "fixed",
)

GOLDEN = [
    # name, settings, measured (SLA 30 s, 2 s a job, 3 workers now), workers
    ("backlog_only", {}, {"arrival_per_second": 10}, 0),
    ("backlog_only", {}, {"waiting": 100, "oldest_waiting_seconds": 25}, 40),
    ("backlog_only", {}, {"waiting": 100, "oldest_waiting_seconds": 0}, 7),
    ("backlog_only", {}, {"waiting": 60, "oldest_waiting_seconds": 31, "job_seconds": 30}, 60),
    ("backlog_only", {}, {"waiting": 1, "job_seconds": 0.0}, 1),
    ("backlog_only", {}, {"waiting": 100, "oldest_waiting_seconds": None}, 7),
    ("simple_rate", {}, {"arrival_per_second": 10}, 20),
    ("simple_rate", {}, {"arrival_per_second": 12, "waiting": 500}, 24),
    ("simple_rate", {}, {"waiting": 500}, 1),
    ("simple_rate", {}, {}, 0),
    ("conservative", {}, {"arrival_per_second": 10}, 25),
    ("conservative", {"headroom_share": 0}, {"arrival_per_second": 10}, 20),
    ("conservative", {}, {"waiting": 100, "oldest_waiting_seconds": 14.9}, 2),
    ("conservative", {}, {"waiting": 100, "oldest_waiting_seconds": 15}, 17),
    ("conservative", {}, {"waiting": 100, "oldest_waiting_seconds": 25}, 50),
    ("jobs_per_worker", {}, {"waiting": 100}, 10),
    ("jobs_per_worker", {}, {"waiting": 101}, 11),
    ("jobs_per_worker", {"per_worker": 50}, {"waiting": 101}, 3),
    ("jobs_per_worker", {}, {"waiting": 1}, 3),
    ("jobs_per_worker", {}, {"running": 3}, 0),
    ("queue_size", {}, {"waiting": 1001}, 5),
    ("queue_size", {}, {"waiting": 1000}, 3),
    ("queue_size", {}, {"waiting": 100}, 3),
    ("queue_size", {}, {"waiting": 99}, 2),
    ("queue_size", {"high_watermark": 50, "low_watermark": 5}, {"waiting": 51}, 5),
    ("throughput", {}, {"waiting": 1}, 4),
    ("throughput", {"jobs_per_minute": 600}, {"arrival_per_second": 0.1}, 20),
    ("throughput", {"jobs_per_minute": 0.01}, {"running": 1}, 1),
    ("throughput", {}, {}, 0),
    ("wait_time", {}, {"waiting": 9, "oldest_waiting_seconds": 30.1}, 4),
    ("wait_time", {}, {"waiting": 9, "waiting_ages_seconds": (40.0, 10.0)}, 3),
    ("wait_time", {}, {"waiting": 9, "pickup": took(31)}, 4),
    ("wait_time", {}, {"waiting": 0, "pickup": took(31)}, 3),
    ("wait_time", {}, {"pickup": took(4.9)}, 2),
    ("wait_time", {"high_seconds": 60}, {"pickup": took(9.9)}, 2),
    ("wait_time", {"low_seconds": 3}, {"pickup": took(4.9)}, 3),
    ("combined", {"weights": {"simple_rate": 1}}, {"arrival_per_second": 10}, 20),
    ("combined", {"weights": {"simple_rate": 3, "fixed": 1}}, {"arrival_per_second": 10}, 15),
    ("combined", {"weights": {"simple_rate": 0.3, "fixed": 0.1}}, {"arrival_per_second": 10}, 15),
    ("combined", {}, {"waiting": 1001, "oldest_waiting_seconds": 31}, 5),  # of 5, 3.3 and 4
]


@pytest.mark.parametrize(("name", "settings", "measured", "workers"), GOLDEN)
def test_golden_cases(name, settings, measured, workers):
    assert wanted(name, settings, profile={"sla_seconds": SLA}, **measured) == workers


def test_its_sentence_says_what_it_rests_on():
    found = demand("backlog_only", waiting=100, oldest_waiting_seconds=25)
    assert found.reasons[-1].text == (
        "40 wanted by backlog_only: 100 waiting, 5.0 s left for the oldest, 2 s a job"
    )
    found = demand("combined", {"weights": {"simple_rate": 3, "fixed": 1}}, arrival_per_second=10)
    assert found.reasons[-1].text == (
        "15 wanted by combined: 75% of 20 wanted by simple_rate: 10 jobs/s, 2 s a job; "
        "25% of 0 wanted by fixed: the pool's minimum"
    )


class TestBurstWorkers:
    """`jobs_per_worker` with two that are always there."""

    def wanted(self, waiting: int, current: int) -> int:
        base = {"min_workers": 2}
        return wanted("jobs_per_worker", profile=base, waiting=waiting, current=current)

    def test_they_come_in_one_step(self):
        assert self.wanted(100, current=2) == 10

    def test_they_stay_until_the_queue_is_empty(self):
        assert [self.wanted(waiting, current=10) for waiting in (60, 9, 1)] == [10, 10, 10]

    def test_they_go_when_it_is(self):
        assert self.wanted(0, current=10) == 2


class TestSteps:
    """`queue_size` and `wait_time` go from where they are, with a pause between two steps."""

    crowd = {"waiting": 5000}

    def test_the_next_waits_for_its_time(self):
        first = demand("queue_size", **self.crowd)
        for after, workers in ((0.0, 5), (59.9, 5), (60.0, 7)):
            again = {"current": 5, "now": NOW + after, "memory": first.memory, **self.crowd}
            assert wanted("queue_size", **again) == workers

    def test_a_clock_that_was_set_back_does_not_hold_it(self):
        first = demand("queue_size", **self.crowd)
        again = {"current": 5, "now": NOW - 3600, "memory": first.memory, **self.crowd}
        assert wanted("queue_size", **again) == 7

    def test_the_last_worker_stays_while_there_is_work(self):
        assert wanted("queue_size", waiting=1, current=1) == 1
        assert wanted("queue_size", running=1, current=1) == 1
        assert wanted("queue_size", current=1) == 0

    def test_a_pool_without_workers_gets_its_first(self):
        assert wanted("queue_size", waiting=1, current=0) == 1
        assert wanted("wait_time", waiting=1, current=0) == 1


class TestCombined:
    weights = {"weights": {"queue_size": 1.0, "wait_time": 1.0}}

    def test_each_part_remembers_for_itself(self):
        first = demand("combined", self.weights, waiting=5000, oldest_waiting_seconds=31)
        assert first.memory == {
            "queue_size": {"stepped_at": NOW},
            "wait_time": {"stepped_at": NOW},
        }
        held = demand("combined", self.weights, waiting=5000, current=5, memory=first.memory)
        assert held.workers == 5

    def test_each_part_reads_its_own_settings(self):
        tables = {"options": {"queue_size": {"high_watermark": 5, "low_watermark": 1}}}
        assert demand("combined", self.weights, profile=tables, waiting=6).workers == 3.5

    def test_a_part_that_raises_is_not_left_out_silently(self):
        class Moody:
            def demand(self, inputs):
                raise RuntimeError("not today")

        from penstock.decider.core.registry import with_installed

        mixed = with_installed({"moody": Moody()})
        with pytest.raises(RuntimeError):
            demand("combined", {"weights": {"moody": 1}}, strategies=mixed)


def no_subnormal(figure: float) -> float:
    """Another unit of the smallest figures would not be exact."""
    return figure if figure > 1e-290 else 0.0


loads = st.fixed_dictionaries(
    {
        "waiting": st.integers(0, 3000),
        "running": st.integers(0, 20),
        "oldest_waiting_seconds": st.floats(0, 100).map(no_subnormal),
        "arrival_per_second": st.floats(0, 100).map(no_subnormal),
        "job_seconds": st.floats(0, 60).map(no_subnormal),
        "current": st.integers(0, 50),
    }
)


@pytest.mark.parametrize("name", NAMES)
@given(loads, st.integers(0, 2000), st.floats(0, 50), st.floats(0, 50))
def test_more_load_never_asks_for_fewer(name, load, more_waiting, more_per_second, older):
    heavier = {
        **load,
        "waiting": load["waiting"] + more_waiting,
        "arrival_per_second": load["arrival_per_second"] + more_per_second,
        "oldest_waiting_seconds": load["oldest_waiting_seconds"] + older,
    }
    assert demand(name, **heavier).workers >= demand(name, **load).workers - 1e-9


@pytest.mark.parametrize("name", NAMES)
@given(loads, st.floats(0.001, 60), st.sampled_from([2.0**-10, 2.0**10]))
def test_another_unit_of_time_gives_the_same_answer(name, load, pickup_seconds, unit):
    """Milliseconds taken for seconds would not; powers of two keep every figure exact."""

    def told(by: float) -> float:
        measured = {
            **load,
            "job_seconds": (load["job_seconds"] + 1) * by,
            "arrival_per_second": load["arrival_per_second"] / by,
            "oldest_waiting_seconds": load["oldest_waiting_seconds"] * by,
            "pickup": took(pickup_seconds * by),
        }
        tables = {"throughput": {"jobs_per_minute": 100.0 / by}}
        tables |= {each: {"step_seconds": 60.0 * by} for each in ("queue_size", "wait_time")}
        own = tables.pop(name, {})
        profile = {"sla_seconds": SLA * by, "options": tables}
        return demand(name, own, profile=profile, **measured).workers

    assert told(unit) == told(1.0)


@pytest.mark.parametrize("name", NAMES)
@given(loads)
def test_it_stays_within_reason(name, load):
    found = demand(name, profile={"min_workers": 2}, **load).workers
    load_seconds = load["arrival_per_second"] * load["job_seconds"]
    at_most = {
        "backlog_only": load["waiting"],
        "simple_rate": max(load_seconds, 1),
        "conservative": 1.25 * max(load_seconds, load["waiting"], 1),
        "jobs_per_worker": max(load["current"], load["waiting"] / 10 + 1, 2),
        "queue_size": load["current"] + 2,
        "throughput": max(100 / 60 * load["job_seconds"], 1),
        "wait_time": load["current"] + 1,
        "combined": max(load["current"] + 2, 100 / 60 * load["job_seconds"]),
        "schedule": 8,
        "fixed": 2,
    }
    assert 0 <= found <= at_most[name] + 1e-9
