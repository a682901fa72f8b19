"""The benchmark's jobs for taskiq-nats: core NATS when fast, JetStream when reliable."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from typing import Any

from taskiq import AsyncBroker
from taskiq_nats import NatsBroker, NATSObjectStoreResultBackend, PullBasedJetStreamBroker

_URL, _CHUNK = os.environ["PEERS_URL"], 500
_RESULTS: Any = NATSObjectStoreResultBackend(_URL)
_MESSAGES_A_RESULT = 2  # the object store's chunk and its description

broker: AsyncBroker
if os.environ["PEERS_MODE"] == "reliable":
    broker = PullBasedJetStreamBroker(_URL)  # a larger batch waits until it is full
else:
    broker = NatsBroker(_URL, queue="bench")
broker = broker.with_result_backend(_RESULTS)


@broker.task(task_name="noop")
async def noop(number: int) -> int:
    return number


@broker.task(task_name="nap")
async def nap(number: int) -> int:
    await asyncio.sleep(0.1)
    return number


@broker.task(task_name="stamp")
async def stamp() -> float:
    return time.time()


_loop: list[asyncio.Runner] = []


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    if not _loop:
        _loop.append(asyncio.Runner())
        _loop[0].run(broker.startup())
    return _loop[0].run(work)


def dispatch(name: str, count: int) -> None:
    task: Any = {"noop": noop, "nap": nap}[name]

    async def whole() -> None:
        for start in range(0, count, _CHUNK):
            numbers = range(start, min(start + _CHUNK, count))
            await asyncio.gather(*(task.kiq(number) for number in numbers))
        if isinstance(broker, NatsBroker):
            await broker.client.flush(timeout=60)

    _run(whole())


def ask() -> float:
    async def whole() -> float:
        result = await (await stamp.kiq()).wait_result(check_interval=0.01, timeout=30)
        return float(result.return_value)

    return float(_run(whole()))


def recorded() -> int:
    async def messages() -> int:
        found = await _RESULTS.nats_jetstream.stream_info("OBJ_taskiq_results")
        return int(found.state.messages)

    return int(_run(messages())) // _MESSAGES_A_RESULT
