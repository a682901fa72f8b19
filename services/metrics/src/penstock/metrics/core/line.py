"""The line of a queue's waiting jobs: how old they are from the first to the last.

Some of them are looked up; between two of these, ages change evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.events.snapshot import WaitingJob

PLACES = 5
"""Ages are told of at so many places in the line."""
_SAMPLES = 16
"""Each queue of a group is taken for so many jobs, each of the same weight."""


class Spot(NamedTuple):
    """A waiting job that was looked up.

    ``stored_at``: POSIX seconds, broker's clock; ``behind``: how many wait behind it; ``job``: its
    id, empty where the message does not say.
    """

    sequence: int
    stored_at: float
    behind: int
    job: str = ""


class Line:
    """What was looked up of one queue; ``asked_at``: when, by a steady clock, None for never."""

    __slots__ = ("_asked_wall_at", "asked_at", "spots")

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self.spots: tuple[Spot, ...] = ()
        self._asked_wall_at = 0.0

    def ask(self, now: float, wall_now: float) -> None:
        """It is being looked up, at ``now``, which is ``wall_now`` in POSIX seconds."""
        self.asked_at, self._asked_wall_at = now, wall_now

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
        known = {waiting - 1 - spot.behind: wall_now - spot.stored_at for spot in self.spots}
        known[0] = oldest_seconds
        if (last := max(known)) < waiting - 1:  # those behind came since
            known[last + 1] = min(known[last], wall_now - self._asked_wall_at)
        return tuple((place, max(age, 0.0)) for place, age in sorted(known.items()))


def evenly_chosen(jobs: Iterable[WaitingJob]) -> tuple[WaitingJob, ...]:
    """The oldest, the newest and some in between, the oldest first: at most ``PLACES``."""
    known = sorted(jobs, key=lambda job: (-job.waited_seconds, job.id))
    if len(known) <= PLACES:
        return tuple(known)
    return tuple(known[place * (len(known) - 1) // (PLACES - 1)] for place in range(PLACES))


def sequences(delivered_sequence: int, last_sequence: int) -> list[int]:
    """Where to look, between the first and the last waiting job, for those in between."""
    first, parts = delivered_sequence + 1, PLACES - 1
    return [first + (last_sequence - first) * part // parts for part in range(1, parts)]


def evenly(lines: Iterable[tuple[int, Sequence[tuple[int, float]]]]) -> tuple[float, ...]:
    """Ages at evenly spaced places of all lines put together, the oldest first.

    Args:
        lines: of each queue, how many wait, and (place, age) of those that are known.
    """
    found = [(waiting, known) for waiting, known in lines if waiting]
    if not found or not all(known for _, known in found):
        return ()
    if len(found) == 1:
        return _at_places(*found[0], PLACES)
    weighed = [
        (age, waiting / len(ages))
        for waiting, known in found
        for ages in (_at_places(waiting, known, _SAMPLES),)
        for age in ages
    ]
    return _quantiles(sorted(weighed, reverse=True))


def _at_places(waiting: int, known: Sequence[tuple[int, float]], most: int) -> tuple[float, ...]:
    spots = min(waiting, most)
    return tuple(_age_at(known, spot * (waiting - 1) / max(spots - 1, 1)) for spot in range(spots))


def _age_at(known: Sequence[tuple[int, float]], place: float) -> float:
    for (before, older), (after, younger) in pairwise(known):
        if place <= after:
            return older + (younger - older) * (place - before) / (after - before)
    return known[-1][1]


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
