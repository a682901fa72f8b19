"""A pool of Spark Workers measured by the reports of its streaming queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.config import Pool, Profile
from penstock.events.snapshot import PoolSnapshot
from penstock.events.stream_report import BatchProgress, SourceProgress, StreamReport
from penstock.metrics.core.sources.look import SourceFault, StreamLook
from penstock.metrics.core.streams.meter import StreamMeter
from penstock.metrics.core.tasks import AppTasks, Waiting

WALL = 1_800_000_000.0
PROMISE = 10.0
APP = "app-1"


def batch(number: int, rows: int = 100, seconds: float = 2.0, **fields: Any) -> BatchProgress:
    """Triggered each 5 s; half a second of it is no work."""
    return BatchProgress(
        batch_id=number, triggered_at=WALL + 5 * number, rows=rows, seconds=seconds,
        add_seconds=seconds - 0.5, **fields,
    )  # fmt: skip


class Film:
    """The meter second by second; ``slots`` that the application has."""

    def __init__(self, *queries: str) -> None:
        pool = Pool(
            name="stream", kind="spark", queues=(), slots=2, source="progress",
            source_queues=queries or ("orders",),
            profile=Profile(sla_seconds=PROMISE, quantile=0.95),
        )  # fmt: skip
        self.meter = StreamMeter(pool, 60.0, 1.0)
        self.now, self.slots, self.run_seconds, self.finished, self.number = 0.0, 4, 0.0, 0, 0

    def cluster(self, *, seconds: float = 1.0, worked: float = 0.0, **tasks: Any) -> None:
        """The cluster is looked at, a second later."""
        self.now += seconds
        self.run_seconds += worked
        self.finished += round(worked / 0.5)  # tasks of half a second
        app = AppTasks(
            app_id=APP,
            cores=self.slots,
            run_seconds=self.run_seconds,
            finished=self.finished,
            **tasks,
        )
        self.meter.see_apps([app], self.now)

    def report(self, *batches: BatchProgress, query: str = "orders", **fields: Any) -> None:
        self.number += 1
        values = {"run_id": "r1", "app_id": APP, "started_at": WALL, **fields}
        report = StreamReport(
            query=query, number=self.number, at=WALL + self.now, batches=batches, **values
        )
        self.look({query: StreamLook(report=report)})

    def look(self, looks: Any) -> None:
        self.meter.see_source(looks, self.now, WALL + self.now)

    def snapshot(self) -> PoolSnapshot | None:
        self.meter.observe(self.now)
        at = datetime.fromtimestamp(WALL + self.now, UTC)
        return self.meter.snapshot(self.now, at, {"id": "s", "source": "metrics"}, "tick")


def seen(film: Film) -> PoolSnapshot:
    snapshot = film.snapshot()
    assert snapshot is not None
    return snapshot


def test_before_each_query_has_reported_there_is_nothing_to_decide_by() -> None:
    film = Film("orders", "clicks")
    film.report()
    assert film.snapshot() is None
    film.meter.see_source(
        {"orders": SourceFault("x"), "clicks": SourceFault("x")}, film.now, WALL + film.now
    )
    assert film.snapshot() is None


def test_batches_are_the_jobs_and_their_time_is_what_is_promised() -> None:
    film = Film()
    film.report()
    film.cluster()
    film.report(batch(0), batch(1, seconds=12.0), batch(2, rows=0))
    snapshot = seen(film)
    assert (snapshot.source, snapshot.source_fault, snapshot.waiting) == ("progress", "", 0)
    assert snapshot.budget and (snapshot.budget.jobs, snapshot.budget.late) == (2, 1)
    assert snapshot.service and snapshot.service.mean_seconds == pytest.approx(7.0)
    [load] = snapshot.streams
    assert (load.query, load.batch_rows, load.slots) == ("orders", 0, 4.0)


def test_a_batch_that_is_repeated_in_reports_counts_once() -> None:
    film = Film()
    film.report()
    for number in range(4):
        film.report(*(batch(nth) for nth in range(number + 1)))
        film.report(*(batch(nth) for nth in range(number + 1)))
    budget = seen(film).budget
    assert budget and budget.jobs == 4


def test_spark_s_own_count_of_task_seconds_is_taken_where_it_is_there() -> None:
    film = Film()
    film.report()
    film.cluster(seconds=0.5)
    for number in range(1, 4):
        while film.now < 5 * number + 2.5:
            film.cluster(worked=3.0 if 5 * number < film.now < 5 * number + 2 else 0.0)
        film.report(*(batch(nth) for nth in range(1, number + 1)))
        film.cluster(seconds=0.1)
    [load] = seen(film).streams
    assert load.is_measured
    assert load.task_seconds_per_row == pytest.approx(0.06)
    assert load.fixed_seconds == pytest.approx(2.0 - 6.0 / 4)


def test_without_it_a_batch_s_time_on_all_slots_is() -> None:
    film = Film()
    film.report(app_id="")
    film.cluster()
    film.report(batch(0), batch(1), app_id="")
    [load] = seen(film).streams
    assert not load.is_measured
    # of the application nothing is known: no ready Worker, no slots, no figure
    assert load.task_seconds_per_row is None


def test_what_the_source_holds_back_came_too() -> None:
    film = Film()
    film.report()
    film.cluster()
    lags = [batch(n, sources=(SourceProgress(rows=100, lag_rows=50 * n),)) for n in range(3)]
    film.report(*lags)
    [load] = seen(film).streams
    assert load.lag_rows == 100
    assert load.rows_per_second == pytest.approx(150 / 5)


def test_a_batch_under_way_shows_its_work_and_breaks_the_promise_before_it_is_done() -> None:
    film = Film()
    film.report(batch(0))
    for _ in range(4):
        film.cluster(running=4, waiting=(Waiting(10, 0.0),), worked=2.0)
    snapshot = seen(film)
    [load] = snapshot.streams
    assert (snapshot.waiting, snapshot.running) == (0, 1)
    assert load.running_seconds == pytest.approx(3.0)
    assert load.running_task_seconds == pytest.approx(3 * 4 + 10 * 0.5)
    for _ in range(9):
        film.cluster(running=4)
    film.report(batch(0))
    snapshot = seen(film)
    assert (snapshot.waiting, snapshot.running) == (1, 0)
    assert snapshot.oldest_waiting_seconds == pytest.approx(12.0)
    film.report(batch(0), batch(1, seconds=14.0))
    assert seen(film).waiting == 0


def test_a_master_that_is_away_shows_no_batch_under_way() -> None:
    film = Film()
    film.report(batch(0))
    film.cluster(running=4)
    film.cluster(running=4)
    assert seen(film).streams[0].running_seconds > 0
    film.now += 60
    film.report(batch(0))
    snapshot = seen(film)
    assert (snapshot.streams[0].running_seconds, snapshot.waiting, snapshot.running) == (0, 0, 0)


def test_batches_that_an_earlier_process_counted_are_not_counted_again() -> None:
    film = Film()
    film.report(*(batch(nth) for nth in range(5)))
    snapshot = seen(film)
    assert snapshot.budget and snapshot.budget.jobs == 0
    assert snapshot.streams[0].rows_per_second == 20.0


def test_a_query_that_no_longer_reports_is_a_fault_with_the_age_of_its_figures() -> None:
    film = Film()
    film.report(batch(0))
    film.snapshot()
    film.now += 30
    film.look({"orders": SourceFault("query orders no longer reports")})
    snapshot = seen(film)
    assert snapshot.source_fault == "query orders no longer reports"
    assert snapshot.queue_age_seconds == pytest.approx(30.0)
    assert not snapshot.streams[0].ended


@pytest.mark.parametrize(("error", "text"), [("", "it was stopped"), ("X", "it ended with X")])
def test_a_query_that_ended_is_no_fault_and_says_so(error: str, text: str) -> None:
    film = Film()
    film.report(batch(0))
    film.report(batch(0), ended=True, error=error)
    snapshot = seen(film)
    assert snapshot.streams[0].ended == text
    assert snapshot.source_fault == f"query orders needs no slots: {text}"
    assert snapshot.queue_age_seconds == 0


def test_a_driver_that_was_killed_is_known_to_be_gone_by_the_cluster() -> None:
    film = Film()
    film.report(batch(0))
    film.cluster()
    film.now += 10
    film.look({"orders": SourceFault("silent")})
    assert not seen(film).streams[0].ended
    film.meter.see_apps([], film.now)
    film.look({"orders": SourceFault("silent")})
    snapshot = seen(film)
    assert snapshot.streams[0].ended and snapshot.queue_age_seconds == 0


def test_a_query_that_is_started_anew_is_measured_anew() -> None:
    film = Film()
    film.report()
    film.report(batch(0), batch(1))
    film.report(ended=True)
    film.report(batch(0), run_id="r2")
    [load] = seen(film).streams
    assert not load.ended
    budget = seen(film).budget
    assert budget and budget.jobs == 3
