"""Counts by function and rates of what ended: bounded, whatever reports say."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events.snapshot import MOST_ENDED_QUEUES, EndedRate
from penstock.events.worker import FunctionReport, SeriesReport, WorkerReport
from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.metrics.core.ended_jobs import EndedJobs
from penstock.metrics.core.job_totals import OTHER, JobTotals, RecentPeak


def report(**fields: Any) -> WorkerReport:
    usual = {"worker": "w1", "host": "a", "pool": "mails", "pid": 1, "state": "busy", "number": 1}
    return WorkerReport(**{**usual, "at": 1.0, "started_at": 0.0, **fields})


def test_attempts_add_up_by_function_and_pool() -> None:
    jobs = JobTotals()
    done = FunctionReport(
        started=3, finished=2, failed=1, run_sum_seconds=1.2, run_buckets=((0, 1), (7, 1))
    )
    for pool in ("mails", "mails", "reports"):
        jobs.add(report(pool=pool, functions={"shop.send": done}), 1.0)
    totals = jobs.functions["mails", "shop.send"]
    assert (totals.started, totals.finished, totals.failed) == (6, 4, 2)
    assert sum(totals.run.counts) == 4
    assert totals.run.total == pytest.approx(2.4)
    assert jobs.functions["reports", "shop.send"].started == 3


def test_functions_beyond_the_bound_are_counted_together() -> None:
    jobs = JobTotals(most_functions=2)
    for number in range(5):
        jobs.add(report(functions={f"f{number}": FunctionReport(started=1)}), 1.0)
    assert {function: totals.started for (_, function), totals in jobs.functions.items()} == {
        "f0": 1,
        "f1": 1,
        OTHER: 3,
    }


def names(jobs: JobTotals) -> set[str]:
    return {function for _, function in jobs.functions}


def test_functions_of_reports_take_the_places_of_those_that_only_events_name() -> None:
    jobs = JobTotals(most_functions=2)
    jobs.add(report(functions={"first": FunctionReport(started=1)}), 1.0)
    for number in range(100):
        jobs.add_dead("mails", f"invented{number}", 2.0)
    assert names(jobs) == {"first", "invented0", OTHER}
    jobs.add(report(functions={"second": FunctionReport(started=1)}), 3.0)
    jobs.add(report(functions={"third": FunctionReport(started=1)}), 4.0)
    assert names(jobs) == {"first", "second", OTHER}
    assert jobs.functions["mails", OTHER].dead == 99
    assert jobs.functions["mails", OTHER].started == 1


def test_a_function_that_was_not_used_for_an_hour_makes_way() -> None:
    jobs = JobTotals(most_functions=2)
    jobs.add(report(functions={"first": FunctionReport(started=1)}), 1.0)
    jobs.add(report(functions={"second": FunctionReport(started=1)}), 3000.0)
    jobs.add(report(functions={"early": FunctionReport(started=1)}), 3600.0)
    jobs.add(report(functions={"third": FunctionReport(started=1)}), 3601.0)
    assert names(jobs) == {"second", "third", OTHER}


@pytest.mark.parametrize("name", ["", "f" * 201, "a\nb", "a\x1b[2J"])
def test_what_no_job_can_be_called_counts_as_other(name: str) -> None:
    jobs = JobTotals()
    jobs.add_dead("mails", name, 1.0)
    jobs.add(report(functions={name: FunctionReport(started=1)}), 1.0)
    assert names(jobs) == {OTHER}


def test_a_forged_report_cannot_count_down_or_beyond_the_buckets() -> None:
    jobs = JobTotals()
    forged = FunctionReport(
        started=-5, finished=2**62, run_sum_seconds=float("inf"), run_buckets=((99, 1), (-1, 1))
    )
    jobs.add(report(functions={"f": forged}), 1.0)
    totals = jobs.functions["mails", "f"]
    assert totals.started == 0
    assert totals.finished <= 2**32
    assert totals.run.counts == [0] * (len(SECONDS_BUCKETS) + 1)


def test_series_of_jobs_carry_their_pool_and_invalid_ones_are_dropped() -> None:
    jobs = JobTotals(most_series=1)
    rows = SeriesReport("rows", "counter", (("table", "orders"),), 5.0)
    jobs.add(report(series=(rows, rows), series_dropped=3), 1.0)
    jobs.add(report(series=(SeriesReport("penstock_x", "counter", (), 1.0),)), 1.0)
    jobs.add(report(series=(SeriesReport("others", "counter", (), 1.0),)), 1.0)
    [(key, series)] = list(jobs.series)
    assert key.labels == (("pool", "mails"), ("table", "orders"))
    assert series.value == 10
    assert jobs.series.dropped == 2
    assert jobs.dropped_by_workers == 3


def test_rates_are_over_the_window_once_it_has_passed() -> None:
    ended = EndedJobs(60.0)
    assert ended.total(0.0) is None, "no worker reported yet"
    ended.reported(0.0)
    for second in range(60):
        ended.add("a", 2, second % 2, float(second))
    assert ended.total(60.0) == EndedRate(finished_per_minute=120, failed_per_minute=30)
    assert ended.by_queue(60.0) == {"a": ended.total(60.0)}
    assert ended.total(200.0) == EndedRate(finished_per_minute=0)
    assert ended.by_queue(200.0) == {}


def test_a_young_rate_is_over_the_time_since_the_first_report() -> None:
    ended = EndedJobs(60.0)
    ended.reported(0.0)
    ended.add("a", 10, 5, 10.0)
    rate = ended.total(10.0)
    assert rate == EndedRate(finished_per_minute=60, failed_per_minute=30)
    assert rate.failed_share == 0.5


def test_no_share_failed_where_nothing_ended() -> None:
    assert EndedRate(finished_per_minute=0.0).failed_share is None


def test_a_snapshot_names_the_busiest_queues_only() -> None:
    ended = EndedJobs(60.0)
    ended.reported(0.0)
    for number in range(MOST_ENDED_QUEUES + 5):
        ended.add(f"q{number:03}", 1 + number, 0, 1.0)
    rates = ended.by_queue(1.0)
    assert len(rates) == MOST_ENDED_QUEUES
    assert "q000" not in rates


def test_a_peak_is_of_the_last_minute_or_two() -> None:
    peak = RecentPeak()
    assert peak.value(100.0) == 0
    peak.add(5, 100.0)
    peak.add(3, 110.0)
    assert peak.value(150.0) == 5
    peak.add(2, 165.0)
    assert peak.value(170.0) == 5
    assert peak.value(230.0) == 2
    assert peak.value(1000.0) == 0
