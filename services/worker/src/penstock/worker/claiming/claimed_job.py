"""A job that this worker holds, from claimed to recorded."""

from __future__ import annotations

import time
from asyncio import Future
from dataclasses import dataclass, field
from typing import Any

from penstock.bus.protocol import Delivery
from penstock.events.job import JobError, SparkCost
from penstock.jobs.errors import Verdict
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.job_type import JobType
from penstock.jobs.retry import Outlook


@dataclass(slots=True, eq=False)
class ClaimedJob:
    """One claimed job.

    Attributes:
        token: sequence of this attempt's JobStarted: the fencing token.
        sequence: of the job's last event that we know; what the next append expects.
        begun_at / ended_at: monotonic seconds in the job thread; None before.
        interrupted: the exception type thrown into it from outside, if any.
        outlook: what its error leads to, as its author said. forgiven: one that counts as success.
        verdict: what shall become of it, as itself or its middleware said.
        appending: a progress event under way; the end waits for it.
        yielded: why the platform interrupted it: it goes back to its queue unless it was done.
        recorded_apart: the events of its end are stored one by one: the broker took no batch.
        lost: somebody else decides about this job now: nothing is recorded for it.
        peak_memory_bytes: of this process while it ran; 0 where it was not measured.
        beat_at: monotonic seconds of the last sign that its work goes on.
    """

    delivery: Delivery
    payload: Payload
    kind: JobType[Any, Any]
    arguments: dict[str, Any]
    attempt: int
    token: int
    sequence: int
    pickup_seconds: float
    timeout_seconds: float
    tries: int
    started_at: float
    max_lost: int = 0
    begun_at: float | None = None
    ended_at: float | None = None
    interrupted: type[BaseException] | None = None
    yielded: str = ""
    lost: bool = False
    beat_at: float = 0.0
    result: bytes = b""
    error: JobError | None = None
    outlook: Outlook | None = None
    verdict: Verdict | None = None
    forgiven: str = ""
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    progress: tuple[int, int | None] | None = None
    recorded_progress: tuple[int, int | None] | None = None
    used_spark: str | None = None
    spark_cost: SparkCost | None = None
    appending: Future[int] | None = None
    checkpointed: bool = False
    recorded_apart: bool = False
    span: Any = field(default=None)

    def beat(self) -> None:
        """Its work goes on; from any thread."""
        self.beat_at = time.monotonic()

    def silent_seconds(self) -> float:
        """Since the job last gave a sign that its work goes on; 0 when it has not begun."""
        last = max(self.begun_at or 0.0, self.beat_at)
        return time.monotonic() - last if last else 0.0

    @property
    def id(self) -> str:
        return self.payload.id

    @property
    def queue(self) -> str:
        return self.payload.queue

    @property
    def run_seconds(self) -> float:
        if self.begun_at is None or self.ended_at is None:
            return 0.0
        return self.ended_at - self.begun_at
