"""Declared workflows on a real broker, whose orchestrators and workers are killed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.crew import Crew
from tests.integration.orchestrating import Start
from tests.integration.sample_jobs import QUEUE, hold, note
from tests.waiting import eventually

from penstock.jobs.workflows.declared.definition import Definition
from penstock.jobs.workflows.declared.reading import from_values
from penstock.jobs.workflows.graph_record import GraphState

WITHIN = 30.0
KNOWN = pytest.mark.parametrize(
    "crew", [{"jobs": {"modules": ["tests.integration.sample_jobs"]}}], indirect=True
)
LONG = pytest.mark.long
DOOMS = [
    ("AFTER", r"\.GraphWaiting$"),
    ("BEFORE", r"\.GraphElapsed$"),
    ("BEFORE", r"\.GraphFailed$"),
    ("AFTER", r"_step_8\.JobDispatched$"),
    *(
        pytest.param(doom, marks=LONG)
        for doom in (
            ("BEFORE", r"\.GraphWaiting$"),
            ("AFTER", r"\.GraphElapsed$"),
            ("AFTER", r"\.GraphFailed$"),
            ("BEFORE", r"_step_0\.JobDispatched$"),
            ("AFTER", rf"\.jobs\.{QUEUE}$"),
            ("BEFORE", r"_step_8\.JobDispatched$"),
            ("BEFORE", r"_catch\.JobDispatched$"),
        )
    ),
]


def call(crew: Crew, name: str, *needs: str, **fields: Any) -> dict[str, Any]:
    arguments = {"diary": crew.diary.path, "name": name}
    own = {"name": name, "function": note.name, "arguments": arguments}
    return {**own, "needs": needs, **fields}


def story(crew: Crew) -> tuple[Definition, Definition]:
    """Two waits side by side, an inner workflow, and an approval that is refused in the end."""
    undo = {"function": note.name, "arguments": {"diary": crew.diary.path, "name": "undone"}}
    inner = {"name": "inner", "steps": [call(crew, "inner")]}
    outer = {
        "name": "outer",
        "queue": QUEUE,
        "steps": [
            call(crew, "a", compensate=undo),
            {"name": "nap", "needs": ["a"], "sleep_seconds": 0.5},
            {"name": "mail", "needs": ["a"], "wait": {"timeout_seconds": 0.4, "default": 1}},
            {"name": "part", "needs": ["nap", "mail"], "workflow": "inner"},
            {"name": "ok", "needs": ["part"], "approval": {}},
            call(crew, "never", "ok"),
        ],
    }
    return from_values(outer), from_values(inner)


@KNOWN
@pytest.mark.parametrize("doom", DOOMS, ids=lambda doom: "-".join(doom).replace("\\.", ""))
async def test_an_orchestrator_killed_anywhere_changes_nothing(
    crew: Crew, orchestrator: Start, doom: tuple[str, str]
) -> None:
    outer, inner = story(crew)
    first = orchestrator(*doom)
    crew.hire()
    page = note(diary=crew.diary.path, name="page")
    graph = await crew.client.definitions.run(outer, inner=[inner], catch=page)
    await crew.client.graphs.signal(graph, "ok", False, signal_id="m1")
    await eventually(lambda: first.exit_code is not None, WITHIN, "a killed orchestrator")
    orchestrator()
    record = await crew.client.graphs.wait(graph, WITHIN)
    await crew.diary.wait("page", "ran", within=WITHIN)
    assert record.state is GraphState.FAILED
    assert record.reason == "step 'ok' was not approved; can no longer run: ok → never"
    assert [line.name for line in crew.diary.lines()] == ["a", "inner", "undone", "page"]


@KNOWN
async def test_a_step_whose_worker_is_killed_runs_again_and_the_workflow_goes_on(
    crew: Crew, orchestrator: Start
) -> None:
    orchestrator()
    worker = crew.hire()
    arguments = {"diary": crew.diary.path, "name": "slow", "gate": crew.gate()}
    steps = [
        {"name": "slow", "function": hold.name, "arguments": arguments},
        call(crew, "b", "slow"),
    ]
    graph = await crew.client.definitions.run(
        from_values({"name": "w", "queue": QUEUE, "steps": steps})
    )
    await eventually(lambda: crew.diary.lines("slow"), WITHIN)
    worker.signal(9)
    crew.hire()
    crew.open()
    record = await crew.client.graphs.wait(graph, WITHIN)
    assert record.state is GraphState.COMPLETED
    assert crew.diary.lines("b")
