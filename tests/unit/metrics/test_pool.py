"""A pool's snapshot: sums, the largest age, the union of samples; unknown is None, never zero."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from datasketches import kll_doubles_sketch

from penstock.config import Profile
from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Head, Look, Queue
from penstock.metrics.core.sketches import BadSketch

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
ENVELOPE = {"id": "s1", "source": "metrics/test"}


class Pool:
    """A pool whose queues are looked at once a second."""

    def __init__(self, *queues: str, **profile: Any) -> None:
        self.queues = {name: Queue(name) for name in queues or ("reports",)}
        self.meter = PoolMeter("pool", list(self.queues.values()), Profile(**profile))
        self.now = 0.0

    def look(self, **depths: int | dict[str, int]) -> Pool:
        """``reports=3``: three wait; or a table of a look's fields."""
        self.now += 1
        for name, depth in depths.items():
            fields = depth if isinstance(depth, dict) else {"waiting": depth}
            nothing = {"waiting": 0, "claimed": 0, "delivered": 0, "delivered_sequence": 0}
            self.queues[name].see(Look(at=self.now, **{**nothing, **fields}))
        self.meter.observe(self.now)
        return self

    def head(self, queue: str, age_seconds: float) -> Pool:
        stored_at = (START + timedelta(seconds=self.now - age_seconds)).timestamp()
        after = self.queues[queue].look.delivered_sequence
        self.queues[queue].head = Head(self.now, after, stored_at)
        return self

    def hear(self, **changes: Any) -> Pool:
        usual = {"worker": "w1", "host": "a", "pool": "pool", "pid": 7, "state": "busy"}
        usual |= {"number": int(self.now) + 1, "at": self.now, "started_at": 0}
        self.meter.add_report(WorkerReport(**{**usual, **changes}), self.now)
        return self

    def snapshot(self, later: float = 0.0) -> PoolSnapshot | None:
        now = self.now + later
        return self.meter.snapshot(now, START + timedelta(seconds=now), ENVELOPE, "tick")


def did(finished: int = 0, service: tuple[float, ...] = (), pickup: tuple[float, ...] = ()) -> Any:
    return QueueReport(
        finished=finished or len(service),
        service_sketch=sketch(service),
        service_sum_seconds=sum(service),
        service_sum_squares=sum(value * value for value in service),
        pickup_sketch=sketch(pickup),
        pickup_sum_seconds=sum(pickup),
    )


def sketch(values: tuple[float, ...]) -> bytes:
    made = kll_doubles_sketch(200)
    for value in values:
        made.update(value)
    return made.serialize() if values else b""


def test_a_pool_without_queues_of_our_own_is_measured_by_its_workers() -> None:
    pool = Pool()
    pool.meter.queues = ()
    snapshot = pool.look().hear(state="idle").snapshot()
    assert snapshot
    assert (snapshot.queues, snapshot.waiting, snapshot.workers_ready) == ((), 0, 1)


def test_a_pool_that_was_never_looked_at_has_no_snapshot() -> None:
    assert Pool().snapshot() is None
    assert Pool("a", "b").look(a=1).snapshot() is None


def test_what_was_not_measured_is_none() -> None:
    found = Pool().look(reports=0).snapshot()
    assert found and (found.waiting, found.oldest_waiting_seconds) == (0, 0.0)
    unknown = (found.arrival_per_second, found.throughput_per_second, found.worker_age_seconds)
    unknown += (found.service, found.pickup, found.spawn)
    unknown += (found.worker_cpu_cores, found.worker_memory_bytes, found.forecast_per_second)
    assert set(unknown) == {None}


def test_a_waiting_job_whose_age_is_unknown_has_none() -> None:
    assert Pool().look(reports=1).snapshot().oldest_waiting_seconds is None


def test_a_group_sums_and_takes_the_largest_age() -> None:
    pool = Pool("a", "b").look(a=0, b=0).look(a=3, b={"waiting": 4, "claimed": 2})
    pool.head("a", 20).head("b", 5)
    pool.queues["a"].delayed, pool.queues["b"].delayed = 2, 5
    found = pool.snapshot()
    assert (found.waiting, found.running, found.delayed) == (7, 2, 7)
    assert found.oldest_waiting_seconds == pytest.approx(20)
    assert found.arrival_per_second == pytest.approx(7)
    assert found.queues == ("a", "b")


def test_one_unknown_age_makes_a_groups_age_unknown() -> None:
    pool = Pool("a", "b").look(a=1, b=1).head("a", 20)
    assert pool.snapshot().oldest_waiting_seconds is None


def test_durations_are_the_union_of_all_queues_samples() -> None:
    pool = Pool("a", "b").look(a=0, b=0)
    pool.hear(queues={"a": did(service=(1.0,) * 9), "b": did(service=(11.0,), pickup=(0.5,))})
    found = pool.snapshot()
    assert (found.service.count, found.service.mean_seconds) == (10, 2.0)  # not 6, by queue
    assert (found.service.p50_seconds, found.service.p99_seconds) == (1.0, 11.0)
    assert found.pickup.mean_seconds == 0.5


def test_throughput_is_what_finished_over_the_time_it_was_heard() -> None:
    pool = Pool().look(reports=0).hear(queues={"reports": did(finished=4)}).look(reports=0)
    pool.hear(queues={"reports": did(finished=2)}).look(reports=0)
    assert pool.snapshot().throughput_per_second == pytest.approx(3.0)


def test_foreign_queues_in_a_report_are_left_out() -> None:
    found = Pool().look(reports=0).hear(queues={"other": did(service=(1.0,))}).snapshot()
    assert found.service is None


def test_a_broken_sketch_is_told_of_and_the_rest_of_the_report_counts() -> None:
    pool = Pool().look(reports=0)
    with pytest.raises(BadSketch):
        pool.hear(state="idle", queues={"reports": QueueReport(service_sketch=b"rubbish")})
    found = pool.snapshot()
    assert (found.workers_ready, found.workers_idle, found.service) == (1, 1, None)


def test_ages_of_the_measurements_are_carried() -> None:
    pool = Pool().look(reports=2).head("reports", 1).hear()
    found = pool.snapshot(later=4)
    assert (found.queue_age_seconds, found.worker_age_seconds) == (4, 4)
    assert found.oldest_waiting_seconds == pytest.approx(5)


def test_spawn_latency_is_kept_for_the_forecast_and_after() -> None:
    pool = Pool().look(reports=0)
    pool.meter.add_spawn(0.4, 1, pool.now)
    assert pool.snapshot().spawn.p95_seconds == pytest.approx(0.4)
    assert pool.snapshot(later=5000).spawn.age_seconds == pytest.approx(5000)


def test_a_job_whose_worker_died_waits_although_the_broker_calls_it_claimed() -> None:
    pool = Pool().look(reports={"claimed": 1, "delivered": 1, "delivered_sequence": 1})
    pool.hear(claims=(Claim(job_id="j", ack_subject="a", running_seconds=0.5),))
    for _ in range(3):
        pool.look(reports={"claimed": 1, "delivered": 1, "delivered_sequence": 1})
    assert (pool.snapshot().waiting, pool.snapshot().running) == (0, 1)
    for _ in range(10):  # nothing is heard of the worker any more
        pool.look(reports={"claimed": 1, "delivered": 1, "delivered_sequence": 1})
    found = pool.snapshot()
    assert (found.waiting, found.running) == (1, 0)
    assert found.oldest_waiting_seconds >= 6


def test_a_new_process_goes_on_with_what_the_last_one_knew_of_durations() -> None:
    before = (
        Pool()
        .look(reports=0)
        .hear(queues={"reports": did(service=(2.0,), pickup=(9.0,))}, memory_bytes=7)
    )
    before.meter.add_spawn(0.4, 3, before.now)
    before.look(reports=0)
    after = Pool().look(reports=0)
    after.meter.remember(before.snapshot(later=10.0), after.now, silent_seconds=100.0)
    seen = after.snapshot()
    assert (seen.service.mean_seconds, seen.spawn_fit.most_together) == (2.0, 3)
    assert seen.service.age_seconds == seen.spawn.age_seconds == pytest.approx(111)
    assert (seen.worker_memory_bytes, seen.worker_use_age_seconds) == (7, pytest.approx(111))
    assert seen.pickup is None  # of the moment: not worth keeping


def arriving(pool: Pool, each_second: int = 5, seconds: int = 30) -> Pool:
    start = pool.queues["reports"].look
    for second in range(1, seconds + 1):
        count = (start.waiting if start else 0) + each_second * second
        pool.look(reports=count)
    return pool


def test_arrivals_are_forecast_unless_the_pool_forbids_it() -> None:
    found = arriving(Pool()).snapshot(later=3.0).forecast
    assert found.mean_per_second == pytest.approx(5.0)
    assert (found.model, found.horizon_seconds) == ("level", 10.0)  # nobody knows how long a start
    assert found.age_seconds == pytest.approx(9.0 + 3.0)  # the last stretch ended at 21 s of 30
    assert arriving(Pool(forecast="off")).snapshot().forecast is None


def test_a_forecast_looks_as_far_as_a_worker_takes_to_start() -> None:
    pool = Pool().look(reports=0)
    for _ in range(10):
        pool.meter.add_spawn(25.0, 1, pool.now)
    assert arriving(pool, seconds=60).snapshot().forecast.horizon_seconds == 40.0


def test_jobs_started_late_are_counted_once_and_survive_a_restart() -> None:
    pool = Pool(quantile=0.9).look(reports=0)
    for number in (1, 2, 2, 1):  # doubled, and late
        pool.hear(number=number, queues={"reports": QueueReport(started=20, late=1)})
    pool.hear(number=3, queues={"another": QueueReport(started=20, late=20)})
    found = pool.snapshot().budget
    assert (found.jobs, found.late, found.remaining_share) == (40, 2, pytest.approx(0.5))
    after = Pool(quantile=0.9).look(reports=0)
    after.meter.remember(pool.snapshot(), after.now, silent_seconds=0.0)
    assert after.snapshot().budget == found


def test_a_report_that_counts_nonsense_cannot_spoil_the_budget() -> None:
    pool = Pool().look(reports=0)
    for number, (started, late) in enumerate([(-5, 3), (5, -3), (2, 99)], start=1):
        pool.hear(number=number, queues={"reports": QueueReport(started=started, late=late)})
    assert (pool.snapshot().budget.jobs, pool.snapshot().budget.late) == (7, 2)


@pytest.mark.parametrize("held", [-5_000_000, 5_000_000])
def test_no_count_of_a_snapshot_is_below_zero(held: int) -> None:
    """The decider refuses such a snapshot: the pool's plan would stand for as long."""
    pool = Pool()
    for _ in range(10):
        pool.look(reports={"waiting": 1, "claimed": 2}).hear(held=held)
    snapshot = pool.snapshot()
    assert snapshot
    assert 0 <= snapshot.running <= 2
    assert 1 <= snapshot.waiting <= 3
