"""The form of a signal offers what the workflow waits for, and warns about any other name."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched
from tests.component.console.test_page_acts import browser, confirm

from penstock.console.pages.acting import signals
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.job import JobStarted
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import ScheduledStep, WaitGroup

FORM = "/acts/workflow.signal/job-001"


@pytest.fixture
async def ada(site: Site) -> httpx.AsyncClient:
    """A person, and a workflow that waits for the signal ``approved``."""
    about: dict[str, Any] = {"job_id": "job-001", "queue": "reports"}
    signal = ScheduledStep(n=1, key="approved", kind="signal", digest="approved")
    await site.store(
        dispatched(1, kind="workflow"),
        JobStarted(**about, attempt=1, host="h1", worker="w1"),
        WorkflowAdvanced(
            **about, number=1, now=datetime.now(UTC), scheduled=(signal,), wait=(WaitGroup((1,)),)
        ),
    )
    return await browser(site)


async def sent(site: Site) -> list[str]:
    view = await site.console.client.workflows.get("job-001")
    return [step.key for step in view.steps if step.is_sent]


async def test_the_name_that_is_awaited_is_offered_and_filled_in(
    site: Site, ada: httpx.AsyncClient
) -> None:
    page = (await ada.get(FORM)).text
    assert "It waits for <strong>approved</strong> now." in page
    assert '<option value="approved">' in page
    assert 'name="name" value="approved"' in page
    answer = await confirm(ada, FORM, name="approved", value="true")
    assert answer.status_code == 303, answer.text
    assert await sent(site) == ["approved"]


async def test_another_name_is_sent_only_once_the_sender_was_warned(
    site: Site, ada: httpx.AsyncClient
) -> None:
    wrong = {"name": "aproved", "value": "true", "once": "0123456789abcdef0123"}
    warned = await ada.post(FORM, data=wrong)
    assert warned.status_code == 409
    text = html.unescape(warned.text)
    assert "It waits for approved now, not for 'aproved'. Did you mean approved?" in text
    assert 'name="sure" value="aproved"' in text
    other = await ada.post(FORM, data={**wrong, "sure": "approvd"})
    assert other.status_code == 409, "the warning was about another name"
    answer = await ada.post(FORM, data={**wrong, "sure": "aproved"})
    assert answer.status_code == 303, answer.text
    assert await sent(site) == []


async def test_a_graph_names_the_signals_that_its_steps_wait_for(site: Site) -> None:
    step = GraphStep(name="a", payload=b"")
    await site.store(GraphStarted(graph_id="order", title="order", steps=(step,)))
    page = (await (await browser(site)).get("/acts/graph.signal/order")).text
    assert "It waits for no signal now." in page


def test_a_doubt_names_what_is_awaited() -> None:
    assert signals.doubt("x", ()).startswith("It waits for no signal now, not for 'x'.")
