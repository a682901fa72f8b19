"""A queue whose counters change every five seconds, as RabbitMQ's do."""

from __future__ import annotations

import pytest

from penstock.metrics.core.sources.look import SourceLook
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
            counts_ends=True,
        )
        done = queue.see_source(look, float(second), 1e6 + second, 0, WORKERS)
        ended += done.finished
        run_seconds += done.service_sum_seconds
    return ended, run_seconds / ended


def test_no_end_is_counted_twice_by_the_counter_and_by_runtime_seconds() -> None:
    ended, mean_seconds = run_times(11, 0)
    assert ended == 10 * WORKERS / RUN_SECONDS
    assert mean_seconds == pytest.approx(RUN_SECONDS)
