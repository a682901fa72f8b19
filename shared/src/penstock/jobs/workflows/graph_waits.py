"""Steps of a graph that wait for a time or a signal: they have no job, only its events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.events.graph import Signal, Wait
from penstock.events.workflow_memo import MAX_SIGNAL_BYTES
from penstock.jobs.batches.slots import Slot

if TYPE_CHECKING:
    from penstock.jobs.workflows.graph_record import GraphRecord

APPROVED, REFUSED = msgspec.msgpack.encode(True), msgspec.msgpack.encode(False)
"""Values of a signal that an approval waits for."""
MAX_ALL_BYTES = 256_000
"""Of all values that one graph was sent: they are kept with it."""
_NIL = msgspec.msgpack.encode(None)


def slots(graph: GraphRecord) -> dict[int, Slot]:
    """How the steps stand that began to wait, by their positions."""
    return {position: _slot(graph, position, wait) for position, wait in _begun(graph)}


def values(graph: GraphRecord) -> dict[int, bytes]:
    """The results of those that have completed, as MessagePack."""
    return {
        position: _value(graph, wait)
        for position, wait in _begun(graph)
        if _slot(graph, position, wait) is Slot.COMPLETED
    }


def due(graph: GraphRecord, now: datetime) -> tuple[int, ...]:
    """Steps that still wait although their time has come."""
    return tuple(
        position
        for position, wait in _begun(graph)
        if (until := graph.waits[position]) is not None
        and until <= now
        and _slot(graph, position, wait) is Slot.PENDING
    )


def with_begun(
    graph: GraphRecord, until: Mapping[int, datetime | None]
) -> dict[int, datetime | None]:
    """Until when steps wait, after more of them have begun to."""
    waits = {at: step.wait for at, step in enumerate(graph.steps)}
    begun = {at: time for at, time in until.items() if waits.get(at) is not None}
    return {**begun, **graph.waits}


def with_signal(graph: GraphRecord, name: str, signal: Signal) -> dict[str, Signal]:
    """The graph's signals after one more; it counts if a step awaits it, it is the first, and fits.

    A step that went on without it keeps the result that others may have seen.
    """
    awaiting = [position for position, step in enumerate(graph.steps) if _awaits(step.wait, name)]
    if not awaiting or name in graph.signals or not set(awaiting).isdisjoint(graph.elapsed):
        return graph.signals
    return {**graph.signals, name: signal} if fits(graph, signal) else graph.signals


def fits(graph: GraphRecord, signal: Signal) -> bool:
    """Whether the value of a signal is no larger than clients send it, beside the earlier ones."""
    size = len(signal.value)
    all_sizes = size + sum(len(earlier.value) for earlier in graph.signals.values())
    return size <= MAX_SIGNAL_BYTES and all_sizes <= MAX_ALL_BYTES


def begun_anew(graph: GraphRecord) -> dict[str, Any]:
    """Fields of a graph that is reopened: what waited in vain, or was refused, waits anew."""
    failed = {position for position, slot in slots(graph).items() if slot is Slot.FAILED}
    refused = {wait.signal for position, wait in _begun(graph) if position in failed}
    return {
        "waits": {at: until for at, until in graph.waits.items() if at not in failed},
        "elapsed": tuple(at for at in graph.elapsed if at not in failed),
        "signals": {name: one for name, one in graph.signals.items() if name not in refused},
    }


def _awaits(wait: Wait | None, name: str) -> bool:
    return wait is not None and wait.signal == name != ""


def _begun(graph: GraphRecord) -> Iterator[tuple[int, Wait]]:
    for position in graph.waits:
        wait = graph.steps[position].wait if 0 <= position < len(graph.steps) else None
        if wait is not None:
            yield position, wait


def _slot(graph: GraphRecord, position: int, wait: Wait) -> Slot:
    signal = graph.signals.get(wait.signal) if wait.signal else None
    if signal is None and position not in graph.elapsed:
        return Slot.PENDING
    if wait.is_approval:
        return Slot.COMPLETED if _value(graph, wait) == APPROVED else Slot.FAILED
    has_value = signal is not None or bool(wait.default) or not wait.signal
    return Slot.COMPLETED if has_value else Slot.FAILED


def _value(graph: GraphRecord, wait: Wait) -> bytes:
    signal = graph.signals.get(wait.signal) if wait.signal else None
    return signal.value if signal is not None else wait.default or _NIL
