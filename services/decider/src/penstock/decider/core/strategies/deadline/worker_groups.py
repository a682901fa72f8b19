"""The workers that will take jobs: how many jobs they have picked up by when, at the least.

A busy worker is somewhere in its job: its pickups are a renewal process in equilibrium, with mean
t/s by time t. An idle, starting or new worker takes a job as soon as it is there, and then goes on
as an ordinary renewal process. The number picked up by all is nearly normal, and its lower quantile
is what a promise can be built on (Cox, *Renewal Theory*, 1962, ch. 4: for mean and variance).

Shortly after their first job, the spread of what fresh workers pick up grows faster than its mean,
so that the quantile of all falls when one more gets ready. What counts is the highest quantile of
the first one, two, … groups, in the order in which they are ready. With it, more time never means
fewer jobs: for cv < 1 means are convex in time and deviations concave, so that a further group can
exceed the highest quantile before it only while its own rises; for cv ≥ 1 a quantile above 0 rises.
"""

from __future__ import annotations

import math

import msgspec

from penstock.measuring.assumed import LEAST_JOB_SECONDS

_NEVER = math.inf


Pace = tuple[float, float, float]
"""Jobs that one worker picks up by some time: a sure first one, further ones, their variance."""
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
        jobs would allow: that is not promised. The variance of that number is that of a coin at
        first, cv² for each round in the long run.
        """
        if ready_seconds is not None:
            if seconds < ready_seconds:
                return _NOTHING
            seconds -= ready_seconds
        job_seconds = self.seconds if self.seconds > LEAST_JOB_SECONDS else LEAST_JOB_SECONDS
        rounds = 0.0 if seconds <= 0 else seconds / job_seconds
        irregular = self.cv2
        regular = 1.0 - irregular
        variance = rounds * (irregular + regular / (1.0 + 6.0 * rounds))
        if ready_seconds is None:
            return 0.0, rounds, variance
        if irregular >= 1.0:
            return 1.0, rounds, variance
        return 1.0, rounds - regular / 2 * (1.0 - math.exp(-2.0 * rounds)), variance


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
        sure = further = variance = least = 0.0
        for group in self.groups:
            count, pace = group.workers, self._service.pace(group.ready_seconds, seconds)
            needed = _needed(place, (sure, further, variance), least, pace, safety)
            if needed <= count:
                return workers + needed
            workers += count
            sure += count * pace[0]
            further += count * pace[1]
            variance += count * pace[2]
            surely = further - safety * math.sqrt(variance)
            least = surely if surely > least else least
        pace = self._service.pace(self.new_seconds, max(seconds, self._granted_until))
        return workers + _needed(place, (sure, further, variance), least, pace, safety)

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
        sure = further = variance = least = 0.0
        for count, ready_seconds in first:
            one, rounds, spread = pace(ready_seconds, seconds)
            sure += count * one
            further += count * rounds
            variance += count * spread
            surely = further - safety * math.sqrt(variance)
            least = surely if surely > least else least
        return sure + least


def _needed(place: float, paces: Pace, least: float, pace: Pace, safety: float) -> float:
    """The number of further workers of this pace with which ``place`` jobs are begun.

    The smallest x with  x·first + max(further + x·f - z·√(variance + x·v), least) ≥ left: by the
    first jobs alone, or by all, which is a quadratic in x.

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
    first, rounds, spread = pace
    per_worker, missing, z2 = first + rounds, left - paces[1], safety * safety
    if per_worker <= 0:
        return _NEVER
    square = missing * missing - z2 * paces[2]
    half = per_worker * missing + z2 * spread / 2
    root = half * half - per_worker * per_worker * square
    by_all = (half + math.sqrt(root if root > 0 else 0.0)) / (per_worker * per_worker)
    if first > 0 and (left - least) / first < by_all:
        return (left - least) / first
    return by_all if by_all > 0 else 0.0
