"""Failures of workflows on a real broker, with real processes: see docs/workflows.md.

Where a row of its table is not here, it is in `test_workflows_killed.py`.
"""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from tests.integration.crew import Crew
from tests.integration.failing_workflows import (
    broken,
    cancelled,
    despite,
    join,
    naps,
    signalled,
    stopped,
)
from tests.integration.orchestrating import Start
from tests.waiting import eventually

from penstock.events.job import JobDispatched, JobStarted
from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs import JobRefused, derived_ids
from penstock.jobs.lifecycle import State

WITHIN = 30.0
SIZE = 1_000
MODULES = {"modules": ["tests.integration.sample_jobs", "tests.integration.failing_workflows"]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


async def kinds(crew: Crew, job_id: str) -> Counter[type]:
    """How often each event stands in the history of a job."""
    return Counter(type(event) for _, event in (await crew.client.job(job_id)).events)


@KNOWN
async def test_of_two_concurrent_advances_one_is_stored(crew: Crew, orchestrator: Start) -> None:
    orchestrator()
    first = crew.hire()
    workflow_id = await crew.client.dispatch(
        stopped(diary=crew.diary.path, gate=crew.gate("advance"))
    )
    await crew.diary.wait("advance", "begun", within=WITHIN)
    first.signal(signal.SIGSTOP)
    crew.open("advance")
    crew.hire()
    await eventually(lambda: crew.diary.told("double"), WITHIN, "the step of another worker")
    first.signal(signal.SIGCONT)
    assert (await crew.ended(workflow_id, WITHIN)).result == 6
    await crew.emptied(within=WITHIN)  # the first has given up, too
    history = await kinds(crew, workflow_id)
    assert history[WorkflowAdvanced] == 1
    assert crew.diary.told("double") == ["3"]
    assert (await kinds(crew, derived_ids.step_id(workflow_id, 0)))[JobDispatched] == 1


@KNOWN
async def test_signals_before_the_wait_twice_and_after_the_end(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    send = crew.client.workflows.signal
    workflow_id = await crew.client.dispatch(signalled(gate=crew.gate("first")))
    await send(workflow_id, "go", 1, signal_id="one")
    await send(workflow_id, "go", 9, signal_id="one")
    await send(workflow_id, "go", 2)
    crew.open("first")
    assert (await crew.ended(workflow_id, WITHIN)).result == [1, 2]
    with pytest.raises(JobRefused, match="it is completed"):
        await send(workflow_id, "go", 3)


@KNOWN
async def test_a_join_of_many_steps_wakes_once(crew: Crew, orchestrator: Start) -> None:
    orchestrator(), orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(join(size=SIZE))
    assert (await crew.ended(workflow_id, 60.0)).result == sum(range(SIZE))
    history = await kinds(crew, workflow_id)
    assert (history[JobStarted], history[WorkflowAdvanced]) == (2, 1)
    view = await crew.client.workflows.get(workflow_id)
    assert Counter(step.outcome for step in view.steps) == {"completed": SIZE}
    subject = crew.subjects.events("job", "*", "JobCompleted")
    stored = await crew.bus.count(crew.subjects.events_stream, subject)
    assert sum(stored.values()) == SIZE + 1


@KNOWN
async def test_two_orchestrators_wake_a_workflow_once(crew: Crew, orchestrator: Start) -> None:
    orchestrator(), orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(naps(times=10))
    assert (await crew.ended(workflow_id, WITHIN)).result == 10
    history = await kinds(crew, workflow_id)
    assert history[JobStarted] == history[WorkflowAdvanced] + 1
    # 20 if twice. A timer may fire early; one that is due before it is stored needs no wake-up.
    assert history[WorkflowAdvanced] <= 16
    await crew.emptied()


@KNOWN
@pytest.mark.parametrize("drain", [False, True])
async def test_a_dead_step_is_raised_and_its_siblings_are_cancelled_or_awaited(
    crew: Crew, orchestrator: Start, drain: bool
) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(
        despite(diary=crew.diary.path, gate=crew.gate("beside"), drain=drain)
    )
    beside = derived_ids.step_id(workflow_id, 1)
    if drain:
        await eventually(lambda: crew.diary.told("beside"), WITHIN, "the step beside")
        await crew.reached(derived_ids.step_id(workflow_id, 0), State.DEAD, WITHIN)
        crew.open("beside")
    view = await crew.ended(workflow_id, WITHIN)
    assert view.result == {"key": "gather/refuse", "kind": "builtins.ValueError"}
    await crew.reached(beside, State.COMPLETED if drain else State.CANCELLED, WITHIN)


@KNOWN
async def test_code_that_raises_is_tried_again_then_dead_then_requeued(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire()
    workflow_id = await crew.client.dispatch(broken(diary=crew.diary.path, divisor=0))
    view = await crew.ended(workflow_id, WITHIN)
    assert view.state is State.DEAD
    assert view.error and view.error.kind == "builtins.ZeroDivisionError"
    assert crew.diary.told("advance") == ["0", "0"]
    await crew.client.retry(workflow_id, {"diary": crew.diary.path, "divisor": 2})
    assert (await crew.ended(workflow_id, WITHIN)).result == 4.0
    assert crew.diary.told("double") == ["4"]


@KNOWN
async def test_a_cancelled_workflow_ends_with_all_of_its_steps(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(
        cancelled(diary=crew.diary.path, gate=crew.gate("never"))
    )
    await eventually(lambda: crew.diary.told("running"), WITHIN, "the step")
    await crew.client.workflows.cancel(workflow_id, "no need")
    assert (await crew.ended(workflow_id, WITHIN)).state is State.CANCELLED
    await crew.reached(derived_ids.step_id(workflow_id, 1), State.CANCELLED, WITHIN)
    assert crew.diary.told("double") == ["1", "8"]
    assert crew.diary.told("cleaned") == ["up"]
