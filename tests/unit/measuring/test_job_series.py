"""Metrics of jobs: names and labels are checked, series bounded, deltas add up."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from penstock.events.worker import SeriesReport
from penstock.measuring.job_series import (
    MAX_LABELS,
    VALUE_BUCKETS,
    JobSeries,
    Kind,
    SeriesKey,
    checked_labels,
    checked_name,
    is_valid,
    reported,
)


def key(name: str = "rows", kind: Kind = "counter", **labels: str) -> SeriesKey:
    return SeriesKey(name, kind, checked_labels(labels))


def values(series: JobSeries) -> dict[SeriesKey, float]:
    return {key: one.value for key, one in series}


def test_counters_add_up_gauges_are_set_and_histograms_count() -> None:
    series = JobSeries(10)
    for value in (2, 3):
        assert series.record(key(), value)
        assert series.record(key("temperature", "gauge"), -value)
        assert series.record(key("size", "histogram"), value)
    assert values(series) == {
        key(): 5,
        key("temperature", "gauge"): -3,
        key("size", "histogram"): 5,
    }
    histogram = dict(series)[key("size", "histogram")]
    assert histogram.counts[VALUE_BUCKETS.index(2.0)] == 1
    assert histogram.counts[VALUE_BUCKETS.index(5.0)] == 1
    assert sum(histogram.counts) == 2


def test_what_two_workers_report_is_the_sum_of_what_they_recorded() -> None:
    together = JobSeries(10)
    for _ in range(2):
        worker = JobSeries(10)
        worker.record(key(table="orders"), 4)
        worker.record(key("size", "histogram"), 7e9)
        for one in worker:
            assert together.merge(reported(*one))
    assert values(together) == {key(table="orders"): 8, key("size", "histogram"): 14e9}
    assert dict(together)[key("size", "histogram")].counts[-1] == 2


def test_series_beyond_the_bound_are_dropped_and_counted() -> None:
    series = JobSeries(2)
    kept = [series.record(key(user=str(number)), 1) for number in range(5)]
    assert kept == [True, True, False, False, False]
    assert series.record(key(user="0"), 1), "those that are known go on"
    assert series.dropped == 3


def test_a_name_has_one_kind() -> None:
    series = JobSeries(10)
    assert series.record(key("rows", "counter"), 1)
    assert not series.record(key("rows", "gauge"), 1)
    assert series.dropped == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_dropped(value: float) -> None:
    series = JobSeries(10)
    assert not series.record(key("rows", "gauge"), value)
    assert not series.merge(SeriesReport("rows", "gauge", (), value))
    assert values(series) == {}


def test_a_sum_that_would_be_infinite_is_dropped_so_that_reports_stay_readable() -> None:
    series = JobSeries(10)
    assert series.record(key("rows"), 1e308)
    assert not series.record(key("rows"), 1e308)
    [one] = series
    assert (
        msgspec.json.decode(msgspec.json.encode(reported(*one)), type=SeriesReport).value == 1e308
    )


def test_a_forged_report_cannot_lower_a_counter_or_write_beyond_the_buckets() -> None:
    series = JobSeries(10)
    assert not series.merge(SeriesReport("rows", "counter", (), -5.0))
    forged = ((-1, 5), (len(VALUE_BUCKETS) + 1, 5), (0, -5), (1, 2**60))
    assert series.merge(SeriesReport("size", "histogram", (), 1.0, forged))
    [(_, histogram)] = list(series)
    assert histogram.counts[0] == 0
    assert 0 < sum(histogram.counts) <= 2**32


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Rows",
        "9rows",
        "rows-loaded",
        "rows.loaded",
        "a" * 65,
        "penstock_jobs",
        "process_x",
        "up",
    ],
)
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="metric name"):
        checked_name(name)


def test_an_ending_that_exporters_add_is_refused_with_the_name_to_use() -> None:
    with pytest.raises(ValueError, match="use 'rows_loaded'"):
        checked_name("rows_loaded_total")


@pytest.mark.parametrize(
    "labels", [{"Table": 1}, {"pool": "x"}, {"le": "1"}, {"a" * 33: 1}, {7: 1}]
)
def test_a_label_that_cannot_be_one_is_refused(labels: dict[Any, object]) -> None:
    with pytest.raises(ValueError, match="label"):
        checked_labels(labels)


def test_labels_are_bounded_in_number_and_cut_in_length() -> None:
    with pytest.raises(ValueError, match="8 at most"):
        checked_labels({f"label{number}": 1 for number in range(MAX_LABELS + 1)})
    [(_, text)] = checked_labels({"file": "x" * 1000})
    assert len(text) == 100
    [(_, text)] = checked_labels({"file": "\ud800"})
    assert text == "\\ud800"


@pytest.mark.parametrize(
    "report",
    [
        SeriesReport("penstock_jobs", "counter", (), 1.0),
        SeriesReport("rows", "counter", (("table", "x" * 101),), 1.0),
        SeriesReport("rows", "counter", (("b", "1"), ("a", "1")), 1.0),
        SeriesReport("rows", "counter", (("a", "1"), ("a", "2")), 1.0),
        SeriesReport("rows", "histogram", (), 1.0, ((0, 1),) * 100),
    ],
)
def test_a_report_that_no_worker_sends_is_seen(report: SeriesReport) -> None:
    assert not is_valid(report)
    assert is_valid(SeriesReport("rows", "counter", (("table", "orders"),), 1.0))
