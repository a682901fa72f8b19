"""Chains and graphs: jobs dispatched when those before them have completed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, broker_time
from penstock.config.topology import Priority
from penstock.events.envelope import new_id
from penstock.events.graph import (
    GRAPH_EVENTS,
    MAX_STEPS,
    GraphEvent,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStopping,
    OnFailure,
)
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import derived_ids, job_view
from penstock.jobs.batches.callbacks import encode_callbacks
from penstock.jobs.dispatch.awaiting import Awaiting
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.errors import AmbiguousId, JobRefused, NotFound
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_type import Call
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.reading.id_prefix import LONGEST_LIST, SHORTEST
from penstock.jobs.workflows import graph_signals
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.validation import checked
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState, fold
from penstock.jobs.workflows.starting import Starter
from penstock.jobs.workflows.steps import CommonTerms, Step, calls_of, declared, seconds

_MAX_REASON_LENGTH = 1_000
_AT_ONCE = 50


class Graphs:
    """Dispatches, reads and cancels chains and graphs; reached as ``client.graphs``.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        dispatcher: encodes the calls of steps and callbacks.
    """

    def __init__(self, bus: Bus, subjects: Subjects, dispatcher: Dispatcher) -> None:
        self._bus, self._subjects, self._dispatcher = bus, subjects, dispatcher
        self._starter = Starter(bus, subjects, dispatcher)

    async def chain(
        self,
        calls: Sequence[Call | Awaiting | Step],
        *,
        title: str = "",
        graph_id: str = "",
        queue: str = "",
        priority: Priority = "normal",
        delay: float | timedelta = 0.0,
        tags: Iterable[str] = (),
        timeout: float | timedelta = 0.0,
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
    ) -> str:
        """Dispatches jobs one after another, each when the one before has completed.

        Args:
            calls: one left open by ``awaiting`` is given the result of the one before it; a
                :class:`Step` has a queue, priority, delay or tags of its own.
            title: for people.
            graph_id: a caller's own id makes the dispatch idempotent.
            queue: of all steps, instead of the functions' own.
            priority: of all steps, for queues that have priorities.
            delay: seconds until the first step may start.
            tags: of all steps, besides the functions' own.
            timeout: seconds that the whole may take; then its steps are cancelled, and it has
                failed.
            then: dispatched once when all steps have completed.
            catch: dispatched once when a step has failed.
            finally_: dispatched once in any case.

        Example::

            await client.graphs.chain([extract(table="orders"), awaiting(load, "rows")])
        """
        links = [call if isinstance(call, Step) else Step(call) for call in calls]
        if not all(link.call for link in links):
            raise BadGraph("each link of a chain is a call; branches and joins stand in a graph")
        functions = [link.call.job.name.rpartition(".")[2] for link in links if link.call]
        names = [f"{number} {function}" for number, function in enumerate(functions, 1)]
        steps = {
            name: msgspec.structs.replace(link, after=names[index - 1 : index] if index else ())
            for index, (name, link) in enumerate(zip(names, links, strict=True))
        }
        return await self.dispatch(
            steps,
            title=title,
            graph_id=graph_id,
            queue=queue,
            priority=priority,
            delay=delay,
            tags=tags,
            timeout=timeout,
            then=then,
            catch=catch,
            finally_=finally_,
        )

    async def dispatch(
        self,
        steps: Mapping[str, Step],
        *,
        by_level: bool = False,
        title: str = "",
        graph_id: str = "",
        queue: str = "",
        priority: Priority = "normal",
        delay: float | timedelta = 0.0,
        tags: Iterable[str] = (),
        context: Mapping[str, Any] | None = None,
        on_failure: OnFailure = "stop",
        timeout: float | timedelta = 0.0,
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
    ) -> str:
        """Accepts a graph; each step's job is dispatched once, when its turn has come.

        Args:
            steps: by name.
            by_level: steps run in groups, a group when all steps of the one before have completed;
                else each step when those have completed that it names.
            title: for people.
            graph_id: a caller's own id makes the dispatch idempotent.
            queue: of all steps, instead of the functions' own.
            priority: of all steps, for queues that have priorities.
            delay: seconds until the first steps may start.
            tags: of all steps, besides the functions' own.
            context: values that the steps share, by key; plain data.
            on_failure: after a failed step no other begins (``stop``), or only those do not that
                need it (``continue``).
            timeout: seconds that the whole may take; then its steps are cancelled, and it has
                failed.
            then: dispatched once when all steps have completed, or were skipped.
            catch: dispatched once when a step has failed and no other runs.
            finally_: dispatched once in any case.

        Raises:
            BadGraph: steps that need each other, with the path; a step that does not exist, or can
                never run; a condition that cannot be read.
            BadTime, BadName, JobRefused: a delay, a queue or a priority that cannot be.
            PayloadTooLarge: all calls together exceed the broker's largest message.
            AlreadyDispatched: a graph of this id exists.
        """
        if not 1 <= len(steps) <= MAX_STEPS:
            raise BadGraph(f"a graph has 1 to {MAX_STEPS} steps, found {len(steps)}")
        graph_id = derived_ids.check_owner_id("graph", graph_id) if graph_id else new_id()
        definition = Definition(
            name=title or "graph",
            steps=tuple(declared(steps, by_level, delay)),
            context=dict(context or {}),
            on_failure=on_failure,
            timeout_seconds=seconds(timeout),
        )
        callbacks = encode_callbacks(self._dispatcher, graph_id, then, catch, finally_)
        return await self._starter.start(
            graph_id,
            checked(definition, max_bytes=None),
            calls_of(steps),
            CommonTerms(queue, priority, delay, tuple(tags), workflow=title),
            callbacks,
            title,
        )

    # --- reading and changing ---------------------------------------------------------------------
    async def show(self, graph_id: str) -> GraphRecord:
        """The graph now. Raises NotFound."""
        derived_ids.check_owner_id("graph", graph_id)
        stream, subject = self._subjects.events_stream, self._subjects.events("graph", graph_id)
        record = fold(await event_log.read_subject(self._bus, stream, subject, GRAPH_EVENTS))
        if record is None:
            raise NotFound(f"no graph of id {graph_id!r}; its events may have aged out")
        return record

    async def ids(self) -> list[str]:
        """Of all graphs that the event log holds, sorted. Raises BusError."""
        stream, subjects = self._subjects.events_stream, self._subjects
        counts = await self._bus.count(stream, subjects.events("graph"))
        return sorted({subject.split(".")[-2] for subject in counts})

    async def find_id(self, text: str) -> str:
        """The id of the one graph whose id is ``text`` or begins with it.

        Raises:
            NotFound, AmbiguousId, BusError
        """
        check_name("graph", text)
        stream, subjects = self._subjects.events_stream, self._subjects
        if await self._bus.last(stream, subjects.events("graph", text)):
            return text
        may_be_longer = SHORTEST <= len(text) < derived_ids.MAX_ID_LENGTH
        ids = await self.ids() if may_be_longer else []
        matching = [graph_id for graph_id in ids if graph_id.startswith(text)]
        if not matching:
            raise NotFound(
                f"no graph has the id {text!r}, or one that begins so (give at least {SHORTEST} "
                "characters; the events of old graphs have left the log)"
            )
        if len(matching) > 1:
            raise AmbiguousId(text, matching, LONGEST_LIST, noun="graph")
        return matching[0]

    async def step(self, graph_id: str, name: str) -> JobView:
        """The job of one step. Raises NotFound, also while its turn has not come."""
        record = await self.show(graph_id)
        for index, step in enumerate(record.steps):
            if step.name == name:
                job_id = derived_ids.step_id(graph_id, index)
                log = JobLog(self._bus, self._subjects)
                return await job_view.read(log, job_id, self._dispatcher.factory.ring)
        raise NotFound(f"graph {graph_id} has no step {name!r}")

    async def jobs(self, graph: GraphRecord) -> dict[int, JobRecord]:
        """The jobs of the steps that were dispatched, by the steps' positions. Raises BusError."""
        log = JobLog(self._bus, self._subjects)
        ids = [derived_ids.step_id(graph.id, position) for position in range(len(graph.steps))]
        records = await bounded.gather(log.read, ids, _AT_ONCE)
        return {position: job for position, job in enumerate(records) if job is not None}

    async def wait(self, graph_id: str, timeout_seconds: float | None = None) -> GraphRecord:
        """Waits until the graph has ended. Raises TimeoutError, NotFound."""
        derived_ids.check_owner_id("graph", graph_id)
        return await event_log.wait_until(
            self._bus,
            self._subjects.events("graph", graph_id),
            lambda: self.show(graph_id),
            lambda record: record.state.ended,
            timeout_seconds,
        )

    async def cancel(self, graph_id: str, reason: str = "cancelled by a client") -> GraphRecord:
        """Dispatches no further step and cancels those that run; the orchestrator carries it out.

        Raises:
            NotFound, BusError
            JobRefused: the graph changed too quickly.
        """
        event = GraphStopping(reason=reason, **self._about(graph_id))
        return await self._change(
            graph_id, event, lambda record: record.state is GraphState.RUNNING
        )

    async def signal(
        self, graph_id: str, name: str, value: Any = None, *, signal_id: str = ""
    ) -> GraphRecord:
        """Sends a value to the step that waits for it, or will.

        Args:
            graph_id: of a graph that has not ended.
            name: of the signal.
            value: plain data, at most 64,000 bytes; true or false for an approval.
            signal_id: a sender that tries again with the same one is not refused.

        Raises:
            NotFound, BusError
            JobRefused: no step waits for it, or no longer, or it was sent already; the graph has
                ended; or the value cannot be sent.
        """
        encrypts = self._dispatcher.factory.encrypts_all
        signal = graph_signals.made(name, value, signal_id, encrypts=encrypts)
        event = GraphSignalled(
            signal=name, value=signal.value, signal_id=signal_id, **self._about(graph_id)
        )
        return await self._change(
            graph_id, event, lambda record: graph_signals.is_new(record, name, signal)
        )

    async def _change(
        self, graph_id: str, event: GraphEvent, applies: Callable[[GraphRecord], bool]
    ) -> GraphRecord:
        """The graph after an event that is appended if it applies to the graph as it is then."""

        async def change(record: GraphRecord) -> GraphRecord | None:
            if not applies(record):
                return record
            return await self.show(graph_id) if await self._append_if(event, record) else None

        return await compare_and_set(lambda: self.show(graph_id), change, f"graph {graph_id}")

    def _about(self, graph_id: str) -> dict[str, Any]:
        return {
            "graph_id": graph_id,
            "correlation_id": graph_id,
            "source": self._dispatcher.source,
            "at": broker_time(self._bus),
        }

    async def pause(self, graph_id: str, reason: str = "") -> GraphRecord:
        """Pauses a graph: no further step is dispatched, and it does not end, until it is resumed.

        Steps that were dispatched go on to their end, delayed ones too.

        Args:
            graph_id: of a graph that runs; one that is paused already stays as it is.
            reason: for people.

        Raises:
            NotFound, BusError
            JobRefused: it has ended, or is being cancelled; or it changed too quickly.
        """
        event = GraphPaused(reason=reason[:_MAX_REASON_LENGTH], **self._about(graph_id))
        return await self._change_running(event, "paused", is_needed=lambda it: not it.is_paused)

    async def resume(
        self, graph_id: str, reason: str = "", *, even_if_not_paused: bool = False
    ) -> GraphRecord:
        """Lets a paused graph go on; one that is not paused stays as it is.

        Args:
            graph_id: of a graph that runs.
            reason: for people.
            even_if_not_paused: has the orchestrator look at one that is stuck again.

        Raises:
            NotFound, BusError
            JobRefused: it has ended, or is being cancelled; or it changed too quickly.
        """
        event = GraphResumed(reason=reason[:_MAX_REASON_LENGTH], **self._about(graph_id))
        return await self._change_running(
            event, "resumed", is_needed=lambda it: even_if_not_paused or it.is_paused
        )

    async def _change_running(
        self, event: GraphEvent, done: str, is_needed: Callable[[GraphRecord], bool]
    ) -> GraphRecord:
        def applies(record: GraphRecord) -> bool:
            if record.state is not GraphState.RUNNING:
                raise JobRefused(f"graph {record.id} cannot be {done}: it is {record.state}")
            return is_needed(record)

        return await self._change(event.graph_id, event, applies)

    async def retry_failed(self, graph_id: str) -> GraphRecord:
        """Resumes a graph that failed or was cancelled where it ended.

        The orchestrator requeues the jobs of steps that did not complete, not those of completed
        ones; callbacks follow anew at its next end.

        Raises:
            JobRefused: it has not ended, or it completed; or what had completed was undone.
        """
        record = await self.show(graph_id)
        if record.state not in (GraphState.FAILED, GraphState.CANCELLED):
            raise JobRefused(
                f"graph {graph_id} is {record.state}; only failed or cancelled ones can go on"
            )
        if record.is_shortened:
            raise JobRefused(
                f"graph {graph_id} ended before what the event log still holds: the results of its "
                "steps were removed; start it anew"
            )
        if await self._is_undone(record):
            raise JobRefused(
                f"graph {graph_id} is {record.state}, and steps that had completed were undone; "
                "start it anew"
            )
        event = GraphReopened(round=record.round + 1, **self._about(graph_id))
        if not await self._append_if(event, record):
            raise JobRefused(f"graph {graph_id} changed meanwhile; look at it and try again")
        return await self.show(graph_id)

    async def _is_undone(self, record: GraphRecord) -> bool:
        """Whether a step's compensation was dispatched."""
        stream = self._subjects.events_stream
        for index, step in enumerate(record.steps):
            if step.compensates is not None:
                job_id = derived_ids.step_id(record.id, index)
                if await self._bus.last(stream, self._subjects.job(job_id)) is not None:
                    return True
        return False

    async def _append_if(self, event: GraphEvent, record: GraphRecord) -> bool:
        stored = await event_log.append_if(self._bus, self._subjects, event, record.sequence)
        return stored is not None
