"""From a trace to jobs: when each arrives and how long it runs, drawn with a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.decider.simulator.model.durations import MOST_SECONDS, Durations, check_longest
from penstock.measuring.trained import Curve

Floats = NDArray[np.float64]
MOST_JOBS = 20_000_000
"""A load beyond this would not fit into memory; it has to be thinned."""


class TooMany(ValueError):
    """More jobs, or more time, than can be simulated."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded arrivals.

    Attributes:
        origin: POSIX seconds of time 0.
        times: seconds from origin, sorted: of arrivals, or of the bins' starts.
        counts: arrivals of each bin; None where each time is one arrival.
        widths: seconds of each bin; None likewise.
        columns: other figures of the rows, by name: what jobs may take their size from.
        exact: as many jobs arrive in each bin as it counts, at random times in it; else a Poisson
            number of that mean.
        time_column, count_column: of the file that it was read from; empty for none.
    """

    name: str
    origin: float
    times: Floats
    counts: Floats | None = None
    widths: Floats | None = None
    columns: Mapping[str, Floats] = {}
    exact: bool = False
    time_column: str = ""
    count_column: str = ""

    @property
    def duration_seconds(self) -> float:
        """To the last arrival, or to the end of the last bin."""
        last = float(self.times[-1])
        return last if self.widths is None else last + float(self.widths[-1])

    @property
    def arrivals(self) -> float:
        """As recorded, before any thinning."""
        return float(len(self.times) if self.counts is None else self.counts.sum())


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in order of arrival; times in seconds from ``origin`` (POSIX seconds).

    ``curve``: what was forecast of them beforehand, if anything.
    """

    origin: float
    arrivals: list[float]
    services: list[float]
    duration_seconds: float
    curve: Curve | None = None


def kept_share(thin: float) -> float:
    """``thin`` up to 1 is the share of jobs that is kept; above 1, one in so many is."""
    if not thin > 0:
        raise ValueError(f"found a thinning factor of {thin:g}, expected a number above 0")
    return thin if thin <= 1 else 1 / thin


def check_span(trace: Trace) -> None:
    """Raises TooMany: the trace is longer than MOST_SECONDS; memory and time grow with it."""
    if not trace.duration_seconds <= MOST_SECONDS:
        raise TooMany(
            f"found times over {trace.duration_seconds / 86_400:.4g} days, expected at most "
            f"{MOST_SECONDS / 86_400:.0f}; correct the times, or take fewer hours"
        )


def draw(trace: Trace, durations: Durations, *, thin: float = 1.0, seed: int = 0) -> Load:
    """The jobs of one seed; the same for every strategy.

    Bins become a Poisson process (see `Trace.exact`), rows are kept or not: both by ``thin``, see
    `kept_share`.

    Raises:
        TooMany: with a factor that would do; or the trace is too long.
        TooLong: a job runs for longer than can be simulated.
        KeyError: the trace lacks a column of sizes.
    """
    check_span(trace)
    check_size(trace, thin)
    share = kept_share(thin)
    when, long = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
    arrivals, rows = _arrivals(trace, share, when)
    services = durations.draw(long, len(arrivals), trace.columns, rows)
    check_longest(services)
    return Load(
        origin=trace.origin,
        arrivals=arrivals.tolist(),
        services=services.tolist(),
        duration_seconds=trace.duration_seconds,
    )


def check_size(trace: Trace, thin: float) -> None:
    """Raises TooMany: with a factor that would do."""
    jobs = trace.arrivals * kept_share(thin)
    if jobs > MOST_JOBS:
        least = trace.arrivals / MOST_JOBS
        raise TooMany(
            f"{trace.name}: {jobs:.3g} jobs are more than {MOST_JOBS:.3g}; "
            f"thin them by {math.ceil(least)} or more, or take fewer hours"
        )


def _arrivals(
    trace: Trace, share: float, random: np.random.Generator
) -> tuple[Floats, NDArray[np.intp]]:
    """Times, and the row that each comes from."""
    if trace.counts is None or trace.widths is None:
        rows = np.flatnonzero(random.random(len(trace.times)) < share)
        return trace.times[rows], rows
    if trace.exact and share == 1:
        numbers = trace.counts.astype(np.int64)
    else:
        numbers = random.poisson(trace.counts * share)
    rows = np.repeat(np.arange(len(numbers)), numbers)
    times = trace.times[rows] + random.random(len(rows)) * trace.widths[rows]
    order = np.argsort(times, kind="stable")
    return times[order], rows[order]


def busiest(trace: Trace, seconds: float) -> Trace:
    """The part of a trace of this length that has most arrivals."""
    if seconds >= trace.duration_seconds:
        return trace
    weights = np.ones(len(trace.times)) if trace.counts is None else trace.counts
    before = np.concatenate(([0.0], np.cumsum(weights)))
    ends = np.searchsorted(trace.times, trace.times + seconds, side="left")
    sums = before[ends] - before[:-1]
    sums[trace.times + seconds > trace.duration_seconds + 1e-6] = -1.0
    first = int(np.argmax(sums))
    return cut(trace, float(trace.times[first]), seconds)


def cut(trace: Trace, start_seconds: float, seconds: float) -> Trace:
    """The arrivals (or whole bins) of a stretch of time; its beginning is the new origin."""
    inside = (trace.times >= start_seconds) & (trace.times < start_seconds + seconds)
    return msgspec.structs.replace(
        trace,
        origin=trace.origin + start_seconds,
        times=trace.times[inside] - start_seconds,
        counts=None if trace.counts is None else trace.counts[inside],
        widths=None if trace.widths is None else trace.widths[inside],
        columns={name: values[inside] for name, values in trace.columns.items()},
    )
