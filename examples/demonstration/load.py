"""The load: jobs that arrive more and more often, in bursts, and less and less. Seeded, pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
from examples import jobs

from penstock.jobs import Call

SECONDS = 64.0
"""From the first job to the last."""

Points = tuple[tuple[float, float], ...]
"""A rate over time: ``(second, jobs per second)``, straight lines between."""


class Arrival(msgspec.Struct, frozen=True):
    """A job that is dispatched ``at`` so many seconds after the start."""

    at: float
    call: Call


class Burst(msgspec.Struct, frozen=True):
    """So many jobs at once."""

    at: float
    count: int


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one kind.

    Attributes:
        make: a call from the job's number and the generator of random numbers.
        rate: jobs per second over time.
        bursts: jobs besides these.
    """

    make: Callable[[int, random.Random], Call]
    rate: Points
    bursts: tuple[Burst, ...] = ()


class Phase(msgspec.Struct, frozen=True):
    """A phase of the load, as the screen names it."""

    begins: float
    name: str


PHASES = (
    Phase(0, "load rises"),
    Phase(20, "steady"),
    Phase(28, "burst of 40"),
    Phase(34, "steady"),
    Phase(48, "burst of 25"),
    Phase(52, "load falls"),
)


def streams(lake: str) -> tuple[Stream, ...]:
    """The jobs of the demo. ``lake``: folder for the Parquet files of the Spark jobs."""
    return (
        Stream(
            make=lambda number, dice: jobs.make_thumbnail(number, _seconds(dice, 0.65)),
            rate=((0, 1), (20, 6), (44, 6), (60, 0.5), (SECONDS, 0.5)),
            bursts=(Burst(28, 40), Burst(48, 25)),
        ),
        Stream(
            make=lambda number, dice: jobs.send_invoice(number, _seconds(dice, 0.3)),
            rate=((0, 0.8), (40, 1.5), (56, 0.5), (SECONDS, 0.5)),
        ),
        Stream(
            make=lambda number, dice: jobs.send_newsletter(
                number, _seconds(dice, 0.35), dice.random() < 0.15
            ),
            rate=((0, 0), (SECONDS, 0)),
            bursts=(Burst(14, 30), Burst(38, 30)),
        ),
        Stream(
            make=lambda number, dice: report(lake, number, dice),
            rate=((0, 0.2), (25, 0.5), (44, 0.5), (SECONDS, 0)),
        ),
    )


def report(lake: str, number: int, dice: random.Random) -> Call:
    """One of the Spark jobs."""
    if number % 2:
        return jobs.weigh_words(lake, dice.choice("abcdefghilmnoprstuw"))
    return jobs.rate_movies(lake, dice.randint(1, 4))


def arrivals(offered: tuple[Stream, ...], seed: int) -> list[Arrival]:
    """All jobs in the order of their arrival; the same seed gives the same load."""
    jobs_at = [
        Arrival(at, stream.make(number, dice))
        for index, stream in enumerate(offered)
        for dice in (random.Random(seed * 1_000 + index),)
        for number, at in enumerate(_instants(stream, dice))
    ]
    return sorted(jobs_at, key=lambda arrival: arrival.at)


def _instants(stream: Stream, dice: random.Random) -> list[float]:
    together = [burst.at for burst in stream.bursts for _ in range(burst.count)]
    return sorted([*_poisson(stream.rate, dice), *together])


def _poisson(rate: Points, dice: random.Random) -> Iterator[float]:
    """Poisson arrivals whose rate changes: thinning (Lewis & Shedler 1979)."""
    highest, at = max(height for _, height in rate), 0.0
    while highest and (at := at + dice.expovariate(highest)) < rate[-1][0]:
        if dice.random() * highest < height_at(rate, at):
            yield at


def height_at(rate: Points, at: float) -> float:
    """The rate at a second; 0 outside."""
    for (start, low), (end, high) in pairwise(rate):
        if start <= at < end:
            return low + (high - low) * (at - start) / (end - start)
    return 0.0


def _seconds(dice: random.Random, median: float) -> float:
    """How long a job takes: log-normal, as such times are, and never absurd."""
    return round(min(max(dice.lognormvariate(0, 0.45) * median, 0.3 * median), 4 * median), 3)
