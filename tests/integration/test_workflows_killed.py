"""Coded workflows on a real broker, with real workers and orchestrators that are killed."""

from __future__ import annotations

import pytest
from tests.integration.crew import Crew
from tests.integration.orchestrating import Start
from tests.integration.sample_jobs import QUEUE
from tests.integration.workflow_jobs import (
    approve,
    hurry,
    killed_between,
    killed_inside,
    rounds,
)
from tests.waiting import eventually

from penstock.jobs import derived_ids
from penstock.jobs.lifecycle import State

WITHIN = 30.0
MODULES = {"modules": ["tests.integration.sample_jobs", "tests.integration.workflow_jobs"]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


@KNOWN
async def test_jobs_timers_and_signals_end_to_end(crew: Crew, orchestrator: Start) -> None:
    orchestrator(), orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(approve(diary=crew.diary.path))
    await crew.client.workflows.signal(workflow_id, "approved", True, signal_id="one")
    view = await crew.ended(workflow_id, WITHIN)
    assert view.result == {"first": 2, "rate": 7, "sum": 120, "approved": True}
    assert crew.diary.told("rate") == ["recorded"]
    assert sorted(crew.diary.told("double")) == ["1", "10", "11", "12", "13", "14"]
    await crew.emptied()


@KNOWN
async def test_the_job_of_a_loser_is_cancelled(crew: Crew, orchestrator: Start) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    gate = crew.gate("never")
    workflow_id = await crew.client.dispatch(hurry(diary=crew.diary.path, gate=gate))
    assert (await crew.ended(workflow_id, WITHIN)).result == "went on"
    await crew.reached(derived_ids.step_id(workflow_id, 0), State.CANCELLED, WITHIN)


@KNOWN
async def test_a_worker_killed_between_an_advance_and_its_steps(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    doomed = crew.hire()
    workflow_id = await crew.client.dispatch(killed_between(diary=crew.diary.path))
    await eventually(lambda: doomed.exit_code is not None, WITHIN, "a killed worker")
    assert (await crew.client.job(workflow_id)).state is State.SUSPENDED
    assert not crew.diary.told("double")
    crew.hire()
    assert (await crew.ended(workflow_id, WITHIN)).result == 14
    assert sorted(crew.diary.told("double")) == ["3", "4"]


@KNOWN
async def test_a_worker_killed_inside_of_an_advance(crew: Crew, orchestrator: Start) -> None:
    orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(killed_inside(diary=crew.diary.path))
    assert (await crew.ended(workflow_id, WITHIN)).result == 117
    assert crew.diary.told("double") == ["5"]
    assert crew.diary.told("rate") == ["recorded"]
    assert crew.diary.told("inline") == ["killed"]


@KNOWN
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
async def test_an_orchestrator_killed_around_a_wake_up(
    crew: Crew, orchestrator: Start, when: str
) -> None:
    first = orchestrator(when, rf"\.jobs\.{QUEUE}$")
    crew.hire()
    workflow_id = await crew.client.dispatch(approve(diary=crew.diary.path))
    await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    await crew.client.workflows.signal(workflow_id, "approved", False)
    assert (await crew.ended(workflow_id, WITHIN)).result["approved"] is False
    assert sorted(crew.diary.told("double")) == ["1", "10", "11", "12", "13", "14"]


@KNOWN
async def test_a_workflow_begins_anew_while_signals_arrive(crew: Crew, orchestrator: Start) -> None:
    orchestrator(), orchestrator()
    crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(rounds(diary=crew.diary.path, left=9))
    for value in range(10):
        await crew.client.workflows.signal(workflow_id, "go", value)
    assert (await crew.ended(workflow_id, WITHIN)).result == "over"
    assert crew.diary.told("double") == [str(value) for value in range(10)]
    await crew.emptied()
