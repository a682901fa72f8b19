"""The workers: starting, idle, busy, draining, ended; and what they cost.

Commands are obeyed as by the executor: surplus workers end, the starting first, then the idle, then
the youngest busy one, which finishes its job; missing workers start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from penstock.decider.simulator.model.spawning import Latencies

STARTING, IDLE, BUSY, DRAINING, ENDED = range(5)
"""Phases; the active ones are in the order in which they are ended."""
_ACTIVE: Final = (STARTING, IDLE, BUSY)


class Worker:
    """Attributes:
    asked_at: when it was commanded. together: how many were starting on its host then, itself
        included. since: when its phase began. job: what it runs, -1 for nothing.
    """

    __slots__ = ("asked_at", "host", "job", "phase", "since", "together")

    def __init__(self, host: str, together: int, now: float) -> None:
        self.host, self.together, self.asked_at, self.since = host, together, now, now
        self.phase, self.job = STARTING, -1


class Fleet:
    """All workers of one pool. Times are seconds since the simulation's start.

    Attributes:
        ready: workers that could take a job or run one and may go on.
        idle: those without a job.
        spent_seconds: worker-seconds of those that have ended.
    """

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._workers: dict[str, list[Worker]] = {}
        self._starting: dict[str, int] = {}
        self._idle: deque[Worker] = deque()
        self._draining: set[Worker] = set()
        self.ready = self.idle = 0
        self.spent_seconds = 0.0
        self.started = 0

    def command(self, plan: Mapping[str, int], now: float) -> list[tuple[float, Worker]]:
        """Obeys a plan, workers by host. Returns the starting workers and when each is ready."""
        born: list[tuple[float, Worker]] = []
        for host in self._workers.keys() | plan.keys():
            missing = plan.get(host, 0) - len(self._workers.setdefault(host, []))
            if missing < 0:
                self._end_surplus(host, -missing, now)
            together = self._starting.get(host, 0) + missing
            born += (self._start(host, together, now) for _ in range(missing))
        return born

    def became_ready(self, worker: Worker, now: float) -> bool:
        """False if it was ended meanwhile."""
        if worker.phase != STARTING:
            return False
        self._starting[worker.host] -= 1
        self.ready += 1
        self._rest(worker, now)
        return True

    def take(self, job: int, now: float) -> Worker | None:
        """The worker that has been idle longest takes a job; None if no worker is idle."""
        while self._idle:
            worker = self._idle.popleft()
            if worker.phase == IDLE:
                worker.phase, worker.since, worker.job = BUSY, now, job
                self.idle -= 1
                return worker
        return None

    def finish(self, worker: Worker, now: float) -> bool:
        """It is done with its job; False if it goes."""
        worker.job = -1
        if worker.phase == DRAINING:
            self._draining.discard(worker)
            self._ended(worker, now)
            return False
        self._rest(worker, now)
        return True

    def lose(self, host: str, now: float) -> list[int]:
        """A host vanishes with its workers. Returns the jobs that they were running."""
        workers = [*self._workers.pop(host, []), *self._draining_on(host)]
        self._draining -= set(workers)
        self._starting.pop(host, None)
        jobs = [worker.job for worker in workers if worker.job >= 0]
        for worker in workers:
            self.ready -= worker.phase in (IDLE, BUSY)
            self.idle -= worker.phase == IDLE
            self._ended(worker, now)
            worker.job = -1
        return jobs

    def close(self, now: float) -> float:
        """Worker-seconds of all, as if all ended now."""
        left = (worker for workers in self._workers.values() for worker in workers)
        living = sum(now - worker.asked_at for worker in (*left, *self._draining))
        return self.spent_seconds + living

    def active(self) -> Iterator[Worker]:
        """Those that count against the plan."""
        for workers in self._workers.values():
            yield from workers

    def busy(self) -> Iterator[Worker]:
        """Those that run a job, the draining ones included."""
        yield from (worker for worker in self.active() if worker.phase == BUSY)
        yield from self._draining

    @property
    def size(self) -> int:
        """Workers that count against the plan."""
        return sum(map(len, self._workers.values()))

    def _start(self, host: str, together: int, now: float) -> tuple[float, Worker]:
        starting = self._starting.get(host, 0)
        self._starting[host] = starting + 1
        self.started += 1
        worker = Worker(host, together, now)
        self._workers[host].append(worker)
        return now + self._latencies.next_seconds(starting), worker

    def _rest(self, worker: Worker, now: float) -> None:
        worker.phase, worker.since = IDLE, now
        self.idle += 1
        self._idle.append(worker)

    def _end_surplus(self, host: str, count: int, now: float) -> None:
        workers = self._workers[host]
        workers.sort(key=lambda worker: (worker.phase, -worker.asked_at))
        for worker in workers[:count]:
            if worker.phase == BUSY:
                worker.phase = DRAINING
                self._draining.add(worker)
                self.ready -= 1
            else:
                self.ready -= worker.phase == IDLE
                self.idle -= worker.phase == IDLE
                self._starting[host] -= worker.phase == STARTING
                self._ended(worker, now)
        del workers[:count]

    def _ended(self, worker: Worker, now: float) -> None:
        worker.phase = ENDED
        self.spent_seconds += now - worker.asked_at

    def _draining_on(self, host: str) -> list[Worker]:
        return [worker for worker in self._draining if worker.host == host]
