"""Life cycles of jobs, batches and graphs: one table of transitions each, and what walks it. Pure.

A record is what its events add up to. Whatever may stand in the log, every reader gets the same
record: an event that cannot be read, that may not follow, or that a later version introduced moves
the record's sequence and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from penstock.events.envelope import Event, UnknownEvent
from penstock.jobs.errors import IllegalTransition

S = TypeVar("S", bound=StrEnum)


class Record(Protocol):
    """What all records have; ``sequence`` is that of the last event."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> StrEnum: ...
    @property
    def sequence(self) -> int: ...


R = TypeVar("R", bound=Record)
E = TypeVar("E", bound=Event)


class Edge(NamedTuple, Generic[S, E]):
    """A transition.

    Attributes:
        sources: states in which the event may follow; None: there is no record yet.
        event: its type.
        target: the state after it; None: the same as before.
        why: for people.
        fits: whether an event may follow a record in one of these states; None: each may.
    """

    sources: tuple[S | None, ...]
    event: type[E]
    target: S | None
    why: str
    fits: Callable[[Any, Any], bool] | None = None


class LifeCycle(Generic[S, R, E]):
    """Walks a table of transitions.

    Args:
        noun: names the kind of record in errors.
        edges: the table; one edge for each type of event.
        event_type: what all of these events are.
        carried_types: the event that holds a whole record, once earlier ones have left the log, and
            those that hold the rest of a large one; they may follow in any state.
        begin: the record that an event begins, given the one before; None where it only changes it.
        changes: fields of the record that an event changes, besides state and sequence.
        begin_at_end: the record that remains where only its last event is left in the log.
    """

    def __init__(
        self,
        noun: str,
        edges: Iterable[Edge[S, E]],
        event_type: type[E],
        carried_types: tuple[type[E], ...],
        begin: Callable[[R | None, E, int], R | None],
        changes: Callable[[R, E, int], dict[str, Any]],
        begin_at_end: Callable[[Event, int], R | None] = lambda event, sequence: None,
    ) -> None:
        self._noun = noun
        self._edges = {edge.event: edge for edge in edges}
        self._event_type, self._carried_types = event_type, carried_types
        self._begin, self._changes, self._begin_at_end = begin, changes, begin_at_end

    def edge(self, event: Event | UnknownEvent) -> Edge[S, E] | None:
        """The transition that an event stands for."""
        return self._edges.get(cast("type[E]", type(event)))

    def evolve(self, record: R | None, event: E, sequence: int) -> R:
        """The record after an event.

        Args:
            record: the one before; None for none.
            event: what happened.
            sequence: at which it is stored.

        Raises:
            IllegalTransition: the event may not follow; names the state and both sequences.
        """
        is_carried = isinstance(event, self._carried_types)
        target = None if is_carried else self._target(record, event, sequence)
        begun = self._begin(record, event, sequence)
        if begun is not None:
            return begun
        if record is None:
            raise self._illegal(record, event, sequence)
        changes = self._changes(record, event, sequence)
        return _replace(record, {"state": target or record.state, "sequence": sequence, **changes})

    def _target(self, record: R | None, event: E, sequence: int) -> S | None:
        edge = self.edge(event)
        if edge is None or (record.state if record else None) not in edge.sources:
            raise self._illegal(record, event, sequence)
        if edge.fits is not None and not edge.fits(record, event):
            raise self._illegal(record, event, sequence)
        return edge.target

    def _illegal(self, record: R | None, event: Event, sequence: int) -> IllegalTransition:
        last = record.sequence if record else 0
        return IllegalTransition(
            f"{self._noun} {event.key}: {_reason(record, event)} "
            f"(last sequence {last}, this one {sequence})"
        )

    def advance(self, record: R | None, event: Event | UnknownEvent, sequence: int) -> R | None:
        """The record after whatever is stored at ``sequence``; see :meth:`fold`."""
        try:
            return self._next(record, event, sequence)
        except IllegalTransition:
            return None if record is None else _replace(record, {"sequence": sequence})

    def _next(self, record: R | None, event: Event | UnknownEvent, sequence: int) -> R:
        if isinstance(event, UnknownEvent) or not isinstance(event, self._event_type):
            raise IllegalTransition(f"{self._noun}: not an event of this version")
        if record is None and (rest := self._begin_at_end(event, sequence)) is not None:
            return rest
        return self.evolve(record, event, sequence)

    def fold(self, events: Iterable[tuple[int, Event | UnknownEvent]]) -> R | None:
        """The record after all ``(sequence, event)``; None when there are none."""
        record: R | None = None
        for sequence, event in events:
            record = self.advance(record, event, sequence)
        return record

    def ignored_events(
        self, events: Iterable[tuple[int, Event | UnknownEvent]]
    ) -> Iterator[tuple[int, str]]:
        """Sequence of each event that :meth:`fold` ignores, and why; not of a later version's."""
        record: R | None = None
        for sequence, event in events:
            if isinstance(event, UnknownEvent):
                if event.unreadable:
                    yield sequence, event.unreadable
            else:
                try:
                    self._next(record, event, sequence)
                except IllegalTransition:
                    yield sequence, _reason(record, event)
            record = self.advance(record, event, sequence)


def _reason(record: Record | None, event: Event) -> str:
    return f"{event.name} may not follow state {record.state if record else 'nothing'}"


def _replace(record: R, fields: dict[str, Any]) -> R:
    return msgspec.structs.replace(record, **fields)  # type: ignore[type-var]


# --- records that are carried past the end of the log ---------------------------------------------
def shared_fields(
    record: type[msgspec.Struct], event: type[msgspec.Struct], except_for: Collection[str] = ()
) -> tuple[str, ...]:
    """Fields that a record and its carried event have under the same name, with the same value.

    A field that a later version adds to both is carried without further code.

    Args:
        record: type of the record.
        event: type of the event that carries it.
        except_for: left out, as ``id`` and ``state`` are, which are written in another form.
    """
    left_out = {"id", "state", *except_for}
    return tuple(
        name
        for name in record.__struct_fields__
        if name in event.__struct_fields__ and name not in left_out
    )


def values(holder: msgspec.Struct, names: Sequence[str]) -> dict[str, Any]:
    """The fields of these names."""
    return {name: getattr(holder, name) for name in names}


def carried_state(states: type[S], state: str, owner: str) -> S:
    """The state that a carried event names.

    Args:
        states: the states of this version.
        state: what the event names.
        owner: names the record in the error.

    Raises:
        IllegalTransition: the state is of a later version.
    """
    try:
        return states(state)
    except ValueError as error:
        raise IllegalTransition(f"{owner}: {error}") from error
