"""Requests to reload: obeyed once each, whatever comes twice, late, broken or in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.waiting import eventually

from penstock.events.envelope import new_id
from penstock.events.reloading import ReloadReported, ReloadRequested
from penstock.executor.core.facts import CodeReloaded
from penstock.executor.reloading import reload_record
from penstock.executor.reloading.reloads import Reloads
from penstock.testing.memory.bus import MemoryBus


class Host:
    """Stands in for an executor and its warm parents: the test says how an import ends."""

    def __init__(self) -> None:
        self.fleet = SimpleNamespace(host="h", workers={})
        self.changed = asyncio.Event()
        self.warm_parents = self
        self.learned: list[CodeReloaded] = []
        self.imports: list[asyncio.Future[str]] = []

    def learn(self, fact: CodeReloaded) -> None:
        self.learned.append(fact)

    async def replace(self, _: object) -> str:
        return await self.failure()

    async def failure(self) -> str:
        self.imports.append(asyncio.get_running_loop().create_future())
        return await self.imports[-1]

    async def imported(self, number: int, failure: str = "") -> None:
        """The ``number``-th import ends."""
        await eventually(lambda: len(self.imports) >= number, 5)
        self.imports[number - 1].set_result(failure)


class Stage:
    def __init__(self, run_dir: Path) -> None:
        self.bus, self.run_dir = MemoryBus(), run_dir
        self.answers: list[ReloadReported] = []
        self.begin()

    def begin(self) -> None:
        """An executor starts, perhaps after an earlier one."""
        self.host = Host()
        executor: Any = self.host
        self.reloads = Reloads(
            self.bus, self.bus.subjects, executor, self.run_dir,
            pools=("mail",), spawn=lambda *_: pytest.fail("not used"),
        )  # fmt: skip
        self.running = asyncio.create_task(self.reloads.run())

    async def end(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def send(self, body: bytes) -> None:
        await self.bus.signal(self.bus.subjects.reload_requested("h"), body)

    async def request(self, request_id: str, *pools: str) -> ReloadReported:
        """The answer to a request."""
        count = len(self.answers)
        await self.send(msgspec.json.encode(ReloadRequested(id=request_id, pools=pools)))
        await eventually(lambda: len(self.answers) > count, 5)
        return self.answers[-1]

    async def reached(self, request_id: str, state: str) -> ReloadReported:
        await eventually(lambda: self.reloads.report(request_id).state == state, 5, state)
        return self.reloads.report(request_id)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    subjects = made.bus.subjects

    def take(_: str, body: bytes) -> None:
        made.answers.append(msgspec.json.decode(body, type=ReloadReported))

    await made.bus.listen(subjects.reload_reported("*"), take)
    listening = await made.reloads.open()
    yield made
    await listening.unsubscribe()
    await made.end()


async def test_a_request_is_obeyed_once(stage: Stage) -> None:
    request_id = new_id()
    assert (await stage.request(request_id)).state == "importing"
    assert (await stage.request(request_id)).state == "importing"
    await stage.host.imported(1)
    await stage.reached(request_id, "done")
    assert (await stage.request(request_id)).state == "done"
    assert stage.host.learned == [CodeReloaded(pools=frozenset({"mail"}))]
    assert len(stage.host.imports) == 1


async def test_a_newer_request_takes_the_place_of_one_that_imports(stage: Stage) -> None:
    first, second = new_id(), new_id()
    await stage.request(first)
    await eventually(lambda: stage.host.imports, 5)
    await stage.request(second)
    await stage.host.imported(1)  # of what may be outdated code by now
    await stage.host.imported(2)
    await stage.reached(second, "done")
    assert (await stage.request(first)).state == "superseded"
    assert len(stage.host.imports) == 2
    assert len(stage.host.learned) == 1


async def test_what_cannot_be_imported_is_reported_until_it_can(stage: Stage) -> None:
    first, second = new_id(), new_id()
    await stage.request(first)
    await stage.host.imported(1, "shop.jobs: SyntaxError")
    assert (await stage.reached(first, "failed")).error == "shop.jobs: SyntaxError"
    assert stage.reloads.error == "shop.jobs: SyntaxError"
    assert stage.host.learned == []
    await stage.request(second)
    await stage.host.imported(2)
    await stage.reached(second, "done")
    assert stage.reloads.error == ""


async def test_a_pool_that_is_not_there(stage: Stage) -> None:
    answer = await stage.request(new_id(), "mail", "nothing")
    assert (answer.state, answer.error) == ("failed", "no pool here is called 'nothing'")
    assert stage.host.imports == []


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\xff" * 100, b'{"id": "a.b"}', b'{"id": "x", "pools": 7}', b"[" * 100_000,
     b'{"id": "x", "pools": ["' + b"p" * 200_000 + b'"]}'],
)  # fmt: skip
async def test_a_broken_request_is_passed_over(stage: Stage, body: bytes) -> None:
    await stage.send(body)
    assert (await stage.request(new_id())).state == "importing"
    assert len(stage.answers) == 1


async def test_a_restarted_executor_continues_and_one_that_is_done_does_not(stage: Stage) -> None:
    request_id = new_id()
    await stage.request(request_id)
    await stage.end()
    stage.begin()
    await stage.host.imported(1)
    await stage.reached(request_id, "done")
    assert [fact.only_adopted for fact in stage.host.learned] == [True]
    await stage.end()
    stage.begin()
    assert stage.reloads.report(request_id).state == "done"
    stage.reloads.begin(ReloadRequested(id=request_id))
    assert stage.reloads.report(request_id).state == "done"


async def test_a_broken_record_is_no_reload(tmp_path: Path) -> None:
    (tmp_path / "reload.json").write_bytes(b'{"id": 7')
    assert reload_record.read(tmp_path) is None
