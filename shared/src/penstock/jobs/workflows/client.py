"""Chains and graphs: jobs dispatched when those before them have completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.bus.protocol import Bus
from penstock.bus.protocol import PayloadTooLarge as MessageTooLarge
from penstock.events.envelope import new_id
from penstock.events.graph import (
    GRAPH_EVENTS,
    MAX_STEPS,
    GraphReopened,
    GraphStarted,
    GraphStep,
    GraphStopping,
)
from penstock.events.subjects import Subjects
from penstock.jobs import derived_ids, event_log
from penstock.jobs.batches import callbacks
from penstock.jobs.client import Client
from penstock.jobs.dispatch.awaiting import Awaiting, split
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import AlreadyDispatched, JobRefused, NotFound, PayloadTooLarge
from penstock.jobs.job_view import JobView
from penstock.jobs.log import say, until
from penstock.jobs.registry import Call
from penstock.jobs.workflows import graph_order
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState, fold

_TRIES = 20


class Step(msgspec.Struct, frozen=True):
    """A job in a graph.

    Attributes:
        call: what runs. after: names of the steps that must have completed before.
        takes: parameters left open by ``awaiting`` and the step whose result each is given; where
            one parameter is open and one step comes before, that need not be said.
    """

    call: Call | Awaiting
    after: Sequence[str] = ()
    takes: Mapping[str, str] = {}


class Graphs:
    """The verbs of chains and graphs; reached as ``client.graphs``."""

    def __init__(self, client: Client, bus: Bus, subjects: Subjects) -> None:
        self._client, self._bus, self._subjects = client, bus, subjects

    async def chain(
        self,
        calls: Sequence[Call | Awaiting],
        *,
        title: str = "",
        graph_id: str = "",
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
    ) -> str:
        """Dispatches jobs one after another, each when the one before has completed.

        Args:
            calls: one left open by ``awaiting`` is given the result of the one before it.
            then / catch / finally_: as for :meth:`dispatch`.

        Example::

            await client.graphs.chain([extract(table="orders"), awaiting(load, "rows")])
        """
        names = [f"{at} {call.job.name.rpartition('.')[2]}" for at, call in enumerate(calls, 1)]
        steps = {
            name: Step(call, names[at - 1 : at] if at else ())
            for at, (name, call) in enumerate(zip(names, calls, strict=True))
        }
        return await self.dispatch(
            steps, title=title, graph_id=graph_id, then=then, catch=catch, finally_=finally_
        )

    async def dispatch(
        self,
        steps: Mapping[str, Step],
        *,
        by_level: bool = False,
        title: str = "",
        graph_id: str = "",
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
    ) -> str:
        """Accepts a graph; each step's job is dispatched once, when its turn has come.

        Args:
            steps: by name. by_level: steps run in groups, a group when all before it have
                completed; else each when those have that it names.
            graph_id: a caller's own id makes the dispatch idempotent.
            then / catch / finally_: dispatched once when all steps have completed, when one has
                failed and no other runs, in any case.

        Raises:
            BadGraph: steps that need each other, with the path; or one that is not there.
            PayloadTooLarge: all calls together exceed what the broker takes.
            AlreadyDispatched: a graph of this id exists.
        """
        graph_id = derived_ids.check_whole("graph", graph_id) if graph_id else new_id()
        event = GraphStarted(
            graph_id=graph_id,
            correlation_id=graph_id,
            source=self._client.source,
            steps=self._steps(graph_id, steps, by_level),
            title=title[:200],
            callbacks=callbacks.encode(self._client, graph_id, then, catch, finally_),
        )
        try:
            if not await say(self._bus, self._subjects, event, 0):
                raise AlreadyDispatched(f"a graph of id {graph_id!r} was dispatched before")
        except MessageTooLarge as error:
            raise PayloadTooLarge(
                f"the calls of this graph together are too large: {error}"
            ) from error
        return graph_id

    def _steps(
        self, graph_id: str, steps: Mapping[str, Step], by_level: bool
    ) -> tuple[GraphStep, ...]:
        if not 1 <= len(steps) <= MAX_STEPS:
            raise BadGraph(f"a graph has 1 to {MAX_STEPS} steps, found {len(steps)}")
        takes = {name: _takes(name, step) for name, step in steps.items()}
        needs = {
            name: list(dict.fromkeys([*step.after, *takes[name].values()]))
            for name, step in steps.items()
        }
        ordered = [name for group in graph_order.levels(needs) for name in group]
        place = {name: at for at, name in enumerate(ordered)}
        sealed = self._sealed(ordered, steps, takes)
        if by_level:
            needs = graph_order.by_level(needs)
        return tuple(
            GraphStep(
                name=name,
                payload=self._encoded(
                    derived_ids.step_id(graph_id, place[name]),
                    steps[name].call,
                    name in sealed,
                    {
                        parameter: derived_ids.step_id(graph_id, place[other])
                        for parameter, other in takes[name].items()
                    },
                ),
                needs=tuple(place[other] for other in needs[name]),
                takes={parameter: place[other] for parameter, other in takes[name].items()},
            )
            for name in ordered
        )

    def _sealed(
        self,
        ordered: Sequence[str],
        steps: Mapping[str, Step],
        takes: Mapping[str, Mapping[str, str]],
    ) -> set[str]:
        """The steps whose arguments are encrypted: also those that take such a step's result."""
        sealed: set[str] = set()
        for name in ordered:
            call = split(steps[name].call, MAX_STEPS)[0]
            if self._client.seals(call) or sealed.intersection(takes[name].values()):
                sealed.add(name)
        return sealed

    def _encoded(
        self, job_id: str, wanted: Call | Awaiting, sealed: bool, takes: Mapping[str, str]
    ) -> bytes:
        call = split(wanted, MAX_STEPS)[0]
        terms = Terms(sealed=sealed, takes=dict(takes))
        return self._client.prepare(call, job_id, terms=terms).payload

    # --- asking and changing ----------------------------------------------------------------------
    async def show(self, graph_id: str) -> GraphRecord:
        """The graph now. Raises NotFound."""
        derived_ids.check_whole("graph", graph_id)
        stream, subject = self._subjects.events_stream, self._subjects.events("graph", graph_id)
        record = fold(await event_log.read_subject(self._bus, stream, subject, GRAPH_EVENTS))
        if record is None:
            raise NotFound(f"no graph of id {graph_id!r}; its events may have aged out")
        return record

    async def step(self, graph_id: str, name: str) -> JobView:
        """The job of one step. Raises NotFound, also while its turn has not come."""
        record = await self.show(graph_id)
        for at, step in enumerate(record.steps):
            if step.name == name:
                return await self._client.job(derived_ids.step_id(graph_id, at))
        raise NotFound(f"graph {graph_id} has no step {name!r}")

    async def wait(self, graph_id: str, timeout_seconds: float | None = None) -> GraphRecord:
        """Waits until the graph has ended. Raises TimeoutError, NotFound."""
        derived_ids.check_whole("graph", graph_id)
        return await until(
            self._bus,
            self._subjects.events("graph", graph_id),
            lambda: self.show(graph_id),
            lambda record: record.state.ended,
            timeout_seconds,
        )

    async def cancel(self, graph_id: str, reason: str = "cancelled by a client") -> GraphRecord:
        """Dispatches no further step and cancels those that run (the orchestrator does it)."""
        for _ in range(_TRIES):
            record = await self.show(graph_id)
            if record.state is not GraphState.RUNNING:
                return record
            event = GraphStopping(
                graph_id=graph_id,
                correlation_id=graph_id,
                source=self._client.source,
                reason=reason,
            )
            if await say(self._bus, self._subjects, event, record.sequence):
                return await self.show(graph_id)
        raise JobRefused(f"graph {graph_id} changes too quickly to be cancelled; try again")

    async def retry_failed(self, graph_id: str) -> GraphRecord:
        """Lets a graph that failed or was cancelled go on where it ended.

        The jobs of steps that did not complete run again (the orchestrator sees to it), those of
        completed ones do not; callbacks follow anew at its next end.

        Raises:
            JobRefused: it has not ended, or it completed.
        """
        record = await self.show(graph_id)
        if record.state not in (GraphState.FAILED, GraphState.CANCELLED):
            raise JobRefused(
                f"graph {graph_id} is {record.state}; only failed or cancelled ones can go on"
            )
        if record.is_shortened:
            raise JobRefused(
                f"graph {graph_id} ended before what the event log still holds: the results of its "
                "steps are gone; start it anew"
            )
        event = GraphReopened(
            graph_id=graph_id,
            correlation_id=graph_id,
            source=self._client.source,
            round=record.round + 1,
        )
        if not await say(self._bus, self._subjects, event, record.sequence):
            raise JobRefused(f"graph {graph_id} changed meanwhile; look at it and try again")
        return await self.show(graph_id)


def _takes(name: str, step: Step) -> dict[str, str]:
    """Where each open parameter comes from. Raises BadGraph."""
    _, open_ones = split(step.call, MAX_STEPS)
    takes = dict(step.takes)
    left = [parameter for parameter in open_ones if parameter not in takes]
    if len(left) == 1 and len(step.after) == 1:
        takes[left[0]] = step.after[0]
    elif left:
        raise BadGraph(f"step {name!r}: nothing says where its parameter {left[0]!r} comes from")
    if wrong := [parameter for parameter in takes if parameter not in open_ones]:
        raise BadGraph(f"step {name!r} takes {wrong[0]!r}, which awaiting(...) did not leave open")
    return takes
