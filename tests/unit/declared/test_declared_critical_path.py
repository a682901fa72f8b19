"""The critical path of random graphs: what their length came from, without a gap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.events.batch import Callbacks
from penstock.events.graph import GraphStep, Join, OnFailure, Rule, Wait
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.workflows.declared.text import parse_condition
from penstock.jobs.workflows.graph_record import GraphRecord, GraphState
from penstock.jobs.workflows.graph_states import progress
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import WorkflowDetail

START = datetime(2026, 1, 1, tzinfo=UTC)
_NEVER = parse_condition("context.never")


class Timed(msgspec.Struct, frozen=True):
    """A step, and how its job goes."""

    step: GraphStep
    seconds: int = 1
    fails: bool = False


def job(name: str, seconds: int = 1, *needs: int, fails: bool = False, **fields: object) -> Timed:
    step = GraphStep(name=name, payload=b"", needs=needs)
    return Timed(replace(step, **fields), seconds, fails)


def sleep(name: str, seconds: float, *needs: int) -> Timed:
    return job(name, 0, *needs, wait=Wait(seconds=seconds))


class GraphWorld:
    """Carries out a graph in a time of its own, in which the orchestrator needs none."""

    def __init__(
        self,
        steps: list[Timed],
        on_failure: OnFailure = "stop",
        cancel_after: float | None = None,
    ) -> None:
        self.steps = steps
        self.cancel_at = None if cancel_after is None else at(cancel_after)
        self.clock = START
        self.jobs: dict[int, JobRecord] = {}
        self.graph = GraphRecord(
            id="g",
            state=GraphState.RUNNING,
            sequence=1,
            first_sequence=1,
            steps=tuple(timed.step for timed in steps),
            title="",
            callbacks=Callbacks(),
            started_at=START,
            on_failure=on_failure,
            context=msgspec.msgpack.encode({"never": False}),
        )

    def run(self) -> GraphWorld:
        while not self._advance():
            self._next_end()
        return self

    def detail(self) -> WorkflowDetail:
        return graph_detail(self.graph, self.jobs, self.clock)

    def _advance(self) -> bool:
        """Begins what is due. Returns whether the graph has ended."""
        while True:
            judged = progress(self.graph, self.jobs)
            if judged.end is not None:
                state = GraphState.FAILED if judged.end.reason else GraphState.COMPLETED
                if self.graph.state is GraphState.STOPPING:
                    state = GraphState.CANCELLED
                self.graph = replace(self.graph, state=state, ended_at=self.clock)
                return True
            if not judged.ready:
                return False
            for position in judged.ready:
                self._begin(position)

    def _begin(self, position: int) -> None:
        step = self.steps[position].step
        if step.wait is None:
            self.jobs[position] = JobRecord(
                id=f"g_{step.name}",
                queue="q",
                function=step.name,
                payload=b"",
                state=State.RUNNING,
                sequence=1,
                dispatched_at=self.clock,
                available_at=self.clock,
                result=msgspec.msgpack.encode(None),
            )
            return
        until = self.clock + timedelta(seconds=step.wait.seconds)
        self.graph = replace(self.graph, waits={**self.graph.waits, position: until})

    def _next_end(self) -> None:
        ends: dict[int, datetime] = {
            position: record.dispatched_at + timedelta(seconds=self.steps[position].seconds)
            for position, record in self.jobs.items()
            if not record.state.ended
        }
        waits = {
            position: until
            for position, until in self.graph.waits.items()
            if until is not None and position not in self.graph.elapsed
        }
        if self.graph.state is GraphState.STOPPING:
            waits = {}
        position = min(ends | waits, key=(ends | waits).__getitem__)
        self.clock = (ends | waits)[position]
        if self.cancel_at is not None and self.cancel_at < self.clock:
            self._cancel(self.cancel_at)
        elif position in ends:
            has_failed = self.steps[position].fails
            self._end_job(position, State.DEAD if has_failed else State.COMPLETED)
        else:
            self.graph = replace(self.graph, elapsed=(*self.graph.elapsed, position))

    def _cancel(self, now: datetime) -> None:
        self.clock, self.cancel_at = now, None
        self.graph = replace(self.graph, state=GraphState.STOPPING)
        for position, record in self.jobs.items():
            if not record.state.ended:
                self._end_job(position, State.CANCELLED)

    def _end_job(self, position: int, state: State) -> None:
        record = self.jobs[position]
        self.jobs[position] = replace(record, state=state, finished_at=self.clock)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def gaps(world: GraphWorld) -> list[str]:
    """Steps of the critical path that do not begin with the end of the one before."""
    detail = world.detail()
    row_of = {row.key: row for row in detail.steps}
    path = [row_of[key] for key in detail.critical_path]
    if not path:
        return [] if world.clock == START else ["nothing is critical"]
    gaps = [after.key for before, after in pairwise(path) if before.ended_at != after.since]
    if path[0].since != START:
        gaps.insert(0, path[0].key)
    return gaps if path[-1].ended_at == world.clock else [*gaps, "end"]


@st.composite
def graphs(draw: st.DrawFn) -> list[Timed]:
    steps: list[Timed] = []
    for position in range(draw(st.integers(1, 7))):
        needs = draw(st.sets(st.integers(0, position - 1), max_size=3)) if position else set()
        step = GraphStep(
            name=f"s{position}",
            payload=b"",
            needs=tuple(sorted(needs)),
            rule=draw(st.sampled_from(Rule)),
            when=draw(st.sampled_from((None, None, _NEVER))),
            may_fail=draw(st.booleans()),
        )
        kind = draw(st.sampled_from(("job", "job", "job", "sleep", "join")))
        seconds = draw(st.integers(1, 30))
        if kind == "sleep":
            step = replace(step, wait=Wait(seconds=seconds))
        elif kind == "join":
            step = replace(step, join=Join.ALL)
        steps.append(Timed(step, seconds, draw(st.integers(0, 3)) == 0))
    undone = [at for at, timed in enumerate(steps) if not (timed.step.wait or timed.step.join)]
    for position in draw(st.sets(st.sampled_from(undone))) if undone else ():
        name = f"undo-{position}"
        undo = GraphStep(name=name, payload=b"", compensates=position)
        steps.append(Timed(undo, draw(st.integers(1, 30))))
    return steps


@settings(max_examples=200, deadline=None)
@given(
    graphs(),
    st.sampled_from(("stop", "continue")),
    st.none() | st.floats(0.5, 60, allow_nan=False),
)
def test_the_critical_path_reaches_from_begin_to_end_without_a_gap(
    steps: list[Timed], on_failure: OnFailure, cancel_after: float | None
) -> None:
    assert gaps(GraphWorld(steps, on_failure, cancel_after).run()) == []


def test_what_follows_a_skipped_step_begins_when_that_was_skipped() -> None:
    world = GraphWorld(
        [job("load", 5), job("repair", 3, 0, when=_NEVER), sleep("cool", 1, 1), job("use", 1, 2)]
    ).run()
    detail = world.detail()
    cool = detail.steps[2]
    assert (cool.since, cool.ended_at, cool.after) == (at(5), at(6), "load")
    assert detail.critical_path == ("load", "cool", "use")


def test_an_undoing_step_follows_the_step_that_failed() -> None:
    world = GraphWorld(
        [
            job("pay", 2),
            job("ship", 7, 0, fails=True),
            job("refund", 1, compensates=0),
        ]
    ).run()
    assert world.detail().critical_path == ("pay", "ship", "refund")


def test_undoing_steps_follow_each_other_the_newest_first() -> None:
    world = GraphWorld(
        [
            job("pay", 2),
            job("pack", 2, 0),
            job("ship", 7, 1, fails=True),
            job("refund", 1, compensates=0),
            job("unpack", 4, compensates=1),
        ]
    ).run()
    assert world.detail().critical_path == ("pay", "pack", "ship", "unpack", "refund")


def test_a_wait_that_was_given_up_is_critical_only_where_the_graph_was_stopped() -> None:
    steps = [job("pay", 2), sleep("week", 600, 0), job("ship", 7, 0, fails=True)]
    steps.append(job("refund", 1, compensates=0))
    failed = GraphWorld(steps).run().detail()
    assert failed.critical_path == ("pay", "ship", "refund")
    assert failed.steps[1].state == "given-up"
    assert failed.steps[1].ended_at == at(9)
    steps[2] = job("ship", 7, 0)
    stopped = GraphWorld(steps, cancel_after=20).run().detail()
    assert stopped.critical_path == ("pay", "week", "refund")
    assert stopped.steps[1].ended_at == at(20)
