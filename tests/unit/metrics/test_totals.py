"""What counters and histograms show: sums that only grow, whatever a report says."""

from __future__ import annotations

import pytest
from datasketches import kll_doubles_sketch

from penstock.events.worker import QueueReport
from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.metrics.core.sketches import Distribution
from penstock.metrics.core.totals import Totals


def merged(*seconds: float) -> tuple[int, ...]:
    sketch = kll_doubles_sketch(200)
    for each in seconds:
        sketch.update(each)
    return Distribution(60).merge(bytes(sketch.serialize()), sum(seconds), 0.0, now=1)


def test_a_sketch_falls_into_buckets_whose_upper_bound_belongs_to_them() -> None:
    counts = merged(0.001, 0.005, 0.006, 1.0, 600.0, 601.0)
    assert len(counts) == len(SECONDS_BUCKETS) + 1
    assert (counts[0], counts[1]) == (2, 1)
    assert counts[SECONDS_BUCKETS.index(1.0)] == 1
    assert (counts[-2], counts[-1]) == (1, 1)


def test_no_sample_is_lost_in_a_large_sketch() -> None:
    counts = merged(*(n / 1000 for n in range(10_000)))
    assert sum(counts) == 10_000
    assert counts[SECONDS_BUCKETS.index(10.0)] == pytest.approx(5000, rel=0.05)


def test_totals_add_up_by_queue() -> None:
    totals = Totals(["a", "b"])
    totals.add("a", QueueReport(started=3, late=1, finished=2, failed=1), at=5)
    totals.add("a", QueueReport(started=1), at=6)
    assert (totals.queues["a"].started, totals.queues["a"].late) == (4, 1)
    assert totals.queues["b"].started == 0


def test_a_report_cannot_count_down_or_to_the_skies() -> None:
    totals = Totals(["a"])
    totals.add("a", QueueReport(started=5, finished=2**70), at=5)
    totals.add("a", QueueReport(started=-3), at=6)
    assert totals.queues["a"].started == 5
    assert totals.queues["a"].finished <= 2**32


def test_the_slowest_traced_job_of_each_bucket_is_kept() -> None:
    totals = Totals(["a"])
    totals.add("a", QueueReport(slowest_seconds=0.2, slowest_trace="one"), at=5)
    totals.add("a", QueueReport(slowest_seconds=7.0, slowest_trace="two"), at=6)
    totals.add("a", QueueReport(slowest_seconds=900.0), at=7)
    totals.add("a", QueueReport(slowest_seconds=900.0, slowest_trace=" " * 10**6), at=8)
    kept = [(each.traceparent, each.at) for each in totals.traced if each]
    assert kept == [("one", 5), ("two", 6)]
