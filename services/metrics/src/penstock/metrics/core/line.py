"""The line of a queue's waiting jobs: how old they are from the first to the last.

Some of them are looked up; between two of these, ages change evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.events.snapshot import WaitingJob

PLACES = 5
"""Ages are published at so many places in the line."""
_SAMPLES = 16
"""Each queue of a group is taken for so many jobs, each of the same weight."""


class Spot(NamedTuple):
    """A waiting job that was looked up.

    ``stored_at``: POSIX seconds, broker's clock; ``behind``: how many wait behind it; ``job``: its
    id, empty where the message has none.
    """

    sequence: int
    stored_at: float
    behind: int
    job: str = ""


class Line:
    """What was looked up of one queue.

    Attributes:
        looked_up_at: when, by a steady clock; None for never.
        spots: the jobs that were looked up.
    """

    __slots__ = ("_wall_at", "looked_up_at", "spots")

    def __init__(self) -> None:
        self.looked_up_at: float | None = None
        self.spots: tuple[Spot, ...] = ()
        self._wall_at = 0.0

    def look_up(self, now: float, wall_now: float) -> None:
        """It is being looked up, at ``now``, which is ``wall_now`` in POSIX seconds."""
        self.looked_up_at, self._wall_at = now, wall_now

    def see(self, waiting: int, delivered_sequence: int, arrived: int | None) -> None:
        """The queue was looked at again: some have left, some have come."""
        if not self.spots:
            return
        if arrived is None:
            self.spots = ()
            return
        self.spots = tuple(
            spot._replace(behind=spot.behind + arrived)
            for spot in self.spots
            if spot.sequence > delivered_sequence and spot.behind + arrived < waiting
        )

    def ages(
        self, waiting: int, oldest_seconds: float | None, wall_now: float
    ) -> tuple[tuple[int, float], ...]:
        """(place, age in seconds) of those that are known, the first in line at place 0.

        Empty where nothing is known of those behind the first.
        """
        if oldest_seconds is None or not waiting or (waiting > 1 and not self.spots):
            return ()
        ages = {waiting - 1 - spot.behind: wall_now - spot.stored_at for spot in self.spots}
        ages[0] = oldest_seconds
        if (last := max(ages)) < waiting - 1:  # those behind came since
            ages[last + 1] = min(ages[last], wall_now - self._wall_at)
        return tuple((place, max(age, 0.0)) for place, age in sorted(ages.items()))


def evenly_chosen(jobs: Iterable[WaitingJob]) -> tuple[WaitingJob, ...]:
    """The oldest, the newest and some in between, the oldest first: at most ``PLACES``."""
    ordered = sorted(jobs, key=lambda job: (-job.waited_seconds, job.id))
    if len(ordered) <= PLACES:
        return tuple(ordered)
    last = len(ordered) - 1
    return tuple(ordered[place * last // (PLACES - 1)] for place in range(PLACES))


def sequences(delivered_sequence: int, last_sequence: int) -> list[int]:
    """Where to look, between the first and the last waiting job, for those in between."""
    first, parts = delivered_sequence + 1, PLACES - 1
    return [first + (last_sequence - first) * part // parts for part in range(1, parts)]


def evenly(lines: Iterable[tuple[int, Sequence[tuple[int, float]]]]) -> tuple[float, ...]:
    """Ages at evenly spaced places of all lines put together, the oldest first.

    Args:
        lines: of each queue, how many wait, and (place, age) of those that are known.
    """
    waiting_lines = [(waiting, ages) for waiting, ages in lines if waiting]
    if not waiting_lines or not all(ages for _, ages in waiting_lines):
        return ()
    if len(waiting_lines) == 1:
        return _at_places(*waiting_lines[0], PLACES)
    weighed = [
        (age, waiting / len(ages))
        for waiting, looked_up in waiting_lines
        for ages in (_at_places(waiting, looked_up, _SAMPLES),)
        for age in ages
    ]
    return _quantiles(sorted(weighed, reverse=True))


def _at_places(waiting: int, ages: Sequence[tuple[int, float]], most: int) -> tuple[float, ...]:
    spots = min(waiting, most)
    return tuple(_age_at(ages, spot * (waiting - 1) / max(spots - 1, 1)) for spot in range(spots))


def _age_at(ages: Sequence[tuple[int, float]], place: float) -> float:
    for (before, older), (after, younger) in pairwise(ages):
        if place <= after:
            return older + (younger - older) * (place - before) / (after - before)
    return ages[-1][1]


def _quantiles(weighed: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Ages, the oldest first, each standing for so many jobs; the first and the last stay."""
    total = sum(weight for _, weight in weighed)
    spots = min(PLACES, round(total))
    ages, passed, rest = [weighed[0][0]], 0.0, iter(weighed)
    age = weighed[0][0]
    for spot in range(1, spots):
        while passed < total * spot / (spots - 1) - 1e-9:
            age, weight = next(rest)
            passed += weight
        ages.append(age)
    return tuple(ages)
