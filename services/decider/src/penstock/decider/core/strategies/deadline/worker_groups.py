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


Pace = tuple[float, float, float]
"""Jobs picked up by some time: sure first ones, further ones in the mean, and their spread."""
_NOTHING: Pace = (0.0, 0.0, 0.0)


class Service(msgspec.Struct, frozen=True, gc=False):
    """The distribution of run times.

    Attributes:
        seconds: mean.
        cv2: variance over squared mean.
    """

    seconds: float
    cv2: float

    def pace(self, ready_seconds: float | None, seconds: float) -> Pace:
        """Jobs that a worker picks up within so long a time.

        One that is in a job (ready: None) ends ``rounds`` in the mean, wherever in it it is. One
        that begins at the start ends fewer if jobs are of one length; never more, which irregular
        jobs would allow: that is not promised. The spread, the variance of that number over its
        mean, is 1 as for a coin at first, cv² in the long run.
        """
        if ready_seconds is not None:
            if seconds < ready_seconds:
                return _NOTHING
            seconds -= ready_seconds
        job_seconds = self.seconds if self.seconds > LEAST_JOB_SECONDS else LEAST_JOB_SECONDS
        rounds = 0.0 if seconds <= 0 else seconds / job_seconds
        irregular = self.cv2
        regular = 1.0 - irregular
        spread = irregular + regular / (1.0 + 6.0 * rounds)
        if ready_seconds is None:
            return 0.0, rounds, spread
        fresh = rounds
        if irregular < 1.0:
            fresh -= regular / 2 * (1.0 - math.exp(-2.0 * rounds))
        return (1.0, fresh, spread * rounds / fresh) if fresh > 0 else (1.0, 0.0, 0.0)


class WorkerGroup(msgspec.Struct, frozen=True, gc=False):
    """Workers that are alike.

    Attributes:
        workers: how many.
        ready_seconds: from now until they take their first job; None: they are in one.
    """

    workers: int
    ready_seconds: float | None


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
        workers, safety = 0, self._safety
        sure = further = spread = least = 0.0
        for group in self.groups:
            count, pace = group.workers, self._service.pace(group.ready_seconds, seconds)
            needed = _needed(place, (sure, further, spread), least, pace, safety)
            if needed <= count:
                return workers + needed
            workers += count
            sure += count * pace[0]
            further += count * pace[1]
            spread = pace[2] if count and pace[2] > spread else spread
            least = max(least, surely(further, spread, safety))
        pace = self._service.pace(self.new_seconds, max(seconds, self._granted_until))
        return workers + _needed(place, (sure, further, spread), least, pace, safety)

    def begun(self, workers: int, seconds: float) -> float:
        """Jobs that so many workers have begun by then, at the least."""
        return self._begun(self._first(workers), seconds)

    def start_seconds(self, place: float, workers: int) -> float:
        """When the ``place``-th job is begun by so many workers, at the latest; from now."""
        if workers <= 0:
            return _NEVER
        first = self._first(workers)
        high = self.new_seconds + (place / workers + 1) * self._service.seconds
        # a bound on the steps: a decision must end whatever the figures are
        for _ in range(20):
            if self._begun(first, high) >= place:
                break
            high *= 2
        low = 0.0
        for _ in range(20):
            middle = (low + high) / 2
            if self._begun(first, middle) >= place:
                high = middle
            else:
                low = middle
        return high

    def _first(self, workers: int) -> list[tuple[int, float | None]]:
        """The groups of so many workers, and when they are ready; the last ones are new."""
        first: list[tuple[int, float | None]] = []
        for group in self.groups:
            if group.workers >= workers:
                return [*first, (workers, group.ready_seconds)]
            first.append((group.workers, group.ready_seconds))
            workers -= group.workers
        return [*first, (workers, self.new_seconds)]

    def _begun(self, first: list[tuple[int, float | None]], seconds: float) -> float:
        pace, safety = self._service.pace, self._safety
        sure = further = spread = least = 0.0
        for count, ready_seconds in first:
            one, rounds, its_spread = pace(ready_seconds, seconds)
            sure += count * one
            further += count * rounds
            spread = its_spread if count and its_spread > spread else spread
            least = max(least, surely(further, spread, safety))
        return sure + least


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
