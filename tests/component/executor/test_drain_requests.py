"""Requests to drain a worker: obeyed, answered each time, whatever comes twice or broken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.executor.core.facts import DrainRequested
from penstock.executor.drain_requests import DrainRequests
from penstock.operations import draining
from penstock.operations.draining import drain_worker
from penstock.testing.memory.bus import MemoryBus


class Host:
    """Stands in for an executor with one worker."""

    def __init__(self) -> None:
        self.fleet = SimpleNamespace(workers={"w1": SimpleNamespace(active=True)})
        self.learned: list[DrainRequested] = []

    def learn(self, fact: DrainRequested) -> None:
        self.learned.append(fact)
        self.fleet.workers[fact.worker].active = False


@pytest.fixture
async def host() -> tuple[MemoryBus, Host]:
    bus, host = MemoryBus(), Host()
    executor: Any = host
    await DrainRequests(bus, bus.subjects, "h", executor).open()
    return bus, host


async def test_a_worker_is_drained_once(host: tuple[MemoryBus, Host]) -> None:
    bus, executor = host
    outcomes = [
        await drain_worker(bus, bus.subjects, "h", name, by="cli/ada", reason="r")
        for name in ("w1", "w1", "w2")
    ]
    assert outcomes == ["draining", "already", "unknown"]
    assert executor.learned == [DrainRequested(worker="w1")]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"worker": "w1"}', b'{"answer_to": "a.b", "worker": "w1"}', b"[" * 10_000],
)
async def test_a_request_that_cannot_be_read_is_ignored(
    host: tuple[MemoryBus, Host], body: bytes
) -> None:
    bus, executor = host
    await bus.signal(bus.subjects.drain_asked("h"), body)
    assert await drain_worker(bus, bus.subjects, "h", "w1", by="cli/ada") == "draining"
    assert len(executor.learned) == 1


async def test_a_host_that_does_not_answer_is_reported(
    host: tuple[MemoryBus, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, executor = host
    monkeypatch.setattr(draining, "PATIENCE_SECONDS", 0.05)
    assert await drain_worker(bus, bus.subjects, "elsewhere", "w1", by="cli/ada") is None
    assert executor.learned == []
