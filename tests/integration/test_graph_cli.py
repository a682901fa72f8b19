"""`penstock graph` as a shell calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.integration.counting import QUEUE, WITHIN, Stage
from tests.integration.shell import Shell, shell_of
from tests.making import MakeSettings

from penstock.jobs import SignalWait, Step, job, registry
from penstock.jobs.workflows.graph_record import GraphState

TRIED: list[int] = []


@job(queue=QUEUE, tries=1)
def break_once(number: int) -> None:
    TRIED.append(number)
    if TRIED.count(number) == 1:
        raise ValueError(number)


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[break_once.name] = break_once
    yield
    registry.REGISTRY.pop(break_once.name)


@pytest.fixture
async def stage(settings: MakeSettings) -> AsyncIterator[Stage]:
    TRIED.clear()
    async with Stage("nats", settings) as found:
        yield found


@pytest.fixture
def shell(stage: Stage, tmp_path: Path) -> Shell:
    return shell_of(stage.settings, tmp_path)


async def test_a_failed_chain_is_shown_listed_and_goes_on(stage: Stage, shell: Shell) -> None:
    await stage.at_work()
    calls = [break_once(number=number) for number in (1, 2)]
    chain = await stage.client.graphs.chain(calls, title="pair", graph_id="pair")
    await stage.client.graphs.wait(chain, WITHIN)
    shown = await shell.asked_json("graph", "show", chain)
    assert [step["state"] for step in shown["steps"]] == ["dead", "blocked"]
    assert shown["steps"][1]["after"] == ["1 break_once"]
    [listed] = await shell.asked_json("graph", "ls", "--state", "failed")
    assert (listed["id"], listed["title"], listed["step_count"]) == (chain, "pair", 2)
    assert await shell.asked_json("graph", "ls", "--state", "running") == []

    assert "continues" in await shell.asked("graph", "retry-failed", chain)
    record = await stage.client.graphs.wait(chain, WITHIN)
    assert (record.state, record.failed_step) == (GraphState.FAILED, "2 break_once")
    assert "continues" in await shell.asked("graph", "retry-failed", chain)
    assert (await stage.client.graphs.wait(chain, WITHIN)).state is GraphState.COMPLETED
    told = await shell.asked("graph", "show", chain)
    assert "state      completed" in told
    assert TRIED == [1, 1, 2, 2]
    refused = await shell.asked("graph", "retry-failed", chain, code=1)
    assert "only failed or cancelled ones can go on" in refused
    assert "had already ended" in await shell.asked("graph", "cancel", chain, code=1)


async def test_a_graph_is_paused_resumed_and_sent_a_signal(stage: Stage, shell: Shell) -> None:
    TRIED.append(3)
    steps = {
        "released": Step(approval=SignalWait()),
        "load": Step(break_once(number=3), after=["released"]),
    }
    await stage.client.graphs.dispatch(steps, graph_id="release")
    assert "is paused" in await shell.asked("workflow", "pause", "release", "--reason", "Sunday")
    await shell.asked("workflow", "signal", "release", "released", "true", "--id", "m1")
    assert "already" in await shell.asked(
        "workflow", "signal", "release", "released", "true", code=1
    )
    await stage.at_work()
    assert "goes on" in await shell.asked("workflow", "resume", "release")
    assert (await stage.client.graphs.wait("release", WITHIN)).state is GraphState.COMPLETED
    shown = await shell.asked_json("graph", "show", "release")
    assert shown["steps"][0]["waits_for"] == "signal released"
    late = await shell.asked("workflow", "signal", "release", "released", "false", code=1)
    assert "takes no signal: it is completed" in late


async def test_a_chain_and_a_file_are_run_with_terms(
    stage: Stage, shell: Shell, tmp_path: Path
) -> None:
    TRIED.extend([1, 2, 7])
    await stage.at_work()
    first, second = (f'{break_once.name} {{"number": {number}}}' for number in (1, 2))
    terms = ("--queue", QUEUE, "--tag", "night", "--delay", "1s", "--title", "by hand")
    ran = await shell.asked("graph", "chain", first, second, *terms, "--id", "handmade")
    assert "graph handmade has completed" in ran
    record = await stage.client.graphs.show("handmade")
    assert (record.title, len(record.steps)) == ("by hand", 2)
    job = (await stage.client.graphs.step("handmade", "1 break_once")).record
    assert (job.queue, job.tags) == (QUEUE, ("night",))
    assert "is no step" in await shell.asked("graph", "chain", "a b c", code=2)
    assert "no JSON" in await shell.asked("graph", "chain", f"{break_once.name} {{1}}", code=2)
    file = tmp_path / "nightly.toml"
    file.write_text(DEFINITION)
    run = ("graph", "run", str(file), "-a", "number=7", "--tag", "file", "--id", "filed")
    assert "graph filed has completed" in await shell.asked(*run)
    job = (await stage.client.graphs.step("filed", "any")).record
    assert job.tags == ("file",)
    file.write_bytes(b"\xff\xfe")
    assert f"{file}: this is no TOML" in await shell.asked("graph", "run", str(file), code=2)


async def test_a_graph_that_is_not_there(stage: Stage, shell: Shell) -> None:
    assert "no graph of id 'none'" in await shell.asked("graph", "show", "none", code=1)


DEFINITION = f"""
name = "nightly"
required = ["number"]
queue = "{QUEUE}"
on_failure = "stop"

[[steps]]
name = "big"
function = "{break_once.name}"
takes = {{ number = "context.number" }}
when = "context.number > 10"

[[steps]]
name = "any"
function = "{break_once.name}"
takes = {{ number = "context.number" }}
needs = ["big"]
"""


async def test_a_definition_is_stored_run_and_shown(
    stage: Stage, shell: Shell, tmp_path: Path
) -> None:
    await stage.at_work()
    TRIED.append(7)
    file = tmp_path / "nightly.toml"
    file.write_text(DEFINITION)
    assert "is stored" in await shell.asked("workflow", "define", str(file))
    [listed] = await shell.asked_json("workflow", "definitions")
    assert (listed["name"], listed["version"], listed["required"]) == ("nightly", 1, ["number"])
    run = ("workflow", "run", "nightly", "--id", "first")
    ran = await shell.asked(*run, "--arg", "number=7")
    assert "state      completed" in ran and "critical path" in ran
    shown = await shell.asked_json("graph", "show", "first")
    assert [(step["name"], step["state"]) for step in shown["steps"]] == [
        ("big", "skipped"),
        ("any", "completed"),
    ]
    assert shown["steps"][0]["when"] == "context.number > 10"
    stored = await shell.asked_json("workflow", "definition", "nightly")
    assert stored["steps"][0]["when"] == {"gt": [{"ref": ["context", "number"]}, 10]}
    assert "no longer defined" in await shell.asked("workflow", "undefine", "nightly")
    assert await shell.asked_json("workflow", "definitions") == []
