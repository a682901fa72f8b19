"""Dead workflows: requeued, they go on from what they recorded."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.load import check
from penstock.jobs import Client, JobType, WorkflowContext, job, registry, workflow
from penstock.jobs.errors import JobRefused
from penstock.jobs.lifecycle import State
from penstock.testing import Bench

RAN: list[str] = []
BROKEN: list[str] = []


@job
def charge(order: int, card: str) -> str:
    RAN.append(f"charge {order} {card}")
    return f"receipt {order}"


@job
def ship(order: int, address: str) -> str:
    RAN.append(f"ship {order} {address}")
    return f"shipped to {address}"


def rate(address: str) -> str:
    RAN.append(f"rate {address}")
    return "cheap"


@workflow(tries=2, backoff=[0.01])
async def fulfil(ctx: WorkflowContext, order: int, card: str, address: str) -> list[str]:
    receipt = await ctx.run(charge(order=order, card=card))
    cost = await ctx.step("rate", rate, address)
    if address in BROKEN:
        raise ValueError(f"no such address: {address}")
    return [receipt, cost, await ctx.run(ship(order=order, address=address))]


@workflow(tries=1, encrypted=True)
async def hidden(ctx: WorkflowContext, address: str) -> str:
    receipt = await ctx.run(charge(order=1, card="x"))
    if address in BROKEN:
        raise ValueError("no such address")
    return str(receipt)


KINDS: list[JobType[Any, Any]] = [charge, ship, fulfil, hidden]


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    RAN.clear()
    BROKEN[:] = ["nowhere"]
    registry.REGISTRY.update({each.name: each for each in KINDS})
    yield
    for each in KINDS:
        registry.REGISTRY.pop(each.name, None)


async def died(bench: Bench) -> str:
    workflow_id = await bench.client.dispatch(fulfil(order=1, card="a", address="nowhere"))
    await bench.run_pending()
    view = await bench.client.job(workflow_id)
    assert (view.state, view.attempts) == (State.DEAD, 2)
    assert sorted(RAN) == ["charge 1 a", "rate nowhere"]
    RAN.clear()
    return workflow_id


async def test_it_goes_on_with_what_it_recorded(penstock: Bench) -> None:
    workflow_id = await died(penstock)
    BROKEN.clear()
    await penstock.client.retry(workflow_id)
    await penstock.run_pending()
    result = (await penstock.client.job(workflow_id)).result
    assert result == ["receipt 1", "cheap", "shipped to nowhere"]
    assert RAN == ["ship 1 nowhere"]


@pytest.mark.parametrize("by_letter", [False, True])
async def test_with_other_arguments_what_it_recorded_counts_as_it_is(
    penstock: Bench, by_letter: bool
) -> None:
    """Also of steps that are called with the changed arguments, and ended before."""
    workflow_id = await died(penstock)
    changes = {"address": "here", "card": "b"}
    if by_letter:
        await penstock.client.dead.retry(workflow_id, changes)
    else:
        await penstock.client.retry(workflow_id, changes)
    await penstock.run_pending()
    result = (await penstock.client.job(workflow_id)).result
    assert result == ["receipt 1", "cheap", "shipped to here"]
    assert RAN == ["ship 1 here"]


async def test_it_may_die_and_be_requeued_with_others_again(penstock: Bench) -> None:
    workflow_id = await died(penstock)
    BROKEN.append("nowhere else")
    await penstock.client.retry(workflow_id, {"address": "nowhere else"})
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.DEAD
    assert len(penstock.bus.stored(penstock.bus.subjects.dead_stream, ">")) == 1
    await penstock.client.retry(workflow_id, {"address": "here"})
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result[2] == "shipped to here"
    assert RAN == ["ship 1 here"]


async def test_arguments_that_do_not_fit_leave_it_dead(penstock: Bench) -> None:
    workflow_id = await died(penstock)
    with pytest.raises(JobRefused, match="there is no argument"):
        await penstock.client.retry(workflow_id, {"adress": "here"})
    assert (await penstock.client.job(workflow_id)).state is State.DEAD


async def test_an_encrypted_one_goes_on_as_it_is_and_takes_no_others(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text(f"first {base64.b64encode(bytes(32)).decode()}\n")
    penstock = Bench(check({"encryption": {"key_file": str(path)}}))
    workflow_id = await penstock.client.dispatch(hidden(address="nowhere"))
    await penstock.run_pending()
    RAN.clear()
    with pytest.raises(JobRefused, match="encrypted and cannot be replaced"):
        await penstock.client.retry(workflow_id, {"address": "here"})
    BROKEN.clear()
    await Client.over(penstock.bus.client(), check({})).retry(workflow_id)  # without the key
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 1"
    assert not RAN
