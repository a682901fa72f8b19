"""What happened, folded from the event log: jobs, workers, decisions, leaders. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.events.envelope import Event
from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobEvent,
    JobFailed,
    JobRecovered,
    JobReleased,
    JobStarted,
)
from penstock.events.scaling import LeaderChanged, ScalingDecisionMade
from penstock.events.worker import WorkerEvent, WorkerReady, WorkerStarted, WorkerStopped


@dataclass
class JobStory:
    """One job; times are POSIX seconds by the broker's clock.

    Attributes:
        starts: when each attempt began and by which worker.
        lost: its worker was lost, or gave it back, so often.
    """

    id: str
    queue: str
    pool: str
    dispatched_at: float
    starts: list[tuple[float, str]] = field(default_factory=list)
    ended_at: float | None = None
    failures: int = 0
    lost: int = 0

    @property
    def pickup_seconds(self) -> float | None:
        """From dispatched to first started: what the promise is about. None while it waits."""
        return self.starts[0][0] - self.dispatched_at if self.starts else None


@dataclass
class WorkerLife:
    """One worker process."""

    worker: str
    pool: str
    pid: int
    started_at: float
    ready_at: float | None = None
    stopped_at: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class Step:
    """A number of workers from ``at`` on."""

    at: float
    workers: int


@dataclass
class Recording:
    """Everything the report is made of.

    Args:
        pool_of: the pool of each queue.
    """

    pool_of: Mapping[str, str]
    jobs: dict[str, JobStory] = field(default_factory=dict)
    workers: dict[str, WorkerLife] = field(default_factory=dict)
    decisions: list[tuple[float, ScalingDecisionMade]] = field(default_factory=list)
    leaders: list[tuple[float, LeaderChanged]] = field(default_factory=list)

    def take(self, event: Event, at: float) -> None:
        """Folds one event in, stored at POSIX seconds ``at``."""
        match event:
            case JobEvent():
                self._take_job(event, at)
            case WorkerEvent():
                self._take_worker(event, at)
            case ScalingDecisionMade():
                self.decisions.append((at, event))
            case LeaderChanged():
                self.leaders.append((at, event))

    def jobs_of(self, pool: str) -> list[JobStory]:
        return [story for story in self.jobs.values() if story.pool == pool]

    def workers_of(self, pool: str) -> list[WorkerLife]:
        return [life for life in self.workers.values() if life.pool == pool]

    def planned(self, pool: str) -> list[Step]:
        """What was decided, over time."""
        return [Step(at, made.target) for at, made in self.decisions if made.pool == pool]

    def ready(self, pool: str) -> list[Step]:
        """How many workers took or could take a job, over time."""
        return _steps(
            change
            for life in self.workers_of(pool)
            if life.ready_at is not None
            for change in _life(life.ready_at, life.stopped_at)
        )

    def started(self, pool: str) -> list[Step]:
        """How many worker processes existed, over time."""
        return _steps(
            change
            for life in self.workers_of(pool)
            for change in _life(life.started_at, life.stopped_at)
        )

    def running_on(self, worker: str) -> JobStory | None:
        """The job that a worker runs now."""
        for story in reversed(self.jobs.values()):
            if story.ended_at is None and story.starts and story.starts[-1][1] == worker:
                return story
        return None

    def _take_job(self, event: JobEvent, at: float) -> None:
        if isinstance(event, JobDispatched):
            pool = self.pool_of.get(event.queue, event.queue)
            self.jobs[event.job_id] = JobStory(event.job_id, event.queue, pool, at)
        elif story := self.jobs.get(event.job_id):
            match event:
                case JobStarted():
                    story.starts.append((at, event.worker))
                case JobFailed():
                    story.failures += 1
                case JobRecovered() | JobReleased():
                    story.lost += 1
                case JobCompleted() | JobDead() | JobCancelled():
                    story.ended_at = at

    def _take_worker(self, event: WorkerEvent, at: float) -> None:
        if isinstance(event, WorkerStarted | WorkerReady) and event.worker not in self.workers:
            self.workers[event.worker] = WorkerLife(event.worker, event.pool, event.pid, at)
        life = self.workers.get(event.worker)
        match event:
            case WorkerReady() if life:
                life.ready_at = at
            case WorkerStopped() if life:
                life.stopped_at, life.cause = at, event.cause


def _life(begins: float, ends: float | None) -> Iterator[tuple[float, int]]:
    yield begins, 1
    if ends is not None:
        yield ends, -1


def _steps(changes: Iterator[tuple[float, int]]) -> list[Step]:
    steps, workers = [], 0
    for at, change in sorted(changes):
        workers += change
        steps.append(Step(at, workers))
    return steps


def height(steps: list[Step], at: float) -> int:
    """The number of workers at POSIX seconds ``at``."""
    return next((step.workers for step in reversed(steps) if step.at <= at), 0)
