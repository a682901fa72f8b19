"""A graph: events in, instructions out; restored and carried at any time, it decides the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.declared.operations import operations
from tests.unit.declared.test_declared_model import ENDS, MOST, OUTCOMES, definitions

from penstock.events.graph import (
    GraphCarried,
    GraphElapsed,
    GraphFailed,
    GraphPaused,
    GraphReopened,
    GraphResumed,
    GraphSignalled,
    GraphStarted,
    GraphStopping,
    GraphWaiting,
)
from penstock.jobs.batches.slots import Slot
from penstock.jobs.workflows import graph_record
from penstock.jobs.workflows.declared import reading
from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.planning import plan
from penstock.orchestrator.core.graph import Graph, GraphSnapshot
from penstock.orchestrator.core.instructions import (
    Append,
    CallBack,
    Cancel,
    ReadResults,
    Requeue,
    StartSteps,
)

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def started(definition: Definition) -> GraphStarted:
    return GraphStarted(
        graph_id="g",
        steps=tuple(planned.step for planned in plan(definition)),
        on_failure=definition.on_failure,
        context=msgspec.msgpack.encode(definition.context),
        at=NOW,
    )


class Story:
    """A graph that is given its events one after the other."""

    def __init__(self, definition: Definition) -> None:
        self.sequence = 1
        record = graph_record.evolve(None, started(definition), self.sequence)
        self.graph = Graph(record, "test")
        self.results: dict[int, Any] = {}

    def see(self, event: Any) -> None:
        self.sequence += 1
        self.graph.see(event, self.sequence)

    def job(self, index: int, event: str) -> None:
        self.sequence += 1
        self.graph.see_job(index, event, self.sequence)

    def due(self) -> Any:
        """What is to be done, after results that are needed were read and waits have begun."""
        while True:
            step = self.graph.decide(NOW)
            if isinstance(step, ReadResults):
                for index in step.indices:
                    self.graph.see_result(index, self.results.get(index))
            elif isinstance(step, Append) and isinstance(step.event, GraphWaiting):
                self.see(step.event)
            else:
                return step

    def start_due(self) -> tuple[int, ...]:
        step = self.due()
        indices = step.indices if isinstance(step, StartSteps) else ()
        for index in indices:
            self.job(index, "JobDispatched")
        self.due()  # waits begin
        return indices

    def end(self, index: int, slot: Slot, result: int) -> None:
        """A job, or a wait, ends."""
        wait = self.graph.record.steps[index].wait
        if wait is None:
            self.results[index] = result
            self.job(index, ENDS[slot])
        elif slot is Slot.COMPLETED:
            value = msgspec.msgpack.encode(result)
            self.see(GraphSignalled(graph_id="g", signal=wait.signal, value=value))
        else:
            self.see(GraphElapsed(graph_id="g", steps=(index,)))

    def restart(self) -> None:
        """Another process goes on from the snapshot, as it is stored."""
        stored = msgspec.msgpack.encode(self.graph.snapshot())
        self.graph = Graph.restored(msgspec.msgpack.decode(stored, type=GraphSnapshot), "test")

    def carry(self) -> None:
        """Its events leave the log; one takes their place."""
        event = self.graph.carried(self.sequence)
        self.sequence += 1
        decoded = msgspec.json.decode(msgspec.json.encode(event), type=GraphCarried)
        self.graph = Graph.carried_on(decoded, self.sequence, "test")


@given(
    definitions(),
    st.lists(OUTCOMES, min_size=2 * MOST, max_size=2 * MOST),
    st.lists(st.sampled_from(["", "", "restart", "carry"]), min_size=40, max_size=40),
)
def test_a_graph_goes_on_alike_wherever_its_process_ends(
    definition: Definition, ends: list[Slot], crashes: list[str]
) -> None:
    whole, broken = Story(definition), Story(definition)
    running, waited = list[int](), set[int]()
    for crash in crashes:
        if crash:
            getattr(broken, crash)()
        indices = whole.start_due()
        assert broken.start_due() == indices
        running += [*indices, *sorted(whole.graph.record.waits.keys() - waited)]
        assert broken.graph.record.waits == whole.graph.record.waits
        waited |= whole.graph.record.waits.keys()
        if not running:
            break
        index = running.pop(0)
        for story in (whole, broken):
            story.end(index, ends[index % len(ends)], index % 4)
    one, other = whole.due(), broken.due()
    assert isinstance(one, Append) and isinstance(other, Append)
    assert type(one.event) is type(other.event)
    assert getattr(one.event, "reason", "") == getattr(other.event, "reason", "")


def chain(*names: str, undo: bool = False) -> Definition:
    compensate = {"compensate": {"function": "undo"}} if undo else {}
    steps = [
        {
            "name": name,
            "function": "f",
            "needs": list(names[at - 1 : at]) if at else [],
            **compensate,
        }
        for at, name in enumerate(names)
    ]
    return reading.from_values({"name": "w", "steps": steps, "on_failure": "stop"})


def test_a_reopened_graph_requeues_what_failed_and_goes_on() -> None:
    story = Story(chain("a", "b"))
    story.start_due()
    story.job(0, "JobDead")
    failed = story.due()
    assert isinstance(failed, Append) and isinstance(failed.event, GraphFailed)
    story.see(failed.event)
    assert isinstance(story.due(), CallBack)
    story.see(GraphReopened(graph_id="g", round=1))
    assert story.due() == Requeue((0,))
    story.job(0, "JobRevived")
    assert story.due() is None
    story.job(0, "JobCompleted")
    assert story.due() == StartSteps((1,))


def test_a_stopped_graph_cancels_steps_but_not_what_undoes_others() -> None:
    story = Story(chain("a", "b", undo=True))
    story.start_due()
    story.job(0, "JobCompleted")
    story.start_due()
    story.see(GraphStopping(graph_id="g", reason="wrong day"))
    cancel = story.due()
    assert isinstance(cancel, Cancel) and cancel.job_ids == ("g_step_1",)
    story.job(1, "JobCancelled")
    assert story.start_due() == (2,)
    assert story.due() is None
    story.job(2, "JobCompleted")
    ended = story.due()
    assert isinstance(ended, Append) and ended.event.name == "GraphCancelled"


def test_a_step_that_cannot_be_dispatched_fails_the_graph_with_the_reason() -> None:
    story = Story(chain("a", "b"))
    story.graph.refused(0, "step 'a' cannot be dispatched: no such queue")
    failed = story.due()
    assert isinstance(failed, Append) and isinstance(failed.event, GraphFailed)
    assert failed.event.reason == "step 'a' cannot be dispatched: no such queue"


def test_callbacks_count_no_step_that_was_skipped() -> None:
    story = Story(
        reading.from_values(
            {
                "name": "w",
                "context": {"n": 1},
                "steps": [
                    {"name": "a", "function": "f"},
                    {"name": "b", "function": "f", "needs": ["a"], "when": "context.n > 1"},
                    {"name": "c", "function": "f", "needs": ["a"], "when": "context.n == 1"},
                ],
            }
        )
    )
    story.start_due()
    story.job(0, "JobCompleted")
    assert story.start_due() == (2,)
    story.job(2, "JobDead")
    story.see(story.due().event)
    callback = story.due()
    assert isinstance(callback, CallBack)
    counts = callback.outcome.counts
    assert (counts.pending, counts.completed, counts.failed) == (0, 1, 1)


# --- judged anew only after a change --------------------------------------------------------------
def waiting() -> Story:
    """A graph with a job that runs and a step that awaits a signal."""
    steps = [{"name": "a", "function": "f"}, {"name": "hold", "wait": {"signal": "go"}}]
    story = Story(reading.from_values({"name": "w", "steps": steps}))
    story.start_due()
    return story


def test_events_that_change_nothing_are_not_judged() -> None:
    story = waiting()
    judged = story.graph.progress()
    for event in (
        GraphSignalled(graph_id="g", signal="nobody waits for it", value=b"\xc0"),
        GraphPaused(graph_id="g", at=NOW),
        GraphResumed(graph_id="g", at=NOW),
        GraphWaiting(graph_id="g", until={1: NOW, 7: None}),
        GraphElapsed(graph_id="g", steps=(0,)),
    ):
        story.see(event)
    for event in ("JobDispatched", "JobRevived"):
        story.job(0, event)
    assert story.graph.progress() is judged
    story.see(GraphSignalled(graph_id="g", signal="go", value=b"\xc0"))
    assert story.graph.progress() is not judged


def test_a_thousand_steps_that_begin_at_once_are_judged_once() -> None:
    steps = [{"name": "a", "function": "f"}] + [
        {"name": f"s{n}", "function": "f", "needs": ["a"], "takes": {"k": "results.a.k"}}
        for n in range(999)
    ]
    story = Story(reading.from_values({"name": "w", "steps": steps}))
    story.start_due()
    story.job(0, "JobCompleted")
    due = story.due()
    assert isinstance(due, StartSteps)

    def start() -> None:
        for index in due.indices:
            for needed in story.graph.unread(index):
                story.graph.see_result(needed, {"k": 1})
            assert story.graph.value(index, story.graph.record.steps[index].reads["k"]) == 1
            story.graph.dispatched(index)

    assert operations(start) < 100 * len(due.indices)
