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
        included. since: when its phase began. slots: where its jobs run. used: how many of these.
    """

    __slots__ = ("asked_at", "host", "phase", "since", "slots", "together", "used")

    def __init__(self, host: str, together: int, now: float, slots: int = 1) -> None:
        self.host, self.together, self.asked_at, self.since = host, together, now, now
        self.phase, self.used = STARTING, 0
        self.slots = tuple(Slot(self) for _ in range(slots))


class Slot:
    """Attributes:
    worker: which it belongs to. job: what it runs, -1 for nothing. since: when that began.
    """

    __slots__ = ("job", "since", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker, self.job, self.since = worker, -1, 0.0


class Fleet:
    """All workers of one pool. Times are seconds since the simulation's start.

    Args:
        slots: how many jobs a worker runs at a time.

    Attributes:
        ready: workers that could take a job or run one and may go on.
        idle: those without a job.
        idle_slots: slots of the ready workers without a job.
        spent_seconds: worker-seconds of those that have ended.
    """

    def __init__(self, latencies: Latencies, slots: int = 1) -> None:
        self._latencies, self.slots = latencies, slots
        self._workers: dict[str, list[Worker]] = {}
        self._starting: dict[str, int] = {}
        self._idle: deque[Slot] = deque()
        self._draining: set[Worker] = set()
        self.ready = self.idle = self.idle_slots = 0
        self.spent_seconds = 0.0
        self.started = 0

    def command(self, plan: Mapping[str, int], now: float) -> list[tuple[float, Worker]]:
        """Obeys a plan, workers by host. Returns the starting workers and when each is ready."""
        born: list[tuple[float, Worker]] = []
        for host in sorted(self._workers.keys() | plan.keys()):
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
        for slot in worker.slots:
            self._offer(slot)
        return True

    def take(self, job: int, now: float) -> Slot | None:
        """The slot that has been idle longest takes a job; None if no slot is idle."""
        while self._idle:
            slot = self._idle.popleft()
            worker = slot.worker
            if worker.phase in (IDLE, BUSY):
                if worker.phase == IDLE:
                    worker.phase, worker.since = BUSY, now
                    self.idle -= 1
                worker.used += 1
                slot.job, slot.since = job, now
                self.idle_slots -= 1
                return slot
        return None

    def finish(self, slot: Slot, now: float) -> bool:
        """It is done with its job; False if its worker goes."""
        worker, slot.job = slot.worker, -1
        worker.used -= 1
        if worker.phase == DRAINING:
            if not worker.used:
                self._draining.discard(worker)
                self._ended(worker, now)
            return False
        if not worker.used:
            self._rest(worker, now)
        self._offer(slot)
        return True

    def lose(self, host: str, now: float) -> list[int]:
        """A host vanishes with its workers. Returns the jobs that they were running."""
        workers = [*self._workers.pop(host, []), *self._draining_on(host)]
        self._draining -= set(workers)
        self._starting.pop(host, None)
        slots = [slot for worker in workers for slot in worker.slots if slot.job >= 0]
        jobs = [slot.job for slot in slots]
        for worker in workers:
            if worker.phase in (IDLE, BUSY):
                self.ready -= 1
                self.idle_slots -= self.slots - worker.used
            self.idle -= worker.phase == IDLE
            self._ended(worker, now)
        for slot in slots:
            slot.job = -1
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

    def busy(self) -> Iterator[Slot]:
        """The slots that run a job, those of draining workers included."""
        for worker in self.active():
            if worker.phase == BUSY:
                yield from (slot for slot in worker.slots if slot.job >= 0)
        for worker in self._draining:
            yield from (slot for slot in worker.slots if slot.job >= 0)

    @property
    def size(self) -> int:
        """Workers that count against the plan."""
        return sum(map(len, self._workers.values()))

    def _start(self, host: str, together: int, now: float) -> tuple[float, Worker]:
        starting = self._starting.get(host, 0)
        self._starting[host] = starting + 1
        self.started += 1
        worker = Worker(host, together, now, self.slots)
        self._workers[host].append(worker)
        return now + self._latencies.next_seconds(starting), worker

    def _rest(self, worker: Worker, now: float) -> None:
        worker.phase, worker.since = IDLE, now
        self.idle += 1

    def _offer(self, slot: Slot) -> None:
        self.idle_slots += 1
        self._idle.append(slot)

    def _end_surplus(self, host: str, count: int, now: float) -> None:
        workers = self._workers[host]
        workers.sort(key=lambda worker: (worker.phase, worker.used, -worker.asked_at))
        for worker in workers[:count]:
            if worker.phase in (IDLE, BUSY):
                self.idle_slots -= self.slots - worker.used
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
