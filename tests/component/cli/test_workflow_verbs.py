"""`penstock workflow pause|resume|cancel` over a broker in memory: of several, of a function."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.component.cli.in_memory import InMemory

from penstock.jobs import Client, State, Step, WorkflowContext, job, workflow
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.testing import Bench


@job(queue="cards", name="verbs.charge")
def charge() -> None: ...


@workflow(name="verbs.fulfil")
async def fulfil(ctx: WorkflowContext, order: int) -> None:
    await ctx.wait_signal("approved", bool)


@workflow(name="verbs.month")
async def month(ctx: WorkflowContext) -> None:
    await ctx.run(fulfil(order=1))


DEFINITION = """
name = "orders"
required = ["order"]

[[steps]]
name = "charge"
function = "verbs.charge"

[[steps]]
name = "approved"
needs = ["charge"]
wait = { signal = "approved", timeout_seconds = 60, default = false }
"""


class AtWork(InMemory):
    """Commands beside which workers and the orchestrator run.

    Args:
        loop: in which the broker in memory was used so far.
    """

    def __init__(self, bench: Bench, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(bench)
        self.loop.close()
        self.loop = loop

    def with_client(self, request: Callable[[Client], Awaitable[Any]]) -> Any:
        async def beside() -> Any:
            answer = asyncio.ensure_future(request(self.bench.client))
            while not answer.done():
                await self.bench.run_pending()
                await asyncio.sleep(0)
            return await answer

        return self.loop.run_until_complete(beside())


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
        result = session.call("workflow", verb, ids[0], graph)
        assert (result.exit_code, result.output.count(words)) == (0, 2), result.output
    assert session.state(ids[0]) is State.CANCELLED
    assert session.state(ids[1]) is State.WAITING


def test_those_of_a_function_are_counted_and_changed_once_that_is_confirmed(
    session: InMemory, ids: list[str]
) -> None:
    session.call("workflow", "pause", ids[0])
    chosen = ("--function", fulfil.name)
    counted = session.call("workflow", "pause", *chosen, "--dry-run")
    assert "2 workflows match; nothing was done" in counted.output
    refused = session.call("workflow", "pause", *chosen)
    assert (refused.exit_code, "add --yes" in refused.output) == (2, True)
    assert (
        session.call("workflow", "pause", *chosen, "--yes", "--limit", "1").output.count(
            "is paused"
        )
        == 1
    )
    assert session.call("workflow", "pause", *chosen, "--yes").output.count("is paused") == 1
    assert session.call("workflow", "resume", *chosen, "--yes").output.count("goes on") == 3
    assert (
        session.call("workflow", "cancel", *chosen, "--yes", "--now").output.count("is cancelled")
        == 3
    )
    assert {session.state(one) for one in ids} == {State.CANCELLED}


def test_what_cannot_be_changed_is_said_and_the_others_are(
    session: InMemory, ids: list[str]
) -> None:
    session.call("workflow", "cancel", ids[0], "--now")
    result = session.call("workflow", "pause", ids[0], ids[1])
    assert result.exit_code == 1
    assert f"workflow {ids[1]} is paused" in result.output
    assert f"workflow {ids[0]} cannot be paused: it is cancelled" in str(result.output)
    assert session.call("workflow", "pause").exit_code == 2
    assert session.call("workflow", "pause", ids[1], "--function", fulfil.name).exit_code == 2
    assert session.call("workflow", "cancel", ids[1], "--dry-run").exit_code == 2
    session.as_json = True
    [outcome] = json.loads(session.call("workflow", "resume", ids[1]).output)
    assert (outcome["id"], outcome["is_changed"], outcome["error"]) == (ids[1], True, "")


def test_a_definition_is_not_run_unless_equal_ones_are_old(session: InMemory) -> None:
    refused = session.call("workflow", "run", "month-end", "--unique-for", "60s")
    assert refused.exit_code != 0
    assert "takes no --unique-for: give an --id" in refused.output


def test_what_an_instance_of_a_definition_waits_for_is_listed(session: InMemory) -> None:
    def define(client: Client) -> Awaitable[object]:
        return client.definitions.define(from_toml(DEFINITION))

    session.with_client(define)
    run = ("workflow", "run", "orders", "-a", "order=7", "--no-wait")
    waiting, done = (session.call(*run).output.strip() for _ in range(2))
    session.loop.run_until_complete(session.bench.run_pending())
    session.call("workflow", "signal", done, "approved", "true")
    session.loop.run_until_complete(session.bench.run_pending())
    session.as_json = True
    rows = {
        row["id"]: row for row in json.loads(session.call("workflow", "ls", "--declared").output)
    }
    shown = json.loads(session.call("workflow", "show", waiting).output)["workflow"]
    assert rows[waiting]["waits_for"] == "approved"
    assert rows[waiting]["waiting_since"] == shown["waiting_since"] is not None
    assert (rows[done]["state"], rows[done]["waits_for"]) == ("completed", "")
    newest = json.loads(session.call("workflow", "ls", "--declared", "--limit", "1").output)
    assert [row["id"] for row in newest] == [done]


def test_a_declared_workflow_that_was_run_is_shown_as_a_coded_one_is(session: InMemory) -> None:
    definition = from_toml('name = "brief"\n[[steps]]\nname = "only"\nfunction = "verbs.charge"\n')
    session.with_client(lambda client: client.definitions.define(definition))
    run = ("workflow", "run", "brief", "--id", "b1")
    ran = AtWork(session.bench, session.loop).call(*run)
    assert ran.exit_code == 0, ran.output
    for part in (
        "workflow b1\n",
        "state      completed",
        "steps\n  only  * completed",
        "critical path",
    ):
        assert part in ran.output

    again = session.call(*run)
    assert again.exit_code == 1
    assert "'penstock workflow wait b1' waits for it and shows it" in again.output


def test_steps_and_members_are_left_out_of_a_list_and_counted(session: InMemory) -> None:
    async def dispatched(client: Client) -> str:
        await client.batches.create([fulfil(order=2), fulfil(order=3)], batch_id="night")
        return await client.dispatch(month())

    outer: str = session.with_client(dispatched)
    session.loop.run_until_complete(session.bench.run_pending())
    shown = session.call("--wide", "workflow", "ls").output
    assert outer in shown and "night_" not in shown and f"{outer}_step_0" not in shown
    assert "3 more belong to other workflows, as steps, or to batches: --all lists all" in shown
    assert "--declared" not in shown
    session.with_client(lambda client: client.graphs.dispatch({"a": Step(charge())}))
    waiting = session.call("workflow", "ls", "--waiting-longer", "0s").output
    assert "3 more belong to other workflows" in waiting
    assert "instances of definitions: 'penstock workflow ls --declared'" in waiting
    session.as_json = True
    for chosen in (("--all",), ("--state", "suspended"), ("--all", "--waiting-longer", "0s")):
        rows = json.loads(session.call("workflow", "ls", *chosen).output)
        assert len(rows) == 4
    rows = json.loads(session.call("workflow", "ls", "--function", fulfil.name).output)
    assert len(rows) == 3


def test_an_unknown_id_names_the_nearest(session: InMemory) -> None:
    session.with_client(lambda client: client.dispatch(fulfil(order=7), job_id="order-7"))
    session.with_client(
        lambda client: client.graphs.dispatch({"a": Step(charge())}, graph_id="month-end")
    )
    for typed, meant in (("ordr-7", "order-7"), ("month-ned", "month-end")):
        refused = session.call("workflow", "why", typed)
        assert refused.exit_code == 1
        assert (
            f"no workflow has the id '{typed}', or one that begins so: did you mean {meant}?"
            in (refused.output)
        )
    unlike = session.call("workflow", "show", "nothing")
    assert "'penstock workflow ls' lists those" in unlike.output


def test_a_signal_that_is_not_waited_for_is_kept_with_a_remark(session: InMemory) -> None:
    workflow_id = session.with_client(lambda client: client.dispatch(fulfil(order=7)))
    session.loop.run_until_complete(session.bench.run_pending())
    sent = session.call("workflow", "signal", workflow_id, "aproved", "true")
    assert sent.exit_code == 0
    assert "it waits for approved now; aproved is kept until it is waited for" in sent.output
    assert "it waits for" not in session.call("workflow", "signal", workflow_id, "approved").output


def test_a_signal_of_another_type_than_the_code_waits_for_is_refused(session: InMemory) -> None:
    workflow_id = session.with_client(lambda client: client.dispatch(fulfil(order=7)))
    session.loop.run_until_complete(session.bench.run_pending())
    at_work = AtWork(session.bench, session.loop)
    refused = at_work.call("workflow", "signal", workflow_id, "approved", "yes")
    assert refused.exit_code == 1
    assert "was passed over" in refused.output
    assert "Expected `bool`, got `str`" in refused.output
    at_work.as_json = True
    again = at_work.call("workflow", "signal", workflow_id, "approved", "1")
    assert again.exit_code == 1 and '"refused": "Expected `bool`, got `int`"' in again.output
    taken = at_work.call("workflow", "signal", workflow_id, "approved", "true")
    assert json.loads(taken.output) == {"id": workflow_id, "signal": "approved", "refused": ""}
    assert session.state(workflow_id) is State.COMPLETED


def test_several_are_explained_by_one_call(session: InMemory, ids: list[str]) -> None:
    session.loop.run_until_complete(session.bench.run_pending())
    alone = session.call("workflow", "why", ids[0]).output
    both = session.call("workflow", "why", *ids[:2]).output
    assert alone.startswith("It waits since") and f"workflow {ids[0]}\n  It waits since" in both
    assert f"workflow {ids[1]}\n" in both
    session.as_json = True
    assert json.loads(session.call("workflow", "why", ids[0]).output)["id"] == ids[0]
    listed = json.loads(session.call("workflow", "why", *ids).output)
    assert [one["id"] for one in listed] == ids


def test_an_id_that_was_dispatched_is_refused_with_what_shows_it(session: InMemory) -> None:
    run = ("workflow", "run", fulfil.name, "-a", "order=7", "--id", "order-7", "--no-wait")
    assert session.call(*run).output == "order-7\n"
    again = session.call(*run)
    assert again.exit_code == 1
    assert "'penstock workflow wait order-7' waits for it and shows it" in again.output
