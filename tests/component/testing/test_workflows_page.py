"""The workflow of docs/workflows.md runs as the page says."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.bus.protocol import broker_time
from penstock.cli.jobs.workflow import workflow as workflow_group
from penstock.cli.jobs.workflow_tree import tree
from penstock.jobs import State, WorkflowContext, job, registry, workflow
from penstock.telemetry import metrics
from penstock.testing import Bench
from penstock.views.workflow_board import workflow_detail

PAGE = (Path(__file__).parents[3] / "docs/workflows.md").read_text("utf-8")


@pytest.fixture
def page() -> Iterator[Any]:
    before = dict(registry.REGISTRY)
    module = ModuleType("shop_workflows")
    sys.modules[module.__name__] = module
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], module.__dict__)
    yield module
    del sys.modules[module.__name__]
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


async def test_an_approved_order_is_shipped(page: Any) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(page.fulfil(order=7, items=[1, 2]))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.status == {"stage": "waits for approval", "parcels": 2}
    assert [step.key for step in view.waits_for] == ["approved"]
    await penstock.client.workflows.signal(workflow_id, "approved", True, signal_id="mail-1")
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=1, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "shipped at 1.07"


async def test_an_order_that_nobody_approves_is_refused(page: Any) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(page.fulfil(order=7, items=[1]))
    await penstock.run_pending()
    await penstock.advance(timedelta(days=2, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "refused"
    penstock.assert_completed(page.refund, receipt="receipt 7")


async def test_an_item_that_cannot_be_reserved_leads_to_a_refund(page: Any) -> None:
    penstock = Bench()
    with penstock.failing(page.reserve, ValueError("none left")):
        workflow_id = await penstock.client.dispatch(page.fulfil(order=7, items=[1]))
        await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert (view.state, view.job.result) == (State.COMPLETED, "refunded")
    assert [step.outcome for step in view.steps][:3] == ["completed", "completed", "failed"]


async def test_the_page_shows_the_tree_of_its_workflow(page: Any) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(page.fulfil(order=7, items=[1, 2]))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id, with_attempts=True)
    detail = workflow_detail(view, broker_time(penstock.bus))
    drawn = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]
    names = re.findall(r"[├└]─ (\S+)", drawn)
    assert re.findall(r"[├└]─ (\S+)", "\n".join(tree(detail.steps))) == names
    assert len(detail.critical_path) == 4
    shown = re.sub(r" \([^)]*\)", "", drawn.partition("critical path (*)\n")[2].splitlines()[0])
    either = {"gather/reserve", "gather/reserve#2"}
    path = [part.strip() for part in shown.split("→")]
    assert [key for key in detail.critical_path if key not in either] == [
        key for key in path if key not in either
    ]


def test_the_commands_of_the_page_can_be_called() -> None:
    calls = re.findall(r"^\$ penstock workflow (.*?)(?:  +#.*)?$", PAGE, re.MULTILINE)
    assert len(calls) == 10
    for call in calls:
        verb, *arguments = shlex.split(call.replace("…", ""))
        command = workflow_group.commands[verb]
        assert command.make_context(verb, arguments, resilient_parsing=False).params


def test_the_metrics_of_the_page_are_published() -> None:
    published = {metric.prometheus: metric for metric in metrics.ALL}
    named = re.findall(r"`(penstock_workflow_\w+?)(?:_total)?\{([\w, ]+)\}`", PAGE)
    assert len(named) == 4
    for name, labels in named:
        assert published[name].labels == tuple(labels.split(", "))


async def test_the_workflow_of_the_readme_runs(page: Any) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    [code] = re.findall(r"```python\n(@workflow.*?)```", readme, re.DOTALL)

    @job(name="rebuild", queue="lake")
    def rebuild(table: str, month: str) -> None: ...

    @job(name="send_report", queue="mail")
    def send_report(month: str) -> str:
        return f"report of {month}"

    names = {"workflow": workflow, "timedelta": timedelta, "WorkflowContext": WorkflowContext}
    namespace = page.__dict__ | names | {"rebuild": rebuild, "send_report": send_report}
    exec(code, namespace)
    close_month = namespace["close_month"]
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(close_month(month="2026-10"))
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "report of 2026-10"
