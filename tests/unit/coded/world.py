"""A world in memory for one workflow: its log, the jobs of its steps, its inbox, and a clock.

The world may crash at any append: before the event is stored, or just after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.events.batch import Callbacks, Counts
from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDispatched,
    JobError,
    JobEvent,
    JobRecovered,
    JobStarted,
)
from penstock.events.workflow import (
    SignalReceived,
    WorkflowAdvanced,
    WorkflowCancelling,
    WorkflowContinued,
)
from penstock.events.workflow_memo import (
    RefusedSignal,
    Resolution,
)
from penstock.jobs import lifecycle
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_type import Call
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.coded import consumed_signals, inbox, memo
from penstock.jobs.workflows.coded.commands import RunBatch, RunJob
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.results import end_of_batch
from penstock.jobs.workflows.coded.running.advancing import Arrivals, advance
from penstock.jobs.workflows.coded.running.nodes import Continued, Ended, Leaf, Part, Stopped

START = datetime(2026, 11, 20, tzinfo=UTC)
_MOST_ADVANCES = 500


class Crash(Exception):
    """The process ends here."""


class JobEnd(msgspec.Struct):
    """How the job of a step ends, and when."""

    at: datetime
    resolution: Resolution


class World:
    """Runs one workflow to its end.

    Args:
        function: the author's coroutine function.
        arguments: of it.
        crash_at: number of the append at which the process crashes once; 0: never.
        after: whether it crashes after the event was stored.
        signals: seconds, name and value of signals that are sent.
        cancel_after: seconds until a client cancels it.
    """

    def __init__(
        self,
        function: Any,
        arguments: Mapping[str, Any] | None = None,
        *,
        crash_at: int = 0,
        after: bool = False,
        signals: tuple[tuple[float, str, Any], ...] = (),
        cancel_after: float | None = None,
    ) -> None:
        self._cancel_at = None if cancel_after is None else START + timedelta(seconds=cancel_after)
        self.function, self.arguments = function, dict(arguments or {})
        self.clock = START
        self.appends = 0
        self.jobs: dict[str, JobEnd] = {}
        self.members: dict[tuple[str, int], dict[str, Any]] = {}
        self.log: list[tuple[int, JobEvent]] = []
        self._crash_at, self._after = crash_at, after
        self._signals = sorted(signals, key=lambda signal: signal[0])
        self._inbox: list[tuple[int, SignalReceived]] = []
        self._arrivals = Arrivals((), list)
        self._append(
            JobDispatched(
                job_id="wf", queue="workflows", function="f", payload=b"", kind="workflow"
            )
        )

    # --- the log ----------------------------------------------------------------------------------
    @property
    def record(self) -> JobRecord:
        folded = lifecycle.fold(self.log)
        assert folded is not None
        return folded

    def events(self, kind: type[JobEvent]) -> list[Any]:
        return [event for _, event in self.log if type(event) is kind]

    def _append(self, event: JobEvent) -> None:
        self._count_append()
        self.log.append((len(self.log) + 1, _stored(event)))
        self._crash_after()

    def _count_append(self) -> None:
        self.appends += 1
        if self.appends == self._crash_at and not self._after:
            raise Crash

    def _crash_after(self) -> None:
        if self.appends == self._crash_at and self._after:
            raise Crash

    # --- running ----------------------------------------------------------------------------------
    def run(self) -> JobRecord:
        """Until the workflow has ended; what a crash left out is made up for, as in production."""
        for _ in range(_MOST_ADVANCES):
            try:
                self._recover()
                self._dispatch_steps()
                if not self._wait():
                    return self.record
                self._advance()
            except Crash:
                continue
        raise AssertionError("it does not end")

    def _recover(self) -> None:
        if self.record.state is State.RUNNING:
            self._append(JobRecovered(job_id="wf", reason="crashed"))

    def _wait(self) -> bool:
        """Moves the clock on until the workflow can go on; False when it has ended."""
        while (record := self.record).state is State.SUSPENDED:
            assert record.workflow is not None
            if self._cancel_at is not None and self._cancel_at <= self.clock:
                self._cancel_at = None
                until = self.clock + timedelta(days=1)
                event = WorkflowCancelling(job_id="wf", reason="enough", until=until)
                self.log.append((len(self.log) + 1, _stored(event)))
                return True
            if self._is_due(record):
                return True
            times = [end.at for end in self.jobs.values()]
            times += [START + timedelta(seconds=after) for after, _, _ in self._signals]
            times += [record.wakes_at] if record.wakes_at else []
            times += [self._cancel_at] if self._cancel_at else []
            ahead = [time for time in times if time > self.clock]
            assert ahead, f"nothing will ever end: {record.workflow.wait}"
            self.clock = min(ahead)
        return not record.state.ended

    def _is_due(self, record: JobRecord) -> bool:
        assert record.workflow is not None
        if record.workflow.cancelling:
            return True
        waiting = memo.open_steps(record.workflow)
        ended = {}
        unread = self._unread()
        for step in waiting.values():
            if step.kind in ("job", "batch") and (end := self._end_of(step.key)):
                ended[step.n] = end.outcome == "completed"
            elif (step.due_at is not None and step.due_at <= self.clock) or (
                step.kind == "signal" and any(one.name == step.digest for one in unread)
            ):
                ended[step.n] = True
        return memo.goes_on(record.workflow.wait, ended)

    def _advance(self) -> None:
        attempt, before = self.record.next_attempt, self.record
        self._append(
            JobStarted(job_id="wf", queue="workflows", attempt=attempt, host="h", worker="w")
        )
        known = before.workflow or memo.EMPTY
        ends = [end for key in memo.open_steps(known) if (end := self._end_of(key))]
        ends.sort(key=lambda end: self.jobs[self._step(end.key)].at)
        self._arrivals = Arrivals(ends, self._unread, cancelling=memo.cancellation(known))
        try:
            outcome = advance(self.function, self._arguments(before), "wf", known, self)
        except Crash:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._append(self._completed({"error": message}))
            return
        if isinstance(outcome, Continued):
            self._append(
                WorkflowContinued(
                    job_id="wf",
                    queue="workflows",
                    generation=known.generation + 1,
                    payload=outcome.call.arguments,
                )
            )
            return
        if isinstance(outcome, Stopped):
            self._append(JobCancelled(job_id="wf", reason=outcome.reason))
            return
        if isinstance(outcome, Ended):
            self._append(self._completed({"value": outcome.value}))
            return
        self._append(
            WorkflowAdvanced(
                job_id="wf",
                queue="workflows",
                number=known.advances + 1,
                **msgspec.structs.asdict(outcome),
            )
        )

    def _arguments(self, record: JobRecord) -> dict[str, Any]:
        """Those of the workflow, and of its last call to begin anew."""
        return self.arguments | (msgspec.msgpack.decode(record.payload) if record.payload else {})

    def _step(self, key: str) -> str:
        """A key that is another in each generation."""
        generation = (self.record.workflow or memo.EMPTY).generation
        return f"{generation}:{key}" if generation else key

    def _completed(self, outcome: dict[str, Any]) -> JobCompleted:
        result = msgspec.msgpack.encode(outcome)
        return JobCompleted(
            job_id="wf", queue="workflows", attempt=1, run_seconds=0.0, result=result
        )

    @property
    def outcome(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.msgpack.decode(self.record.result)
        return decoded

    # --- its steps --------------------------------------------------------------------------------
    def _dispatch_steps(self) -> None:
        known = self.record.workflow or memo.EMPTY
        for step in memo.open_steps(known).values():
            if step.kind == "job" and self._step(step.key) not in self.jobs:
                self._count_append()
                seconds, value, fails = msgspec.msgpack.decode(step.payload)
                error = JobError(kind="Failed", message=str(value)) if fails else None
                resolution = Resolution(
                    key=step.key,
                    outcome="failed" if fails else "completed",
                    value=b"" if fails else msgspec.msgpack.encode(value),
                    error=error,
                )
                self.jobs[self._step(step.key)] = JobEnd(
                    self.clock + timedelta(seconds=seconds), resolution
                )
                self._crash_after()

    def _end_of(self, key: str) -> Resolution | None:
        end = self.jobs.get(self._step(key))
        return end.resolution if end is not None and end.at <= self.clock else None

    def _unread(self) -> list[Signal]:
        while self._signals and START + timedelta(seconds=self._signals[0][0]) <= self.clock:
            _, name, value = self._signals.pop(0)
            body = msgspec.msgpack.encode(value)
            event = SignalReceived(workflow_id="wf", signal=name, value=body)
            self._inbox.append((len(self._inbox) + 1, event))
        return inbox.unread(self._inbox, consumed_signals.of(self.record.workflow or memo.EMPTY))

    # --- surroundings of an advance ---------------------------------------------------------------
    def now(self) -> datetime:
        return self.clock

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        return self._arrivals.next(open_steps, self.clock)

    def refused(self, open_steps: Mapping[str, Leaf]) -> tuple[RefusedSignal, ...]:
        return self._arrivals.refused(open_steps)

    def record_part(self, part: Part) -> None:
        number = (self.record.workflow or memo.EMPTY).inline_steps + 1
        self._append(part.event({"job_id": "wf", "number": number}))

    def is_begun(self, batch: Leaf) -> bool:
        return self._step(batch.key) in self.jobs

    def begin_batch(self, batch: Leaf, calls: Iterator[Call]) -> None:
        assert isinstance(batch.command, RunBatch)
        assert batch.key in memo.open_steps(self.record.workflow or memo.EMPTY), "not recorded"
        for index, call in enumerate(calls):
            if (self._step(batch.key), index) not in self.members:
                self._count_append()
                self.members[self._step(batch.key), index] = msgspec.msgpack.decode(call.arguments)
                self._crash_after()
        self._count_append()
        self.jobs[self._step(batch.key)] = self._end_of_batch(
            batch.key, int(batch.command.allowed_failures)
        )
        self._crash_after()

    def _end_of_batch(self, key: str, allowed: int) -> JobEnd:
        jobs = [call for (owner, _), call in self.members.items() if owner == self._step(key)]
        failures = sorted(call["seconds"] for call in jobs if call["fails"])
        last = max((call["seconds"] for call in jobs), default=0.0)
        failed, outcome = len(failures), BatchState.COMPLETED
        if failed > allowed:
            last, outcome = failures[allowed], BatchState.FAILED
        resolution = end_of_batch(key, _batch(outcome, len(jobs) - failed, failed))
        return JobEnd(self.clock + timedelta(seconds=last), resolution)

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        arguments: dict[str, Any] = msgspec.msgpack.decode(command.call.arguments)
        return msgspec.msgpack.encode(
            (arguments["seconds"], arguments["value"], arguments["fails"])
        )


def _batch(state: BatchState, completed: int, failed: int) -> BatchRecord:
    return BatchRecord(
        id="wf_step_0",
        state=state,
        sequence=1,
        first_sequence=1,
        title="",
        allowed_failures=0,
        allowed_percent=None,
        callbacks=Callbacks(),
        open_seconds=60.0,
        created_at=START,
        changed_at=START,
        counts=Counts(completed=completed, failed=failed),
    )


def _stored(event: JobEvent) -> Any:
    """As it is read back: what does not survive encoding shows itself."""
    from penstock.bus.protocol import Stored
    from penstock.events.envelope import encode
    from penstock.events.job import JOB_EVENTS

    subject = f"penstock.events.job.{event.key}.{event.name}"
    return read_event(
        Stored(subject=subject, sequence=1, body=encode(event), headers={}, at=START), JOB_EVENTS
    )
