"""The workers as they report themselves, and the jobs that none of them holds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.metrics.core.lapsed import LapsedClaims
from penstock.metrics.core.workers import Workers


def report(number: int = 1, **changes: Any) -> WorkerReport:
    usual = {"worker": "w1", "host": "a", "pool": "p", "pid": 7, "state": "idle"}
    return WorkerReport(**{**usual, "number": number, "at": number, "started_at": 0, **changes})


def claim(seconds: float = 1.0) -> Claim:
    return Claim(job_id="j", ack_subject="a", running_seconds=seconds)


def heard(*reports: WorkerReport, now: float = 0.0) -> Workers:
    workers = Workers()
    for each in reports:
        workers.add_report(each, now)
    workers.refresh(now)
    return workers


def test_states_are_counted() -> None:
    states = ("starting", "idle", "busy", "busy", "draining")
    workers = heard(*(report(worker=f"w{n}", state=s) for n, s in enumerate(states)))
    assert (workers.ready, workers.idle) == (3, 1)


def test_a_silent_worker_no_longer_counts() -> None:
    workers = heard(report())
    workers.refresh(2.9)
    assert workers.ready == 1
    workers.refresh(3.1)
    assert (workers.ready, workers.reported_at) == (0, 0.0)


def test_a_worker_that_ended_no_longer_counts() -> None:
    workers = heard(report())
    workers.remove("w1")
    workers.remove("never heard of")
    assert workers.ready == 0


def test_a_late_report_is_not_taken_for_a_new_one() -> None:
    workers = heard(report(2, state="busy"))
    assert not workers.add_report(report(1), 0.1)
    assert workers.idle == 0


def test_a_worker_that_began_again_starts_counting_again() -> None:
    workers = heard(report(9, state="busy"))
    assert workers.add_report(report(1, started_at=5), 0.1)
    assert workers.idle == 1


def test_cores_are_measured_while_it_works_and_then_remembered() -> None:
    busy = report(2, state="busy", cpu_seconds=1.5, memory_bytes=200)
    workers = heard(report(1, cpu_seconds=1.0, memory_bytes=100), busy)
    assert (workers.cpu_cores, workers.memory_bytes) == (0.5, 200)
    workers.add_report(report(3, cpu_seconds=1.5, queues={"q": QueueReport(finished=1)}), 0.2)
    workers.refresh(0.2)
    assert workers.cpu_cores == pytest.approx(0.35)  # that job needed none: 0.5 moves towards 0
    workers.add_report(report(4, cpu_seconds=1.5), 0.3)  # idle: says nothing about a job's need
    workers.refresh(10)
    assert workers.cpu_cores == pytest.approx(0.35)
    assert workers.memory_bytes == 200


def test_running_time_grows_between_reports() -> None:
    workers = heard(report(state="busy", claims=(claim(2.0), claim(0.0))), now=10)
    assert list(workers.running_seconds(11)) == [3.0]
    assert workers.held == 2


class TestLapsed:
    """A worker died with a job, and nobody is free to take it: the job waits."""

    def observed(self, *excesses: int, delivered: bool = False) -> LapsedClaims:
        lapsed = LapsedClaims(patience_seconds=6)
        for second, excess in enumerate(excesses):
            lapsed.observe(1 + excess, 1, delivered, second)
        return lapsed

    def test_a_job_nobody_holds_waits_after_a_while(self) -> None:
        lapsed = self.observed(*[1] * 8)
        assert (lapsed.waiting(5), lapsed.waiting(7)) == (0, 1)
        assert lapsed.oldest_seconds(7) == 7

    def test_a_job_whose_report_is_late_does_not(self) -> None:
        assert self.observed(1, 1, 1, 0, 1, 1, 1, 1).waiting(7) == 0

    def test_nor_one_in_a_queue_that_hands_out_jobs(self) -> None:
        assert self.observed(*[1] * 8, delivered=True).waiting(7) == 0

    def test_the_least_seen_is_counted(self) -> None:
        assert self.observed(5, 3, 2, 4, 4, 4, 4, 4).waiting(7) == 2

    @pytest.mark.parametrize("held", [1, 3])
    def test_none_where_all_are_held(self, held: int) -> None:
        lapsed = LapsedClaims(1)
        for second in range(5):
            lapsed.observe(1, held, False, second)
        assert (lapsed.waiting(5), lapsed.oldest_seconds(5)) == (0, 0)
