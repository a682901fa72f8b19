"""What the steps of a workflow that have completed left behind: results, and the context. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.events.condition import Path
from penstock.events.graph import Join
from penstock.jobs.workflows.declared.bounds import MAX_RESULT_BYTES, MAX_RESULT_VALUES
from penstock.jobs.workflows.declared.step_graph import StepGraph, bits_of, positions_of
from penstock.jobs.workflows.declared.values import ConditionError, inside, size_of


class Unreadable(msgspec.Struct, frozen=True):
    """In place of a result: why it is not available."""

    reason: str


def read(encoded: bytes) -> Any:
    """A result as plain data, or :class:`Unreadable`.

    A few bytes may stand for a hundred times as many in memory: how much that is has a bound.

    Args:
        encoded: MessagePack; empty for none.
    """
    if not encoded:
        return None
    if len(encoded) > MAX_RESULT_BYTES:
        return Unreadable(f"it has {len(encoded):,} bytes, expected at most {MAX_RESULT_BYTES:,}")
    try:
        value = msgspec.msgpack.decode(encoded)
    except (ValueError, RecursionError) as error:
        return Unreadable(str(error))
    if size_of(value, MAX_RESULT_VALUES, max_depth=MAX_RESULT_VALUES) > MAX_RESULT_VALUES:
        return Unreadable(f"it holds more than {MAX_RESULT_VALUES:,} values")
    return value


class Outcomes:
    """Results by step, and the context as each step sees it.

    Filled in the order of the steps. A look-up takes the same time however many steps set a key.

    Args:
        graph: the steps.
        context: what they share, at the start.
        results: of completed steps, as far as they were read; or :class:`Unreadable`.
    """

    def __init__(
        self, graph: StepGraph, context: Mapping[str, Any], results: Mapping[int, Any]
    ) -> None:
        self._graph, self._context, self._results = graph, context, dict(results)
        self._read = bits_of(at for at in results if at >= 0)
        self._completed = self._unreadable = 0
        self._sources: dict[int, int] = {}
        self._changes: dict[str, int] = {}

    @property
    def wanted(self) -> int:
        """Completed steps whose results were not read, and may have to be, as bits."""
        return self._graph.looked_into & self._completed & ~self._read

    def looked_into(self) -> Iterator[Any]:
        """Results of completed steps that conditions and joins may look into, as far as read."""
        bits = self._graph.looked_into & self._completed & self._read
        return (self._results[position] for position in positions_of(bits))

    def complete(self, position: int) -> None:
        """A step has completed."""
        self._completed |= 1 << position
        if (source := self._source(position)) is not None:
            self._sources[position] = source
        self._note(position)

    def add(self, position: int, result: Any) -> None:
        """The result of a step: plain data, or :class:`Unreadable`."""
        self._results[position] = result
        self._read |= 1 << position
        self._note(position)

    def _source(self, position: int) -> int | None:
        """The step whose result is that of this one; None where there is none."""
        step = self._graph.steps[position]
        if step.join is Join.ALL:
            return None
        if step.join is not Join.BRANCH:
            return position
        chosen = (need for need in step.needs if self._completed >> need & 1)
        return next((self._sources.get(need) for need in chosen), None)

    def _note(self, position: int) -> None:
        """Which keys of the context the result of a completed step changes."""
        if not self._completed & self._read & 1 << position:
            return
        result = self._results[position]
        if isinstance(result, Unreadable):
            self._unreadable |= 1 << position
            return
        for key, path in self._graph.steps[position].sets.items():
            if inside(result, path) is not UNSET:
                self._changes[key] = self._changes.get(key, 0) | 1 << position

    def needed(self, position: int, paths: Iterable[Path]) -> int:
        """The completed steps whose results a step's paths may lead to, as bits."""
        bits, before = 0, self._graph.before[position]
        for root, name, *_ in paths:
            if root == "context":
                bits |= self._graph.setters.get(str(name), 0) & before & self._completed
            elif (source := self._sources.get(int(name))) is not None:
                bits |= 1 << source
        return bits

    def unread(self, position: int, paths: Iterable[Path]) -> int:
        """Those of :meth:`needed` whose results were not read."""
        return self.needed(position, paths) & ~self._read

    def value_or_reason(self, position: int, path: Path) -> Any:
        """What a step's path leads to; ``UNSET`` where there is no such value.

        Returns:
            The value, or :class:`Unreadable` where a result that is needed for it is not available.
        """
        root, name, *rest = path
        if root == "context":
            value = self._in_context(str(name), position)
        else:
            source = self._sources.get(int(name))
            value = UNSET if source is None else self._results.get(source, UNSET)
        return value if isinstance(value, Unreadable) else inside(value, rest)

    def value(self, position: int, path: Path) -> Any:
        """As :meth:`value_or_reason`. Raises ConditionError: a result is not available."""
        return readable(self.value_or_reason(position, path))

    def _in_context(self, key: str, position: int) -> Any:
        before = self._graph.before[position]
        unreadable = self._graph.setters.get(key, 0) & before & self._unreadable
        if unreadable:
            first = (unreadable & -unreadable).bit_length() - 1
            return self._results[first]
        changes = self._changes.get(key, 0) & before
        if not changes:
            return self._context.get(key, UNSET)
        setter = changes.bit_length() - 1
        return inside(self._results[setter], self._graph.steps[setter].sets[key])


def readable(value: Any) -> Any:
    """The value, if it is one. Raises ConditionError: it is :class:`Unreadable`."""
    if isinstance(value, Unreadable):
        raise ConditionError(value.reason)
    return value
