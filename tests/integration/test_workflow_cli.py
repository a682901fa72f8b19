"""`penstock workflow` as a shell calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import orchestrating
from tests.integration.crew import Crew
from tests.integration.shell import Shell, shell_of
from tests.integration.workflow_jobs import double, linger
from tests.waiting import eventually

from penstock.jobs import NamedWorkflow, Step
from penstock.jobs.lifecycle import State
from penstock.runtime.children import Child

WITHIN = 30.0
WORKFLOWS = "tests.integration.workflow_jobs"
MODULES = {"modules": ["tests.integration.sample_jobs", WORKFLOWS]}
KNOWN = pytest.mark.parametrize("crew", [{"jobs": MODULES}], indirect=True)


@pytest.fixture
def orchestrator(crew: Crew) -> Iterator[Child]:
    child = orchestrating.start(crew.settings)
    yield child
    child.end(10.0)


@pytest.fixture
def shell(crew: Crew, tmp_path: Path) -> Shell:
    return shell_of(crew.settings, tmp_path)


@KNOWN
@pytest.mark.usefixtures("orchestrator")
async def test_a_workflow_is_run_shown_explained_signalled_and_cancelled(
    crew: Crew, shell: Shell
) -> None:
    crew.hire()
    by_name = ("--by-name", "--queue", "work", "-a", "number=4")
    ran = await shell.asked_json("workflow", "run", f"{WORKFLOWS}.brief", *by_name)
    assert (ran["workflow"]["state"], ran["result"]) == ("completed", 8)
    assert [step["key"] for step in ran["steps"]] == ["twice"]
    assert "result     8" in await shell.asked("workflow", "wait", ran["workflow"]["id"])

    workflow_id = await crew.client.dispatch(linger(number=1))
    await crew.reached(workflow_id, State.SUSPENDED, WITHIN)
    prefix = workflow_id[:-4]
    text = await shell.asked("workflow", "show", prefix)
    assert "└─ go" in text
    assert "state      suspended" in text
    why = await shell.asked("workflow", "why", prefix)
    assert f"'penstock workflow signal {workflow_id} go VALUE' sends it." in why
    assert f"penstock workflow show {workflow_id}" in await shell.asked("job", "show", prefix)
    [row] = await shell.asked_json("workflow", "ls", "--waiting-longer", "0s")
    assert (row["id"], row["waits_for"]) == (workflow_id, "signal go")
    assert await shell.asked_json("workflow", "ls", "--waiting-longer", "1h") == []
    assert await shell.asked_json("workflow", "ls", "--state", "blocked") == []
    assert len(await shell.asked_json("workflow", "ls", "--function", linger.name)) == 1

    late = await shell.asked("workflow", "wait", prefix, "--timeout", "0.1s", code=1)
    assert f"has not ended after 0.1 s; see 'penstock workflow why {workflow_id}'" in late

    for _ in range(2):
        await shell.asked("workflow", "signal", prefix, "go", "5", "--id", "once")
    await crew.reached(workflow_id, State.SUSPENDED, WITHIN)
    assert "is being cancelled" in await shell.asked("workflow", "cancel", prefix)
    await crew.reached(workflow_id, State.CANCELLED, WITHIN)
    refused = await shell.asked("workflow", "signal", prefix, "go", code=1)
    assert "takes no signal: it is cancelled" in refused
    ended = await shell.asked("workflow", "wait", prefix, code=1)
    assert "ended cancelled" in ended
    assert "had already ended" not in await shell.asked("workflow", "cancel", prefix)


@KNOWN
async def test_workflows_are_paused_and_resumed(
    crew: Crew, shell: Shell, orchestrator: Child
) -> None:
    crew.hire()
    workflow_id = await crew.client.dispatch(linger(number=1))
    graph_id = await crew.client.graphs.dispatch(
        {"only": Step(double(diary="", number=1), delay=3600)}
    )
    await crew.reached(workflow_id, State.SUSPENDED, WITHIN)

    async def is_dispatched() -> bool:
        return bool(await crew.client.graphs.jobs(await crew.client.graphs.show(graph_id)))

    await eventually(is_dispatched, WITHIN, "the job of the step")
    drawn = await shell.asked("workflow", "show", graph_id)
    assert "only  * scheduled  job" in drawn
    assert "Step only is scheduled" in await shell.asked("workflow", "why", graph_id)
    count = await shell.asked("workflow", "pause", "--function", linger.name, "--dry-run")
    assert count == "1 workflow matches; nothing was done"
    refused = await shell.asked("workflow", "pause", "--function", linger.name, code=2)
    assert "add --yes" in refused
    both = ("workflow", "pause", workflow_id[:-4], graph_id, "--reason", "wrong day")
    assert (await shell.asked(*both)).count(" is paused; 'penstock workflow resume ") == 2
    assert (await shell.asked(*both)).count(" was paused already; ") == 2
    [row] = await shell.asked_json("workflow", "ls", "--state", "paused")
    assert (row["id"], row["state"], row["pause_reason"]) == (workflow_id, "paused", "wrong day")
    assert ": wrong day." in await shell.asked("workflow", "why", workflow_id)
    await shell.asked("workflow", "signal", workflow_id, "go", "5")
    for value in (6, 7):
        await crew.client.workflows.signal(workflow_id, "go", value)
    orchestrator.end(10.0)
    await shell.asked("workflow", "resume", "--function", linger.name, "--yes")
    assert (await crew.client.job(workflow_id)).state is State.SUSPENDED
    listed = await shell.asked_json("recover", "--workflows", "--dry-run", "--silent-for", "0s")
    assert [(one["id"], one["outcome"]) for one in listed] == [(workflow_id, "")]
    restarted = orchestrating.start(crew.settings)
    assert "goes on" in await shell.asked("workflow", "resume", graph_id)
    assert (await crew.client.wait(workflow_id, WITHIN)).result == 19
    assert "is not paused" in await shell.asked("workflow", "resume", graph_id)
    others = [await crew.client.dispatch(linger(number=number)) for number in range(2)]
    for other in others:
        await crew.reached(other, State.SUSPENDED, WITHIN)
    chosen = ("--function", linger.name, "--yes")
    cancelled = await shell.asked("workflow", "cancel", *chosen, "--now", "--reason", "wrong day")
    assert cancelled.count(" is cancelled; its steps are cancelled next") == 2
    assert {(await crew.client.job(other)).state for other in others} == {State.CANCELLED}
    restarted.end(10.0)
    refused = await shell.asked("workflow", "pause", workflow_id, "nothing", code=1)
    assert "cannot be paused: it is completed" in refused
    assert "nothing" in refused


@KNOWN
async def test_what_is_no_workflow_is_refused(crew: Crew, shell: Shell) -> None:
    job = await crew.client.dispatch(linger(number=1), delay=3600)
    assert "scheduled" in await shell.asked("workflow", "show", job)
    missing = await shell.asked("workflow", "show", "nothing", code=1)
    assert "no workflow has the id 'nothing'" in missing
    submit = ("job", "submit", f"{WORKFLOWS}.double", "--by-name", "--queue", "work")
    plain = await shell.asked_json(*submit, "-a", "number=1", "--delay", "1h")
    for verb in ("why", "wait"):
        assert "is no workflow" in await shell.asked("workflow", verb, plain["id"], code=1)


@KNOWN
async def test_a_blocked_workflow_is_explained_and_fixed(crew: Crew, shell: Shell) -> None:
    crew.hire()
    missing = NamedWorkflow(f"{WORKFLOWS}.gone", queue="work")
    blocked = await crew.client.dispatch(missing(number=1))
    await crew.reached(blocked, State.SUSPENDED, WITHIN)
    [row] = await shell.asked_json("workflow", "ls", "--state", "blocked")
    assert (row["id"], row["state"]) == (blocked, "blocked")
    why = await shell.asked("workflow", "why", blocked)
    assert "no job is called" in why and f"'penstock workflow fix {blocked} --help'" in why
    fixed = await shell.asked("workflow", "fix", blocked[:-4], "--accept", "--reason", "tried")
    assert "is offered to a worker" in fixed
    await crew.reached(blocked, State.SUSPENDED, WITHIN)
    assert "what was recorded is accepted: tried" in await shell.asked("job", "show", blocked)
    for wrong in ((), ("--accept", "--version", "2"), ("--version", "0"), ("--version", "x")):
        await shell.asked("workflow", "fix", blocked, *wrong, code=2)
    unknown = await shell.asked("workflow", "fix", blocked, "--forget", "charge", code=1)
    assert "has recorded no step 'charge'" in unknown

    waits = await crew.client.dispatch(linger(number=1))
    await crew.reached(waits, State.SUSPENDED, WITHIN)
    refused = await shell.asked("workflow", "fix", waits, "--accept", code=1)
    assert "is not blocked but suspended" in refused


async def test_without_code_there_is_nothing_to_replay(shell: Shell) -> None:
    assert "jobs.modules names no modules" in await shell.asked("workflow", "replay", code=2)
    settings = shell.folder / "penstock.toml"
    settings.write_text(f'{settings.read_text()}[jobs]\nmodules = ["no.such.module"]\n')
    assert "can be imported" in await shell.asked("workflow", "replay", code=2)
    assert "since" in await shell.asked("workflow", "replay", "--since", "x", code=2)
