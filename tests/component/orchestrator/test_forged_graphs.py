"""What a dispatcher's key can store about a graph neither stops the orchestrator nor slows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
import pytest

from penstock.bus.protocol import Outgoing, Stored
from penstock.events.envelope import encode
from penstock.events.graph import (
    GraphEvent,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStarted,
    GraphStep,
    Wait,
)
from penstock.jobs import Client, job, registry
from penstock.jobs.workflows.graph_record import GraphState
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.testing import Bench
from penstock.testing.memory.bus import MemoryBus


@job
def plain() -> None: ...


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[plain.name] = plain
    yield
    registry.REGISTRY.pop(plain.name, None)


class WatchedBus(MemoryBus):
    """Counts how often the log is read on from some place; fails in a way that nothing foresees.

    Args:
        bus: of which this is another connection.
        breaks_at: a part of the subjects at which storing fails; empty for none.
    """

    def __init__(self, bus: MemoryBus, breaks_at: str = "") -> None:
        self.__dict__ |= bus.client().__dict__
        self.readings, self._breaks_at = 0, breaks_at

    def follow(self, stream: str, subjects: Sequence[str], start: int) -> AsyncIterator[Stored]:
        self.readings += 1
        return super().follow(stream, subjects, start)

    async def append(self, message: Outgoing) -> int:
        if self._breaks_at and self._breaks_at in message.subject:
            raise KeyError(message.subject)
        return await super().append(message)


def tracker(bus: WatchedBus) -> WorkflowTracker:
    return WorkflowTracker(bus, bus.subjects, Client(bus))


async def append(bench: Bench, event: GraphEvent) -> None:
    await bench.bus.append(Outgoing(bench.bus.subjects.event(event), encode(event)))


async def see_all(bench: Bench, follower: WorkflowTracker) -> None:
    subjects = bench.bus.subjects
    for stored in bench.bus.stored(subjects.events_stream, subjects.events()):
        await follower.see(stored)


async def test_an_event_after_the_end_does_not_have_the_log_read_again() -> None:
    bench = Bench()
    graph = await bench.client.graphs.chain([plain()])
    await bench.run_pending()
    bus = WatchedBus(bench.bus)
    follower = tracker(bus)
    await see_all(bench, follower)
    while follower.unfinished:
        await follower.settle(("graph", graph))
    forged: list[GraphEvent] = [
        GraphSignalled(graph_id=graph, signal="x", value=b"\xc0"),
        GraphPaused(graph_id=graph),
        GraphResumed(graph_id=graph),
        GraphReopened(graph_id=graph, round=1),
    ]
    for event in forged:
        await append(bench, event)
    await see_all(bench, follower)
    assert not follower.unfinished
    assert bus.readings == 0
    assert (await bench.client.graphs.show(graph)).state is GraphState.COMPLETED


async def test_one_that_was_lost_is_read_again_when_it_is_resumed() -> None:
    bench = Bench()
    graph = await bench.client.graphs.chain([plain(), plain()])
    bus = WatchedBus(bench.bus)
    follower = tracker(bus)
    await see_all(bench, follower)
    follower.unfinished.clear()
    await bench.client.graphs.resume(graph, even_if_not_paused=True)
    await see_all(bench, follower)
    assert list(follower.unfinished) == [("graph", graph)]
    assert bus.readings == 1


async def test_an_error_that_nothing_foresees_gives_up_one_graph_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    steps = (GraphStep(name="a", payload=b"", wait=Wait(signal="x")),)
    await append(bench, GraphStarted(graph_id="bad", source="evil", steps=steps))
    good = await bench.client.graphs.chain([plain()])
    follower = tracker(WatchedBus(bench.bus, breaks_at=".bad."))
    await see_all(bench, follower)
    await follower.settle(("graph", "bad"))
    await follower.settle(("graph", good))
    assert list(follower.unfinished) == [("graph", good)]
    assert "graph bad is given up: KeyError" in caplog.text


async def test_a_signal_beyond_what_clients_send_counts_for_nothing() -> None:
    bench = Bench()
    names = [f"s{n}" for n in range(5)]
    steps = tuple(GraphStep(name=name, payload=b"", wait=Wait(signal=name)) for name in names)
    await append(bench, GraphStarted(graph_id="g", source="evil", steps=steps))
    for size, name in ((64_001, "s0"), *((64_000, name) for name in names)):
        value = msgspec.msgpack.encode(b"x" * (size - 3))
        assert len(value) == size
        await append(bench, GraphSignalled(graph_id="g", signal=name, value=value))
    record = await bench.client.graphs.show("g")
    assert list(record.signals) == ["s0", "s1", "s2", "s3"]
    assert {len(signal.value) for signal in record.signals.values()} == {64_000}
