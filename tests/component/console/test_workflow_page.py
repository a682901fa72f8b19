"""A coded workflow's page: its steps with what they took, and the fix of a blocked one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, send
from tests.component.console.test_console_api import dispatched, get
from tests.component.console.test_page_acts import browser, confirm

from penstock.console.web.scopes import Scope
from penstock.events.job import JobCompleted, JobDispatched, JobStarted
from penstock.events.workflow import WorkflowAdvanced, WorkflowBlocked
from penstock.events.workflow_memo import ScheduledStep, WaitGroup
from penstock.jobs import derived_ids
from penstock.jobs.lifecycle import State

NOW = datetime.now(UTC)
ABOUT: dict[str, Any] = {"job_id": "job-001", "queue": "reports"}


async def advanced(site: Site, *steps: ScheduledStep) -> None:
    await site.store(
        dispatched(1, kind="workflow"),
        JobStarted(**ABOUT, attempt=1, host="h1", worker="w1"),
        WorkflowAdvanced(**ABOUT, number=1, now=NOW, scheduled=steps, wait=(WaitGroup((1,)),)),
    )


async def blocked(site: Site) -> None:
    await advanced(site, ScheduledStep(n=1, key="charge", kind="signal", digest="charge"))
    await site.store(
        JobStarted(**ABOUT, attempt=2, host="h1", worker="w1"),
        WorkflowBlocked(**ABOUT, reason="the code calls refund", due_at=NOW),
    )


async def test_the_steps_are_listed_with_tries_time_and_size_of_the_result(site: Site) -> None:
    await advanced(site, ScheduledStep(n=1, key="charge", kind="job", digest="charge"))
    step: dict[str, Any] = {"job_id": derived_ids.step_id("job-001", 1), "queue": "reports"}
    await site.store(
        JobDispatched(**step, function="shop.charge", payload=b""),
        JobStarted(**step, attempt=2, host="h1", worker="w1"),
        JobCompleted(**step, attempt=2, run_seconds=2.0, result=b"x" * 2_048),
    )
    [listed] = (await get(site, "/workflows/job-001/steps"))["items"]
    assert (listed["attempts"], listed["result_bytes"]) == (2, 2_048)
    text = (await site.client.get("/workflows/job-001")).text
    assert '<td data-label="Tries" class="number">2</td>' in text
    assert 'data-label="Result" class="number">2,048 B' in text


async def test_of_very_many_steps_both_ends_are_listed(site: Site) -> None:
    keys = [f"step-{n:04}" for n in range(1, 1_001)]
    steps = [
        ScheduledStep(n=n, key=key, kind="signal", digest=key) for n, key in enumerate(keys, 1)
    ]
    await advanced(site, *steps)
    text = (await site.client.get("/workflows/job-001")).text
    assert "600 steps between these are left out" in text
    shown = [key for key in keys if f'<th scope="row" data-label="Step">{key}' in text]
    assert shown == [*keys[:200], *keys[-200:]]
    assert text.count('id="s-1000"') == 1
    assert len((await get(site, "/workflows/job-001/steps"))["items"]) == 1_000


async def test_a_blocked_workflow_is_fixed_by_the_api(site: Site) -> None:
    await blocked(site)
    ada = await Guarded(site).bearer("read", "jobs")
    path = "/api/v1/workflows/job-001/fix"
    for wrong in ({}, {"forget": ["charge"], "accept": True}, {"forget": ["gone"]}):
        assert (await ada.post(path, json=wrong)).status_code in (400, 409, 422), wrong
    answer = await ada.post(path, json={"forget": ["charge"], "reason": "another receipt"})
    assert answer.status_code == 202, answer.text
    view = await site.console.client.workflows.get("job-001")
    assert (view.state, view.blocked) == (State.WAITING, "")
    entries, _ = await site.console.control.audit.newest(20)
    [begun] = [one for one in entries if (one.action, one.result) == ("workflow.fix", "done")]
    assert begun.target == "workflow:job-001"
    assert dict(begun.after) == {"forget": "charge", "reason": "another receipt"}
    assert (await ada.post(path, json={"accept": True})).status_code in (400, 409)


async def test_who_may_not_act_on_jobs_fixes_nothing(site: Site) -> None:
    await blocked(site)
    reader = site.caller(Person(Scope.READ, Scope.QUEUES))
    await send(reader, "POST", "/workflows/job-001/fix", {"accept": True}, status=403)


async def test_it_is_offered_on_the_page_of_a_blocked_one_alone(site: Site) -> None:
    await blocked(site)
    client = await browser(site)
    assert "/acts/workflow.fix/job-001" in (await client.get("/workflows/job-001")).text
    assert "Accept what is recorded" in (await client.get("/acts/workflow.fix/job-001")).text
    answer = await confirm(client, "/acts/workflow.fix/job-001", accept="no")
    assert "Not done." in answer.text
    answer = await confirm(client, "/acts/workflow.fix/job-001", accept="yes")
    assert answer.headers["location"] == "/workflows/job-001?acted=workflow.fix"
    assert "/acts/workflow.fix/" not in (await client.get("/workflows/job-001")).text
