"""A job that this worker holds, from claimed to recorded."""

from __future__ import annotations

import time
from asyncio import Future
from typing import Any

import msgspec

from penstock.bus.protocol import Delivery
from penstock.events.job import JobError
from penstock.jobs.job_type import JobType
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.retry import DEFAULT_BACKOFF, Backoff
from penstock.runtime.workers.pulse import Pulse
from penstock.telemetry.job_lines import RunningJob


class LiveRun(msgspec.Struct):
    """What a run shows of itself: written in the job's thread, read in the worker's loop.

    Attributes:
        begun_at: monotonic seconds; None before.
        active_at: monotonic seconds of the last sign that its work goes on.
        progress: ``(done, total)``, as last reported by the job.
        spark_session: id of the Spark session that it uses.
        checkpointed: it has stored a checkpoint.
        span: its span, for the author's attributes.
        output: what its log lines carry; None before it begins.
        first_memory_bytes: in use by its process when it began; 0 where it was not measured.
        is_heir: another job ran in its process before; known where memory is measured.
        exceeded: the limit for which it is being ended; None while it keeps them.
        cpu_clock: of its thread's CPU time, and what that showed when it began; of one whose
            thread others share, only while its code runs there. Else None.
        spent_cpu_seconds: CPU time before that.
    """

    begun_at: float | None = None
    active_at: float = 0.0
    progress: tuple[int, int | None] | None = None
    spark_session: str | None = None
    checkpointed: bool = False
    span: Any = None
    output: RunningJob | None = None
    first_memory_bytes: int = 0
    is_heir: bool = False
    exceeded: JobError | None = None
    cpu_clock: tuple[int, float] | None = None
    spent_cpu_seconds: float = 0.0

    def is_active(self) -> None:
        """Its work goes on; from any thread."""
        self.active_at = time.monotonic()

    def running_seconds(self) -> float:
        """Since it began; 0 when it has not."""
        return 0.0 if self.begun_at is None else time.monotonic() - self.begun_at

    def cpu_seconds(self) -> float:
        """CPU time of its code since it began, as far as that is known."""
        spent, running = self.spent_cpu_seconds, self.cpu_clock
        if running is None:
            return spent
        clock, began = running
        try:
            return spent + time.clock_gettime(clock) - began
        except OSError:  # the thread has ended
            return spent

    def silent_seconds(self) -> float:
        """Since the last sign that its work goes on; 0 when it has not begun."""
        last = max(self.begun_at or 0.0, self.active_at)
        return time.monotonic() - last if last else 0.0


class ClaimedJob(msgspec.Struct, kw_only=True, eq=False):
    """One claimed job. Changed in the worker's loop only; its thread reads it.

    Attributes:
        token: sequence of this attempt's JobStarted: the fencing token.
        sequence: of the job's last known event; what the next append expects.
        started_at: POSIX seconds of the claim, broker's clock.
        most_beside: how many suspects may run in this process while it runs, itself included; 0: it
            is none.
        live: what the run shows of itself while it goes on.
        trace: the trace headers of its message, for the events that follow.
        is_traced: it is within the worker's bound of traces a second.
        yielded: why the platform interrupted it: it goes back to its queue unless it was done.
        lost: another worker or a cancel decides about this job now: nothing is recorded for it.
        recorded_progress: the progress that its last JobProgressed holds.
        progress_due: running seconds from which on the next one may be stored.
        appending: a progress event, commit or step under way; the end waits for it.
        settled: its message was made from an earlier event than the one that it was started after.
        history: of a workflow, where that was read before it began.
        confirmed_at: when it was last looked up whether it still is this worker's; monotonic
            seconds.
        recorded_apart: the events of its end are stored one by one: the broker took no batch.
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
    most_beside: int = 0
    live: LiveRun = msgspec.field(default_factory=LiveRun)
    trace: dict[str, str] = {}
    is_traced: bool = True
    yielded: str = ""
    lost: bool = False
    recorded_progress: tuple[int, int | None] | None = None
    progress_due: float = 0.0
    appending: Future[Any] | None = None
    recorded_apart: bool = False
    settled: bool = False
    history: Any = None
    confirmed_at: float = 0.0

    @property
    def id(self) -> str:
        return self.payload.id

    @property
    def trace_of_events(self) -> dict[str, str]:
        """For its start and its success: the trace headers, unless it has no span.

        For each message with the header of a sampled trace the broker makes a map of its headers,
        and stores 70 bytes more.
        """
        return self.trace if self.is_traced else {}

    @property
    def queue(self) -> str:
        return self.payload.queue

    @property
    def backoff(self) -> Backoff:
        """The call's own; a call by name leaves it to the function."""
        own = self.payload.backoff
        return own if own != DEFAULT_BACKOFF else self.kind.retries.backoff


class ClaimDeadline:
    """Until when the claimed jobs are this worker's: claims lapse at the broker unless extended.

    Args:
        pulse: where the executor reads when the claims were extended; None without an executor.
    """

    def __init__(self, claim_seconds: float, pulse: Pulse | None = None) -> None:
        self.claim_seconds = claim_seconds
        self._pulse = pulse
        self._extended_at = time.monotonic()

    def extend(self) -> None:
        """All claims are extended now."""
        self._extended_at = time.monotonic()
        if self._pulse:
            self._pulse.beat()

    def has_passed(self) -> bool:
        """Whether other workers may hold the jobs: this process was stopped, or stuck in C code."""
        return time.monotonic() - self._extended_at > self.claim_seconds
