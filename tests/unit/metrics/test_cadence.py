"""When a pool is told of."""

from __future__ import annotations

from penstock.metrics.core.cadence import BACKLOG, FIRST_JOB, TICK, Cadence, PublishedState

CADENCE = Cadence(interval_seconds=1.0, least_seconds=0.1)


def told(at: float = 0.0, waiting: int = 0, ready: int = 0) -> PublishedState:
    """A pool that was told of at ``at``."""
    found = PublishedState()
    found.observe(waiting, ready, False, at)
    found.update(ready, at)
    return found


def test_the_first_look_is_told_at_once() -> None:
    assert PublishedState().reason(CADENCE, 0, 0) == TICK


def test_a_quiet_pool_is_told_of_each_interval() -> None:
    pool = told()
    assert [pool.reason(CADENCE, 0, now) for now in (0.2, 0.9, 1.0)] == [None, None, TICK]


def test_a_first_job_is_told_at_once() -> None:
    pool = told()
    pool.woken = True
    assert pool.reason(CADENCE, 0, 0.2) is None  # heard, and not yet seen waiting
    pool.observe(1, 0, True, 0.2)
    assert pool.reason(CADENCE, 0, 0.2) == FIRST_JOB


def test_a_first_job_that_was_picked_up_at_once_is_no_news() -> None:
    pool = told(ready=1)
    pool.woken = True
    pool.observe(0, 1, True, 0.2)
    assert not pool.woken


def test_a_backlog_that_grows_beyond_the_workers_is_told_at_once() -> None:
    pool = told(waiting=2, ready=2)
    pool.observe(5, 2, True, 0.2)
    assert pool.is_close(0.2)
    assert pool.reason(CADENCE, 2, 0.2) == BACKLOG


def test_a_backlog_that_shrinks_can_wait() -> None:
    pool = told(waiting=50, ready=2)
    pool.observe(40, 2, False, 5)
    assert not pool.is_close(5)
    assert pool.reason(CADENCE, 2, 0.2) is None


def test_never_more_often_than_allowed() -> None:
    pool = told()
    pool.woken = True
    count, now = 0, 0.0
    while now < 10:
        now += 0.01
        pool.observe(pool.waiting + 10, 0, True, now)
        if pool.reason(CADENCE, 0, now):
            pool.update(0, now)
            count += 1
    assert 95 <= count <= 105
