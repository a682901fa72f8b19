"""`penstock workflow pause|resume|cancel` over a broker in memory: of several, of a function."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.jobs.workflow import workflow as group
from penstock.cli.session import Session
from penstock.jobs import Client, State, Step, WorkflowContext, job, workflow
from penstock.testing import Bench


@job(queue="cards", name="verbs.charge")
def charge() -> None: ...


@workflow(name="verbs.fulfil")
async def fulfil(ctx: WorkflowContext, order: int) -> None:
    await ctx.wait_signal("approved", bool)


class InMemory(Session):
    """Commands that reach a broker in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.loop, self.bench = asyncio.new_event_loop(), Bench()

    def with_client(self, act: Callable[[Client], Awaitable[Any]]) -> Any:
        return self.loop.run_until_complete(act(self.bench.client))

    def call(self, *arguments: str) -> Result:
        return CliRunner().invoke(group, arguments, obj=self)

    def state(self, workflow_id: str) -> State:
        view: Any = self.with_client(lambda client: client.job(workflow_id))
        state: State = view.state
        return state


@pytest.fixture
def session() -> Iterator[InMemory]:
    session = InMemory()
    yield session
    session.loop.close()


@pytest.fixture
def ids(session: InMemory) -> list[str]:
    async def dispatched(client: Client) -> list[str]:
        return [await client.dispatch(fulfil(order=order)) for order in range(3)]

    ids: list[str] = session.with_client(dispatched)
    return ids


def test_several_are_changed_by_their_ids_coded_ones_and_graphs(
    session: InMemory, ids: list[str]
) -> None:
    graph: str = session.with_client(lambda client: client.graphs.dispatch({"a": Step(charge())}))
    for verb, words in (
        ("pause", "is paused; 'penstock workflow resume "),
        ("pause", "was paused already; "),
        ("resume", "goes on"),
        ("resume", "is not paused; it is "),
        ("cancel", "is cancelled; its steps are cancelled next"),
    ):
        result = session.call(verb, ids[0], graph)
        assert (result.exit_code, result.output.count(words)) == (0, 2), result.output
    assert session.state(ids[0]) is State.CANCELLED
    assert session.state(ids[1]) is State.WAITING


def test_those_of_a_function_are_counted_and_changed_once_that_is_confirmed(
    session: InMemory, ids: list[str]
) -> None:
    session.call("pause", ids[0])
    chosen = ("--function", fulfil.name)
    counted = session.call("pause", *chosen, "--dry-run")
    assert "2 workflows match; nothing was done" in counted.output
    refused = session.call("pause", *chosen)
    assert (refused.exit_code, "add --yes" in refused.output) == (2, True)
    assert session.call("pause", *chosen, "--yes", "--limit", "1").output.count("is paused") == 1
    assert session.call("pause", *chosen, "--yes").output.count("is paused") == 1
    assert session.call("resume", *chosen, "--yes").output.count("goes on") == 3
    assert session.call("cancel", *chosen, "--yes", "--now").output.count("is cancelled") == 3
    assert {session.state(one) for one in ids} == {State.CANCELLED}


def test_what_cannot_be_changed_is_said_and_the_others_are(
    session: InMemory, ids: list[str]
) -> None:
    session.call("cancel", ids[0], "--now")
    result = session.call("pause", ids[0], ids[1])
    assert result.exit_code == 1
    assert f"workflow {ids[1]} is paused" in result.output
    assert f"workflow {ids[0]} cannot be paused: it is cancelled" in str(result.output)
    assert session.call("pause").exit_code == 2
    assert session.call("pause", ids[1], "--function", fulfil.name).exit_code == 2
    assert session.call("cancel", ids[1], "--dry-run").exit_code == 2
    session.as_json = True
    [outcome] = json.loads(session.call("resume", ids[1]).output)
    assert (outcome["id"], outcome["is_changed"], outcome["error"]) == (ids[1], True, "")


def test_a_definition_is_not_run_unless_equal_ones_are_old(session: InMemory) -> None:
    refused = session.call("run", "month-end", "--unique-for", "60s")
    assert refused.exit_code != 0
    assert "takes no --unique-for: give an --id" in refused.output
