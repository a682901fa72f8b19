"""Workers and orchestrators killed while a batch is filled, and while workflows clean up."""

from __future__ import annotations

import pytest
from tests.integration.crew import Crew
from tests.integration.killed_workflows import fill, outer
from tests.integration.orchestrating import Start
from tests.waiting import eventually

from penstock.jobs import derived_ids
from penstock.jobs.lifecycle import State

WITHIN = 60.0
SIZE, FATAL = 2_500, 1_700
MODULES = {
    "modules": [
        f"tests.integration.{name}_{kind}"
        for name, kind in (("sample", "jobs"), ("workflow", "jobs"), ("killed", "workflows"))
    ]
}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


@KNOWN
async def test_a_batch_is_filled_once_whoever_is_killed_meanwhile(
    crew: Crew, orchestrator: Start
) -> None:
    doomed = orchestrator("AFTER", r"\.batch\..*\.BatchProgressed$")
    crew.hire(), crew.hire(), crew.hire()
    workflow_id = await crew.client.dispatch(fill(diary=crew.diary.path, size=SIZE, fatal=FATAL))
    await eventually(lambda: doomed.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    view = await crew.ended(workflow_id, WITHIN)
    assert view.result == [SIZE, 0, 0]
    assert crew.diary.told("filling") == ["killed"]
    assert sorted(map(int, crew.diary.told("member"))) == list(range(SIZE))
    await crew.emptied()


@KNOWN
async def test_nested_workflows_clean_up_once_whoever_is_killed_meanwhile(
    crew: Crew, orchestrator: Start
) -> None:
    doomed = orchestrator("AFTER", r"_step_1\.JobCancel")
    for _ in range(5):
        crew.hire()
    diary = crew.diary
    workflow_id = await crew.client.dispatch(outer(diary=diary.path, gate=crew.gate("never")))
    await diary.wait("running", "begun", within=WITHIN)
    await crew.client.workflows.cancel(workflow_id, "no longer wanted")
    await eventually(lambda: doomed.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    below = derived_ids.step_id(workflow_id, 1)
    await crew.reached(workflow_id, State.CANCELLED, WITHIN)
    assert (await crew.client.job(below)).state is State.CANCELLED
    assert sorted(diary.told("undone")) == ["1", "2"]
    assert sorted(diary.told("left")) == ["inner", "outer"]
    for name in ("undo-1", "undo-2", "leaving"):
        assert diary.told(name) == ["killed"]
    await crew.emptied()
