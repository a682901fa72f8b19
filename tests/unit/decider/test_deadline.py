"""Strategy `deadline`: what it asks for, what it keeps, and that it never turns the wrong way."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.decider.given import NOW, pool, snapshot, took

from penstock.decider.core.strategies.deadline.memory import Past, recall, remember
from penstock.decider.core.strategies.deadline.passage import idle_seconds
from penstock.decider.core.strategies.deadline.poisson import most_arrivals, normal_quantile
from penstock.decider.core.strategies.deadline.strategy import Deadline, Options
from penstock.decider.core.strategies.deadline.worker_groups import (
    Service,
    WorkerGroup,
    WorkerGroups,
    surely,
)
from penstock.decider.core.strategy import Demand, StrategyInputs
from penstock.events.snapshot import Budget, Forecast, SpawnFit, WaitingJob

STRATEGY = Deadline()
SPAWN = SpawnFit(mean_seconds=1.0, p95_seconds=1.0, p99_seconds=1.0)


def demand(
    current: int = 0,
    memory: dict[str, Any] | None = None,
    calm: float = 0.2,
    change_seconds: float = 0.0,
    sla: float = 10.0,
    quantile: float = 0.99,
    now: float = NOW,
    **measured: Any,
) -> Demand:
    """Job seconds are 2 unless said."""
    fields = {"spawn_fit": SPAWN, "workers_ready": current, **measured}
    fields.setdefault("workers_idle", 0 if fields.get("waiting") else current)
    return STRATEGY.demand(
        StrategyInputs(
            pool=pool(strategy="deadline", sla_seconds=sla, quantile=quantile),
            snapshot=snapshot(**fields),
            age_seconds=0.0,
            current=current,
            now=now,
            memory=memory or {},
            options=Options(calm=calm, change_seconds=change_seconds),
        )
    )


def waits(count: int, oldest: float) -> dict[str, Any]:
    return {
        "waiting": count,
        "oldest_waiting_seconds": oldest,
        "waiting_ages_seconds": (oldest,) * min(count, 2),
    }


# --- what is needed ------------------------------------------------------------------------------
def test_nothing_to_do_needs_nobody() -> None:
    assert demand().workers == 0


def test_one_job_waits_for_its_last_moment() -> None:
    assert demand(**waits(1, 1.0)).workers == 0
    assert demand(**waits(1, 7.0)).workers == 1


def test_the_reason_for_waiting_names_the_latest_start_of_a_worker() -> None:
    """10 s promised, 1 s waited: 9 s less the start, one look and 15 % of the promise."""
    text = demand(**waits(1, 1.0)).reasons[0].text
    assert "no worker is needed yet: one is started in 5 s at the latest" in text
    assert "within the promised 10 s" in text


def test_a_burst_is_answered_at_once_with_as_many_as_start_all_in_time() -> None:
    """200 jobs of 2 s in 9 s after a worker has started: 44 on the mean, and some for chance."""
    asked = demand(**waits(200, 0.0))
    assert 40 <= asked.workers <= 60
    values = asked.reasons[0].values
    assert values["binding_place"] == 200
    assert "job 200 of 200 in the queue" in asked.reasons[0].text


def test_the_binding_job_is_named_or_one_near_it() -> None:
    named = {"waiting_jobs": (WaitingJob("01old", 7.0), WaitingJob("01new", 0.5))}
    oldest = demand(**waits(1, 7.0), **named).reasons[0]
    assert oldest.values["binding_job"] == "01old"
    assert "job 1 of 1 in the queue (01old), waiting for 7 s," in oldest.text
    last = demand(**waits(200, 0.0), **named).reasons[0]
    assert last.values["near_job"] == "01new"
    assert "job 200 of 200 in the queue (near 01new)" in last.text
    assert "(" not in demand(**waits(1, 7.0)).reasons[0].text  # a snapshot of before


def test_the_binding_job_would_be_late_with_fewer() -> None:
    asked = demand(current=5, **waits(60, 6.0))
    late = asked.reasons[0].values["late_seconds_with_one_less"]
    assert asked.workers > 5
    assert late > 0
    assert f"would start {late:g} s late with" in asked.reasons[0].text


def test_workers_that_are_starting_count() -> None:
    """They were ordered with the last demand; nobody asks for them twice."""
    first = demand(**waits(200, 0.0))
    ordered = int(first.workers)
    again = demand(
        ordered,
        dict(first.memory),
        now=NOW + 0.5,
        workers_ready=0,
        workers_idle=0,
        **waits(200, 0.5),
    )
    assert again.workers == ordered


def test_workers_that_never_start_are_not_counted_on() -> None:
    first = demand(**waits(200, 0.0))
    ordered = int(first.workers)
    again = demand(
        ordered,
        dict(first.memory),
        now=NOW + 8.0,
        workers_ready=0,
        workers_idle=0,
        **waits(200, 8.0),
    )
    assert again.workers > ordered


def test_a_slow_first_start_is_waited_for_while_there_is_time() -> None:
    """A start is assumed to take 1 s, and has taken 20: it is expected within the 100 s left."""
    queue = {"spawn_fit": None, "sla": 120.0, **waits(1, 20.0)}
    memory = remember(Past(planned=1, asked_at=NOW - 1, starts=((NOW - 20, 1),)))
    ready = {"workers_ready": 0, "workers_idle": 0}
    assert demand(1, memory, **queue, **ready).workers == 1
    late = remember(Past(planned=1, asked_at=NOW - 1, starts=((NOW - 70, 1),)))
    assert demand(1, late, **{**queue, **waits(1, 70.0)}, **ready).workers == 2


def test_a_promise_shorter_than_a_start_keeps_enough_warm_for_steady_traffic() -> None:
    slow = SpawnFit(mean_seconds=20.0, p95_seconds=20.0, p99_seconds=20.0)
    busy = {"arrival_per_second": 5.0, "spawn_fit": slow, "service": took(2.0)}
    assert demand(**busy).workers >= 11
    rising = Forecast(
        model="slope",
        horizon_seconds=20.0,
        mean_per_second=10.0,
        p80_per_second=11.0,
        p95_per_second=12.0,
        p99_per_second=13.0,
    )
    assert demand(**busy, forecast=rising).workers >= 21


def test_a_spent_error_budget_makes_it_more_careful() -> None:
    spent = Budget(sla_seconds=10, quantile=0.99, window_seconds=86_400, remaining_share=-1.0)
    assert demand(**waits(200, 0.0), budget=spent).workers > demand(**waits(200, 0.0)).workers


# --- who is kept ---------------------------------------------------------------------------------
def test_workers_that_nothing_is_expected_for_go_at_once() -> None:
    assert demand(10, change_seconds=30.0).workers == 0


def test_those_that_the_load_needs_soon_again_stay() -> None:
    left = demand(20, arrival_per_second=5.0, workers_idle=10).workers
    assert 10 <= left <= 15


@pytest.mark.parametrize("price", [{"calm": 100.0}, {"change_seconds": 300.0}])
def test_with_a_high_price_it_is_calm(price: dict[str, float]) -> None:
    load = {"arrival_per_second": 0.1, "workers_idle": 1}
    assert demand(1, **load).workers == 0
    assert demand(1, **load, **price).workers == 1


@given(
    st.integers(1, 60), st.integers(0, 60), st.floats(0.01, 30), st.floats(0, 2), st.floats(0, 3)
)
def test_a_calmer_setting_never_removes_more(current, idle, rate, calm, further) -> None:
    load = {"arrival_per_second": rate, "workers_idle": min(idle, current)}
    quick = demand(current, calm=calm, **load)
    assert demand(current, calm=calm + further, **load).workers >= quick.workers


SLOW = SpawnFit(mean_seconds=30.0, p95_seconds=30.0, p99_seconds=30.0)


def test_where_a_start_takes_longer_than_the_promise_a_lull_removes_no_worker() -> None:
    """30 s to start, 10 s promised: what was needed within the last 44 s stays."""
    busy = {"arrival_per_second": 1.0, "spawn_fit": SLOW, "service": took(2.0)}
    asked = demand(5, workers_idle=3, **busy)
    needed = asked.reasons[0].values["needed_workers"]
    lull = {**busy, "arrival_per_second": 0.0}
    assert demand(5, dict(asked.memory), now=NOW + 44, **lull).workers == needed > 2
    assert demand(5, dict(asked.memory), now=NOW + 45, **lull).workers == 0


def test_irregular_jobs_do_not_keep_surplus_workers_of_slow_starts() -> None:
    irregular = msgspec.structs.replace(took(5.0), cv2=9.0)
    slow = SpawnFit(mean_seconds=4.4, p95_seconds=4.4, p99_seconds=4.4)
    load = {"arrival_per_second": 0.06, "spawn_fit": slow, "service": irregular}
    assert demand(11, sla=5.0, **load).workers <= 4


# --- the last safe moment ------------------------------------------------------------------------
def test_a_job_waits_for_its_last_moment_also_where_workers_exist() -> None:
    """Two busy workers end a job of 20 s each ten seconds: likely in time, though not surely."""
    busy = {"service": took(20.0), "sla": 30.0}
    assert demand(2, **waits(1, 1.0), **busy).workers == 2
    assert demand(2, **waits(1, 15.0), **busy).workers == 2
    assert demand(2, **waits(1, 26.0), **busy).workers == 3


def test_at_its_last_moment_a_job_trusts_to_many_busy_workers() -> None:
    """Of 16 with jobs of 20 s the first is free within 6.5 s with 99.4 %, of 10 with 96 %."""
    busy = {"service": msgspec.structs.replace(took(20.0), cv2=1.0), "sla": 30.0}
    assert demand(16, **waits(1, 23.5), **busy).workers == 16
    assert demand(10, **waits(1, 23.5), **busy).workers > 10


def test_a_few_jobs_of_irregular_length_wait_for_their_last_moment_together() -> None:
    """One worker begins the second of two jobs of 1 s within 30 s, though one in 400 is longer."""
    irregular = {"service": msgspec.structs.replace(took(1.0), cv2=9.0), "sla": 30.0}
    assert demand(**waits(2, 0.2), **irregular).workers == 0
    assert demand(**waits(2, 27.5), **irregular).workers >= 1


def test_jobs_that_are_late_in_the_mean_are_answered_at_once() -> None:
    """Six jobs of 20 s in 30 s are more than two workers do."""
    busy = {"service": took(20.0), "sla": 30.0}
    assert demand(2, **waits(6, 1.0), **busy).workers > 2


@given(st.integers(0, 20), st.integers(1, 40), st.floats(0.1, 60), st.floats(5, 120))
def test_waiting_never_makes_a_job_late(planned, count, seconds, sla) -> None:
    """Calm never lowers the number at a job's last moment: 1 s to start, a look, the margin."""
    oldest = max(sla - 1.0 - 1.05 - 0.15 * sla, 0.0) + 0.01
    queue = {**waits(count, oldest), "service": took(seconds), "sla": sla}
    calm = demand(planned, calm=3.0, **queue).workers
    assert calm >= demand(planned, calm=0.0, **queue).workers
    assert calm >= 1


# --- it only ever turns one way ------------------------------------------------------------------
pools_measured = st.fixed_dictionaries(
    {
        "waiting": st.integers(0, 300),
        "oldest_waiting_seconds": st.floats(0.01, 30),
        "arrival_per_second": st.floats(0.01, 50),
        "current": st.integers(0, 60),
        "idle": st.integers(0, 60),
        "sla": st.floats(0.01, 40),
        "job_seconds": st.floats(0.01, 60),
        "cv2": st.floats(0, 9),
        "contention": st.sampled_from([0.0, 0.02, 0.1]),
    }
)


def asked(
    waiting: int,
    oldest_waiting_seconds: float,
    arrival_per_second: float,
    current: int,
    idle: int,
    sla: float,
    job_seconds: float,
    cv2: float,
    contention: float,
    quantile: float = 0.95,
) -> float:
    past = Past(planned=current, asked_at=NOW - 1.0)
    return demand(
        current,
        remember(past),
        sla=sla,
        quantile=quantile,
        waiting=waiting,
        oldest_waiting_seconds=oldest_waiting_seconds,
        waiting_ages_seconds=(oldest_waiting_seconds, oldest_waiting_seconds / 2)
        if waiting
        else (),
        arrival_per_second=arrival_per_second,
        service=msgspec.structs.replace(took(job_seconds), cv2=cv2),
        spawn_fit=msgspec.structs.replace(SPAWN, contention_seconds=contention),
        workers_ready=current,
        workers_idle=min(idle, current),
    ).workers


@given(pools_measured, st.integers(0, 50), st.floats(1, 4), st.floats(1, 3))
def test_more_load_never_asks_for_fewer(measured, more, faster, older) -> None:
    loaded = {
        **measured,
        "waiting": measured["waiting"] + more,
        "arrival_per_second": measured["arrival_per_second"] * faster,
        "oldest_waiting_seconds": measured["oldest_waiting_seconds"] * older,
    }
    assert asked(**loaded) >= asked(**measured)


@given(pools_measured, st.floats(0.1, 1), st.floats(0.95, 0.999))
@example(  # new workers got a little time beyond their first job, whose spread lowered the bound
    {
        "waiting": 200,
        "oldest_waiting_seconds": 0.23,
        "arrival_per_second": 12.0,
        "current": 26,
        "idle": 26,
        "sla": 0.17,
        "job_seconds": 1.15,
        "cv2": 0.0,
        "contention": 0.0,
    },
    0.585,
    0.95,
)
@example(  # the more start together, the longer it takes: that time is not given to the busy ones
    {
        "waiting": 124,
        "oldest_waiting_seconds": 0.02,
        "arrival_per_second": 0.57,
        "current": 10,
        "idle": 10,
        "sla": 1.74,
        "job_seconds": 0.19,
        "cv2": 0.0,
        "contention": 0.1,
    },
    0.8,
    0.999,
)
def test_a_tighter_promise_never_asks_for_fewer(measured, share, quantile) -> None:
    tighter = {**measured, "sla": measured["sla"] * share}
    assert asked(**tighter, quantile=quantile) >= asked(**measured)


@given(pools_measured)
def test_the_same_again_is_the_same(measured) -> None:
    assert asked(**measured) == asked(**measured)


# --- the parts -----------------------------------------------------------------------------------
EXPONENTIAL = Service(2.0, 1.0)


def test_idle_times_by_hand() -> None:
    """One worker, jobs of 2 s, one each 4 s: 4 s to the first, 4 + 2 · 4 s from one to two jobs."""
    assert idle_seconds(0, 1, 1, 0.25, EXPONENTIAL) == pytest.approx(4)
    assert idle_seconds(0, 2, 1, 0.25, EXPONENTIAL) == pytest.approx(16)
    assert idle_seconds(1, 2, 1, 0.25, EXPONENTIAL) == pytest.approx(12)
    # from two to three jobs one waits: only the time back below counts
    assert idle_seconds(2, 3, 1, 0.25, EXPONENTIAL) == pytest.approx(24)


def test_idle_times_at_their_limits() -> None:
    assert idle_seconds(3, 3, 2, 0.25, EXPONENTIAL) == 0
    assert idle_seconds(0, 3, 2, 0.0, EXPONENTIAL) == math.inf
    assert idle_seconds(0, 300, 50, 0.25, EXPONENTIAL) == math.inf


@given(
    st.floats(0, 60), st.floats(1, 300), st.integers(1, 60), st.floats(0.01, 50), st.floats(1, 3)
)
def test_a_worker_idles_less_with_more_load_and_a_shorter_line(
    jobs, line, workers, rate, factor
) -> None:
    most = workers + 1 + line
    idles = idle_seconds(jobs, most, workers, rate, EXPONENTIAL) * (1 + 1e-6) + 1e-9
    assert idle_seconds(jobs, most, workers, rate * factor, EXPONENTIAL) <= idles
    assert idle_seconds(jobs * factor, most, workers, rate, EXPONENTIAL) <= idles


@given(st.floats(0, 20), st.floats(21, 60), st.integers(1, 20), st.floats(0.1, 20), st.floats(1, 9))
def test_idle_times_know_no_units(jobs, most, workers, rate, factor) -> None:
    """Rates a minute instead of a second give minutes."""
    seconds = idle_seconds(jobs, most, workers, rate, EXPONENTIAL)
    turned = Service(EXPONENTIAL.seconds / factor, EXPONENTIAL.cv2)
    minutes = idle_seconds(jobs, most, workers, rate * factor, turned)
    assert minutes * factor == pytest.approx(seconds, rel=1e-6) or math.inf in (minutes, seconds)


groups = st.lists(
    st.builds(WorkerGroup, st.integers(1, 20), st.one_of(st.none(), st.floats(0, 5))), max_size=3
)


@given(groups, st.floats(1, 200), st.floats(2, 30), st.floats(0, 3), st.floats(0.1, 10))
def test_the_fewest_have_begun_so_many_and_one_less_has_not(
    found, place, seconds, cv2, job_seconds
) -> None:
    hands = WorkerGroups(tuple(found), 1.0, Service(job_seconds, cv2), safety=2.0)
    fewest = math.ceil(hands.fewest(place, seconds) - 1e-9)
    assert hands.begun(fewest, seconds) >= place - 1e-6
    if fewest > 0:
        assert hands.begun(fewest - 1, seconds) < place + 1e-6


@given(
    groups,
    st.floats(1, 200),
    st.floats(2, 30),
    st.floats(0, 3),
    st.floats(0.1, 30),
    st.floats(1e-3, 2),
)
@example([WorkerGroup(33, None), WorkerGroup(9, 0.0)], 60.0, 6.0, 0.0, 10.0, 0.5)
def test_more_time_never_needs_more_workers(
    existing, place, seconds, cv2, job_seconds, further
) -> None:
    in_order = tuple(sorted(existing, key=lambda group: group.ready_seconds or 0.0))
    workers = WorkerGroups(in_order, 5.5, Service(job_seconds, cv2), safety=2.0)
    fewest = workers.fewest(place, seconds)
    assert workers.fewest(place, seconds + further) <= fewest + 1e-9


@given(st.floats(0.1, 400), st.sampled_from([0.95, 0.99, 0.999]))
def test_fewer_jobs_than_surely_begin_are_as_rare_as_said(mean, share) -> None:
    """Exponential run times: the number is Poisson's; half a job, as numbers are whole."""
    sure = surely(mean, 1.0, normal_quantile(share))

    def fewer(jobs: float) -> float:
        return sum(
            math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
            for count in range(math.ceil(jobs))
        )

    assert fewer(math.floor(sure)) <= (1 - share) * 1.6
    assert fewer(sure + 1.5) >= 1 - share


@given(groups, st.floats(1, 200), st.floats(2, 30), st.floats(0.1, 10), st.floats(0.001, 1000))
def test_the_fewest_know_no_units(found, place, seconds, job_seconds, factor) -> None:
    def turned(by: float) -> float:
        scaled = [
            WorkerGroup(
                each.workers, None if each.ready_seconds is None else each.ready_seconds * by
            )
            for each in found
        ]
        hands = WorkerGroups(tuple(scaled), 1.0 * by, Service(job_seconds * by, 1.0), safety=2.0)
        return hands.fewest(place, seconds * by)

    assert turned(factor) == pytest.approx(turned(1.0), rel=1e-6)


@given(st.floats(0.01, 500), st.floats(0.001, 0.3))
def test_the_most_that_come_are_exceeded_as_seldom_as_said(mean, share) -> None:
    most = most_arrivals(mean, share)
    beyond = 1.0 - sum(
        math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        for count in range(most + 1)
    )
    assert beyond <= share * 1.15 + 1e-9


def test_what_is_remembered_comes_back_from_the_log() -> None:
    past = Past(planned=3, asked_at=NOW, starts=((NOW, 2),))
    assert recall(remember(past)) == past
    noted = past.note_needed(3, NOW, 40).note_needed(2, NOW + 10, 40)
    assert recall(remember(noted)) == noted
    assert recall({"planned": "many"}) == Past()


# --- held up --------------------------------------------------------------------------------------
def test_late_jobs_that_end_far_slower_than_they_run_are_told_as_such() -> None:
    """A worker could run 1000 a second; 65 end, and the oldest is 43 s late."""
    measured = {"job_seconds": 0.001, "throughput_per_second": 65.0, "sla": 30.0}
    [reason] = demand(current=1, **waits(1529, 73.0), **measured).reasons
    assert reason.workers == 1
    assert "the promise is broken now: the oldest job has waited 73 s of 30 s" in reason.text
    assert (
        "65 jobs a second end, 0.015 s of a worker's time for each that runs 0.001" in reason.text
    )
    assert reason.values["oldest_waiting_seconds"] == 73.0
    assert reason.values["throughput_per_second"] == 65.0
    [reason] = demand(current=1, **waits(1529, 3.0), **measured).reasons
    assert "broken" not in reason.text


def test_no_worker_goes_while_jobs_are_late_and_held_up() -> None:
    measured = {"job_seconds": 0.001, "workers_idle": 2, "sla": 30.0, **waits(20, 73.0)}

    def fewest_of_a_minute(**more: float) -> float:
        memory: dict[str, Any] = {}
        fewest = 2.0
        for second in range(60):
            asked = demand(2, memory, now=NOW + second, **measured, **more)
            memory, fewest = dict(asked.memory), min(fewest, asked.workers)
        return fewest

    assert fewest_of_a_minute() == 1
    assert fewest_of_a_minute(throughput_per_second=1.0) == 2


@pytest.mark.parametrize(("current", "subject"), [(1, "1 other is"), (2, "2 others are")])
def test_a_step_down_says_how_many_are_idle(current: int, subject: str) -> None:
    asked = demand(current)
    assert f" {subject} not expected to be needed for 1 s of idling" in asked.reasons[0].text
