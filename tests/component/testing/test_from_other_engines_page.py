"""The code of docs/from-other-engines.md: what is Penstock's runs as the page says."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.jobs import job, registry
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench

PAGE = (Path(__file__).parents[3] / "docs/from-other-engines.md").read_text("utf-8")
BLOCKS = re.findall(r"```(python|toml|elixir)\n# with (\w+)(?:: (\S+))?.*?\n(.*?)```", PAGE, re.S)
OWN = {file: text for _, engine, file, text in BLOCKS if engine == "Penstock"}
RAN: list[str] = []


@job(name="lake.extract", queue="lake")
def extract(day: str) -> int:
    return 0 if day == "2026-11-21" else 1_000


@job(name="lake.validate", queue="lake")
def validate(rows: int) -> dict[str, str]:
    return {"verdict": "clean" if rows else "damaged"}


@job(name="lake.load", queue="lake")
def load() -> None:
    RAN.append("load")


@job(name="lake.quarantine", queue="lake")
def quarantine() -> None:
    RAN.append("quarantine")


@job(name="lake.report", queue="lake")
def report() -> None:
    RAN.append("report")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    RAN.clear()
    before = dict(registry.REGISTRY)
    registry.REGISTRY.update(
        {kind.name: kind for kind in (extract, validate, load, quarantine, report)}
    )
    yield
    registry.REGISTRY.clear()
    registry.REGISTRY.update(before)


@pytest.fixture
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = ModuleType(request.param.removesuffix(".py"))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(OWN[request.param], made.__dict__)
    return made


def of(file: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", [file], indirect=True)


def test_each_engine_has_its_flow_beside_ours() -> None:
    engines = [engine for _, engine, _, _ in BLOCKS]
    assert engines == [
        name for other in ("Temporal", "Airflow", "Prefect", "Oban") for name in (other, "Penstock")
    ]
    for language, _, _, text in BLOCKS:
        if language == "python":
            ast.parse(text)


@of("shop.py")
@pytest.mark.parametrize(
    ("answer", "result"), [(True, "shipped, receipt-7"), (False, "refused"), (None, "refused")]
)
async def test_from_temporal(module: Any, answer: bool | None, result: str) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(module.fulfil(order=7))
    await penstock.run_pending()
    if answer is None:
        await penstock.advance(timedelta(days=2, seconds=1))
    else:
        await penstock.client.workflows.signal(workflow_id, "approve", answer)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == result
    penstock.assert_dispatched_times(module.reserve, 2)
    penstock.assert_dispatched_times(module.refund, 0 if answer else 1)


@pytest.mark.parametrize(("day", "stored"), [("2026-11-20", "load"), ("2026-11-21", "quarantine")])
async def test_from_airflow(day: str, stored: str) -> None:
    penstock = Bench()
    await penstock.client.definitions.define(from_toml(OWN["daily_sales.toml"]))
    graph = await penstock.client.definitions.run("daily_sales", {"day": day})
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert [stored, "report"] == RAN


@of("pictures.py")
async def test_from_prefect(module: Any) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(module.publish(names=["cat", "dog"]))
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "publish", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "2 pictures"


@of("accounts.py")
async def test_from_oban(module: Any) -> None:
    penstock = Bench()
    graph = await module.archive(penstock.client, 7)
    await penstock.run_pending()
    assert (await penstock.client.graphs.show(graph)).state is GraphState.COMPLETED
    penstock.assert_completed(module.delete, account=7)
