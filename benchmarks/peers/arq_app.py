"""The benchmark's jobs for arq, on Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.constants import result_key_prefix

_REDIS = RedisSettings.from_dsn(os.environ["PEERS_URL"])
_CHUNK = 500


async def call(_: dict[Any, Any], number: int) -> int:
    await asyncio.sleep(1.0)
    return number


class WorkerSettings:
    redis_settings = _REDIS
    functions = (call,)
    max_jobs = int(os.environ.get("PEERS_SLOTS", "10"))


_open: list[tuple[asyncio.Runner, ArqRedis]] = []


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return _open[0][0].run(work)


def _pool() -> ArqRedis:
    if not _open:
        runner = asyncio.Runner()
        _open.append((runner, runner.run(create_pool(_REDIS))))
    return _open[0][1]


def dispatch(name: str, count: int) -> None:
    pool = _pool()

    async def enqueue(numbers: range) -> None:
        await asyncio.gather(*(pool.enqueue_job(name, number) for number in numbers))

    for start in range(0, count, _CHUNK):
        _run(enqueue(range(start, min(start + _CHUNK, count))))


def recorded() -> int:
    pool = _pool()
    return len(_run(pool.keys(f"{result_key_prefix}*")))
