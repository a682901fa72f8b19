"""The workers as they report themselves: which there are, what they hold, what they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from statistics import median

from penstock.events.snapshot import PoolSnapshot
from penstock.events.worker import WorkerReport

SILENT_SECONDS = 3.0
"""A worker without a report for this long no longer counts."""
_SMOOTHING = 0.3
"""Weight of the newest second in a worker's use of cores."""
_READY = ("idle", "busy")
_OUTLIER_TIMES = 4.0
"""A worker counts with at most so many times the median: one that leaks, or that lies, does not
stand for all."""
LAPSE_SECONDS = 600.0
"""A measure stands for so long while no worker reports, then loses half of its distance to the
configured need in each such period: what a wrong report left behind does not stay for ever."""


class Worker:
    """The last report of a worker, when it came, and its use of cores while it worked."""

    __slots__ = ("cpu_cores", "report", "reported_at")

    def __init__(self, report: WorkerReport, reported_at: float) -> None:
        self.report = report
        self.reported_at = reported_at
        self.cpu_cores: float | None = None

    def work(self, cores: float | None) -> None:
        """Smooths over some seconds; None (it did not work) changes nothing."""
        if cores is not None:
            before = cores if self.cpu_cores is None else self.cpu_cores
            self.cpu_cores = before + _SMOOTHING * (cores - before)


class Workers:
    """The living workers of one pool.

    Attributes:
        reported_at: when the last report of any came; None for never.
        used_at: when the figures below were true; None where that is not known.
        cpu_cores: cores used by one worker while it works.
        memory_bytes: of one worker. Both are means, outliers cut down to four times the median. The
            last known values stand while no worker reports; see `lapsed`.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self.reported_at: float | None = None
        self.cpu_cores: float | None = None
        self.memory_bytes: int | None = None
        self.used_at: float | None = None
        self._most_cores, self._most_bytes = inf, inf

    def bound(self, cpu_cores: float, memory_bytes: int) -> None:
        """No worker uses more than the largest host has."""
        self._most_cores, self._most_bytes = cpu_cores, memory_bytes
        if self.cpu_cores is not None:
            self.cpu_cores = min(self.cpu_cores, cpu_cores)
        if self.memory_bytes is not None:
            self.memory_bytes = min(self.memory_bytes, memory_bytes)

    def add_report(self, report: WorkerReport, now: float) -> bool:
        """Takes a report in; False when a later one of the same worker came before."""
        worker = self._workers.get(report.worker)
        # The same name with another start is another process: its counters begin at zero.
        if worker and worker.report.started_at == report.started_at:
            if report.number <= worker.report.number:
                return False
            worker.work(_cores(worker.report, report))
            worker.report, worker.reported_at = report, now
        else:
            self._workers[report.worker] = Worker(report, now)
        self.reported_at = now
        return True

    def remove(self, worker: str) -> None:
        self._workers.pop(worker, None)

    def refresh(self, now: float) -> None:
        """Forgets the silent ones and works the means out again."""
        for name, worker in tuple(self._workers.items()):
            if now - worker.reported_at > SILENT_SECONDS:
                del self._workers[name]
        cores = [w.cpu_cores for w in self._workers.values() if w.cpu_cores is not None]
        memory = [w.report.memory_bytes for w in self._workers.values() if w.report.memory_bytes]
        if cores:
            self.cpu_cores = min(_typical(cores), self._most_cores)
        if memory:
            self.memory_bytes = int(min(_typical(memory), self._most_bytes))
            self.used_at = self.reported_at

    def remember(self, last: PoolSnapshot, at: float) -> None:
        """What workers used at ``at``, by an earlier process; nothing where it is known better."""
        if self.used_at is None and last.worker_use_age_seconds is not None:
            self.used_at = at - last.worker_use_age_seconds
        self.cpu_cores = self.cpu_cores or last.worker_cpu_cores
        self.memory_bytes = self.memory_bytes or last.worker_memory_bytes

    @property
    def ready(self) -> int:
        """Workers that could take a job or are running one."""
        return sum(w.report.state in _READY for w in self._workers.values())

    @property
    def idle(self) -> int:
        return sum(w.report.state == "idle" for w in self._workers.values())

    @property
    def held(self) -> int:
        """Jobs that living workers hold, draining ones included."""
        return sum(w.report.held or len(w.report.claims) for w in self._workers.values())

    @property
    def slots_ready(self) -> int:
        """Slots of the ready workers."""
        return sum(w.report.slots for w in self._ready_workers())

    @property
    def slots_idle(self) -> int:
        """Slots of the ready workers in which no job runs."""
        return sum(
            max(w.report.slots - (w.report.slots_used or 0), 0) for w in self._ready_workers()
        )

    def _ready_workers(self) -> Iterator[Worker]:
        return (w for w in self._workers.values() if w.report.state in _READY)

    def running_seconds(self, now: float) -> Iterator[float]:
        """How long each job has run by now."""
        return (seconds for _, seconds in self._running(now))

    def running_jobs(self, now: float) -> dict[str, float]:
        """The same by job."""
        return dict(self._running(now))

    def _running(self, now: float) -> Iterator[tuple[str, float]]:
        for worker in self._workers.values():
            for claim in worker.report.claims:
                if claim.running_seconds > 0:
                    yield claim.job_id, claim.running_seconds + now - worker.reported_at


def lapsed(measured: float, configured: float, age_seconds: float) -> float:
    """What a measure of this age is still worth, beside what the settings say."""
    beyond = max(age_seconds - LAPSE_SECONDS, 0.0) / LAPSE_SECONDS
    left: float = 0.5**beyond
    return configured + (measured - configured) * left


def _typical(values: Sequence[float]) -> float:
    most = _OUTLIER_TIMES * median(values)
    return sum(min(value, most) for value in values) / len(values)


def _cores(before: WorkerReport, after: WorkerReport) -> float | None:
    """Cores used between two reports, None while it did not work."""
    seconds, used = after.at - before.at, after.cpu_seconds - before.cpu_seconds
    worked = "busy" in (before.state, after.state) or after.queues
    return used / seconds if worked and seconds > 0 and used >= 0 else None
