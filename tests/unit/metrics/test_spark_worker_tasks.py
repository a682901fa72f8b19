"""Tasks of Spark applications, told as a queue."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.config import Pool, Profile
from penstock.events.worker import WorkerReport
from penstock.metrics.core.tasks import AppTasks, TaskLine, TaskMeter, Waiting

POOL = Pool(name="etl", kind="spark", queues=(), profile=Profile(sla_seconds=5))


def app(
    waiting: int = 0, *, app_id: str = "app-1", since: float = 100.0, **told: float
) -> AppTasks:
    line = (Waiting(waiting, since),) if waiting else ()
    return AppTasks(app_id="app-1", waiting=line, **told)  # type: ignore[arg-type]


def test_tasks_that_wait_run_and_have_come_are_counted_by_the_workerful() -> None:
    line = TaskLine("etl", slots=4, sla_seconds=5)
    line.see([], now=0, wall_now=100)
    line.see([app(40, running=8, started=8)], now=1, wall_now=101)
    look = line.queue.look
    assert look and (look.waiting, look.claimed) == (10, 2)
    assert line.queue.arrived == 12
    assert line.queue.oldest_seconds(103) == 3.0

    line.see([app(31, running=8, started=17, finished=9)], now=2, wall_now=102)
    assert line.queue.arrived == 0


def test_what_was_done_before_the_first_look_did_not_arrive_now() -> None:
    line = TaskLine("etl", slots=1, sla_seconds=5)
    done = line.see([app(started=500, finished=500, run_seconds=50)], now=0, wall_now=100)
    assert (done.started, done.finished) == (0, 0)
    done = line.see([app(started=503, finished=502, run_seconds=54)], now=1, wall_now=101)
    assert (done.started, done.finished, done.service_sum_seconds) == (3, 2, 4.0)
    assert line.queue.arrived == 3


def test_an_application_that_comes_while_we_look_counts_whole_and_one_that_goes_takes_nothing() -> (
    None
):
    line = TaskLine("etl", slots=1, sla_seconds=5)
    line.see([], now=0, wall_now=100)
    assert line.see([app(started=4, finished=4)], now=1, wall_now=101).finished == 4
    assert line.see([], now=2, wall_now=102).finished == 0
    assert line.queue.arrived == 0


def test_executors_that_spark_forgot_make_no_tasks_undone() -> None:
    line = TaskLine("etl", slots=1, sla_seconds=5)
    line.see([app(started=100, finished=100)], now=0, wall_now=100)
    done = line.see([app(started=60, finished=60)], now=1, wall_now=101)
    assert (done.started, done.finished) == (0, 0)
    assert line.queue.arrived == 0


def test_what_an_application_did_in_silence_did_not_happen_when_it_speaks_again() -> None:
    line = TaskLine("etl", slots=1, sla_seconds=5)
    line.see([app(started=100, finished=100)], now=0, wall_now=100)
    line.see([app(1, is_measured=False)], now=1, wall_now=101)
    done = line.see([app(started=104, finished=104)], now=2, wall_now=102)
    assert (done.started, done.finished) == (0, 0)
    assert line.see([app(started=105, finished=104)], now=3, wall_now=103).started == 1


def test_tasks_that_start_after_the_promised_time_are_late() -> None:
    line = TaskLine("etl", slots=1, sla_seconds=5)
    line.see([app(9)], now=0, wall_now=101)
    assert line.see([app(6, started=3)], now=1, wall_now=104).late == 0
    assert line.see([app(1, started=8)], now=2, wall_now=107).late == 5


def test_the_snapshot_of_a_pool_says_what_its_deciders_ask_for() -> None:
    line = TaskLine("etl", slots=1, sla_seconds=5)
    meter = TaskMeter(POOL, line, window_seconds=60, interval=1)
    for second in range(3):
        now = float(second)
        tasks = app(5 * second, running=2, started=2 * second, finished=second, run_seconds=second)
        done = line.see([tasks], now, 100 + now)
        meter.add_report(_report(second, done), now)
        meter.observe(now)
        meter.observe(now + 0.5)  # looked at again before anything new was told
    told = meter.snapshot(
        2.5, datetime.fromtimestamp(102.5, UTC), {"id": "1", "source": "m"}, "tick"
    )
    assert told
    assert (told.waiting, told.running, told.oldest_waiting_seconds) == (10, 2, 2.5)
    assert told.arrival_per_second is not None
    assert round(told.arrival_per_second, 3) == 7.0
    assert told.service and told.service.mean_seconds == 1.0
    assert told.worker_cpu_cores is None  # a Worker's slots are set, not measured
    assert told.queue_age_seconds == 0.5


def _report(number: int, done: object) -> WorkerReport:
    known = {"worker": "tasks", "host": "", "pool": "etl", "pid": 0, "state": "starting"}
    return WorkerReport(
        **known,  # type: ignore[arg-type]
        number=number + 1,
        at=float(number),
        started_at=0.0,
        queues={"etl": done},  # type: ignore[dict-item]
    )
