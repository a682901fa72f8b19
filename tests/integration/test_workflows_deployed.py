"""Other code under living workflows: none fails, and `replay` named those that would be blocked."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration import code_before, orchestrating
from tests.integration.crew import Crew
from tests.integration.shell import Shell, shell_of
from tests.waiting import eventually

from penstock.bus import bounded
from penstock.jobs import registry
from penstock.runtime.children import Child

BEFORE, AFTER = "tests.integration.code_before", "tests.integration.code_after"
GOES_ON = (code_before.grown, code_before.patched, code_before.compatible)
BLOCKS = (code_before.diverging, code_before.versioned, code_before.removed)
WITHIN = 120.0
FEW, MANY = 60, 1_000


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Whichever code another test has imported since."""
    for kind in (*GOES_ON, *BLOCKS, code_before.charge):
        registry.REGISTRY[kind.name] = kind
    yield
    for kind in (*GOES_ON, *BLOCKS, code_before.charge):
        registry.REGISTRY.pop(kind.name, None)


@pytest.fixture
def orchestrator(crew: Crew) -> Iterator[Child]:
    child = orchestrating.start(crew.settings)
    yield child
    child.end(10.0)


def deploy(crew: Crew, module: str) -> None:
    """Further workers, with this code."""
    jobs = msgspec.structs.replace(crew.settings.jobs, modules=(module,))
    crew.settings = msgspec.structs.replace(crew.settings, jobs=jobs)
    for _ in range(2):
        crew.hire()


async def dismiss(crew: Crew) -> None:
    for worker in crew.workers:
        worker.signal(signal.SIGTERM)
    for worker in crew.workers:
        await worker.ended()


async def ids_with(crew: Crew, event: str) -> set[str]:
    """Workflows that have such an event."""
    pattern = crew.subjects.events("job", "*", event)
    counts = await crew.bus.count(crew.subjects.events_stream, pattern)
    ids = {subject.split(".")[-2] for subject in counts}
    return {one for one in ids if "_step_" not in one}


async def until(crew: Crew, event: str, ids: set[str]) -> None:
    async def all_have() -> bool:
        return await ids_with(crew, event) >= ids

    await eventually(all_have, WITHIN, f"{event} of {len(ids)} workflows")


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.usefixtures("orchestrator")
async def test_a_deployment_fails_no_living_workflow(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    deploy(crew, BEFORE)
    kinds = (*GOES_ON, *BLOCKS)
    calls = [kinds[number % len(kinds)](order=number) for number in range(count)]
    await crew.client.dispatch_many(calls)
    first = await ids_with(crew, "JobDispatched")
    assert len(first) == count
    await until(crew, "WorkflowAdvanced", first)
    waiting = await _functions(crew, first)
    await dismiss(crew)

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    shell = shell_of(crew.settings, tmp_path)
    settings = tmp_path / "penstock.toml"
    settings.write_text(f'{settings.read_text()}[jobs]\nmodules = ["{AFTER}"]\n')
    expected = {one for one, function in waiting.items() if function in {b.name for b in BLOCKS}}
    report = await replayed(shell)
    named = {one["id"]: one for one in report["workflows"] if one["outcome"] != "fits"}
    assert set(named) == expected
    assert {(one["function"], one["outcome"]) for one in named.values()} == {
        ("live.diverging", "diverges"),
        ("live.versioned", "no-code"),
        ("live.removed", "no-code"),
    }
    [example] = {
        one["reason"].split("(")[0] for one in named.values() if one["outcome"] == "diverges"
    }
    assert example == "recorded under 'charge' is job live.charge"

    deploy(crew, AFTER)

    async def send(workflow_id: str) -> None:
        await crew.client.workflows.signal(workflow_id, "go", 5)

    await bounded.gather(send, sorted(first), 50)
    await until(crew, "JobCompleted", first - expected)
    await until(crew, "WorkflowBlocked", expected)
    assert await ids_with(crew, "JobCompleted") == first - expected
    assert await ids_with(crew, "JobDead") == set()
    await all_listed_as_blocked(shell, expected)
    example_id = next(one for one in expected if waiting[one] == "live.removed")
    assert "no job is called 'live.removed'" in await shell.asked("workflow", "why", example_id)

    await dismiss(crew)
    deploy(crew, BEFORE)
    await until(crew, "JobCompleted", first)
    assert await ids_with(crew, "JobDead") == set()
    assert await ids_with(crew, "JobFailed") == set()
    views = await bounded.gather(crew.client.job, sorted(first), 50)
    assert all(view.result[1] == 5 for view in views)


async def all_listed_as_blocked(shell: Shell, expected: set[str]) -> None:
    """One that is just offered to a worker runs for an instant."""
    listed: set[str] = set()

    async def are_listed() -> bool:
        limit = str(2 * len(expected))
        rows = await shell.asked_json("workflow", "ls", "--state", "blocked", "--limit", limit)
        listed.update(row["id"] for row in rows)
        assert listed <= expected
        return listed == expected

    await eventually(are_listed, WITHIN, "the list of blocked workflows")


async def _functions(crew: Crew, ids: set[str]) -> dict[str, str]:
    views = await bounded.gather(crew.client.job, sorted(ids), 50)
    return {view.id: view.record.function for view in views}


async def replayed(shell: Shell) -> Any:
    """What `penstock workflow replay` says, whose exit code is that of a gate."""
    done = await asyncio.to_thread(
        shell.call, "--json", "workflow", "replay", "--since", "1d", code=1
    )
    assert "living workflows" in done.stderr
    return msgspec.json.decode(done.stdout)
