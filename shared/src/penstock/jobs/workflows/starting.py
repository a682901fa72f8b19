"""Starts graphs: with their first event, each step's call is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from penstock.bus.protocol import Bus, broker_time
from penstock.bus.protocol import PayloadTooLarge as MessageTooLarge
from penstock.events.batch import Callbacks
from penstock.events.graph import GraphStarted
from penstock.events.subjects import Subjects
from penstock.jobs.dispatch import workflow_spans
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.errors import AlreadyDispatched, PayloadTooLarge
from penstock.jobs.event_store import event_log
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.outcomes import Unreadable, read
from penstock.jobs.workflows.graph_order import BadGraph
from penstock.jobs.workflows.steps import AnyCall, CommonTerms, encoded


class Origin(NamedTuple):
    """The stored definition that a graph is made from; empty for none."""

    name: str = ""
    version: int = 0
    digest: str = ""


NO_DEFINITION = Origin()


class Starter:
    """Stores the first events of graphs.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        dispatcher: encodes the calls.
    """

    def __init__(self, bus: Bus, subjects: Subjects, dispatcher: Dispatcher) -> None:
        self._bus, self._subjects, self._dispatcher = bus, subjects, dispatcher

    async def start(
        self,
        graph_id: str,
        definition: Definition,
        calls: Mapping[str, AnyCall],
        common: CommonTerms,
        callbacks: Callbacks,
        title: str = "",
        origin: Origin = NO_DEFINITION,
    ) -> str:
        """Starts a graph; returns its id.

        Args:
            graph_id: its id.
            definition: a checked one, with the context that this graph starts with.
            calls: by the names of the planned steps.
            common: terms of all steps.
            callbacks: encoded.
            title: for people.
            origin: the stored definition.

        Raises:
            BadGraph, JobRefused, BadName: a step that cannot be dispatched.
            PayloadTooLarge: all calls together exceed the broker's largest message.
            AlreadyDispatched: a graph of this id exists.
        """
        context = definition.context
        if context and self._dispatcher.factory.encrypts_all:
            raise BadGraph(
                "encryption.every_job is set, and the context of a graph cannot be encrypted: the "
                "orchestrator reads it; give the values to the steps that need them as arguments"
            )
        stored_context = msgspec.msgpack.encode(context) if context else b""
        if isinstance(unreadable := read(stored_context), Unreadable):
            raise BadGraph(f"the context cannot be read again: {unreadable.reason}")
        event = GraphStarted(
            graph_id=graph_id,
            correlation_id=graph_id,
            source=self._dispatcher.source,
            at=broker_time(self._bus),
            steps=encoded(definition, calls, self._dispatcher, graph_id, common),
            title=title[:200],
            callbacks=callbacks,
            on_failure=definition.on_failure,
            context=stored_context,
            definition=origin.name,
            version=origin.version,
            digest=origin.digest,
            timeout_seconds=definition.timeout_seconds,
        )
        try:
            with workflow_spans.dispatching("graph", graph_id, title):
                stored = await event_log.append_if(self._bus, self._subjects, event, 0)
            if stored is None:
                raise AlreadyDispatched(
                    f"a graph of id {graph_id!r} was dispatched before", graph_id
                )
        except MessageTooLarge as error:
            raise PayloadTooLarge(
                f"the calls of this graph together are too large: {error}"
            ) from error
        return graph_id
