"""Workers that will take jobs: the same bits as by the formulas written out one by one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.decider.core.strategies.deadline.worker_groups import (
    Service,
    WorkerGroup,
    WorkerGroups,
    _needed,
)
from penstock.measuring.assumed import LEAST_JOB_SECONDS

_NEW_SECONDS, _GRANTED_SECONDS = 1.3, 2.0

seconds = st.sampled_from([0.0, 0.05, 1.0, 30.0]) | st.floats(1e-6, 1e4)
groups = st.lists(st.builds(WorkerGroup, st.integers(0, 40), st.none() | seconds), max_size=5).map(
    tuple
)
services = st.builds(
    Service,
    st.sampled_from([0.0, 0.001, 1.0, 60.0]) | st.floats(0, 1e6),
    st.sampled_from([0.0, 0.25, 1.0, 20.0]) | st.floats(0, 20),
)
safeties = st.sampled_from([0.0, 1.645]) | st.floats(0, 5)
places = st.integers(1, 1000).map(float) | st.floats(0.5, 1e4)


@given(groups, services, safeties, places, st.integers(0, 300), seconds)
def test_counts_and_times_are_the_same_bits(
    kept: tuple[WorkerGroup, ...],
    service: Service,
    safety: float,
    place: float,
    workers: int,
    after: float,
) -> None:
    fast = WorkerGroups(kept, _NEW_SECONDS, service, safety, _GRANTED_SECONDS)
    plain = _Plain(kept, service, safety)
    assert fast.begun(workers, after).hex() == plain.begun(workers, after).hex()
    assert fast.fewest(place, after).hex() == float(plain.fewest(place, after)).hex()
    assert fast.start_seconds(place, workers).hex() == plain.start_seconds(place, workers).hex()


class _Plain:
    """Each formula in its own function; all groups, also those that no worker is left for."""

    def __init__(self, kept: tuple[WorkerGroup, ...], service: Service, safety: float) -> None:
        self._groups, self._service, self._safety = kept, service, safety

    def begun(self, workers: int, after: float) -> float:
        least, paces = 0.0, (0.0, 0.0, 0.0)
        for group in (*self._groups, WorkerGroup(workers, _NEW_SECONDS)):
            count = min(group.workers, workers)
            workers -= count
            paces = _joined(paces, count, self._pace(group.ready_seconds, after))
            least = max(least, self._surely(paces))
        return paces[0] + least

    def fewest(self, place: float, after: float) -> float:
        workers, least, paces = 0, 0.0, (0.0, 0.0, 0.0)
        for group in self._groups:
            pace = self._pace(group.ready_seconds, after)
            needed = _needed(place, paces, least, pace, self._safety)
            if needed <= group.workers:
                return workers + needed
            workers += group.workers
            paces = _joined(paces, group.workers, pace)
            least = max(least, self._surely(paces))
        pace = self._pace(_NEW_SECONDS, max(after, _NEW_SECONDS + _GRANTED_SECONDS))
        return workers + _needed(place, paces, least, pace, self._safety)

    def start_seconds(self, place: float, workers: int) -> float:
        if workers <= 0:
            return math.inf
        high = _NEW_SECONDS + (place / workers + 1) * self._service.seconds
        for _ in range(20):
            if self.begun(workers, high) >= place:
                break
            high *= 2
        low = 0.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self.begun(workers, middle) >= place else (middle, high)
        return high

    def _surely(self, paces: tuple[float, float, float]) -> float:
        root = math.sqrt(paces[1]) - self._safety * math.sqrt(paces[2]) / 2
        return root * root if root > 0 else 0.0

    def _pace(self, ready_seconds: float | None, after: float) -> tuple[float, float, float]:
        if ready_seconds is None:
            rounds = self._rounds(after)
            return 0.0, rounds, self._spread(rounds)
        if after < ready_seconds:
            return 0.0, 0.0, 0.0
        rounds = self._rounds(after - ready_seconds)
        fresh = self._rounds_from_fresh(rounds)
        if fresh <= 0:
            return 1.0, 0.0, 0.0
        return 1.0, fresh, self._spread(rounds) * rounds / fresh

    def _rounds(self, after: float) -> float:
        return 0.0 if after <= 0 else after / max(self._service.seconds, LEAST_JOB_SECONDS)

    def _rounds_from_fresh(self, rounds: float) -> float:
        cv2 = self._service.cv2
        if cv2 >= 1.0:
            return rounds
        return rounds - (1.0 - cv2) / 2 * (1.0 - math.exp(-2.0 * rounds))

    def _spread(self, rounds: float) -> float:
        cv2 = self._service.cv2
        return cv2 + (1.0 - cv2) / (1.0 + 6.0 * rounds)


def _joined(
    paces: tuple[float, float, float], workers: int, pace: tuple[float, float, float]
) -> tuple[float, float, float]:
    spread = max(paces[2], pace[2]) if workers > 0 else paces[2]
    return paces[0] + workers * pace[0], paces[1] + workers * pace[1], spread
