"""Executes the instructions of batches and graphs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from penstock import telemetry
from penstock.bus.protocol import (
    Bus,
    BusError,
    Outgoing,
    PayloadTooLarge,
    WrongSequence,
    broker_time,
)
from penstock.events.job import JobCancelled, JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids
from penstock.jobs.batches.callbacks import due_callbacks
from penstock.jobs.client import Client
from penstock.jobs.dispatch import job_factory
from penstock.jobs.dispatch.job_factory import due_at
from penstock.jobs.errors import JobRefused, JobsError, NoResult
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import missing_result
from penstock.jobs.payloads import encryption
from penstock.jobs.workflows.declared.bounds import MAX_ALL_RESULTS_BYTES
from penstock.jobs.workflows.declared.outcomes import Unreadable, read
from penstock.jobs.workflows.declared.values import in_memory
from penstock.orchestrator.core.batch import Batch
from penstock.orchestrator.core.graph import Graph
from penstock.orchestrator.core.instructions import (
    Append,
    CallBack,
    Cancel,
    Instruction,
    ReadResults,
    Requeue,
    StartSteps,
)
from penstock.orchestrator.workflows.traces import WorkflowTraces

log = logging.getLogger("penstock.orchestrator")

_AT_ONCE = 100
_STARTED_AT_ONCE = 20
"""Steps that are started before what was read for their arguments is dropped."""
_MAY_HAVE_ENDED = ("JobCompleted", "JobDead", "JobCancelled", "JobCarried")
"""Names of last events that are read: an end may be forged, and an end may have been carried."""
_MAY_BE_SCHEDULED = ("JobDispatched", "JobRetrying", "JobRecovered", "JobCarried")
_NIL = b"\xc0"
_MAX_HANDED_BYTES = 8_000_000
"""Of the arguments that a step is handed: the largest message that a broker is set up for."""


class InstructionExecutor:
    """Executes instructions; each may be executed again without harm."""

    def __init__(self, bus: Bus, subjects: Subjects, client: Client) -> None:
        self._bus, self._subjects, self.client = bus, subjects, client
        self._dispatcher, self._log = client.dispatcher, JobLog(bus, subjects)
        self._traces = WorkflowTraces(bus, subjects)

    async def execute(self, workflow: Batch | Graph, step: Instruction) -> bool:
        """True when nothing is left to be done for it. Raises BusError."""
        match step:
            case Append():
                trace = await self._traces.of(workflow)
                if await event_log.append_if(
                    self._bus, self._subjects, step.event, step.sequence, trace
                ):
                    await self._traces.record_end(workflow, step.event)
            case Cancel():
                await self.cancel(step.job_ids, step.reason)
            case StartSteps() if isinstance(workflow, Graph):
                for number, index in enumerate(step.indices, 1):
                    await self._start(workflow, index)
                    if number % _STARTED_AT_ONCE == 0 or number == len(step.indices):
                        workflow.forget_arguments()
            case ReadResults() if isinstance(workflow, Graph):
                for index in step.indices:
                    await self._read_result(workflow, index)
            case Requeue() if isinstance(workflow, Graph):
                for index in step.indices:
                    await self._requeue(workflow, index)
            case CallBack():
                source = self._dispatcher.source
                due = due_callbacks(step.callbacks, step.outcome, source, step.success, step.round)
                await self._dispatch(workflow, list(due))
                return True
        return False

    async def _dispatch(
        self, workflow: Batch | Graph, events: list[JobDispatched], after: Iterable[int] = ()
    ) -> None:
        """Each once: a wrong sequence says that its job exists. In the trace of the workflow.

        Args:
            after: steps of the graph that these waited for.
        """
        links = await self._traces.of_steps(workflow, after) if isinstance(workflow, Graph) else []
        with telemetry.within(await self._traces.of(workflow)):
            answers = await self._dispatcher.sender.send_many(
                events, into_reserve=True, after=links
            )
        for answer in answers:
            if isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
                raise answer

    # --- steps ------------------------------------------------------------------------------------
    async def _start(self, graph: Graph, index: int) -> None:
        step = graph.record.steps[index]
        try:
            await self._dispatch(graph, [await self._step(graph, index)], step.needs)
        except PayloadTooLarge as error:
            graph.refused(index, f"step {step.name!r} with the results handed on: {error}")
        except (JobsError, ValueError, msgspec.MsgspecError) as error:
            graph.refused(index, f"step {step.name!r} cannot be dispatched: {error}")
        else:
            graph.dispatched(index)

    async def _step(self, graph: Graph, index: int) -> JobDispatched:
        step, job_id = graph.record.steps[index], derived_ids.step_id(graph.record.id, index)
        handed, size = await self._take(graph, index)
        handed |= await self._read(graph, index, size)
        return job_factory.from_payload(
            step.payload,
            job_id,
            self._dispatcher.source,
            correlation_id=graph.record.id,
            handed=handed,
            due_at=due_at(step.delay_seconds, None, broker_time(self._bus)),
        )

    async def _take(self, graph: Graph, index: int) -> tuple[dict[str, msgspec.Raw], int]:
        """Arguments that are whole results, each of which is read once; and their size.

        Raises:
            NoResult: one of them is not stored.
            PayloadTooLarge: together they are larger than any message.
        """
        takes = graph.record.steps[index].takes
        results: dict[int, bytes] = {}
        handed, size = dict[str, msgspec.Raw](), 0
        for parameter, needed in takes.items():
            if not graph.lacks_result(needed):
                if needed not in results:
                    results[needed] = await self._result(graph.record.id, needed)
                handed[parameter] = msgspec.Raw(results[needed])
                size = _checked_size(size + len(results[needed]))
        return handed, size

    async def _read(self, graph: Graph, index: int, size: int) -> dict[str, msgspec.Raw]:
        """Arguments that are parts of results, or of the context, as far as there are such values.

        Args:
            graph: that the step is of.
            index: of the step.
            size: of its other arguments, in bytes.

        Raises:
            ConditionError: a result that one of them comes from is not readable.
            PayloadTooLarge: with the other arguments they are larger than any message.
        """
        held = 0
        for unread in graph.unread(index):
            held += await self._read_result(graph, unread)
            if held > MAX_ALL_RESULTS_BYTES:
                raise PayloadTooLarge("the results that it reads parts of take too much memory")
        handed: dict[str, msgspec.Raw] = {}
        for parameter, path in graph.record.steps[index].reads.items():
            value = graph.value(index, path)
            if value is not msgspec.UNSET:
                handed[parameter] = msgspec.Raw(_encoded(value))
                size = _checked_size(size + len(handed[parameter]))
        return handed

    async def _read_result(self, graph: Graph, index: int) -> int:
        """Reads the result of a step for the graph; returns the bytes that it takes in memory."""
        size = 0
        try:
            result = await self._result(graph.record.id, index)
            value = Unreadable("it is encrypted") if encryption.is_sealed(result) else read(result)
            size = in_memory(value, len(result))
        except (JobsError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            value = Unreadable(str(error))
        if isinstance(value, Unreadable):
            name = graph.record.steps[index].name
            value = Unreadable(f"the result of step {name!r} cannot be read: {value.reason}")
        graph.see_result(index, value)
        return size

    async def _requeue(self, graph: Graph, index: int) -> None:
        try:
            await self.client.retry(derived_ids.step_id(graph.record.id, index))
        except (JobsError, ValueError, msgspec.MsgspecError) as error:
            if (
                type(error) is not JobRefused
            ):  # else it was requeued already, and its event is on its way
                name = graph.record.steps[index].name
                graph.refused(index, f"step {name!r} cannot be requeued: {error}")

    async def _result(self, graph_id: str, index: int) -> bytes:
        """Raises NoResult: it is not stored, or not any more."""
        record = (await self.client.job(derived_ids.step_id(graph_id, index))).record
        if reason := missing_result(record):
            raise NoResult(reason)
        return record.result or _NIL

    # --- cancelling -------------------------------------------------------------------------------
    async def cancel(self, job_ids: tuple[str, ...], reason: str) -> None:
        """Cancels jobs that have not ended; running ones are notified at once. Raises BusError."""
        for start in range(0, len(job_ids), _AT_ONCE):
            await self._cancel(job_ids[start : start + _AT_ONCE], reason)

    async def _cancel(self, job_ids: tuple[str, ...], reason: str) -> None:
        stream = self._subjects.events_stream
        lasts = await asyncio.gather(
            *(self._bus.last(stream, self._subjects.job(job_id)) for job_id in job_ids)
        )
        names = [last.subject.rpartition(".")[2] if last else "" for last in lasts]
        unended = [
            (job_id, last.sequence, name)
            for job_id, last, name in zip(job_ids, lasts, names, strict=True)
            if last and (name not in _MAY_HAVE_ENDED or await self._lives(job_id))
        ]
        answers = await self._bus.append_many(
            [self._cancelled(job_id, sequence, reason) for job_id, sequence, _ in unended]
        )
        for (job_id, _, name), answer in zip(unended, answers, strict=True):
            if isinstance(answer, WrongSequence):
                continue  # another event came first: it is looked at again
            if isinstance(answer, BusError):
                raise answer
            # A job that waits for its time has a schedule, one that may run a worker to notify; a
            # carried one can be either.
            if name in _MAY_BE_SCHEDULED:
                await self._bus.remove(
                    self._subjects.jobs_stream, self._subjects.schedule("*", job_id)
                )
            if name not in _MAY_BE_SCHEDULED or name == "JobCarried":
                await self._bus.signal(self._subjects.cancel_notice(job_id))

    async def _lives(self, job_id: str) -> bool:
        """Whether a job has not ended, whatever its last event is called."""
        record = await self._log.read(job_id)
        return record is not None and not record.state.ended

    def _cancelled(self, job_id: str, sequence: int, reason: str) -> Outgoing:
        event = JobCancelled(
            job_id=job_id, correlation_id=job_id, source=self._dispatcher.source, reason=reason
        )
        return self._log.outgoing(event, sequence)


def _checked_size(handed: int) -> int:
    """Raises PayloadTooLarge, before all of it is in memory."""
    if handed > _MAX_HANDED_BYTES:
        raise PayloadTooLarge(f"they have more than {_MAX_HANDED_BYTES:,} bytes")
    return handed


def _encoded(value: object) -> bytes:
    """Raises ValueError."""
    try:
        return msgspec.msgpack.encode(value)
    except RecursionError:
        raise ValueError("a value that it reads is nested too deeply") from None
