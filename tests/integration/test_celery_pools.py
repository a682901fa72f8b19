"""Celery itself under the executor, on Redis and on RabbitMQ: scaled in, it loses no message.

The oracle is the task's own: it logs its start and its end. Celery promises, as it is here
(``acks_late`` off), that a message is handled at most once; none may be lost by scaling in.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.celery_programs import celery_programs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.rabbitmq_server import rabbitmq_server
from tests.redis_server import redis_server
from tests.waiting import eventually

from penstock.config.sources import SourceTable
from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.executor.foreign import leftovers
from penstock.metrics.sources import QueueSource, SourceLook
from penstock.metrics.sources.registry import open_source

pytest.importorskip("redis")

APP = Path(__file__).with_name("celery_consumer.py")
_WORKERS, _SECONDS = 6, 0.3
_LEAST_WAITING = 10 * _WORKERS
_DRAIN_SECONDS = 60


class Shop:
    """A broker with Celery's queue ``mail``, and a program that sends its tasks."""

    def __init__(self, programs: Path, broker: str, source: dict[str, Any], folder: Path) -> None:
        self.programs, self.oracle, self.sent = programs, folder / "oracle", 0
        self.source_table = source
        self.source: QueueSource = open_source("shop", SourceTable(**source))
        self.env = {
            "SHOP_BROKER": broker,
            "SHOP_ORACLE": str(self.oracle),
            "SHOP_SECONDS": str(_SECONDS),
        }
        self._sender: asyncio.subprocess.Process

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Shop]:
        pipe = asyncio.subprocess.PIPE
        self._sender = await asyncio.create_subprocess_exec(
            str(self.programs / "python"), str(APP), stdin=pipe, stdout=pipe,
            env=os.environ | self.env,
        )  # fmt: skip
        try:
            yield self
        finally:
            await self.source.close()
            self._sender.kill()
            await self._sender.communicate()

    def tables(self) -> dict[str, Any]:
        command = [
            str(self.programs / "celery"), "--workdir", str(APP.parent), "-A", APP.stem, "worker",
            "-Q", "{queues}", "-c", "1", "-n", "{worker}@%h", "-l", "INFO",
            "--prefetch-multiplier=1", "--without-gossip", "--without-mingle",
        ]  # fmt: skip
        pool = {
            "source": "shop", "queues": ["mail"], "command": command, "preset": "celery",
            "drain": {"signal": "TERM", "seconds": _DRAIN_SECONDS, "then": "QUIT"},
            "environment": ["SHOP_*"], "max_workers": _WORKERS, "runtime_seconds": _SECONDS,
        }  # fmt: skip
        return {"sources": {"shop": self.source_table}, "pools": {"mail": pool}}

    async def send(self, count: int) -> None:
        assert self._sender.stdin
        assert self._sender.stdout
        self._sender.stdin.write(f"{count}\n".encode())
        assert await self._sender.stdout.readline() == b"sent\n"
        self.sent += count

    async def look(self) -> SourceLook | None:
        """What the source sees; None before the server has figures of a new queue."""
        look = (await self.source.look(["mail"]))["mail"]
        return look if isinstance(look, SourceLook) else None

    def logged(self, kind: str) -> list[tuple[str, int]]:
        """Messages, with the worker that started or ended each."""
        return [(message, int(pid)) for what, message, pid, _ in self._rows() if what == kind]

    def busy_after(self, at: float) -> set[int]:
        """Workers that ended a message after that time."""
        return {int(pid) for what, _, pid, end in self._rows() if what == "end" and float(end) > at}

    def _rows(self) -> list[list[str]]:
        text = self.oracle.read_text() if self.oracle.exists() else ""
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


@pytest.fixture(params=["redis", "rabbitmq"])
def shop(request, tmp_path: Path) -> Iterator[Shop]:
    programs = celery_programs()
    folder = tmp_path / "broker"
    folder.mkdir()
    if request.param == "redis":
        with redis_server(folder) as redis:
            yield Shop(programs, redis.url, {"kind": "celery", "url": redis.url}, tmp_path)
    else:
        with rabbitmq_server(folder) as rabbit:
            table = {"kind": "rabbitmq", "url": rabbit.management_url}
            yield Shop(programs, rabbit.url, table, tmp_path)


@pytest.mark.parametrize("ends", [8, pytest.param(1_000, marks=pytest.mark.long(minutes=60))])
async def test_celery_loses_no_message_by_scaling_in(
    settings: MakeSettings, shop: Shop, ends: int
) -> None:
    limits = {"max_parallel_starts": _WORKERS}
    async with shop.open(), stage(settings, **shop.tables(), host=limits) as host:
        host.start(env=shop.env)
        ended, busy = await _scale_in_often(host, shop, ends)
        assert busy >= ended / 2, "they were asked to end with a message in work"

        await eventually(lambda: len(shop.logged("end")) >= shop.sent, 120, "all are handled")
        await eventually(lambda: _is_empty(shop), 30, "the source sees that none is left")
        await host.command({"mail": 0})
        await host.seen(WorkerStopped, ended + 1)
        stops = host.of(WorkerStopped)
        assert {(stop.cause, stop.exit_code) for stop in stops} == {("scaled-down", 0)}
        starts, handled = Counter(shop.logged("start")), Counter(shop.logged("end"))
        assert starts == handled, "none was in flight at a process that ended"
        assert {pid for _, pid in starts} <= {stop.pid for stop in stops}
        messages = Counter(message for message, _ in starts)
        # Celery promises no more: what a worker had taken and not begun comes once more.
        assert min(messages.values()) == 1, "each at least once"
        assert len(messages) == shop.sent
        assert host.living() == []
        assert leftovers.running(host.run_dir) == {}


async def _scale_in_often(host: Stage, shop: Shop, ends: int) -> tuple[int, int]:
    """Up to all workers, down to one, and again, under load.

    Returns:
        How many have ended, and how many of these had a message in work when asked to.
    """
    ended = busy = 0
    while ended < ends:
        await host.command({"mail": _WORKERS})
        await host.seen(WorkerReady, ended + _WORKERS, within=120)
        await eventually(lambda: _is_loaded(shop), 30, "the source sees the load")
        asked_at = time.time()
        await host.command({"mail": 1})
        stops = (await host.seen(WorkerStopped, ended + _WORKERS - 1, within=120))[ended:]
        ended += len(stops)
        busy += len({stop.pid for stop in stops} & shop.busy_after(asked_at))
    return ended, busy


async def _is_loaded(shop: Shop) -> bool:
    """Whether more wait than there are workers, by the source; sends what is missing for it."""
    await shop.send(max(0, _LEAST_WAITING - shop.sent + len(shop.logged("start"))))
    look = await shop.look()
    return look is not None and look.waiting > _WORKERS


async def _is_empty(shop: Shop) -> bool:
    look = await shop.look()
    return look is not None and (look.waiting, look.claimed) == (0, 0)
