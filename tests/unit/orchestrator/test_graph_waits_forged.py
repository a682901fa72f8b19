"""Events of waits that no client stores change nothing; late and second signals neither."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from penstock.events.graph import (
    GraphCompleted,
    GraphElapsed,
    GraphEvent,
    GraphSignalled,
    GraphStarted,
    GraphWaiting,
)
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows import graph_record, graph_waits
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.planning import plan
from penstock.jobs.workflows.graph_record import GraphRecord

START = datetime(2026, 11, 23, tzinfo=UTC)
LATER = START + timedelta(minutes=1)
STEPS: list[dict[str, Any]] = [
    {"name": "paid", "wait": {"timeout_seconds": 60, "default": 0}},
    {"name": "ok", "approval": {"timeout_seconds": 60}},
    {"name": "nap", "sleep_seconds": 60},
    {"name": "job", "function": "f"},
]


def record(*events: GraphEvent) -> GraphRecord:
    steps = tuple(one.step for one in plan(reading.from_values({"name": "w", "steps": STEPS})))
    first = GraphStarted(graph_id="g", steps=steps, at=START)
    folded = graph_record.fold(enumerate((first, *events), 1))
    assert folded is not None
    return folded


def waiting(*positions: int) -> GraphWaiting:
    return GraphWaiting(graph_id="g", until=dict.fromkeys(positions, LATER))


def signal(name: str, value: Any) -> GraphSignalled:
    return GraphSignalled(graph_id="g", signal=name, value=msgspec.msgpack.encode(value))


def elapsed(*positions: int) -> GraphElapsed:
    return GraphElapsed(graph_id="g", steps=positions)


ALL = waiting(0, 1, 2)


@pytest.mark.parametrize(
    ("events", "slots"),
    [
        ([waiting(3, 4, 2**40)], {}),
        ([elapsed(0, 1, 2, 3, 99)], {}),
        ([elapsed(0), ALL], {0: Slot.PENDING, 1: Slot.PENDING, 2: Slot.PENDING}),
        ([ALL, signal("job", 1), signal("", 1), signal("nap", 1)], dict.fromkeys(range(3), 1)),
        ([ALL, elapsed(0, 1, 2)], {0: Slot.COMPLETED, 1: Slot.FAILED, 2: Slot.COMPLETED}),
        ([ALL, signal("ok", False)], {0: 1, 1: Slot.FAILED, 2: 1}),
        ([ALL, signal("ok", "yes")], {0: 1, 1: Slot.FAILED, 2: 1}),
        ([ALL, signal("ok", True), signal("ok", False), elapsed(1)], {0: 1, 1: 2, 2: 1}),
        ([signal("ok", True), ALL], {0: 1, 1: Slot.COMPLETED, 2: 1}),
        ([ALL, GraphCompleted(graph_id="g"), signal("ok", True)], dict.fromkeys(range(3), 1)),
    ],
)
def test_how_waits_stand(events: list[GraphEvent], slots: dict[int, Any]) -> None:
    assert graph_waits.slots(record(*events)) == slots


def test_of_a_signal_and_a_timeout_the_first_counts() -> None:
    first = record(ALL, signal("paid", 7), elapsed(0))
    assert msgspec.msgpack.decode(graph_waits.values(first)[0]) == 7
    late = record(ALL, elapsed(0), signal("paid", 7))
    assert msgspec.msgpack.decode(graph_waits.values(late)[0]) == 0


def test_what_is_due_by_time_alone() -> None:
    asleep = record(ALL, signal("ok", True))
    assert graph_waits.due(asleep, START) == ()
    assert graph_waits.due(asleep, LATER) == (0, 2)
