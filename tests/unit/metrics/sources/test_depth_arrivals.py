"""Arrivals of a queue whose depth is exact and whose counters are seconds late, by an oracle."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NamedTuple

import pytest

from penstock.metrics.core.sources.depth_arrivals import DepthArrivals, DepthCounts
from penstock.metrics.core.sources.shadow_line import ShadowLine

COLLECTED_SECONDS, STEP_SECONDS = 5.0, 0.01


class Moment(NamedTuple):
    """What a look shows at ``at``, and what is true: arrivals, and the age of the oldest."""

    at: float
    counts: DepthCounts
    arrived: int
    age_seconds: float


def lived(
    rates: list[float], consumers: list[int], run_seconds: float, seed: int
) -> Iterator[Moment]:
    """A queue, first come first served, a look a second.

    Args:
        rates: of arrivals, second by second; ``consumers``: as many, each with one message.
    """
    chance = random.Random(seed)
    published_phase, delivered_phase = (chance.random() * COLLECTED_SECONDS for _ in range(2))
    line: list[float] = []
    ends: list[float] = []
    arrived = delivered = shown_published = shown_delivered = 0
    for step in range(len(rates) * round(1 / STEP_SECONDS)):
        now = step * STEP_SECONDS
        if chance.random() < rates[int(now)] * STEP_SECONDS:
            line.append(now)
            arrived += 1
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        while line and len(ends) < consumers[int(now)]:
            line.pop(0)
            delivered += 1
            heapq.heappush(ends, now + chance.lognormvariate(-0.25, 0.7) * run_seconds)
        if (now - published_phase) % COLLECTED_SECONDS < STEP_SECONDS:
            shown_published = arrived
        if (now - delivered_phase) % COLLECTED_SECONDS < STEP_SECONDS:
            shown_delivered = delivered
        if not (step + 1) % round(1 / STEP_SECONDS):
            counts = DepthCounts(len(line), consumers[int(now)], shown_published, shown_delivered)
            yield Moment(now, counts, arrived, now - line[0] if line else 0.0)


SHAPES = {
    "a burst out of nothing": ([0.2] * 30 + [11.0] * 15 + [0.1] * 35, [1] * 45 + [11] * 35),
    "workers one by one": ([0.5] * 10 + [6.0] * 70, [1] * 10 + [min(n // 5, 8) for n in range(70)]),
    "steady": ([4.0] * 80, [5] * 80),
    "waves": ([(1.0, 8.0)[n // 10 % 2] for n in range(80)], [4] * 80),
}


Estimate = Callable[[Moment], int]


def by_late_counters() -> Estimate:
    """What waits now, and what the counter shows to have left."""
    return lambda moment: moment.counts.waiting + moment.counts.left


def brought_up_to_now() -> Estimate:
    counts = DepthArrivals()
    return lambda moment: counts.arrived(moment.counts, moment.at)


def judged(moments: list[Moment], estimate: Estimate) -> tuple[float, float]:
    """Mean error of the arrivals, and share of ages that are wrong by a second and a tenth."""
    line: ShadowLine | None = None
    before, errors, wrong = 0, [], []
    for moment in moments:
        arrived, waiting = estimate(moment), moment.counts.waiting
        if line is None:
            line = ShadowLine(moment.at, waiting)
        else:
            line.move(moment.at, arrived - before, waiting)
        before = arrived
        errors.append(abs(arrived - moment.arrived))
        if waiting:
            error = abs(line.age_seconds(0, moment.at) - moment.age_seconds)
            wrong.append(error > max(1.0, 0.1 * moment.age_seconds))
    return fmean(errors), fmean(wrong or [False])


def figures(shape: str, run_seconds: float, estimate: Callable[[], Estimate]) -> list[float]:
    rows = [
        judged(list(lived(*SHAPES[shape], run_seconds, seed)), estimate()) for seed in range(12)
    ]
    return [fmean(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("run_seconds", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_are_right_within_a_few_and_most_ages_within_a_second_or_a_tenth(
    shape, run_seconds
) -> None:
    """A sparse line has ages far apart, so that a message too many is another age."""
    error, wrong = figures(shape, run_seconds, brought_up_to_now)
    late_error, _ = figures(shape, run_seconds, by_late_counters)
    assert error <= max(0.8 * late_error, 3.0)
    assert wrong <= 0.26


def test_ages_are_wrong_half_as_often_as_by_late_counters() -> None:
    cases = [(shape, seconds) for shape in SHAPES for seconds in (0.3, 1.0, 5.0)]
    wrong, late = (
        fmean(figures(*case, estimate)[1] for case in cases)
        for estimate in (brought_up_to_now, by_late_counters)
    )
    assert wrong <= 0.5 * late


def looked(*figures: tuple[int, int, int, int], seconds: float = 1.0) -> list[int]:
    """What is estimated of (waiting, consumers, published, delivered), a look each second."""
    counts = DepthArrivals()
    return [counts.arrived(DepthCounts(*one), nth * seconds) for nth, one in enumerate(figures)]


def test_without_consumers_the_depth_alone_counts_at_once() -> None:
    assert looked((0, 0, 0, 0), (5, 0, 0, 0), (30, 0, 2, 0), (90, 0, 30, 0)) == [0, 5, 30, 90]


def test_a_new_consumer_takes_one_at_once() -> None:
    assert looked((10, 0, 10, 0), (9, 1, 10, 0), (6, 4, 10, 0)) == [0, 0, 0]


def test_what_was_taken_is_known_when_the_counter_shows_it() -> None:
    assert looked((9, 3, 9, 0), (9, 3, 9, 0), (9, 3, 9, 6), (9, 3, 9, 6))[2] == 6


def test_messages_that_were_purged_hide_no_arrivals() -> None:
    calm = [(100, 0, 100, 0)] * 8
    purged = [(0, 0, 100, 0)] * 8
    [before, after] = looked(*calm, *purged)[7::8]
    assert (before, after) == (0, 0)
    assert looked(*calm, *purged, (5, 0, 100, 0), (5, 0, 105, 0))[-1] >= 5


def test_a_message_that_is_delivered_again_came_once() -> None:
    counts = DepthArrivals()
    counts.arrived(DepthCounts(1, 0, 1, 0), 0.0)
    for nth in range(1, 10):
        returned = counts.arrived(DepthCounts(1, 0, 1, nth, nth - 1), float(nth))
    assert returned <= 1


def test_counters_that_fell_begin_another_epoch() -> None:
    counts = DepthArrivals()
    counts.arrived(DepthCounts(5, 1, 100, 95), 0.0)
    assert (counts.arrived(DepthCounts(5, 1, 0, 0), 1.0), counts.epoch) == (0, 1)
    counts.begin_anew()
    counts.begin_anew()
    assert counts.epoch == 2
