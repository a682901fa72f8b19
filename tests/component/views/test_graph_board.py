"""Graphs as `penstock workflow show` draws them: the tree, the critical path, the reasons."""

from __future__ import annotations

import pytest

from penstock.bus.protocol import broker_time
from penstock.cli.jobs.workflow import declared_rows
from penstock.cli.jobs.workflow_target import Target, find
from penstock.cli.jobs.workflow_text import description
from penstock.cli.jobs.workflow_tree import tree
from penstock.jobs import NotFound, Step, job
from penstock.jobs.errors import AmbiguousId
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.testing import Bench
from penstock.views.graph_board import graph_detail
from penstock.views.workflow_board import WorkflowDetail


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@job(queue="cards", tries=1)
def charge(order: int) -> int:
    if order < 0:
        raise ValueError("no such order")
    return order


async def detail(penstock: Bench, graph_id: str) -> WorkflowDetail:
    graph = await penstock.client.graphs.show(graph_id)
    jobs = await penstock.client.graphs.jobs(graph)
    return graph_detail(graph, jobs, broker_time(penstock.bus))


def labels(lines: list[str]) -> list[str]:
    """The tree without the facts."""
    return [line.partition("  * ")[0].partition("   ")[0].rstrip() for line in lines]


async def orders(penstock: Bench) -> str:
    return await penstock.client.graphs.dispatch(
        {
            "check": Step(charge(order=1)),
            "review": Step(charge(order=2), after=["check"], when="results.check > 1000"),
            "pay": Step(charge(order=3), after=["check", "review"], compensate=charge(order=9)),
            "ship": Step(charge(order=4), after=["pay"], delay=100),
            "mail": Step(charge(order=5), after=["pay"]),
            "done": Step(after=["ship", "mail"]),
            "alarm": Step(charge(order=6), after=["ship"], rule="any_failed"),
        },
        title="orders",
        on_failure="continue",
    )


async def test_what_runs_beside_each_other_is_a_branch_and_what_joins_follows(
    penstock: Bench,
) -> None:
    graph_id = await orders(penstock)
    await penstock.run_pending()
    shown = await detail(penstock, graph_id)
    drawn = [line.split("  ")[0].rstrip() for line in tree(shown.steps, is_graph=True)]
    assert drawn == [
        "check",
        "└─ review",
        "pay",
        "├─ ship",
        "│",
        "└─ mail",
        "done",
    ]
    assert [line for line in tree(shown.steps, is_graph=True) if line.startswith("│  alarm")]
    states = {step.key: step.state for step in shown.steps}
    assert states["review"] == "skipped"
    assert states["ship"] == "scheduled"
    assert states["done"] == states["alarm"] == "not yet"
    assert shown.critical_path == ("check", "pay", "ship")
    text = "\n".join(description(shown))
    assert "after check, review" in text
    assert "when results.check > 1000" in text
    assert "after any_failed" in text
    assert "undoes pay" not in text, "it did not have to"


async def test_why_names_what_runs_and_what_waits_for_it(penstock: Bench) -> None:
    graph_id = await orders(penstock)
    await penstock.run_pending()
    why = (await detail(penstock, graph_id)).why
    assert why[0].startswith("Step ship is scheduled since ")
    assert why[0].endswith(f"see 'penstock job show {graph_id}_step_3'.")
    assert "Step done waits for ship." in why
    await penstock.client.graphs.pause(graph_id, "wrong day")
    why = (await detail(penstock, graph_id)).why
    assert "wrong day" in why[0]
    await penstock.client.graphs.cancel(graph_id, "not needed")
    await penstock.run_pending()
    why = (await detail(penstock, graph_id)).why
    assert why[0].startswith("It is cancelled since ")
    assert why[-1] == f"'penstock graph retry-failed {graph_id}' continues it where it ended."


async def test_of_many_steps_those_are_drawn_that_matter_and_the_rest_is_counted(
    penstock: Bench,
) -> None:
    steps = {"split": Step(charge(order=0))}
    steps |= {f"part{n}": Step(charge(order=n), after=["split"]) for n in range(200)}
    steps["part7"] = Step(charge(order=-7), after=["split"])
    steps["join"] = Step(after=[f"part{n}" for n in range(200)], rule="all_done")
    graph_id = await penstock.client.graphs.dispatch(steps, on_failure="continue")
    await penstock.run_pending()
    shown = await detail(penstock, graph_id)
    lines = tree(shown.steps, 10, is_graph=True)
    assert len(lines) <= 20
    assert any("part7" in line and "ValueError" in line for line in lines)
    left_out = [int(line.split()[1]) for line in lines if line.startswith("… ")]
    assert sum(left_out) == 202 - 10
    assert len(tree(shown.steps, is_graph=True)) == 202
    text = description(shown, most=10, width=80)
    assert all(len(line) <= 80 for line in text[: text.index("critical path (*)")])
    assert "after part0, part1, part2 and 197 more" in "\n".join(tree(shown.steps, is_graph=True))


async def test_a_chain_of_a_thousand_steps_is_drawn_in_a_line(penstock: Bench) -> None:
    graph_id = await penstock.client.graphs.chain([charge(order=n) for n in range(1_000)])
    shown = await detail(penstock, graph_id)
    lines = tree(shown.steps, is_graph=True)
    assert len(lines) == 1_000
    assert not any(line.startswith((" ", "│", "├", "└")) for line in lines)
    assert shown.why[0].startswith("Step 1 charge is due")


async def test_instances_of_definitions_are_listed_by_state_and_name(penstock: Bench) -> None:
    definition = from_toml(
        f'name = "orders"\nversion = 2\n[[steps]]\nname = "pay"\nfunction = "{charge.name}"\n'
        "arguments = { order = 1 }\n"
    )
    client = penstock.client
    done = await client.definitions.run(definition)
    await client.graphs.dispatch({"only": Step(charge(order=1))}, title="of no definition")
    await penstock.run_pending()
    paused = await client.definitions.run(definition)
    await client.graphs.pause(paused, "wrong day")
    assert {row.id for row in await declared_rows(None, "orders", client)} == {done, paused}
    assert await declared_rows(None, "others", client) == []
    [row] = await declared_rows("paused", "", client)
    assert (row.id, row.kind, row.version, row.pause_reason) == (paused, "declared", 2, "wrong day")
    assert [row.id for row in await declared_rows("completed", "", client)] == [done]


async def test_the_beginning_of_an_id_stands_for_the_graph_not_for_its_jobs(
    penstock: Bench,
) -> None:
    graphs = penstock.client.graphs
    steps = {"only": Step(charge(order=1))}
    one = await graphs.dispatch(steps, graph_id="0abc-one")
    await penstock.run_pending()
    assert await find(penstock.client, "0abc") == Target(one, is_graph=True)
    for text in ("0ab", "nothing", "0193c0de-0000-7000-8000-000000000000"):
        with pytest.raises(NotFound):
            await graphs.find_id(text)
    await graphs.dispatch(steps, graph_id="0abc-two")
    with pytest.raises(AmbiguousId, match="2 graphs have an id"):
        await find(penstock.client, "0abc")
    job_id = await penstock.client.dispatch(charge(order=2), job_id="0abc-one-more")
    with pytest.raises(AmbiguousId, match="2 workflows have an id"):
        await find(penstock.client, "0abc-on")
    assert await find(penstock.client, job_id) == Target(job_id)
