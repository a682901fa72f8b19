"""A queue whose depth is of now and whose counters change every five seconds, as RabbitMQ's do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.worker import WorkerReport
from penstock.metrics.core.sources.look import SourceLook
from penstock.metrics.core.sources.meter import SourceMeter
from penstock.metrics.core.sources.queue import SourceQueue

WORKERS, RUN_SECONDS = 4, 2.0


def run_times(seconds: int, claims_late_seconds: int) -> tuple[int, float]:
    """Ended messages, and their mean run time, of four workers that always have one."""
    queue = SourceQueue("mail", 20.0, runtime_seconds=RUN_SECONDS / 2)
    ended, run_seconds = 0, 0.0
    for second in range(seconds):
        collected = second // 5 * 5
        look = SourceLook(
            waiting=500,
            claimed=WORKERS if second >= claims_late_seconds else 0,
            arrived=1_000,
            ended=round(collected * WORKERS / RUN_SECONDS),
            exact=False,
            late_counters=True,
        )
        done = queue.see_source(look, float(second), 1e6 + second, 0, WORKERS)
        ended += done.finished
        run_seconds += done.service_sum_seconds
    return ended, run_seconds / ended


@pytest.mark.parametrize("claims_late_seconds", [0, 10])
def test_run_times_are_right_from_the_first_change_on(claims_late_seconds) -> None:
    ended, mean_seconds = run_times(11, claims_late_seconds)
    assert ended == 10 * WORKERS / RUN_SECONDS, "no end is counted twice, by runtime_seconds, too"
    assert mean_seconds == pytest.approx(RUN_SECONDS)


def test_messages_that_no_ready_worker_takes_are_stuck() -> None:
    queue = SourceQueue("mail", 20.0)
    for second in range(80):
        look = SourceLook(waiting=3, claimed=0, arrived=3, ended=0, late_counters=True, exact=False)
        queue.see_source(look, float(second), 1e6 + second, 2, 2)
    assert queue.stuck == 3


def test_what_is_counted_as_of_now_is_not_marked_as_estimated() -> None:
    queue = SourceQueue("mail", 20.0)
    look = SourceLook(waiting=3, claimed=0, arrived=3, exact=False, late_counters=True)
    for second in range(2):
        queue.see_source(look, float(second), 1e6 + second, 0, 1)
    assert {"running", "arrival_per_second", "oldest_waiting_seconds"} <= queue.estimated
    assert "waiting" not in queue.estimated


def test_arrivals_that_are_taken_back_are_made_up_for_before_any_count_again() -> None:
    queue = SourceQueue("mail", 20.0)
    arrivals = []
    for second, arrived in enumerate((0, 9, 5, 7, 12)):
        look = SourceLook(waiting=arrived, arrived=arrived, exact=False, late_counters=True)
        queue.see_source(look, float(second), 1e6 + second, 0, None)
        arrivals.append(queue.arrived)
        queue.settle()
    assert arrivals == [None, 9, 0, 0, 3]


def test_a_run_time_that_is_set_stands_until_ten_messages_ended() -> None:
    mail = {"source": "shop", "command": ["true"], "runtime_seconds": 1.0}
    [pool] = pools(check({"sources": {"shop": {"kind": "x"}}, "pools": {"mail": mail}})).values()
    meter, means = SourceMeter(pool, 60.0, 1.0), []
    for second in range(21):
        for name in ("a", "b"):
            report = WorkerReport(
                worker=name, host="h", pool="mail", pid=1, started_at=0.0, number=second,
                at=float(second), state="busy",
            )  # fmt: skip
            meter.add_report(report, float(second))
        ended = second // 4 * 2
        look = SourceLook(waiting=50, claimed=2, arrived=ended + 52, ended=ended)
        meter.see_source({"mail": look}, float(second), 1e6 + second)
        meter.observe(float(second))
        at = datetime.fromtimestamp(1e6 + second, UTC)
        snapshot = meter.snapshot(float(second), at, {"id": "1", "source": "test"}, "tick")
        assert snapshot is not None
        assert snapshot.service is not None
        means.append(snapshot.service.mean_seconds)
    assert set(means[:20]) == {1.0}
    assert means[20] == pytest.approx(4.0, rel=0.1)
