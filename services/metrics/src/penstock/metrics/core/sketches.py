"""Distributions that age by time: mergeable quantile sketches in rotating sub-windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from math import isfinite

from datasketches import kll_doubles_sketch
from msgspec.structs import replace

from penstock.events.snapshot import Quantiles
from penstock.measuring.quantiles import SECONDS_BUCKETS, cv2
from penstock.metrics.core.sketch_layout import K, layout_fault

_PARTS = 6
_MOST_SECONDS = 366 * 86_400.0
_MOST_SAMPLES = 1_000_000
_ROUNDING = 1 + 1e-6


class BadSketch(ValueError):
    """Bytes that are no KLL sketch of doubles, or sums that are no durations."""


class _Part:
    __slots__ = ("sketch", "squares", "start", "total")

    def __init__(self, start: float) -> None:
        self.start = start
        self.sketch = kll_doubles_sketch(K)
        self.total = 0.0
        self.squares = 0.0


class Distribution:
    """Durations in seconds over the last ``window_seconds``, forgotten a sixth at a time.

    Args:
        keeps: so many samples at least stay known, however old (a property of the jobs, like
            service time); with 0 all are forgotten (a property of the moment).
    """

    def __init__(self, window_seconds: float, *, keeps: int = 0) -> None:
        self._part_seconds = window_seconds / _PARTS
        self._window_seconds = window_seconds
        self._keeps, self._count = keeps, 0
        self._parts: deque[_Part] = deque()
        self._cached: Quantiles | None = None
        self._fresh = True
        self._newest_at: float | None = None

    def add(self, seconds: float, now: float) -> None:
        """One duration."""
        if not isfinite(seconds) or seconds < 0:
            raise BadSketch(f"expected seconds, zero or more, found {seconds}")
        part = self._part(now)
        part.sketch.update(seconds)
        self._count += 1
        part.total += seconds
        part.squares += seconds * seconds

    def merge(self, raw: bytes, total: float, squares: float, now: float) -> tuple[int, ...]:
        """A worker's serialized sketch with the sum and the sum of squares of what is in it.

        Returns:
            How many of its samples fall into each of the histogram's buckets; none for no sample.

        Raises:
            BadSketch: what was sent cannot be used; nothing was merged.
        """
        if not (isfinite(total) and isfinite(squares)) or min(total, squares) < 0:
            raise BadSketch(f"expected sums of seconds, found {total} and {squares}")
        # Checked before the library reads it: it would end the process. What was merged stays.
        if fault := layout_fault(raw, _MOST_SECONDS):
            raise BadSketch(
                f"expected a serialized KLL sketch of durations up to {_MOST_SECONDS:g} s: {fault}"
            )
        try:
            sketch = kll_doubles_sketch.deserialize(raw)
        except Exception as error:  # the library raises what its C++ threw
            raise BadSketch(f"expected a serialized KLL sketch of doubles: {error}") from error
        if sketch.is_empty():
            return ()
        _check_sums(sketch.n, sketch.get_max_value(), total, squares)
        part = self._part(now)
        part.sketch.merge(sketch)
        self._count += sketch.n
        part.total += total
        part.squares += squares
        return _by_bucket(sketch)

    def remember(self, quantiles: Quantiles | None, at: float | None = None) -> None:
        """What was known before this process, the newest of it from ``at``.

        It stands until the first own sample.
        """
        if not self._parts:
            self._cached, self._newest_at = quantiles, at

    def quantiles(self, now: float) -> Quantiles | None:
        """The distribution now; None when there is no sample to speak of."""
        self._forget(now)
        if not self._fresh:
            self._cached = _summary(self._parts)
        self._fresh = True
        if self._cached is None or self._newest_at is None:
            return self._cached
        return replace(self._cached, age_seconds=max(now - self._newest_at, 0.0))

    def _part(self, now: float) -> _Part:
        self._forget(now)
        if not self._parts or self._is_full(self._parts[-1], now):
            self._parts.append(_Part(now))
        self._fresh, self._newest_at = False, now
        return self._parts[-1]

    def _is_full(self, part: _Part, now: float) -> bool:
        """Rare samples share parts, or there would be one part for each."""
        return now - part.start >= self._part_seconds and part.sketch.n * _PARTS >= self._keeps

    def _forget(self, now: float) -> None:
        while self._parts and self._is_over(self._parts[0], now):
            self._count -= self._parts.popleft().sketch.n
            self._fresh = False

    def _is_over(self, part: _Part, now: float) -> bool:
        """Old, and there are enough without it."""
        old = part.start + self._part_seconds <= now - self._window_seconds
        return old and self._count - part.sketch.n >= self._keeps


def serialized(samples: Iterable[float]) -> bytes:
    """A sketch of durations as reports carry it; empty for no sample."""
    sketch = kll_doubles_sketch(K)
    for seconds in samples:
        sketch.update(seconds)
    return b"" if sketch.is_empty() else bytes(sketch.serialize())


def _check_sums(count: int, highest: float, total: float, squares: float) -> None:
    """Raises BadSketch: too many samples, or sums that do not belong to them."""
    if count > _MOST_SAMPLES:
        raise BadSketch(f"expected at most {_MOST_SAMPLES} durations, found {count}")
    most = count * highest * _ROUNDING
    if total > most or squares > most * highest:
        raise BadSketch(
            f"expected sums of {count} durations of up to {highest:g} s, found {total:g} and "
            f"{squares:g}"
        )


def _by_bucket(sketch: kll_doubles_sketch) -> tuple[int, ...]:
    """As exact as the sketch: the ranks of a large one are off by about 1.3 %."""
    below = [round(share * sketch.n) for share in sketch.get_cdf(SECONDS_BUCKETS, True)]
    return tuple(upper - lower for lower, upper in pairwise((0, *below)))


def _summary(parts: deque[_Part]) -> Quantiles | None:
    if not parts:
        return None
    merged = kll_doubles_sketch(K)
    for part in parts:
        merged.merge(part.sketch)
    count: int = merged.n
    mean = sum(part.total for part in parts) / count
    p50, p95, p99 = (float(q) for q in merged.get_quantiles([0.5, 0.95, 0.99]))
    return Quantiles(
        count=count,
        mean_seconds=mean,
        p50_seconds=p50,
        p95_seconds=p95,
        p99_seconds=p99,
        cv2=cv2(count, mean, sum(part.squares for part in parts)),
    )
