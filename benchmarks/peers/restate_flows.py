"""The flows of ``benchmarks/workflows.py`` on Restate, in its own environment. Prints JSON.

``restate_flows.py SCALE``; the server's program is in ``FLOWS_SERVER``. Two processes run handlers;
a step that is a job is a call of another handler. Callers wait for results at the server's ingress,
64 at a time.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import hypercorn.config
import hypercorn.run
import restate

_CALLERS = 64
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0

flows = restate.Service("flows")


def nothing() -> int:
    return 0


@flows.handler()
async def noop(ctx: restate.Context, number: int) -> float:
    return time.time()


@flows.handler()
async def one_inline(ctx: restate.Context, number: int) -> int:
    return await ctx.run_typed("nothing", nothing)


@flows.handler()
async def one_job(ctx: restate.Context, number: int) -> float:
    return await ctx.service_call(noop, arg=number)


@flows.handler()
async def chain(ctx: restate.Context, steps: int) -> list[float]:
    return [await ctx.service_call(noop, arg=number) for number in range(steps)]


@flows.handler()
async def join(ctx: restate.Context, jobs: int) -> int:
    calls = [ctx.service_call(noop, arg=number) for number in range(jobs)]
    await restate.gather(*calls)
    return len(calls)


app = restate.app([flows])


def serve_handlers(port: int) -> None:
    config = hypercorn.config.Config()
    config.bind, config.workers = [f"{_LOOPBACK}:{port}"], 2
    config.application_path, config.loglevel = "restate_flows:app", "ERROR"
    hypercorn.run.run(config)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((_LOOPBACK, 0))
        return int(one.getsockname()[1])


class Caller:
    """One connection that is kept: HTTP by hand, since clients' libraries cost more than a flow."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, path: str, body: Any) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection(_LOOPBACK, self._port)
        reader, writer = self._streams
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {_LOOPBACK}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        headers = dict(line.split(": ", 1) for line in lines if line)
        if "content-length" in headers:
            answer = await reader.readexactly(int(headers["content-length"]))
        else:
            answer = await _chunks(reader)
        if status.split()[1][0] != "2":
            raise RuntimeError(f"{path}: {status}: {answer.decode()}")
        return json.loads(answer)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    answer = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        answer += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return answer


async def rate(port: int, handler: str, count: int) -> float:
    numbers = iter(range(count))

    async def one() -> None:
        caller = Caller(port)
        for number in numbers:
            await caller.call(f"/flows/{handler}", number)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(_CALLERS)))
    return count / (time.perf_counter() - started)


async def measure(port: int, scale: float) -> dict[str, Any]:
    def many(count: int) -> int:
        return max(round(count * scale), 10)

    await rate(port, "one_job", many(500))  # warm
    figures: dict[str, Any] = {
        "inline_per_second": round(await rate(port, "one_inline", many(3_000))),
        "job_per_second": round(await rate(port, "one_job", many(3_000))),
    }
    starts = await Caller(port).call("/flows/chain", many(300))
    waits = [(after - before) * 1000 for before, after in pairwise(starts)]
    cuts = statistics.quantiles(waits, n=100)
    figures |= {"steps_p50_ms": round(cuts[49], 2), "steps_p99_ms": round(cuts[98], 2)}
    for jobs in (many(1_000), many(10_000)):
        started = time.perf_counter()
        try:
            async with asyncio.timeout(60):
                assert await Caller(port).call("/flows/join", jobs) == jobs
            figures[f"join_{jobs}_seconds"] = round(time.perf_counter() - started, 2)
        except (RuntimeError, TimeoutError) as error:
            figures[f"join_{jobs}_failed"] = repr(error)[:300]
    return figures


async def patiently(attempt: Callable[[], Awaitable[Any]]) -> Any:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return await attempt()
        except (OSError, RuntimeError, asyncio.IncompleteReadError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def main() -> None:
    ingress, admin, node, handlers = (free_port() for _ in range(4))
    env = {
        **os.environ,
        "RESTATE_INGRESS__BIND_ADDRESS": f"{_LOOPBACK}:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"{_LOOPBACK}:{admin}",
        "RESTATE_BIND_ADDRESS": f"{_LOOPBACK}:{node}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
    }
    serving = multiprocessing.get_context("spawn").Process(target=serve_handlers, args=(handlers,))
    serving.start()
    with tempfile.TemporaryDirectory() as folder:
        program = [os.environ["FLOWS_SERVER"], "--base-dir", folder]
        server = await asyncio.create_subprocess_exec(*program, env=env, stdout=sys.stderr)
        try:
            deployment = {"uri": f"http://{_LOOPBACK}:{handlers}"}
            await patiently(lambda: Caller(admin).call("/deployments", deployment))
            await patiently(lambda: Caller(ingress).call("/flows/noop", 0))
            print(json.dumps(await measure(ingress, float(sys.argv[1]))), flush=True)
        finally:
            server.terminate()
            serving.terminate()
            await server.wait()
            serving.join()


if __name__ == "__main__":
    asyncio.run(main())
