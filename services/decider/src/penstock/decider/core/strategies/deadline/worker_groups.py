"""The workers that will take jobs: how many jobs they have picked up by when, at the least.

A busy worker is somewhere in its job: its pickups are a renewal process in equilibrium, with mean
t/s by time t. An idle, starting or new worker takes a job as soon as it is there, and then goes on
as an ordinary renewal process (Cox, *Renewal Theory*, 1962, ch. 4: for mean and variance). A
promise can be built on the lower quantile of the number picked up by all. The root of such a number
is nearly normal, also of a small one, with a standard deviation of √spread / 2 whatever its mean
(Bartlett, *The Square Root Transformation in Analysis of Variance*, 1936):

    quantile = (√mean - z/2 · √spread)²,  spread = variance / mean

Of 4.7 expected jobs at least one begins with 99 % (exactly: of 4.6); by a normal number, of 7.3.

Several groups of workers count with the highest of their spreads, so that one that gets ready may
lower the quantile of all. What counts is the highest quantile of the first one, two, … groups, in
the order in which they are ready. With it, more time never means fewer jobs: for cv < 1 a group's
spread falls with time; for cv ≥ 1 the first group has the highest spread, which grows by a smaller
factor than the mean of all.
"""

from __future__ import annotations

import math

import msgspec

from penstock.measuring.assumed import LEAST_JOB_SECONDS

_NEVER = math.inf


class Service(msgspec.Struct, frozen=True, gc=False):
    """The distribution of run times.

    Attributes:
        seconds: mean.
        cv2: variance over squared mean.
    """

    seconds: float
    cv2: float

    def rounds(self, seconds: float) -> float:
        """Mean number of jobs that a worker ends in so long a time, wherever in a job it is."""
        if seconds <= 0:
            return 0.0
        return seconds / (self.seconds if self.seconds > LEAST_JOB_SECONDS else LEAST_JOB_SECONDS)

    def rounds_from_fresh(self, rounds: float) -> float:
        """The same for a worker that begins a job at the start: fewer, if jobs are of one length.

        Never more than in equilibrium, which irregular jobs would allow: that is not promised.
        """
        if self.cv2 >= 1.0:
            return rounds
        return rounds - (1.0 - self.cv2) / 2 * (1.0 - math.exp(-2.0 * rounds))

    def spread(self, rounds: float) -> float:
        """Variance of that number over its mean: 1 as for a coin at first, cv² in the long run."""
        return self.cv2 + (1.0 - self.cv2) / (1.0 + 6.0 * rounds)


class WorkerGroup(msgspec.Struct, frozen=True, gc=False):
    """Workers that are alike.

    Attributes:
        workers: how many.
        ready_seconds: from now until they take their first job; None: they are in one.
    """

    workers: int
    ready_seconds: float | None


Pace = tuple[float, float, float]
"""Jobs picked up by some time: sure first ones, further ones in the mean, and their spread."""
_NOTHING: Pace = (0.0, 0.0, 0.0)


class WorkerGroups:
    """Groups in the order in which workers are kept: an unneeded worker leaves from the end.

    Args:
        groups: those that exist; after them any number of new ones.
        new_seconds: until a worker that is started now takes its first job.
        service: how long jobs run.
        safety: how many standard deviations below the mean a promise is built on.
        granted_seconds: that a new worker has for further jobs, however little time is left.
    """

    def __init__(
        self,
        groups: tuple[WorkerGroup, ...],
        new_seconds: float,
        service: Service,
        safety: float,
        granted_seconds: float = 0.0,
    ) -> None:
        self.groups = groups
        self.new_seconds = new_seconds
        self._service, self._safety = service, safety
        self._granted_until = new_seconds + granted_seconds

    def fewest(self, place: float, seconds: float) -> float:
        """Fewest workers, the first ones kept, that have begun ``place`` jobs ``seconds`` from now.

        May be broken; infinite where no number of workers can.
        """
        workers, least, paces = 0, 0.0, _NOTHING
        for group in self.groups:
            pace = self._pace(group.ready_seconds, seconds)
            needed = _needed(place, paces, least, pace, self._safety)
            if needed <= group.workers:
                return workers + needed
            workers += group.workers
            paces = _joined(paces, group.workers, pace)
            least = max(least, surely(paces[1], paces[2], self._safety))
        pace = self._pace(self.new_seconds, max(seconds, self._granted_until))
        return workers + _needed(place, paces, least, pace, self._safety)

    def begun(self, workers: int, seconds: float) -> float:
        """Jobs that so many workers have begun by then, at the least."""
        least, paces = 0.0, _NOTHING
        for group in (*self.groups, WorkerGroup(workers, self.new_seconds)):
            count = min(group.workers, workers)
            workers -= count
            paces = _joined(paces, count, self._pace(group.ready_seconds, seconds))
            least = max(least, surely(paces[1], paces[2], self._safety))
        return paces[0] + least

    def start_seconds(self, place: float, workers: int) -> float:
        """When the ``place``-th job is begun by so many workers, at the latest; from now."""
        if workers <= 0:
            return _NEVER
        high = self.new_seconds + (place / workers + 1) * self._service.seconds
        # a bound on the steps: a decision must end whatever the figures are
        for _ in range(20):
            if self.begun(workers, high) >= place:
                break
            high *= 2
        low = 0.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self.begun(workers, middle) >= place else (middle, high)
        return high

    def _pace(self, ready_seconds: float | None, seconds: float) -> Pace:
        service = self._service
        if ready_seconds is None:
            rounds = service.rounds(seconds)
            return 0.0, rounds, service.spread(rounds)
        if seconds < ready_seconds:
            return _NOTHING
        rounds = service.rounds(seconds - ready_seconds)
        fresh = service.rounds_from_fresh(rounds)
        if fresh <= 0:
            return 1.0, 0.0, 0.0
        return 1.0, fresh, service.spread(rounds) * rounds / fresh


def _joined(pace: Pace, workers: float, other: Pace) -> Pace:
    """With so many workers of another pace."""
    spread = max(pace[2], other[2]) if workers > 0 else pace[2]
    return pace[0] + workers * other[0], pace[1] + workers * other[1], spread


def surely(mean: float, spread: float, safety: float) -> float:
    """The lower quantile of a number of jobs, ``safety`` standard deviations below its mean."""
    root = math.sqrt(mean) - safety * math.sqrt(spread) / 2
    return root * root if root > 0 else 0.0


def _needed(place: float, paces: Pace, least: float, pace: Pace, safety: float) -> float:
    """The number of further workers of this pace with which ``place`` jobs are begun.

    The smallest x with  x·first + max((√(further + x·f) - k)², least) ≥ left,  k = z/2 · √spread:
    by the first jobs alone, or by all, which is a quadratic in the root.

    Args:
        place: jobs to begin.
        paces: of the workers before them together.
        least: further jobs that those begin at the least.
        pace: of one of them.
        safety: z.
    """
    left = place - paces[0]
    if left <= least:
        return 0.0
    first, rounds, _ = pace
    by_first = (left - least) / first if first > 0 else _NEVER
    if rounds <= 0:
        return by_first
    lowest = safety * math.sqrt(max(paces[2], pace[2])) / 2
    ratio = first / rounds
    beyond = left + ratio * paces[1]
    square = (1.0 + ratio) * beyond - ratio * lowest * lowest
    root = (lowest + math.sqrt(square)) / (1.0 + ratio) if square > 0 else 0.0
    if root < lowest:  # the first jobs are enough before any further one is sure
        return by_first
    return min(by_first, max((root * root - paces[1]) / rounds, 0.0))
