"""Jobs that are dispatched by name: what the function declares holds, and its worker checks."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from penstock.events.job import JobRetrying
from penstock.events.subjects import BadName
from penstock.jobs import BadArguments, NamedJob, UnknownJob, awaiting, job, registry
from penstock.jobs.lifecycle import State
from penstock.testing import Bench, SyncBench

ATTEMPTS: list[int] = []


@job(name="shop.jobs.charge", queue="orders", tries=2, backoff=[600.0])
def charge(number: int, day: date, amounts: list[float]) -> dict[str, Any]:
    ATTEMPTS.append(number)
    if number < 0:
        raise ConnectionError("the bank is away")
    return {"day": day, "sum": sum(amounts)}


@job(name="shop.jobs.report", queue="orders")
def report(total: dict[str, Any]) -> float:
    return float(total["sum"])


ARGUMENTS = {"number": 7, "day": "2026-11-20", "amounts": [1, 2.5]}


@pytest.fixture(autouse=True)
def jobs_are_registered() -> None:
    ATTEMPTS.clear()
    registry.REGISTRY.update({charge.name: charge, report.name: report})


async def test_a_job_is_dispatched_without_its_code_and_its_result_is_plain(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await penstock.client.dispatch_named(
        "shop.jobs.charge", ARGUMENTS, queue="orders", tags=["web"], job_id="order-7"
    )
    await penstock.run_pending()
    monkeypatch.delitem(registry.REGISTRY, "shop.jobs.charge")  # as in a program without the code
    view = await penstock.client.wait(job_id, 5)
    assert (job_id, view.state, view.record.tags) == ("order-7", State.COMPLETED, ("web",))
    assert view.result == {"day": "2026-11-20", "sum": 3.5}


async def test_tries_and_backoff_are_those_of_the_function(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch_named(
        "shop.jobs.charge", {**ARGUMENTS, "number": -1}, queue="orders"
    )
    await penstock.run_pending()
    view = await penstock.client.job(job_id)
    [retrying] = [event for _, event in view.events if isinstance(event, JobRetrying)]
    assert 599 < (retrying.due_at - retrying.at).total_seconds() < 601
    assert (view.state, ATTEMPTS) == (State.DEAD, [-1, -1])


async def test_the_worker_refuses_arguments_that_do_not_fit(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch_named(
        "shop.jobs.charge", {"number": "seven"}, queue="orders"
    )
    await penstock.run_pending()
    view = await penstock.client.job(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "bad-arguments")
    assert ATTEMPTS == []


async def test_batches_and_chains_take_calls_by_name(penstock: Bench) -> None:
    named = NamedJob("shop.jobs.charge", queue="orders")
    batch = await penstock.client.batches.create([named(**ARGUMENTS), named(**ARGUMENTS)])
    graph = await penstock.client.graphs.chain(
        [named(**ARGUMENTS), awaiting(NamedJob("shop.jobs.report", queue="orders"), "total")]
    )
    await penstock.run_pending()
    assert (await penstock.client.batches.show(batch)).counts.completed == 2
    assert (await penstock.client.graphs.step(graph, "2 report")).result == 3.5


def test_the_same_verb_exists_without_asyncio(penstock_sync: SyncBench) -> None:
    job_id = penstock_sync.client.dispatch_named("shop.jobs.charge", ARGUMENTS, queue="orders")
    penstock_sync.run_pending()
    assert penstock_sync.client.wait(job_id, 5).result["sum"] == 3.5


async def test_what_cannot_be_a_call_is_refused_at_once(penstock: Bench) -> None:
    client = penstock.client
    with pytest.raises(BadArguments, match=r"shop\.jobs\.charge: .*object.*plain values"):
        await client.dispatch_named("shop.jobs.charge", {"number": object()}, queue="orders")
    with pytest.raises(BadName):
        await client.dispatch_named("shop.jobs.charge", queue="a queue")
    with pytest.raises(UnknownJob, match="1 to 200 printable characters"):
        await client.dispatch_named("", queue="orders")
    with pytest.raises(UnknownJob, match="no worker knows functions of the program"):
        await client.dispatch_named("__main__.charge", queue="orders")
