"""The benchmark's jobs for Penstock. As a program: so many workers, forked as a host's are."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Coroutine
from types import FrameType
from typing import Any

import uvloop

from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.jobs import Client, job
from penstock.worker import app

_EVENTS_A_JOB, _CHUNK = 3, 5000


@job(queue="bench")
def noop(number: int) -> int:
    return number


@job(queue="bench")
def nap(number: int) -> int:
    time.sleep(0.1)
    return number


@job(queue="bench")
async def call(number: int) -> int:
    await asyncio.sleep(1.0)
    return number


@job(queue="bench")
def call_plainly(number: int) -> int:
    time.sleep(1.0)
    return number


@job(queue="bench")
def stamp() -> float:
    return time.time()


_JOBS = {"noop": noop, "nap": nap, "call": call, "call_plainly": call_plainly}


def settings() -> Settings:
    return check(
        {
            "nats": {"url": os.environ["PEERS_URL"], "request_timeout_seconds": 30},
            "jobs": {"modules": ["penstock_app"]},
            "pools": {"bench": {"slots": int(os.environ.get("PEERS_SLOTS", "1"))}},
        }
    )


_open: list[tuple[asyncio.Runner, NatsBus]] = []


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return _open[0][0].run(work)


def _client() -> Client:
    if not _open:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        _open.append((runner, runner.run(connect(settings()))))
    return Client.over(_open[0][1], settings())


def dispatch(name: str, count: int) -> None:
    client, work = _client(), _JOBS[name]
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        _run(client.dispatch_many([work(number=number) for number in numbers]))


def ask() -> float:
    async def whole(client: Client) -> float:
        return float((await client.wait(await client.dispatch(stamp()), 30)).result)

    return float(_run(whole(_client())))


def recorded() -> int:
    """All events of a job: once they are there, its completion is."""
    _client()
    info = _run(_open[0][1]._api(f"STREAM.INFO.{Subjects().events_stream}"))
    return int(info["state"]["messages"]) // _EVENTS_A_JOB


def serve() -> None:
    sys.exit(app.main(app.without_executor(settings(), "bench")))


def main() -> None:
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=serve) for _ in range(int(sys.argv[1]))]
    for worker in workers:
        worker.start()

    def end(_: int, __: FrameType | None) -> None:
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, end)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
