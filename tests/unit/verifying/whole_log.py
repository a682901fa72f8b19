"""A log that keeps every rule, as the tests of the rules change it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from penstock.events.batch import BatchClosed, BatchCompleted, BatchCreated, Counts
from penstock.events.graph import GraphCompleted, GraphStarted, GraphStep
from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobFailed,
    JobRecovered,
    JobRetrying,
    JobStarted,
)
from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.events.workflow import (
    StepRecorded,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    InlineResult,
    Resolution,
    ScheduledStep,
    WaitGroup,
)
from penstock.jobs.derived_ids import step_id
from penstock.verifying.checker import Checker, Extent, Report
from penstock.verifying.rules import History
from penstock.verifying.scaling import TickRecord

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
ERROR = JobError(kind="ValueError", message="")
MEMBERS = ("b_01234567_0", "b_01234567_1")
RESULT = b"\x2a"
STEPS = (step_id("g", 0), step_id("g", 1))
FLOW_STEP = step_id("w", 0)
SIGNAL = 84
TICK = f"s-abc-{int(NOW.timestamp())}"


def dispatched(job_id: str = "a") -> JobDispatched:
    return JobDispatched(job_id=job_id, queue="q", function="f", payload=b"")


def started(job_id: str = "a", worker: str = "w1", attempt: int = 1) -> JobStarted:
    return JobStarted(
        job_id=job_id, queue="q", attempt=attempt, host="h", worker=worker, source=worker
    )


def completed(job_id: str = "a", worker: str = "w1", attempt: int = 1) -> JobCompleted:
    return JobCompleted(job_id=job_id, queue="q", attempt=attempt, run_seconds=1, source=worker)


def failed(job_id: str = "a", worker: str = "w1", attempt: int = 1) -> JobFailed:
    return JobFailed(job_id=job_id, queue="q", attempt=attempt, error=ERROR, source=worker)


def dead(job_id: str = "a") -> JobDead:
    return JobDead(job_id=job_id, queue="q", error=ERROR)


def run(job_id: str, start: int) -> History:
    """A job that is dispatched, started and completed at these sequences."""
    return at(start, dispatched(job_id), started(job_id), completed(job_id))


def workflow() -> History:
    """One that runs a job, then waits for a signal, then ends."""
    steps = (
        ScheduledStep(n=0, key="one", digest="f()"),
        ScheduledStep(n=1, key="go", kind="signal", digest="go"),
    )
    inline = InlineResult("rate", "f", b"\x07")
    done = Resolution(key="one", outcome="completed", value=RESULT)
    sent = Resolution(key="go", outcome="received", value=b"\x01", sequence=SIGNAL)
    first = WorkflowAdvanced(
        job_id="w", queue="q", number=1, now=NOW, scheduled=steps, wait=(WaitGroup((0,)),)
    )
    return [
        (80, msgspec.structs.replace(dispatched("w"), kind="workflow")),
        (81, started("w")),
        (82, first),
        (88, started("w")),
        (89, StepRecorded(job_id="w", number=1, now=NOW, consumed=(done, sent), inline=inline)),
        (90, completed("w")),
    ]


def at(start: int, *events: JobEvent) -> History:
    return list(enumerate(events, start))


class Log:
    """Histories by id; the tests change what is in them."""

    def __init__(self) -> None:
        self.jobs: dict[str, History] = {
            "a": at(
                1,
                dispatched(),
                started(),
                JobRecovered(job_id="a", reason="its worker was killed"),
                started(worker="w2"),
                failed(worker="w2"),
                JobRetrying(job_id="a", attempt=2, due_at=NOW),
                started(worker="w3", attempt=2),
                completed(worker="w3", attempt=2),
            ),
            MEMBERS[0]: run(MEMBERS[0], 21),
            MEMBERS[1]: [(24, dispatched(MEMBERS[1])), (25, started(MEMBERS[1])),
                         (26, failed(MEMBERS[1])), (27, dead(MEMBERS[1]))],
            "b_then": run("b_then", 31),
            STEPS[0]: run(STEPS[0], 41),
            STEPS[1]: run(STEPS[1], 45),
            "g_finally": run("g_finally", 51),
            TICK: run(TICK, 61),
            "w": workflow(),
            FLOW_STEP: [
                (83, dispatched(FLOW_STEP)),
                (85, started(FLOW_STEP)),
                (86, msgspec.structs.replace(completed(FLOW_STEP), result=RESULT)),
            ],
        }  # fmt: skip
        self.batches: dict[str, History] = {
            "b": [
                (20, BatchCreated(batch_id="b", allowed_failures=1)),
                (28, BatchClosed(batch_id="b")),
                (29, BatchCompleted(batch_id="b", counts=Counts(completed=1, failed=1))),
            ]
        }
        steps = (GraphStep(name="one", payload=b""), GraphStep(name="two", payload=b"", needs=(0,)))
        self.graphs: dict[str, History] = {
            "g": [
                (40, GraphStarted(graph_id="g", steps=steps)),
                (50, GraphCompleted(graph_id="g")),
            ]
        }
        self.leaders = [
            (70, LeaderChanged(leader="d1", epoch=3)),
            (71, LeaderChanged(leader="d2", epoch=9)),
        ]
        self.commands = [
            (1, WorkersScaled(host="h", epoch=3, version=1, pools={})),
            (2, WorkersScaled(host="h", epoch=9, version=1, pools={})),
        ]
        self.schedule = TickRecord(
            name="daily",
            cron="0 12 * * *",
            generation="abc",
            made_at=NOW - timedelta(hours=1),
            done_until=NOW,
            last_tick=NOW,
            dispatched=1,
            is_firing=False,
            taken_over=0,
            is_tick=lambda tick: (tick.hour, tick.minute, tick.second) == (12, 0, 0),
        )
        self.extent = Extent(whole_since=NOW - timedelta(days=1), reached=9)

    def report(self, *, must_end: bool = True, acknowledged: tuple[str, ...] = ()) -> Report:
        checker = Checker(self.extent, must_end=must_end, acknowledged=acknowledged)
        checker.batches(self.batches)
        checker.jobs(self.jobs, self.graphs)
        checker.scaling(self.leaders, {"h": self.commands})
        checker.schedules([self.schedule])
        return checker.finish()
