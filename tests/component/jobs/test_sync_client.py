"""A client without asyncio can do what the other can, and says so where it cannot work."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.jobs import Client, job, registry
from penstock.jobs.batches.client import Batches
from penstock.jobs.dead_letters.letter import LetterFilter
from penstock.jobs.queues.pauses import QueuePauses
from penstock.jobs.sync import drain
from penstock.testing import SyncBench

ONLY_INSIDE = {
    Client: {"connect", "over"},
    Batches: {"add_from", "begin_step"},
    QueuePauses: {"agree"},
}
"""Verbs for the platform itself."""
GIVES_AN_OBJECT = {"open"}
"""Of a batch; the arguments are passed on."""


@job(queue="orders", tries=1)
def refuse(number: int) -> int:
    if number:
        raise ValueError(number)
    return number


@pytest.fixture(autouse=True)
def job_is_registered() -> None:
    registry.REGISTRY[refuse.name] = refuse


def test_each_verb_of_a_client_and_its_attributes_exists_without_asyncio(
    penstock_sync: SyncBench,
) -> None:
    client = penstock_sync.client
    target = client._target
    pairs = {"client": (target, client)}
    for name in vars(target).keys() - {"dispatcher"}:
        if not name.startswith("_"):
            pairs[name] = (getattr(target, name), getattr(client, name, None))
    assert len(pairs) > 5
    for name, (one, sync) in pairs.items():
        for verb, method in inspect.getmembers(type(one), callable):
            if verb.startswith("_") or verb in ONLY_INSIDE.get(type(one), ()):
                continue
            blocking = getattr(type(sync), verb, None)
            assert blocking, f"{name}.{verb} has no blocking form"
            if verb not in GIVES_AN_OBJECT:
                assert inspect.signature(blocking) == inspect.signature(method), f"{name}.{verb}"


def test_dead_letters_are_shown_retried_and_deleted(penstock_sync: SyncBench) -> None:
    client = penstock_sync.client
    ids = [client.dispatch(refuse(number=number)) for number in (1, 2, 3)]
    penstock_sync.run_pending()

    assert [letter.job_id for letter in client.dead.find()] == ids[::-1]
    assert client.dead.count(LetterFilter(queue="orders")) == 3
    [group] = client.dead.groups()
    assert group.count == 3

    client.dead.retry(ids[0], {"number": 0})
    penstock_sync.run_pending()
    assert client.job(ids[0]).result == 0

    [page] = client.dead.delete_all(LetterFilter(queue="orders"))
    assert [outcome.id for outcome in page] == ids[1:]
    assert client.dead.count() == 0


def test_a_search_that_is_left_early_is_closed(penstock_sync: SyncBench) -> None:
    closed = []

    async def letters() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    drained = drain(letters(), penstock_sync.client.call)
    assert next(drained) == 1
    drained.close()  # type: ignore[attr-defined]
    assert closed == [True]


def test_schedules_are_kept(penstock_sync: SyncBench) -> None:
    schedules = penstock_sync.client.schedules
    schedules.add("nightly", refuse(number=0), "0 3 * * *")
    assert schedules.pause("nightly").paused
    assert not schedules.resume("nightly").paused
    assert [schedule.name for schedule in schedules.all()] == ["nightly"]
    schedules.run_now("nightly")
    assert penstock_sync.run_pending() == 1
    schedules.remove("nightly")
    assert schedules.all() == []


def test_a_client_from_before_a_fork_refuses_to_work(penstock_sync: SyncBench) -> None:
    code, message = _in_a_fork(lambda: penstock_sync.client.job("any"))
    assert code == 0
    assert "make one in each process" in message


def _in_a_fork(work: Any) -> tuple[int, str]:
    """The exit code of a forked child, and the text of the RuntimeError that ``work`` raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except RuntimeError as error:
            os.write(writing, str(error).encode())
            os._exit(0)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as said:
        message = said.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), message
