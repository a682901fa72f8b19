"""The numbers of graphs and declared workflows, by definition."""

from __future__ import annotations

from penstock.jobs import Client, NamedJob
from penstock.jobs.workflows.declared import reading
from penstock.orchestrator.workflows.bounded_labels import BoundedLabels
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters, Reading, Spread
from penstock.testing.memory.bus import MemoryBus

WAITING = {"steps": [{"name": "ok", "approval": {}}]}


class Numbers:
    """An orchestrator, and what it counts."""

    def __init__(self) -> None:
        self.bus, self.meters = MemoryBus("graphs"), Meters()
        self.client = Client(self.bus, prefix="graphs")
        self.tracker = self.orchestrator(self.meters)

    def orchestrator(self, meters: Meters) -> WorkflowTracker:
        return WorkflowTracker(self.bus, self.bus.subjects, self.client, meters=meters)

    async def start(self, name: str) -> str:
        return await self.client.definitions.run(reading.from_values({"name": name, **WAITING}))

    async def see_all(self, tracker: WorkflowTracker | None = None) -> None:
        tracker, subjects = tracker or self.tracker, self.bus.subjects
        for _ in range(8):
            for stored in self.bus.stored(subjects.events_stream, subjects.events("graph")):
                await tracker.see(stored)
            tracker._tried.clear()
            for name in tuple(tracker.unfinished):
                await tracker.settle(name)

    def unfinished(self) -> dict[tuple[str, ...], float]:
        return {
            one.labels: one.value
            for one in self.meters.samples()
            if isinstance(one, Reading) and one.metric is metrics.GRAPHS and one.value
        }

    def ended(self, meters: Meters | None = None) -> dict[tuple[str, ...], float]:
        return {
            one.labels: one.value
            for one in (meters or self.meters).samples()
            if isinstance(one, Reading) and one.metric is metrics.GRAPHS_ENDED
        }


async def test_graphs_are_counted_by_definition_and_state() -> None:
    numbers = Numbers()
    first, second = await numbers.start("orders"), await numbers.start("orders")
    await numbers.client.graphs.chain([NamedJob("f", queue="q")()])
    await numbers.see_all()
    await numbers.client.graphs.pause(second)
    await numbers.see_all()
    assert numbers.unfinished() == {
        ("orders", "running"): 1, ("orders", "paused"): 1, ("", "running"): 1,
    }  # fmt: skip
    await numbers.client.graphs.signal(first, "ok", True)
    await numbers.client.graphs.cancel(second)
    await numbers.see_all()
    assert numbers.unfinished() == {("", "running"): 1}
    assert numbers.ended() == {("orders", "completed"): 1, ("orders", "cancelled"): 1}
    durations = [one for one in numbers.meters.samples() if isinstance(one, Spread)]
    assert sum(sum(one.counts) for one in durations if one.metric is metrics.GRAPH_DURATION) == 2


async def test_ends_of_before_are_not_counted_again() -> None:
    numbers, later = Numbers(), Meters()
    graph = await numbers.start("orders")
    await numbers.client.graphs.signal(graph, "ok", True)
    await numbers.see_all()
    await numbers.see_all(numbers.orchestrator(later))
    assert numbers.ended() == {("orders", "completed"): 1}
    assert numbers.ended(later) == {}


def test_names_are_bounded() -> None:
    names = BoundedLabels(3, "other", "")
    assert [names[name] for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert list(names) == ["", "a", "b"]
