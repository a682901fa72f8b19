"""The workflow of docs/workflows.md runs as the page says."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from penstock.bus.protocol import broker_time
from penstock.cli.workflows.changes import Outcome
from penstock.cli.workflows.command import workflow as workflow_group
from penstock.cli.workflows.text import description
from penstock.cli.workflows.tree import tree
from penstock.config.load import check as checked_settings
from penstock.config.topology import pools
from penstock.decider.simulator import simulate
from penstock.jobs import State, WorkflowContext, job, registry, workflow
from penstock.telemetry import metrics
from penstock.testing import Bench
from penstock.views.workflow_board import StepRow, WorkflowDetail, WorkflowRow, workflow_detail

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


async def test_the_page_shows_its_workflow_line_by_line(page: Any) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(page.fulfil(order=7, items=[1, 2]))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id, with_attempts=True)
    lines = description(workflow_detail(view, broker_time(penstock.bus)))
    lines = lines[lines.index("steps") :]
    text = "\n".join(lines).replace(workflow_id, "0193…")
    drawn = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0]
    path = lines.index("critical path (*)") + 1  # which of the two items it is may differ
    assert _shape(drawn, path) == _shape(text, path)


def _shape(text: str, left_out: int) -> list[str]:
    """The lines without times, lengths, stars and the line of the critical path."""
    lengths = r"(<?[\d.]+ (ms|s|min|h|d))( \d+ (s|min|h))?"
    for pattern in (r"\d{4}-\d\d-\d\d ", r"\d\d:\d\d:\d\d", lengths, r"[*]"):
        text = re.sub(pattern, "", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [re.sub(r" \(in \)", "", line) for line in [*lines[:left_out], *lines[left_out + 1 :]]]


def test_the_commands_of_the_page_can_be_called() -> None:
    calls = re.findall(r"^\$ penstock workflow (.*?)(?:  +#.*)?$", PAGE, re.MULTILINE)
    assert len(calls) == 12
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


def test_the_page_names_each_field_that_is_printed_as_json() -> None:
    section = PAGE.partition("### As JSON")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    for kind in (WorkflowRow, StepRow, WorkflowDetail, Outcome):
        fields = {field.name for field in msgspec.structs.fields(kind)}
        assert fields <= named, (kind, fields - named)


def test_a_step_starts_as_soon_as_the_page_says() -> None:
    section = PAGE.partition("### How soon a step starts")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.*?`) \| (\d+) s \|", section, re.MULTILINE)
    assert len(rows) == 4
    for settings, seconds in rows:
        toml = "\n".join(re.findall(r"`([^`]+)`", settings))
        pool = {"max_workers": 1, **tomllib.loads(toml)}
        # A first job, since a pool in which no start was measured starts a worker at once.
        [result] = simulate([0.0, 1000.0], pool, run_seconds=3, spawn_seconds=2, seeds=1)
        least = result.wait_p50 * 2 - result.wait_max
        waited = least if pool["min_workers"] else result.wait_max
        assert round(waited) == int(seconds), settings


def test_a_pool_of_several_queues_serves_them_as_the_page_says() -> None:
    [settings] = re.findall(r"```toml\n(\[pools.*?)```", PAGE, re.DOTALL)
    [pool] = pools(checked_settings(tomllib.loads(settings))).values()
    assert pool.queues == ("workflows", "cards", "stock")
    assert pool.kind == "group"
