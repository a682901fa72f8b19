"""What a query's batches say of its work: task seconds of a row, and what no slot can shorten.

A batch of ``r`` rows on ``c`` slots takes about

    d = f + w r / c

``w`` are the task seconds of a row, which more slots share, and ``f`` is all else. ``w`` is the sum
of the batches' task seconds over the sum of their rows. Spark's own count of task seconds is taken
where there is one; else the time in which a batch ran on all its slots, ``(d - o) c``, which counts
slots that had nothing left to do and so is no less. ``o`` is the part in which no task runs:
planning, offsets, commits. ``f`` of a batch is what its rows do not account for, ``d - w r / c``;
of the query it is what three of four batches of late do not exceed. A batch that a Worker's start
or a lost slot held up is no measure of the next: what is above is for the headroom of a strategy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from penstock.measuring.counts import least_expected

MOST_BATCHES = 20
"""Batches that an estimate is made of: fewer follow a change sooner, more know the spread."""


_FIXED_BATCHES = 12
_USUAL_SHARE = 0.75


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is done.

    Attributes:
        triggered_at: seconds of any clock.
        rows: that it had.
        arrived_rows: that came since the batch before; its own rows and what the lag grew by.
        seconds: from trigger to end.
        overhead_seconds: of these, in which no task can run.
        slots: that it had, in the mean.
        is_steady: the slots did not change meanwhile.
        task_counter: seconds of all tasks that its application has ended, a moment after the
            batch's end; None where that is not known.
        lag_rows: that were held back from it; None where the source does not say.
    """

    triggered_at: float
    rows: int
    arrived_rows: float
    seconds: float
    overhead_seconds: float = 0.0
    slots: float = 1.0
    is_steady: bool = True
    task_counter: float | None = None
    lag_rows: int | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated work.

    Attributes:
        task_seconds_per_row: None before a batch with rows was done.
        fixed_seconds: of a batch, whatever the slots.
        is_measured: by Spark's own count of task seconds.
    """

    task_seconds_per_row: float | None = None
    fixed_seconds: float = 0.0
    is_measured: bool = False


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that come a second, None where that is not known, and the growth of that each second."""

    rows_per_second: float | None = None
    growth_per_second: float = 0.0


def work_of(batches: Sequence[Batch]) -> Work:
    """Estimates the work of a query; see the module.

    Args:
        batches: of late, oldest first.
    """
    batches = batches[-MOST_BATCHES:]
    with_rows = [batch for batch in batches if batch.rows and batch.slots > 0]
    if not with_rows:
        return Work()
    # Of a batch whose slots came and went it is not known which of them worked on it.
    steady = [batch for batch in with_rows if batch.is_steady] or with_rows
    counted = _counted_per_row(batches)
    per_row = _timed_per_row(steady) if counted is None else counted
    rest = [
        min(max(batch.seconds - per_row * batch.rows / batch.slots, 0.0), batch.seconds)
        for batch in steady
    ]
    return Work(
        task_seconds_per_row=per_row,
        fixed_seconds=_upper(rest[-_FIXED_BATCHES:]),
        is_measured=counted is not None,
    )


def rate_of(batches: Sequence[Batch]) -> Rate:
    """The rate of arrivals: the mean of the last three batches, or what the latest proves if more.

    Two rows where one is usual may be chance, 2,000 where 1,000 are usual are not. It grows where
    it grew twice in a row; the smaller growth counts, so that a step is no trend.
    """
    gaps = [
        (after.triggered_at - before.triggered_at, after.arrived_rows)
        for before, after in pairwise(batches)
        if after.triggered_at > before.triggered_at
    ][-3:]
    if not gaps:
        return Rate()
    rates = [rows / seconds for seconds, rows in gaps]
    proven = [least_expected(rows) / seconds for seconds, rows in gaps]
    mean = sum(rows for _, rows in gaps) / sum(seconds for seconds, _ in gaps)
    growth = 0.0
    if len(rates) == 3:
        steps = [(proven[nth] - rates[nth - 1]) / gaps[nth][0] for nth in (1, 2)]
        growth = max(min(steps), 0.0)
    return Rate(rows_per_second=max(proven[-1], mean), growth_per_second=growth)


def interval_of(batches: Sequence[Batch]) -> float:
    """Seconds between two triggers, of batches that ended before the next; 0 where none did."""
    gaps = [
        after.triggered_at - before.triggered_at
        for before, after in pairwise(batches)
        if before.seconds < 0.95 * (after.triggered_at - before.triggered_at)
    ][-MOST_BATCHES:]
    return sorted(gaps)[len(gaps) // 2] if gaps else 0.0


def _counted_per_row(batches: Sequence[Batch]) -> float | None:
    """By Spark's count of task seconds; None where too few batches were counted.

    From the end of one batch to that of the next: looks at the count are a second apart, and what
    one of them counts too early is missing at the next.
    """
    seconds = rows = pairs = 0.0
    for before, after in pairwise(batches):
        if before.task_counter is not None and after.task_counter is not None:
            seconds += max(after.task_counter - before.task_counter, 0.0)
            rows += after.rows
            pairs += 1
    return seconds / rows if rows and 2 * pairs >= len(batches) - 1 else None


def _timed_per_row(batches: Sequence[Batch]) -> float:
    """By the time in which tasks could run, on all slots."""
    seconds = sum(max(one.seconds - one.overhead_seconds, 0.0) * one.slots for one in batches)
    return seconds / sum(one.rows for one in batches)


def _upper(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(_USUAL_SHARE * len(values)) - 1]
