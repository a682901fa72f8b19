"""Coded workflows as they are shown: lists, the tree of steps, the critical path, the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from penstock.bus.protocol import broker_time
from penstock.cli.workflows.text import description
from penstock.jobs import JobRefused, State, WorkflowContext, job, workflow
from penstock.jobs.workflows.coded.workflow_type import NamedWorkflow
from penstock.testing import Bench
from penstock.views.workflow_board import WorkflowDetail, workflow_detail, workflow_row

DAY = timedelta(days=1)


@job(queue="cards", tries=2)
def charge(order: int) -> str:
    if order < 0:
        raise ValueError("no such order")
    return f"receipt {order}"


@job(queue="stock")
def reserve(item: int) -> int:
    return item


def fetch_rate() -> float:
    return 1.5


@workflow(version=3)
async def fulfil(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge(order=order))
    rate = await ctx.step("rate", fetch_rate)
    await ctx.gather(reserve(item=1), reserve(item=2))
    ctx.set_status(stage="packed", parcels=2)
    approved = await ctx.wait_signal("approved", bool, timeout=2 * DAY, default=False)
    return f"{receipt} {rate} {approved}"


@workflow(name="board.patient")
async def patient(ctx: WorkflowContext) -> str:
    return await ctx.wait_signal("go", str)


@workflow(name="board.two_words")
async def two_words(ctx: WorkflowContext) -> str:
    return await ctx.wait_signal("go on", str)


@workflow(name="board.parent")
async def parent(ctx: WorkflowContext) -> str:
    return str(await ctx.run(patient()))


@workflow(name="board.brief")
async def brief(ctx: WorkflowContext) -> str:
    return "at once"


@pytest.fixture
def penstock() -> Iterator[Bench]:
    yield Bench()


async def detail(penstock: Bench, workflow_id: str) -> WorkflowDetail:
    view = await penstock.client.workflows.get(workflow_id, with_attempts=True)
    return workflow_detail(view, broker_time(penstock.bus))


async def test_a_suspended_workflow_with_its_tree_and_what_it_waits_for(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7), job_id="seven")
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    assert (shown.workflow.state, shown.workflow.version) == ("suspended", 3)
    assert shown.workflow.status == {"stage": "packed", "parcels": 2}
    assert shown.workflow.waits_for == "signal approved"
    assert [(step.key, step.kind, step.state, step.attempts) for step in shown.steps] == [
        ("charge", "job", "completed", 1),
        ("rate", "inline", "completed", 0),
        ("gather/reserve", "job", "completed", 1),
        ("gather/reserve#2", "job", "completed", 1),
        ("approved", "signal", "waiting", 0),
    ]
    text = "\n".join(description(shown))
    assert "test_workflow_board.fulfil (version 3)" in text
    assert "status     stage=packed parcels=2" in text
    assert "├─ gather\n" in text
    assert "│  └─ reserve#2  " in text
    assert "It waits since" in shown.why[0]
    assert "for step approved." in shown.why[0]
    assert shown.why[1].endswith("'penstock workflow signal seven approved VALUE' sends it.")
    assert "(in 1 d 23 h)" in shown.why[1] or "(in 2 d)" in shown.why[1]


async def test_a_narrow_terminal_breaks_neither_commands_nor_figures(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7), job_id="seven")
    await penstock.run_pending()
    for width in (40, 60, 80):
        lines = description(await detail(penstock, workflow_id), width=width)
        assert any("'penstock workflow signal seven approved VALUE'" in line for line in lines)
        path = lines[lines.index("critical path (*)") + 1 : lines.index("why")]
        assert all(line.count("(") == line.count(")") for line in path)


async def test_the_command_that_sends_a_signal_can_be_copied(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(two_words(), job_id="two")
    await penstock.run_pending()
    assert "signal two 'go on' VALUE'" in (await detail(penstock, workflow_id)).why[1]


async def test_a_signal_of_another_name_than_the_one_that_is_waited_for_is_named(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(patient(), job_id="misspelt")
    await penstock.run_pending()
    assert len((await detail(penstock, workflow_id)).why) == 2
    for name in ("og", "g0", "og"):
        await penstock.client.workflows.signal(workflow_id, name, "on")
    await penstock.run_pending()
    assert (await detail(penstock, workflow_id)).why[2] == (
        "Signals were sent that no step waits for now: og, g0."
    )


async def test_the_last_signal_is_shown_where_it_was_sent_before_it_was_waited_for(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(patient(), job_id="early")
    await penstock.client.workflows.signal(workflow_id, "never waited for", "on")
    await penstock.client.workflows.signal(workflow_id, "go", "on")
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    assert (shown.workflow.state, shown.result) == ("completed", "on")
    assert [(step.key, step.kind, step.state) for step in shown.steps] == [
        ("go", "signal", "received")
    ]
    assert shown.critical_path == ("go",)


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("after", [False, True])
async def test_a_worker_that_dies_around_the_last_signal_changes_nothing(
    penstock: Bench, at: int, after: bool
) -> None:
    run = await penstock.start(patient())
    await run.signal("go", "on")
    with penstock.crashing(at=at, after=after) as crash:
        await run.run()
    assert crash.happened
    run.assert_completed("on")
    run.assert_steps("go")


async def test_what_a_workflow_that_is_a_step_waits_for_is_asked_of_itself(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(parent(), job_id="outer")
    await penstock.run_pending()
    assert (await detail(penstock, workflow_id)).why[1] == (
        "Step patient is a workflow, suspended: see 'penstock workflow why outer_step_0'."
    )


async def test_the_critical_path_follows_what_led_to_each_step(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    after = {step.key: step.after for step in shown.steps}
    assert after["charge"] == ""
    assert after["rate"] == "charge"
    assert after["gather/reserve"] == after["gather/reserve#2"] == "rate"
    slower = after["approved"]
    assert slower in {"gather/reserve", "gather/reserve#2"}
    assert shown.critical_path == ("charge", "rate", slower, "approved")
    critical = {step.key for step in shown.steps if step.critical}
    assert critical == {"charge", "rate", slower, "approved"}


@workflow(name="board.branches")
async def branches(ctx: WorkflowContext) -> None:
    async def branch(number: int) -> None:
        await ctx.run(charge(order=number))
        await ctx.run(reserve(item=number))

    await ctx.gather(branch(1), branch(2))


@workflow(name="board.last_steps")
async def last_steps(ctx: WorkflowContext, last: str) -> None:
    await ctx.run(charge(order=1))
    match last:
        case "map":
            await ctx.map(charge(order=number) for number in range(3))
        case "signal":
            await ctx.race(ctx.wait_signal("go"), ctx.sleep(DAY))
        case "timer":
            await ctx.race(ctx.sleep(60.0), ctx.wait_signal("go"))
        case "never":
            await ctx.wait_signal("go")


@pytest.mark.parametrize(
    ("last", "path", "states"),
    [
        ("map", ("charge", "charge#2"), {"charge": "completed", "charge#2": "completed"}),
        ("signal", ("charge", "race/go"), {"race/go": "received", "race/sleep": "given-up"}),
        ("timer", ("charge", "race/sleep"), {"race/sleep": "fired", "race/go": "given-up"}),
        ("never", ("charge", "go"), {"go": "given-up"}),
    ],
)
async def test_the_last_step_of_an_ended_workflow_has_its_end_and_its_time_stands_still(
    penstock: Bench, last: str, path: tuple[str, ...], states: dict[str, str]
) -> None:
    workflow_id = await penstock.client.dispatch(last_steps(last=last))
    await penstock.run_pending()
    match last:
        case "signal":
            await penstock.client.workflows.signal(workflow_id, "go")
        case "timer":
            await penstock.advance(60)
        case "never":
            await penstock.client.workflows.cancel(workflow_id, cleanup_seconds=0.0)
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    assert shown.workflow.state == ("cancelled" if last == "never" else "completed")
    assert shown.critical_path == path
    assert states.items() <= {step.key: step.state for step in shown.steps}.items()
    await penstock.advance(DAY)
    later = await detail(penstock, workflow_id)
    assert [step.seconds for step in later.steps] == [step.seconds for step in shown.steps]


async def test_a_step_follows_the_end_in_its_own_branch(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(branches())
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    after = {step.key: step.after for step in shown.steps}
    for key, cause in after.items():
        if key.endswith("/reserve"):
            assert cause == key.removesuffix("reserve") + "charge"
    assert len(after) == 4


async def test_an_ended_workflow_and_a_failed_step(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=-1))
    await penstock.run_pending()
    await penstock.advance(DAY)
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    [step] = shown.steps
    assert (step.state, step.attempts) == ("failed", 2)
    assert step.error == "builtins.ValueError: no such order"
    assert shown.workflow.state in {"retrying", "dead"}


@workflow(name="board.tidy")
async def tidy(ctx: WorkflowContext, cleans_up: bool) -> None:
    try:
        await ctx.wait_signal("go")
    finally:
        if cleans_up:
            await ctx.run(charge(order=1))


async def test_why_names_the_reason_of_a_cancel_and_whether_it_can_go_on(penstock: Bench) -> None:
    client = penstock.client
    told = await client.dispatch(tidy(cleans_up=True))
    untold = await client.dispatch(tidy(cleans_up=False))
    await penstock.run_pending()
    await client.workflows.cancel(told, "no holidays")
    await client.workflows.cancel(untold, "no holidays", cleanup_seconds=0.0)
    await penstock.run_pending()
    of_told, of_untold = (await detail(penstock, told)).why, (await detail(penstock, untold)).why
    assert of_told[0].endswith(": no holidays.")
    assert of_told[1:] == (
        "Its code knows that it was cancelled, and cannot go on: dispatch it anew.",
    )
    assert of_untold[0].startswith("It was cancelled at ")
    assert of_untold[0].endswith(": no holidays.")
    assert of_untold[1].startswith(f"'penstock job retry {untold}' lets it go on")
    for workflow_id in (told, untold):
        await client.retry(workflow_id)
    await penstock.run_pending()
    states = [(await client.job(one)).state for one in (told, untold)]
    assert states == [State.CANCELLED, State.SUSPENDED]


async def test_lists_by_state_function_and_how_long_they_wait(penstock: Bench) -> None:
    workflows, dispatch = penstock.client.workflows, penstock.client.dispatch
    first = await dispatch(patient())
    await penstock.run_pending()
    await penstock.advance(DAY)
    second = await dispatch(patient())
    ended = await dispatch(brief())
    await dispatch(charge(order=1))
    await penstock.run_pending()

    assert [view.id for view in await workflows.list()] == [ended, second, first]
    suspended = await workflows.list(state=State.SUSPENDED)
    assert [view.id for view in suspended] == [second, first]
    assert [view.id for view in await workflows.list(function="board.brief")] == [ended]
    late = await workflows.list(waiting_longer=timedelta(hours=1))
    assert [view.id for view in late] == [first]
    assert not late.cut_off
    everyone = await workflows.list(waiting_longer=timedelta(0))
    assert [view.id for view in everyone] == [first, second]
    assert len(await workflows.list(waiting_longer=timedelta(0), limit=1)) == 1
    assert not len(await workflows.list(waiting_longer=DAY / 2, function="board.brief"))
    await workflows.signal(first, "go", "on")
    await penstock.run_pending()
    assert not len(await workflows.list(waiting_longer=timedelta(hours=1)))
    assert workflow_row(await workflows.get(first)).waits_for == ""


async def test_a_workflow_dispatched_by_name_is_one_from_the_start(penstock: Bench) -> None:
    named = NamedWorkflow("board.brief", queue="workflows")
    workflow_id = await penstock.client.dispatch(named())
    shown = await detail(penstock, workflow_id)
    assert shown.workflow.state == "waiting"
    assert "It waits for a worker of queue workflows" in shown.why[0]
    await penstock.run_pending()
    shown = await detail(penstock, workflow_id)
    assert (shown.workflow.state, shown.result) == ("completed", "at once")
    assert shown.why[0].startswith("It completed at ")


async def test_a_job_is_no_workflow(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(charge(order=1))
    with pytest.raises(JobRefused, match="is no workflow"):
        await penstock.client.workflows.get(job_id)


async def test_a_blocked_workflow_is_listed_with_the_reason(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(patient())
    await penstock.run_pending()

    async def changed(ctx: WorkflowContext) -> str:
        return await ctx.wait_signal("stop", str)

    monkeypatch.setattr(patient, "function", changed)
    await penstock.client.workflows.signal(workflow_id, "go", "on")
    await penstock.run_pending()
    [blocked] = await penstock.client.workflows.list(blocked=True)
    row = workflow_row(blocked)
    assert (row.id, row.state) == (workflow_id, "blocked")
    assert "the code does not call it" in row.blocked
    why = (await detail(penstock, workflow_id)).why
    assert "It is blocked" in why[0]
    assert msgspec.json.encode(await detail(penstock, workflow_id))


@workflow(name="board.broad")
async def broad(ctx: WorkflowContext) -> None:
    await ctx.gather(*(reserve(item=item) for item in range(200)))
    await ctx.wait_signal("go", str)


async def test_of_many_steps_those_are_drawn_that_have_not_ended_and_the_rest_is_counted(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(broad())
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id, with_attempts=True)
    detail = workflow_detail(view, broker_time(penstock.bus))
    lines = description(detail, most=10, width=80)
    steps = lines[lines.index("steps") + 1 : lines.index("critical path (*)")]
    assert steps[-1].startswith("  └─ go")
    assert sum(int(line.split()[1]) for line in steps if "… " in line and " more: " in line) == 191
    assert all(len(line) <= 80 for line in steps)
    assert len([line for line in description(detail) if "reserve" in line]) >= 200
