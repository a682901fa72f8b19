"""The workflow of docs/workflows.md runs as the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.jobs import State, registry
from penstock.testing import Bench

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
