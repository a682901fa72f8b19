"""Series of the metrics that jobs record themselves: checked, bounded, added up. Pure.

A worker adds up what its jobs record between two reports, the metrics service what all reports say.
Both keep so many series at most, so that no label whose values have no bound fills their memory.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Literal, NamedTuple

import msgspec

from penstock.events.worker import SeriesReport

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[tuple[str, str], ...]

VALUE_BUCKETS = tuple(
    float(f"{digit}e{exponent}") for exponent in range(-3, 7) for digit in (1, 2, 5)
)
"""Upper bounds of the histograms of jobs: 1, 2 and 5 times each power of ten from 0.001 to 10^6."""

MAX_LABELS, MAX_VALUE_CHARACTERS = 8, 100
_MOST_VALUES = 2**32
"""Values of one histogram in one report."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LABEL = re.compile(r"[a-z][a-z0-9_]{0,31}")
_RESERVED_BEGINNINGS = ("penstock", "process_", "python_", "scrape_", "target_")
_RESERVED_ENDINGS = ("_total", "_bucket", "_count", "_sum", "_created", "_info")
_RESERVED_LABELS = frozenset({"pool", "le", "quantile", "job", "instance"})


class SeriesKey(NamedTuple):
    """What makes a series: a metric's name and kind, and the values of its labels."""

    name: str
    kind: Kind
    labels: Labels


class Series(msgspec.Struct):
    """A series now.

    Attributes:
        value: of a counter or gauge; the sum of a histogram's values.
        counts: of a histogram: values by bucket, one more than there are bounds; else empty.
    """

    value: float
    counts: list[int]


class JobSeries:
    """Series by what makes them.

    Args:
        most: series that are kept; values of further ones are dropped.

    Attributes:
        dropped: values that were dropped: of further series, of a metric that has another kind, or
            that are no finite numbers.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._series: dict[SeriesKey, Series] = {}
        self._kinds: dict[str, Kind] = {}
        self.dropped = 0

    def __iter__(self) -> Iterator[tuple[SeriesKey, Series]]:
        return iter(tuple(self._series.items()))

    def record(self, key: SeriesKey, value: float) -> bool:
        """Adds to a counter, sets a gauge, or counts a histogram's value; False: it was dropped."""
        series = self._add(key, value) if isfinite(value) else None
        if series is None:
            self.dropped += 1
            return False
        if key.kind == "histogram":
            series.counts[bisect_left(VALUE_BUCKETS, value)] += 1
        return True

    def merge(self, report: SeriesReport, *more_labels: tuple[str, str]) -> bool:
        """Takes in what was recorded elsewhere; False: it was dropped.

        Args:
            more_labels: of all its series.
        """
        labels = tuple(sorted((*report.labels, *more_labels)))
        fits = isfinite(report.value) and (report.value >= 0 or report.kind != "counter")
        key = SeriesKey(report.name, report.kind, labels)
        series = self._add(key, report.value) if fits else None
        if series is None:
            self.dropped += 1
            return False
        for bucket, values in report.buckets if report.kind == "histogram" else ():
            if 0 <= bucket < len(series.counts):
                series.counts[bucket] += min(max(values, 0), _MOST_VALUES)
        return True

    def _add(self, key: SeriesKey, value: float) -> Series | None:
        """The series with the value; None where there is none, or its sum were too large."""
        series = self._find(key)
        if series is not None:
            total = value if key.kind == "gauge" else series.value + value
            if not isfinite(total):  # JSON has no word for it: a report with it could not be read
                return None
            series.value = total
        return series

    def _find(self, key: SeriesKey) -> Series | None:
        series = self._series.get(key)
        if series is None and len(self._series) < self._most:
            if self._kinds.setdefault(key.name, key.kind) != key.kind:
                return None
            counts = [0] * (len(VALUE_BUCKETS) + 1) if key.kind == "histogram" else []
            series = self._series[key] = Series(0.0, counts)
        return series


def reported(key: SeriesKey, series: Series) -> SeriesReport:
    """A series as it is sent; :meth:`JobSeries.merge` takes it in."""
    buckets = tuple((bucket, values) for bucket, values in enumerate(series.counts) if values)
    return SeriesReport(key.name, key.kind, key.labels, series.value, buckets)


def checked_name(name: str) -> str:
    """The name of a metric.

    Raises:
        ValueError: it is none, or belongs to others.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"found the metric name {name!r:.80}, expected lower-case letters, digits and _, "
            "64 characters at most, a letter first; e.g. rows_loaded"
        )
    if name.startswith(_RESERVED_BEGINNINGS) or name == "up":
        raise ValueError(f"the metric name {name!r} begins like those of Penstock or Prometheus")
    if ending := next((end for end in _RESERVED_ENDINGS if name.endswith(end)), ""):
        raise ValueError(
            f"the metric name {name!r} ends in {ending}, which exporters add by themselves; use "
            f"{name.removesuffix(ending)!r}"
        )
    return name


def checked_labels(labels: Mapping[str, object]) -> Labels:
    """Labels as pairs, values cut to `MAX_VALUE_CHARACTERS`.

    Raises:
        ValueError: too many, or a name that is none or belongs to others.
    """
    if len(labels) > MAX_LABELS:
        raise ValueError(f"found {len(labels)} labels, expected {MAX_LABELS} at most")
    for name in labels:
        if not isinstance(name, str) or not _LABEL.fullmatch(name) or name in _RESERVED_LABELS:
            raise ValueError(
                f"found the label {name!r:.60}, expected lower-case letters, digits and _, 32 "
                f"characters at most, none of {', '.join(sorted(_RESERVED_LABELS))}"
            )
    return tuple(sorted((name, _text(value)) for name, value in labels.items()))


def is_valid(report: SeriesReport) -> bool:
    """Whether a worker can have sent it: its metric and labels pass the checks above."""
    try:
        checked_name(report.name)
        labels = checked_labels(dict(report.labels))
    except ValueError:
        return False
    return labels == report.labels and len(report.buckets) <= len(VALUE_BUCKETS) + 1


def _text(value: object) -> str:
    """Without lone surrogates, which JSON cannot carry."""
    text = str(value)[:MAX_VALUE_CHARACTERS]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")[:MAX_VALUE_CHARACTERS]
