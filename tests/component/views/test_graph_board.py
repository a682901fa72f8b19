"""Graphs as `penstock workflow show` draws them: the tree, the critical path, the reasons."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from penstock.bus.protocol import Outgoing, broker_time
from penstock.cli.jobs.job_view import description as job_lines
from penstock.cli.workflows.listing import declared_rows
from penstock.cli.workflows.target import Target, find
from penstock.cli.workflows.text import description
from penstock.cli.workflows.tree import tree
from penstock.events.envelope import encode
from penstock.events.graph import GraphStarted, GraphStep, Wait
from penstock.jobs import JobRefused, NotFound, Step, job
from penstock.jobs.errors import AmbiguousId
from penstock.jobs.workflows.declared.definition import SignalWait
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


async def test_the_time_of_a_step_is_split_into_waiting_for_a_worker_and_running(
    penstock: Bench,
) -> None:
    job_id = await penstock.client.dispatch(charge(order=1))
    graph_id = await penstock.client.graphs.dispatch({"only": Step(charge(order=1))})
    await penstock.advance(51)
    await penstock.run_pending()
    lines = "\n".join(job_lines(await penstock.client.job(job_id)))
    assert re.search(r"^waited     5[1-9] s for a worker$", lines, re.MULTILINE)
    [step] = (await detail(penstock, graph_id)).steps
    assert step.waited_seconds is not None and step.ran_seconds is not None
    assert step.waited_seconds + step.ran_seconds == pytest.approx(step.seconds, abs=0.1)
    [line] = tree([replace(step, seconds=54.0, waited_seconds=51.0, ran_seconds=3.0)])
    assert " +54 s (waited 51 s, ran 3 s)" in line


async def test_why_names_what_runs_and_what_waits_for_it(penstock: Bench) -> None:
    graph_id = await orders(penstock)
    await penstock.run_pending()
    why = (await detail(penstock, graph_id)).why
    assert why[0].startswith("Step ship is scheduled for ")
    assert why[0].endswith(f"see 'penstock job show {graph_id}_step_3'.")
    assert "Step done waits for ship." in why
    await penstock.client.graphs.pause(graph_id, "wrong day")
    why = (await detail(penstock, graph_id)).why
    assert "wrong day" in why[0]
    await penstock.client.graphs.cancel(graph_id, "not needed")
    await penstock.run_pending()
    why = (await detail(penstock, graph_id)).why
    assert why[0].startswith("It was cancelled at ")
    assert why[-1] == (
        "Steps that had completed were undone: it cannot be continued, start it anew."
    )
    with pytest.raises(JobRefused, match="is cancelled, and steps that had completed were undone"):
        await penstock.client.graphs.retry_failed(graph_id)


async def test_why_names_the_way_on_of_a_graph_that_undid_nothing(penstock: Bench) -> None:
    graph_id = await penstock.client.graphs.dispatch(
        {"first": Step(charge(order=-1), compensate=charge(order=9))}
    )
    await penstock.run_pending()
    why = (await detail(penstock, graph_id)).why
    assert why[-1] == f"'penstock graph retry-failed {graph_id}' continues it where it ended."
    await penstock.client.graphs.retry_failed(graph_id)


async def test_the_signal_of_a_step_can_be_sent_as_why_says(penstock: Bench) -> None:
    graph_id = await penstock.client.graphs.dispatch({"sign off": Step(approval=SignalWait())})
    await penstock.run_pending()
    [sentence] = (await detail(penstock, graph_id)).why
    assert f"'penstock workflow signal {graph_id} 'sign off' VALUE' sends it." in sentence


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
    assert {row.id for row in await declared_rows(None, "orders", None, client)} == {done, paused}
    assert await declared_rows(None, "others", None, client) == []
    [row] = await declared_rows("paused", "", None, client)
    assert (row.id, row.kind, row.version, row.pause_reason) == (paused, "declared", 2, "wrong day")
    assert [row.id for row in await declared_rows("completed", "", None, client)] == [done]


async def test_what_an_ended_graph_waited_for_was_given_up_and_its_time_stands_still(
    penstock: Bench,
) -> None:
    steps = {"sign": Step(approval=SignalWait()), "ship": Step(charge(order=1), after=["sign"])}
    graph_id = await penstock.client.graphs.dispatch(steps)
    await penstock.run_pending()
    await penstock.client.graphs.cancel(graph_id, "called off")
    await penstock.run_pending()
    shown = await detail(penstock, graph_id)
    assert {step.key: step.state for step in shown.steps} == {"sign": "given-up", "ship": "not run"}
    assert shown.steps[0].ended_at == shown.workflow.finished_at
    assert shown.critical_path == ("sign",)
    assert shown.why[0].endswith(": called off.")
    assert "reason     called off" in description(shown)
    await penstock.advance(3600)
    assert (await detail(penstock, graph_id)).steps == shown.steps


@pytest.mark.parametrize("answer", [True, False])
async def test_a_signal_that_was_waited_for_is_on_the_path_as_long_as_it_took(
    penstock: Bench, answer: bool
) -> None:
    steps = {
        "reserve": Step(charge(order=1)),
        "sign": Step(approval=SignalWait()),
        "ship": Step(charge(order=2), after=["reserve", "sign"]),
    }
    graph_id = await penstock.client.graphs.dispatch(steps)
    await penstock.run_pending()
    await penstock.client.graphs.signal(graph_id, "sign", answer)
    await penstock.run_pending()
    shown = await detail(penstock, graph_id)
    reserve, sign, _ = shown.steps
    assert sign.ended_at is not None
    assert reserve.ended_at is not None
    assert sign.ended_at > reserve.ended_at
    assert sign.state == ("completed" if answer else "failed")
    assert shown.critical_path == (("sign", "ship") if answer else ("sign",))


PATIENT = """
name = "patient"
[[steps]]
name = "charge"
function = "board.charge"
[[steps]]
name = "approved"
needs = ["charge"]
wait = {}
"""


@job(queue="cards", name="board.charge")
def charge_it() -> None: ...


async def test_those_that_wait_longest_are_listed_first_by_when_they_last_went_on(
    penstock: Bench,
) -> None:
    client, definition = penstock.client, from_toml(PATIENT)
    for graph_id in ("early", "late", "done"):
        await client.definitions.run(definition, graph_id=graph_id)
    await client.graphs.cancel("done")
    await penstock.run_pending()
    rows = await declared_rows(None, "", 0.0, client)
    assert {row.id for row in rows} == {"early", "late"}
    shown = [(await detail(penstock, row.id)) for row in rows]
    ends = [max(step.since for step in one.steps if step.since) for one in shown]
    assert [row.waiting_since for row in rows] == ends == sorted(ends)
    assert {row.waits_for for row in rows} == {"approved"}
    assert await declared_rows(None, "", 3600.0, client) == []


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


async def test_a_forged_graph_whose_steps_share_a_name_is_shown(penstock: Bench) -> None:
    steps = (
        GraphStep(name="a", payload=b"", wait=Wait(signal="x")),
        GraphStep(name="a", payload=b"", needs=(0,), wait=Wait(signal="y")),
        GraphStep(name="", payload=b"", needs=(0, 1), wait=Wait(signal="z")),
    )
    event = GraphStarted(graph_id="forged", source="evil", steps=steps)
    await penstock.bus.append(Outgoing(penstock.bus.subjects.event(event), encode(event)))
    await penstock.run_pending()
    await penstock.client.graphs.signal("forged", "x")
    await penstock.run_pending()
    shown = await detail(penstock, "forged")
    assert shown.critical_path == ("a", "a#1")
    assert [line.split("  ")[0] for line in tree(shown.steps, is_graph=True)] == [
        "a",
        "└─ a#1",
        "#2",
    ]
