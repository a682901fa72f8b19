"""`penstock dead retry|delete` over a broker in memory: several letters by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.component.cli.in_memory import InMemory

from penstock.jobs import Client, State, job


@job(queue="cards", name="dead.charge", tries=1)
def charge(order: int) -> None:
    raise ValueError("no such card")


@pytest.fixture
def session() -> Iterator[InMemory]:
    session = InMemory()
    yield session
    session.loop.close()


@pytest.fixture
def ids(session: InMemory) -> list[str]:
    async def died(client: Client) -> list[str]:
        ids = [await client.dispatch(charge(order=order)) for order in range(4)]
        await session.bench.run_pending()
        return ids

    ids: list[str] = session.with_client(died)
    return ids


def test_letters_are_deleted_by_their_ids(session: InMemory, ids: list[str]) -> None:
    assert session.call("dead", "delete", ids[0]).output == "1 dead letter is deleted\n"
    some = session.call("dead", "delete", ids[1], ids[0], ids[2], ids[2])
    assert some.exit_code == 1
    assert "2 dead letters are deleted" in some.output
    assert f"{ids[0]}: no dead letter of job '{ids[0]}'" in some.output
    assert "1 of 3 failed" in some.output
    session.as_json = True
    [left] = json.loads(session.call("dead", "ls").output)
    assert left["id"] == ids[3]


def test_letters_are_retried_by_their_ids(session: InMemory, ids: list[str]) -> None:
    assert "3 dead letters are retried" in session.call("dead", "retry", *ids[:3]).output
    assert [session.state(one) for one in ids] == [*[State.WAITING] * 3, State.DEAD]


def test_ids_or_all(session: InMemory, ids: list[str]) -> None:
    assert session.call("dead", "delete").exit_code == 2
    assert session.call("dead", "delete", ids[0], "--all").exit_code == 2
