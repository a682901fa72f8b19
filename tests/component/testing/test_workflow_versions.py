"""Workflows whose code changed under them: versions, patches, what blocks one and what fixes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.events.job import JobDispatched
from penstock.events.workflow import (
    StepRecorded,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowFixed,
)
from penstock.jobs import JobRefused, NotFound, State, WorkflowContext, job, registry, workflow
from penstock.jobs.workflows.coded import blocking
from penstock.jobs.workflows.workflow_view import WorkflowView
from penstock.testing import Bench

NAME = "tests.versions.fulfil"
Author = Callable[..., Any]


@pytest.fixture
def penstock() -> Iterator[Bench]:
    yield Bench()
    registry.REGISTRY.pop(NAME, None)


@job(queue="cards")
def charge(order: int) -> str:
    return f"receipt {order}"


@job(queue="cards")
def charge_again(order: int) -> str:
    return f"second receipt {order}"


@job(queue="stock")
def ship(order: int) -> str:
    return f"shipped {order}"


def deploy(**functions: Author) -> Any:
    """As a worker that was started with this code: ``v1=..., v2=(..., [1])``."""
    registry.REGISTRY.pop(NAME, None)
    kinds = []
    for version, given in functions.items():
        function, compatible = given if isinstance(given, tuple) else (given, [])
        number = int(version.removeprefix("v"))
        kinds.append(workflow(name=NAME, version=number, compatible_with=compatible)(function))
    return kinds[-1]


async def approved(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge(order=order))
    await ctx.wait_signal("approved")
    return f"{receipt} approved"


async def approved_by_two(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge(order=order))
    await ctx.wait_signal("approved")
    await ctx.wait_signal("approved")
    return f"{receipt} approved twice"


async def charged_otherwise(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge_again(order=order), name="charge")
    await ctx.wait_signal("approved")
    return f"{receipt} approved"


async def shipped_first(ctx: WorkflowContext, order: int) -> str:
    shipped = await ctx.run(ship(order=order))
    receipt = await ctx.run(charge(order=order))
    await ctx.wait_signal("approved")
    return f"{shipped}, {receipt}"


async def view_of(penstock: Bench, workflow_id: str) -> WorkflowView:
    return await penstock.client.workflows.get(workflow_id)


async def approve(penstock: Bench, workflow_id: str) -> WorkflowView:
    await penstock.client.workflows.signal(workflow_id, "approved")
    return await offer(penstock, workflow_id)


async def offer(penstock: Bench, workflow_id: str) -> WorkflowView:
    await penstock.advance(blocking.MOST_SECONDS + 1)
    await penstock.run_pending()
    return await view_of(penstock, workflow_id)


async def suspended(penstock: Bench, kind: Any) -> str:
    """A workflow that waits for its first approval."""
    workflow_id = await penstock.client.dispatch(kind(order=7))
    await penstock.run_pending()
    view = await view_of(penstock, workflow_id)
    assert [step.key for step in view.waits_for] == ["approved"]
    return str(workflow_id)


def events(view: WorkflowView, kind: type) -> list[Any]:
    return [event for _, event in view.job.events if isinstance(event, kind)]


# --- versions -------------------------------------------------------------------------------------
async def test_each_instance_goes_on_with_code_of_its_own_version(penstock: Bench) -> None:
    first = await suspended(penstock, deploy(v1=approved))
    second = await suspended(penstock, deploy(v1=approved, v2=approved_by_two))
    ended, waits = await approve(penstock, first), await approve(penstock, second)
    assert (ended.job.result, ended.version) == ("receipt 7 approved", 1)
    assert (waits.state, waits.version) == (State.SUSPENDED, 2)
    assert (await approve(penstock, second)).job.result == "receipt 7 approved twice"
    assert events(ended, JobDispatched)[0].version == 1
    assert {event.version for event in events(waits, WorkflowAdvanced)} == {2}


async def test_code_that_is_declared_compatible_goes_on_with_instances_of_another_version(
    penstock: Bench,
) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    deploy(v3=(approved_by_two, [1, 2]))
    view = await approve(penstock, workflow_id)
    assert (view.state, view.version) == (State.SUSPENDED, 3)  # from now on it is of version 3
    deploy(v1=approved)
    blocked = await approve(penstock, workflow_id)
    assert "it is of version 3, here is version 1" in blocked.blocked


async def test_a_version_that_no_worker_has_blocks_and_fails_nothing(penstock: Bench) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    deploy(v2=approved_by_two)
    view = await approve(penstock, workflow_id)
    assert view.state is State.SUSPENDED
    assert "it is of version 1, here is version 2" in view.blocked
    assert "compatible_with=[1]" in view.blocked
    [listed] = await penstock.client.workflows.list(blocked=True)
    assert listed.id == workflow_id
    deploy(v1=approved, v2=approved_by_two)
    assert (await offer(penstock, workflow_id)).job.result == "receipt 7 approved"


@pytest.mark.parametrize("has_run", [True, False])
async def test_a_workflow_that_no_worker_knows_is_blocked_until_one_does(
    penstock: Bench, has_run: bool
) -> None:
    kind = deploy(v1=approved)
    if has_run:
        workflow_id = await suspended(penstock, kind)
        await penstock.client.workflows.signal(workflow_id, "approved")
    else:
        workflow_id = await penstock.client.dispatch(kind(order=7))
    registry.REGISTRY.pop(NAME)
    for _ in range(3):
        view = await offer(penstock, workflow_id)
        assert view.state is State.SUSPENDED
        assert f"no job is called '{NAME}'" in view.blocked
    deploy(v1=approved)
    view = await offer(penstock, workflow_id)
    if not has_run:
        view = await approve(penstock, workflow_id)
    assert view.job.result == "receipt 7 approved"
    assert not await penstock.client.workflows.list(blocked=True)


async def test_another_signature_blocks_a_workflow_too(penstock: Bench) -> None:
    async def renamed(ctx: WorkflowContext, number: int) -> str:
        return str(await ctx.run(charge(order=number)))

    workflow_id = await penstock.client.dispatch(deploy(v1=approved)(order=7))
    deploy(v1=renamed)
    assert "argument" in (await offer(penstock, workflow_id)).blocked
    deploy(v1=approved)
    assert (await offer(penstock, workflow_id)).waits_for[0].key == "approved"


async def test_a_job_that_no_worker_knows_is_dead_as_before(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(ship(order=1))
    kind = registry.REGISTRY.pop(ship.name)
    try:
        await penstock.run_pending()
    finally:
        registry.REGISTRY[ship.name] = kind
    assert (await penstock.client.job(job_id)).state is State.DEAD


async def test_a_blocked_workflow_is_offered_ever_more_rarely(penstock: Bench) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    await penstock.client.workflows.signal(workflow_id, "approved")
    deploy(v1=shipped_first)
    for _ in range(3):
        view = await offer(penstock, workflow_id)
    blocked = events(view, WorkflowBlocked)
    [since] = {event.since for event in blocked}
    assert 2.5 <= (blocked[0].due_at - since).total_seconds() <= blocking.LEAST_SECONDS
    for minutes, least, most in ((1, 30, 60), (600, 150, 300)):
        now = since + timedelta(minutes=minutes)
        later = blocking.blocked(view.job.record, "no code", source="w", now=now)
        assert least <= (later.due_at - now).total_seconds() <= most


async def test_a_call_of_a_version_is_of_it_wherever_it_is_kept(penstock: Bench) -> None:
    """As a step of another workflow, and in a schedule."""
    deploy(v1=approved, v2=approved_by_two)
    first = registry.REGISTRY[NAME].versions[1]  # type: ignore[attr-defined]

    async def outer(ctx: WorkflowContext) -> Any:
        return await ctx.run(first(order=7))

    name = f"{NAME}_outer"
    try:
        outer_id = await penstock.client.dispatch(workflow(name=name)(outer)())
        await penstock.client.schedules.add("hourly", first(order=8), "0 * * * *")
        await penstock.advance(3_600)
        await penstock.run_pending()
        views = [await view_of(penstock, f"{outer_id}_step_0")]
        views += await penstock.client.workflows.list(function=NAME, limit=10)
        assert len(views) == 3
        assert {(view.version, view.waits_for[0].key) for view in views} == {(1, "approved")}
    finally:
        registry.REGISTRY.pop(name, None)


@pytest.mark.parametrize("bad", [0, -1, True, "1", 10**10])
def test_a_version_that_cannot_be_is_refused(bad: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="a version is"):
        workflow(name=NAME, version=bad)(approved)
    with pytest.raises((TypeError, ValueError), match="a version is"):
        workflow(name=NAME, compatible_with=[bad])(approved)


def test_two_functions_of_one_version_are_refused(penstock: Bench) -> None:
    workflow(name=NAME, version=2)(approved)
    with pytest.raises(ValueError, match="two jobs are called"):
        workflow(name=NAME, version=2)(shipped_first)
    newest = registry.find(NAME)
    workflow(name=NAME, version=1)(shipped_first)
    assert registry.find(NAME) is newest  # the name stands for the newest


def test_workers_with_other_versions_have_another_build(penstock: Bench) -> None:
    builds = set()
    for functions in ({"v1": approved}, {"v2": approved}, {"v2": (approved, [1])}):
        deploy(**functions)
        builds.add(registry.build())
    assert len(builds) == 3


# --- patched --------------------------------------------------------------------------------------
async def patched(ctx: WorkflowContext, order: int) -> str:
    checked = "checked " if ctx.patched("check") else ""
    if checked:
        await ctx.run(ship(order=order))
    receipt = await ctx.run(charge(order=order))
    await ctx.wait_signal("approved")
    late = "late " if ctx.patched("late") else ""
    again = ctx.patched("check")
    return f"{checked}{late}{again} {receipt}"


async def test_a_patch_is_taken_by_new_instances_alone(penstock: Bench) -> None:
    old = await suspended(penstock, deploy(v1=approved))
    new = await suspended(penstock, deploy(v1=patched))
    assert (await approve(penstock, old)).job.result == "late False receipt 7"
    assert (await approve(penstock, new)).job.result == "checked late True receipt 7"


async def test_a_patch_is_kept_where_an_inline_step_recorded_it(penstock: Bench) -> None:
    async def inline(ctx: WorkflowContext, order: int) -> str:
        is_new = ctx.patched("check")
        await ctx.step("rate", abs, -order)
        await ctx.wait_signal("approved")
        return f"{is_new}"

    view = await approve(penstock, await suspended(penstock, deploy(v1=inline)))
    assert view.job.result == "True"
    [recorded] = events(view, StepRecorded)
    assert (recorded.patches, recorded.version) == (("check",), 1)


@pytest.mark.parametrize("names", [[""], ["n" * 65], [f"n{n}" for n in range(101)]])
async def test_names_of_patches_are_bounded(penstock: Bench, names: list[str]) -> None:
    async def asks(ctx: WorkflowContext, order: int) -> bool:
        return all(ctx.patched(name) for name in names)

    workflow_id = await penstock.client.dispatch(deploy(v1=asks)(order=1))
    await penstock.run_pending()
    assert "ctx.patched" in (await view_of(penstock, workflow_id)).job.error.message


# --- fixing ---------------------------------------------------------------------------------------
async def blocked_by(penstock: Bench, function: Author) -> str:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    deploy(v1=function)
    assert (await approve(penstock, workflow_id)).blocked
    return workflow_id


async def fixed(penstock: Bench, workflow_id: str, **fix: Any) -> WorkflowView:
    view = await penstock.client.workflows.fix(workflow_id, **fix)
    assert view.state is State.WAITING
    await penstock.run_pending()
    return await view_of(penstock, workflow_id)


async def test_what_was_recorded_is_accepted_for_another_function(penstock: Bench) -> None:
    workflow_id = await blocked_by(penstock, charged_otherwise)
    view = await fixed(penstock, workflow_id, accept=True, reason="the same receipt")
    assert view.job.result == "receipt 7 approved"
    penstock.assert_not_dispatched(charge_again)
    [event] = events(view, WorkflowFixed)
    assert (event.accepts, event.reason) == (True, "the same receipt")


async def test_a_forgotten_step_is_called_anew_with_a_job_of_its_own(penstock: Bench) -> None:
    workflow_id = await blocked_by(penstock, charged_otherwise)
    view = await fixed(penstock, workflow_id, forget=["charge"])
    assert "recorded is signal 'approved'" in view.blocked  # it comes after what was forgotten
    view = await fixed(penstock, workflow_id, forget=["approved"])
    assert view.job.result == "second receipt 7 approved"
    penstock.assert_dispatched_times(charge_again, 1)
    assert view.steps[0].job_id.endswith("_step_2")  # numbers stay used


async def test_a_step_before_what_was_recorded_needs_all_after_it_forgotten(
    penstock: Bench,
) -> None:
    workflow_id = await blocked_by(penstock, shipped_first)
    view = await fixed(penstock, workflow_id, forget=["charge", "approved"])
    assert view.job.result == "shipped 7, receipt 7"
    penstock.assert_dispatched_times(charge, 2)


@pytest.mark.parametrize("fix", [{"forget": ["charge"]}, {"accept": True}])
async def test_a_step_that_begins_anew_names_all_that_was_recorded_after_it(
    penstock: Bench, fix: dict[str, Any]
) -> None:
    async def ordered(ctx: WorkflowContext, order: int) -> Any:
        first = await ctx.run(charge(order=order))
        return [first, await ctx.step("rate", abs, -order), await ctx.wait_signal("approved")]

    async def renamed(ctx: WorkflowContext, order: int) -> Any:
        first = await ctx.run(charge(order=order), name="charge_card")
        return [first, await ctx.step("rate", abs, -order), await ctx.wait_signal("approved")]

    workflow_id = await suspended(penstock, deploy(v1=ordered))
    deploy(v1=renamed)
    await approve(penstock, workflow_id)
    view = await fixed(penstock, workflow_id, **fix)
    keys = ["rate", "approved"] if "forget" in fix else ["charge", "rate", "approved"]
    wanted = f"forget {', '.join(map(repr, keys))}, too"
    assert f"waits for 'charge_card', which begins anew, and cannot use {wanted}" in (
        view.blocked.replace("what was recorded after that: ", "")
    )
    view = await fixed(penstock, workflow_id, forget=keys)
    assert view.job.result == ["receipt 7", 7, None]


async def test_steps_that_new_code_does_not_call_are_forgotten(penstock: Bench) -> None:
    async def shorter(ctx: WorkflowContext, order: int) -> str:
        return str(await ctx.run(charge(order=order)))

    workflow_id = await blocked_by(penstock, shorter)
    view = await fixed(penstock, workflow_id, forget=["approved"])
    assert view.job.result == "receipt 7"


async def test_a_forgotten_inline_step_runs_again(penstock: Bench) -> None:
    async def rated(ctx: WorkflowContext, order: int) -> Any:
        return [await ctx.step("rate", abs, -order), await ctx.wait_signal("approved")]

    async def rounded(ctx: WorkflowContext, order: int) -> Any:
        return [await ctx.step("rate", round, order + 0.6), await ctx.wait_signal("approved")]

    workflow_id = await suspended(penstock, deploy(v1=rated))
    deploy(v1=rounded)
    assert (
        "'rate' (abs), the code calls 'rate' (round)"
        in (await approve(penstock, workflow_id)).blocked
    )
    view = await fixed(penstock, workflow_id, forget=["rate", "approved"])
    assert view.job.result == [8, None]


async def test_the_job_of_a_forgotten_step_is_cancelled(penstock: Bench) -> None:
    async def charged(ctx: WorkflowContext, order: int) -> Any:
        return await ctx.race(ctx.gather(charge(order=order)), ctx.wait_signal("approved"))

    async def waits(ctx: WorkflowContext, order: int) -> Any:
        return await ctx.race(ctx.wait_signal("approved"), ctx.sleep(60))

    with penstock.holding(charge):
        workflow_id = await penstock.client.dispatch(deploy(v1=charged)(order=7))
        await penstock.run_pending()
        deploy(v1=waits)
        await penstock.client.workflows.signal(workflow_id, "approved", 5)
        await penstock.run_pending()
        key = "race/gather/charge"
        assert f"recorded is job '{key}'" in (await view_of(penstock, workflow_id)).blocked
        view = await fixed(penstock, workflow_id, forget=[key])
        assert view.job.result == 5
        held = await penstock.client.job(f"{workflow_id}_step_0")
        assert held.state is State.CANCELLED


async def test_a_version_is_set(penstock: Bench) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    deploy(v2=approved_by_two)
    await approve(penstock, workflow_id)
    assert (await fixed(penstock, workflow_id, version=2)).version == 2
    assert (await approve(penstock, workflow_id)).job.result == "receipt 7 approved twice"


@pytest.mark.parametrize(
    ("fix", "message"),
    [
        ({}, "one of"),
        ({"accept": True, "version": 2}, "one of"),
        ({"version": -1}, "a version is"),
        ({"forget": ["charg"]}, "did you mean 'charge'"),
        ({"forget": ["nothing like it"]}, "'penstock workflow show'"),
    ],
)
async def test_a_fix_that_cannot_be_is_refused(
    penstock: Bench, fix: dict[str, Any], message: str
) -> None:
    workflow_id = await blocked_by(penstock, shipped_first)
    with pytest.raises(JobRefused, match=message):
        await penstock.client.workflows.fix(workflow_id, **fix)
    assert (await view_of(penstock, workflow_id)).blocked


async def test_only_what_is_blocked_is_fixed(penstock: Bench) -> None:
    workflow_id = await suspended(penstock, deploy(v1=approved))
    with pytest.raises(JobRefused, match="is not blocked but suspended"):
        await penstock.client.workflows.fix(workflow_id, accept=True)
    job_id = await penstock.client.dispatch(ship(order=1))
    with pytest.raises(JobRefused, match="is no workflow"):
        await penstock.client.workflows.fix(job_id, accept=True)
    with pytest.raises(NotFound):
        await penstock.client.workflows.fix("unknown", accept=True)


async def test_of_two_fixes_the_second_sees_that_it_is_blocked_no_more(penstock: Bench) -> None:
    workflow_id = await blocked_by(penstock, charged_otherwise)
    await penstock.client.workflows.fix(workflow_id, accept=True)
    with pytest.raises(JobRefused, match="is not blocked but waiting"):
        await penstock.client.workflows.fix(workflow_id, forget=["charge"])


async def test_a_fixed_workflow_outlasts_further_advances(penstock: Bench) -> None:
    async def long(ctx: WorkflowContext, order: int) -> Any:
        receipt = await ctx.run(charge_again(order=order), name="charge")
        signals = [await ctx.wait_signal("approved") for _ in range(3)]
        return [receipt, *signals]

    workflow_id = await blocked_by(penstock, long)
    view = await fixed(penstock, workflow_id, accept=True)
    for value in (1, 2):
        assert view.state is State.SUSPENDED and not view.blocked
        await penstock.client.workflows.signal(workflow_id, "approved", value)
        await penstock.run_pending()
        view = await view_of(penstock, workflow_id)
    assert view.job.result == ["receipt 7", None, 1, 2]


@pytest.mark.parametrize("after", [False, True])
async def test_a_worker_that_is_killed_while_it_blocks_one_loses_nothing(
    penstock: Bench, after: bool
) -> None:
    for at in (1, 2):  # its start, and what it records
        workflow_id = await suspended(penstock, deploy(v1=approved))
        deploy(v1=shipped_first)
        await penstock.client.workflows.signal(workflow_id, "approved")
        with penstock.crashing(at=at, after=after) as crash:
            await penstock.run_pending()
        assert crash.event == ("JobStarted" if at == 1 else "WorkflowBlocked")
        assert (await view_of(penstock, workflow_id)).blocked
        deploy(v1=approved)
        assert (await offer(penstock, workflow_id)).job.result == "receipt 7 approved"


async def test_a_worker_that_is_killed_while_it_blocks_an_unknown_one_loses_nothing(
    penstock: Bench,
) -> None:
    for after in (False, True):
        workflow_id = await suspended(penstock, deploy(v1=approved))
        deploy(v2=approved_by_two)
        await penstock.client.workflows.signal(workflow_id, "approved")
        with penstock.crashing(at=1, after=after) as crash:
            await penstock.run_pending()
        assert crash.event == "WorkflowBlocked"
        assert (await view_of(penstock, workflow_id)).blocked
        deploy(v1=approved, v2=approved_by_two)
        assert (await offer(penstock, workflow_id)).job.result == "receipt 7 approved"
