"""Suspended workflows as the orchestrator follows them, against the condition judged as a whole."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import (
    CANCEL_KEY,
    Resolution,
    ScheduledStep,
    WaitGroup,
)
from penstock.jobs.workflows.coded import memo
from penstock.orchestrator.core.suspended import SuspendedWorkflow

NUMBERS = st.integers(0, 5)
GROUPS = st.builds(
    WaitGroup,
    steps=st.lists(NUMBERS, min_size=1, unique=True).map(tuple),
    or_any_failed=st.booleans(),
)
SEEN = st.tuples(NUMBERS, st.sampled_from(["completed", "dead", "requeued"]))


def waiting_for(groups: list[WaitGroup]) -> SuspendedWorkflow:
    workflow = SuspendedWorkflow(0, 0, 0.0)
    steps = [ScheduledStep(n=n, key=f"s{n}", kind="job") for n in range(6)]
    event = WorkflowAdvanced(
        job_id="w",
        source="",
        queue="q",
        number=1,
        now=datetime.now(UTC),
        scheduled=tuple(steps),
        wait=tuple(groups),
    )
    workflow.advance(event, 3, 10.0)
    return workflow


@given(st.lists(GROUPS, max_size=3), st.lists(SEEN, max_size=20))
def test_it_is_due_as_soon_as_its_condition_holds(
    groups: list[WaitGroup], events: list[tuple[int, str]]
) -> None:
    workflow, ended = waiting_for(groups), dict[int, bool]()
    for n, event in events:
        if event == "requeued":
            workflow.see_requeue(n)
            ended.pop(n, None)
        else:
            workflow.see_end(n, completed=event == "completed")
            ended[n] = event == "completed"
        assert workflow.is_due == memo.goes_on(tuple(groups), ended)


def test_a_wide_join_looks_at_each_step_once() -> None:
    looks = 0

    class Counted(dict[int, bool]):
        def __contains__(self, key: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(key)

    steps = tuple(range(1_000))
    workflow = waiting_for([WaitGroup(steps=steps, or_any_failed=True)])
    workflow.ended = Counted()
    for n in steps:
        assert not workflow.is_due
        workflow.see_end(n, completed=True)
    assert workflow.is_due
    assert looks <= 3 * len(steps)


def test_one_that_is_cancelled_is_looked_after_until_it_has_ended() -> None:
    """Also by another process, whatever it waits for while it cleans up."""
    workflow = waiting_for([WaitGroup((0,))])
    assert not workflow.is_unsettled
    workflow.cancelling(4, 60.0)
    assert workflow.is_due
    workflow.woken(20.0)
    cleaning = WorkflowAdvanced(
        job_id="w",
        queue="q",
        number=2,
        now=datetime.now(UTC),
        consumed=(Resolution(key=CANCEL_KEY, outcome="cancelled"),),
        wait=(WaitGroup((1,)),),
    )
    workflow.advance(cleaning, 5, 100.0)
    assert not workflow.is_due
    assert workflow.is_unsettled
    assert (workflow.look_at, workflow.needed_from) == (60.0, 4)
