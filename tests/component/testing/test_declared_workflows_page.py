"""The definition of docs/declared-workflows.md runs as the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.component.cli.in_memory import InMemory

from penstock.jobs import job, registry
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.jobs.workflows.definitions import calls_of
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench

PAGES = Path(__file__).parents[3] / "docs"
PAGE = (PAGES / "declared-workflows.md").read_text("utf-8")
ORDERS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
RAN: list[str] = []
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@job(name="shop.check", queue="orders")
def check(order: dict[str, Any]) -> dict[str, Any]:
    RAN.append("check")
    return order


@job(name="shop.review", queue="orders")
def review(total: int) -> None:
    RAN.append(f"review {total}")


@job(name="shop.charge", queue="orders")
def charge(total: int) -> dict[str, str]:
    RAN.append(f"charge {total}")
    return {"id": "p1"}


@job(name="shop.send_invoice", queue="orders")
def send_invoice() -> dict[str, str]:
    RAN.append("invoice")
    return {"id": "i1"}


@job(name="shop.refund", queue="orders")
def refund(payment: str) -> None:
    RAN.append(f"refund {payment}")


@job(name="shop.ship", queue="orders", tries=1)
def ship(carrier: str) -> None:
    RAN.append(f"ship by {carrier}")


@job(name="shop.alarm", queue="orders")
def alarm() -> None:
    RAN.append("alarm")


@job(name="shop.sum", queue="orders")
def sum_up(ledger: str) -> dict[str, int]:
    RAN.append(f"sum {ledger}")
    return {"total": 7}


@job(name="shop.report", queue="orders")
def report(total: int) -> None:
    RAN.append(f"report {total}")


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    functions = (check, review, charge, send_invoice, refund, ship, alarm, sum_up, report)
    kinds = {kind.name: kind for kind in functions}
    registry.REGISTRY.update(kinds)
    yield
    for name in kinds:
        registry.REGISTRY.pop(name, None)


async def run(**order: Any) -> GraphState:
    bench = Bench()
    definition = from_toml(ORDERS)
    await bench.client.definitions.define(definition)
    graph = await bench.client.definitions.run("orders", {"order": order})
    await bench.run_pending()
    return (await bench.client.graphs.show(graph)).state


async def test_a_small_order_is_not_reviewed() -> None:
    assert await run(total=90, gateway="stripe") is GraphState.COMPLETED
    assert RAN == ["check", "charge 90", "ship by post"]


async def test_a_large_one_is_and_its_gateway_chooses_the_call() -> None:
    await run(total=2_000, gateway="stripe")
    assert RAN == ["check", "review 2000", "charge 2000", "ship by post"]
    RAN.clear()
    await run(total=2_000, gateway="invoice")
    assert RAN == ["check", "invoice", "ship by post"]


async def test_a_parcel_that_is_not_sent_is_paid_back() -> None:
    bench = Bench()
    with bench.failing(ship, ValueError("no carrier")):
        graph = await bench.client.definitions.run(
            from_toml(ORDERS), {"order": {"total": 90, "gateway": "stripe"}}
        )
        await bench.run_pending()
    assert (await bench.client.graphs.show(graph)).state is GraphState.FAILED
    assert RAN == ["check", "charge 90", "alarm", "refund p1"]


async def test_a_payment_is_waited_for_and_what_is_not_paid_is_written_off() -> None:
    steps = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    for payment in ({"sum": 90}, None):
        bench = Bench()
        graphs = bench.client.graphs
        graph = await bench.client.definitions.run(
            from_toml(f"{ORDERS}\n{steps}"), {"order": {"total": 90, "gateway": "stripe"}}
        )
        await bench.run_pending()
        if payment:
            await graphs.signal(graph, "payment", payment, signal_id="transfer-17")
        else:
            await bench.advance(1_209_601)
            await bench.run_pending()
            await graphs.signal(graph, "write off", True)
        await bench.run_pending()
        await bench.advance(3_601)
        await bench.run_pending()
        assert (await graphs.show(graph)).state is GraphState.COMPLETED


async def test_a_workflow_in_a_workflow_returns_its_result() -> None:
    month, closing = (
        from_toml(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[2:]
    )
    bench = Bench()
    await bench.client.definitions.define(closing)
    await bench.client.definitions.define(month)
    graph = await bench.client.definitions.run("month")
    await bench.run_pending()
    assert (await bench.client.graphs.show(graph)).state is GraphState.COMPLETED
    assert RAN == ["sum main", "report 7"]


def test_the_page_names_what_the_command_prints() -> None:
    definition = from_toml(ORDERS)
    assert f"version {definition.version}: {len(definition.steps)} steps, nothing is wrong" in PAGE
    assert len(calls_of(definition)) == 7


async def test_the_graph_of_the_page_about_jobs_is_accepted() -> None:
    page = (PAGES / "jobs.md").read_text("utf-8").partition("### Conditions, branches and rules")[2]
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {}
    functions = ["check", "review", "pay_stripe", "send_invoice", "refund", "ship", "page"]
    source = "from penstock.jobs import Step, awaiting, job\n" + "".join(
        f"@job(queue='q')\ndef {name}(order: int = 0, payment: object = None): ...\n"
        for name in functions
    )
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    exec(f"{source}async def dispatch(client):\n{indented}", names)
    bench = Bench()
    await names["dispatch"](bench.client)


def test_the_commands_of_the_page_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.toml").write_text(ORDERS)
    session = InMemory()
    first, _, rest = PAGE.partition("```console\n")[2].partition("```")
    waiting = rest.partition("```console\n")[2].partition("```")[0]
    workflow_id, shown = "", first.splitlines()
    for line, after in pairwise([*shown, ""]):
        if not line.startswith("$ "):
            continue
        words = shlex.split(line.removeprefix("$ penstock ").partition("  #")[0])
        result = session.call(*(workflow_id if _ID.fullmatch(word) else word for word in words))
        assert result.exit_code == 0, (line, result.output)
        if _ID.fullmatch(after):
            workflow_id = result.output.strip()
        elif after and not after.startswith("$ "):
            assert result.output == f"{after}\n"
    assert workflow_id
    commands = [line.split()[3] for line in waiting.splitlines()]
    assert commands == ["signal", "signal", "pause", "resume"]
    paused = session.call("workflow", "pause", workflow_id)
    resumed = session.call("workflow", "resume", workflow_id)
    assert (paused.exit_code, resumed.exit_code) == (0, 0)
    session.loop.close()
