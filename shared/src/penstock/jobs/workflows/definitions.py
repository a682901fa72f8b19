"""Stored definitions of workflows, and their instances: graphs that keep a copy of theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from penstock.bus import records
from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence
from penstock.config.topology import Priority
from penstock.events.envelope import new_id, utc_now
from penstock.events.graph import MAX_STEPS
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import derived_ids, registry
from penstock.jobs.batches.callbacks import encode_callbacks
from penstock.jobs.dispatch.awaiting import Awaiting, awaiting
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.errors import JobRefused, NotFound
from penstock.jobs.event_store.compare_and_set import compare_and_set
from penstock.jobs.job_type import Call, NamedJob
from penstock.jobs.workflows.declared import nesting
from penstock.jobs.workflows.declared.definition import (
    MAX_BYTES,
    DeclaredCall,
    DeclaredStep,
    Definition,
    digest,
)
from penstock.jobs.workflows.declared.planning import PlannedStep, plan
from penstock.jobs.workflows.declared.validation import BadDefinition, checked
from penstock.jobs.workflows.starting import Origin, Starter
from penstock.jobs.workflows.steps import AnyCall, CommonTerms, delay_seconds

log = logging.getLogger("penstock.jobs")

_KIND = "definition"


class StoredDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The newest version of a definition, as it was stored.

    Attributes:
        digest: of the definition; the graphs that are made from it carry it.
        source: who stored it.
    """

    definition: Definition
    digest: str
    defined_at: datetime
    source: str = ""


class Definitions:
    """Stores, reads and runs definitions of workflows; reached as ``client.definitions``.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        dispatcher: encodes the calls of steps.
    """

    def __init__(self, bus: Bus, subjects: Subjects, dispatcher: Dispatcher) -> None:
        self._bus, self._subjects, self._dispatcher = bus, subjects, dispatcher
        self._starter = Starter(bus, subjects, dispatcher)

    async def define(self, definition: Definition) -> StoredDefinition:
        """Stores a definition, or a newer version of it; the same one may be stored again.

        Instances that run keep the copy that they were started with.

        Args:
            definition: see :mod:`penstock.jobs.workflows.declared.reading`.

        Raises:
            BadDefinition: with all that is wrong.
            NotFound: a step is a workflow that is not stored.
            JobRefused: this version, or a later one, is stored already with other contents.
        """
        check_name("workflow", checked(definition).name)
        nesting.spelled_out(definition, await self._inner(definition))
        record = StoredDefinition(
            definition=definition,
            digest=digest(definition),
            defined_at=utc_now(),
            source=self._dispatcher.source,
        )

        async def change(stored: Stored | None) -> StoredDefinition | None:
            earlier = _readable(stored)
            if earlier is not None and earlier.digest == record.digest:
                return earlier
            if earlier is not None and earlier.definition.version >= definition.version:
                raise JobRefused(
                    f"workflow {definition.name}: version {earlier.definition.version} is stored "
                    f"with other contents (digest {earlier.digest}); raise the version to "
                    f"{earlier.definition.version + 1}"
                )
            return record if await self._put(record, stored) else None

        name = definition.name
        return await compare_and_set(lambda: self._last(name), change, f"workflow {name}")

    async def get(self, name: str) -> StoredDefinition:
        """The newest version. Raises NotFound."""
        record = _readable(await self._last(check_name("workflow", name)))
        if record is None:
            raise _not_found(name)
        return record

    async def all(self) -> list[StoredDefinition]:
        """Every definition, by name; a record that cannot be read is logged and left out."""
        subject = self._subjects.state(_KIND, "*")
        stored = await records.read_all(self._bus, self._subjects.state_stream, subject)
        definitions = [record for message in stored if (record := _readable(message))]
        return sorted(definitions, key=lambda record: record.definition.name)

    async def remove(self, name: str) -> None:
        """Removes a definition; its instances go on. Raises NotFound."""

        async def change(stored: Stored | None) -> bool | None:
            if stored is None or _readable(stored) is None:
                raise _not_found(name)
            return await records.remove(self._bus, stored) or None

        check_name("workflow", name)
        await compare_and_set(lambda: self._last(name), change, f"workflow {name}")

    async def run(
        self,
        workflow: str | Definition,
        context: Mapping[str, Any] | None = None,
        *,
        graph_id: str = "",
        title: str = "",
        queue: str = "",
        priority: Priority | None = None,
        delay: float | timedelta = 0.0,
        tags: Iterable[str] = (),
        inner: Iterable[Definition] = (),
        then: Call | Awaiting | None = None,
        catch: Call | Awaiting | None = None,
        finally_: Call | Awaiting | None = None,
    ) -> str:
        """Starts an instance, a graph; ``client.graphs`` shows, waits for and cancels it.

        Args:
            workflow: the name of a stored definition, or one that need not be stored.
            context: values of keys that the definition declares; all that it requires.
            graph_id: a caller's own id makes the start idempotent.
            title: for people; else name and version of the definition.
            queue: of all steps that name none, instead of the definition's.
            priority: likewise.
            delay: seconds until the first steps may start.
            tags: of all steps, besides the definition's.
            inner: workflows that are steps of this one, and need not be stored.
            then: dispatched once when all steps have completed, or were skipped.
            catch: dispatched once when it has failed.
            finally_: dispatched once in any case.

        Raises:
            NotFound: no definition of that name is stored.
            BadDefinition: a call that its function does not take; or the context is not what the
                definition declares.
            AlreadyDispatched: a graph of this id exists.
        """
        if isinstance(workflow, Definition):
            definition = workflow
        else:
            definition = (await self.get(workflow)).definition
        started = with_context(checked(definition), context or {})
        whole = nesting.spelled_out(started, await self._inner(started, inner))
        terms = CommonTerms(
            queue or definition.queue,
            priority or definition.priority,
            0.0,
            (*definition.tags, *tags),
            definition.tries,
            definition.name,
        )
        graph_id = derived_ids.check_owner_id("graph", graph_id) if graph_id else new_id()
        return await self._starter.start(
            graph_id,
            delayed(whole, delay),
            calls_of(msgspec.structs.replace(whole, queue=terms.queue)),
            terms,
            encode_callbacks(self._dispatcher, graph_id, then, catch, finally_),
            title or f"{definition.name} {definition.version}",
            Origin(definition.name, definition.version, digest(definition)),
        )

    async def _inner(
        self, definition: Definition, given: Iterable[Definition] = ()
    ) -> nesting.Lookup:
        """Finds the workflows that are steps of this one, and steps of those. Raises BusError."""
        others = {one.name: one for one in given}
        missing = nesting.inner_names(definition) - others.keys()
        todo = [*missing, *(name for one in others.values() for name in nesting.inner_names(one))]
        while todo:
            if (name := todo.pop()) not in others and name != definition.name:
                if len(others) >= MAX_STEPS:
                    raise BadDefinition(f"workflow {definition.name!r} contains too many others")
                others[name] = (await self.get(name)).definition
                todo += nesting.inner_names(others[name])
        return nesting.among({**others, definition.name: definition})

    async def _last(self, name: str) -> Stored | None:
        return await self._bus.last(self._subjects.state_stream, self._subjects.state(_KIND, name))

    async def _put(self, record: StoredDefinition, stored: Stored | None) -> bool:
        """Whether no other writer was first."""
        subject = self._subjects.state(_KIND, record.definition.name)
        expect = Expect(stored.sequence if stored else 0)
        try:
            await self._bus.append(Outgoing(subject, msgspec.json.encode(record), expect=expect))
        except WrongSequence:
            return False
        return True


def with_context(definition: Definition, context: Mapping[str, Any]) -> Definition:
    """The definition with the context of one instance.

    Raises:
        BadDefinition: a key that it does not declare, one that is missing, or a value that cannot
            be stored.
    """
    about = f"workflow {definition.name!r}"
    if unknown := sorted(context.keys() - definition.keys):
        declared = ", ".join(sorted(definition.keys)) or "none"
        raise BadDefinition(f"{about} has no key {unknown[0]!r} in its context; it has {declared}")
    if missing := [key for key in definition.required if key not in context]:
        raise BadDefinition(f"{about} requires a value of {', '.join(map(repr, missing))}")
    given = {**definition.context, **context}
    started = msgspec.structs.replace(definition, context=given, required=())
    checked(started, max_bytes=None)
    if len(msgspec.msgpack.encode(given)) > MAX_BYTES:
        raise BadDefinition(f"{about}: its context has more than {MAX_BYTES:,} bytes")
    return started


def delayed(definition: Definition, delay: float | timedelta) -> Definition:
    """The definition with its first steps delayed; those that wait for a signal wait at once.

    Raises:
        BadTime
    """
    if not (seconds := delay_seconds(delay)):
        return definition

    def first(step: DeclaredStep) -> DeclaredStep:
        field = "delay_seconds" if step.calls else "sleep_seconds" if step.sleep_seconds else ""
        if step.needs or not field:
            return step
        return msgspec.structs.replace(step, **{field: getattr(step, field) + seconds})

    return msgspec.structs.replace(definition, steps=tuple(map(first, definition.steps)))


def calls_of(definition: Definition) -> dict[str, AnyCall]:
    """The calls of a definition by the names of its planned steps, checked as far as known here.

    Args:
        definition: a checked one, without inner workflows.

    Raises:
        BadDefinition: an argument that a function does not take, or a function that this program
            does not know, without a queue.
    """
    calls: dict[str, AnyCall] = {}
    for planned in plan(definition):
        if planned.call is not None:
            try:
                calls[planned.step.name] = _call(planned.call, _queue(planned, definition))
            except JobRefused as error:
                raise BadDefinition(f"step {planned.step.name!r}: {error}") from None
    return calls


def _queue(planned: PlannedStep, definition: Definition) -> str:
    own = planned.call.queue if planned.call else ""
    return own or planned.terms.queue or definition.queue


def _call(call: DeclaredCall, queue: str) -> AnyCall:
    function = registry.REGISTRY.get(call.function)
    if function is not None:
        return awaiting(function, *call.takes, **call.arguments)
    if not queue:
        raise BadDefinition(
            f"this program does not know {call.function}: name its queue in the definition, or the "
            "module in jobs.modules"
        )
    return awaiting(NamedJob(call.function, queue=queue), *call.takes, **call.arguments)


def _readable(stored: Stored | None) -> StoredDefinition | None:
    """The record of a message; None, and a line in the log, where it cannot be read."""
    if stored is None or records.is_removed(stored):
        return None
    try:
        record = msgspec.json.decode(stored.body, type=StoredDefinition)
        definition = checked(record.definition)
        if definition.name != (name := stored.subject.rpartition(".")[2]):
            raise ValueError(f"the record of workflow {name!r} names {definition.name!r}")
    except (ValueError, RecursionError, JobRefused) as error:
        log.error("%s is no definition of a workflow: %s", stored.subject, error)
        return None
    return msgspec.structs.replace(record, digest=digest(definition))


def _not_found(name: str) -> NotFound:
    return NotFound(f"no workflow {name!r} is defined; 'penstock workflow definitions' lists them")
