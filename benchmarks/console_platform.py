"""The console beside jobs that run, its alerts, and bulk actions."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from console_alerts import claims
from console_deaths import die
from console_load import QUEUES
from console_process import ConsoleProcess, append, connected, percentiles
from console_requests import content_length
from noop_crew import settings_for
from penstock.events.job import JobDead, JobError
from penstock.events.subjects import Subjects
from penstock.events.worker import HostJoined, HostLost
from penstock.runtime.broker import Broker
from throughput import cpu_seconds, throughput

Row = dict[str, Any]
_MOST_SECONDS = 240.0
_SAMPLE_SECONDS = 0.1
_BACKTEST_DAYS = 14


async def steady(folder: Path, jobs: int) -> Row:
    """No-op jobs through two workers: without a console, with one, and with one that is stopped.

    Args:
        jobs: of each of the three runs.
    """
    with Broker() as broker:
        without = await throughput(settings_for(broker.url), broker, 2, jobs)
    with Broker() as broker, ConsoleProcess(broker.url, folder) as console:
        cpu, began, lags = console.cpu_seconds, time.perf_counter(), list[float]()
        watching = asyncio.create_task(_watch(console, lags))
        beside = await throughput(settings_for(broker.url), broker, 2, jobs)
        share = (console.cpu_seconds - cpu) / (time.perf_counter() - began)
        watching.cancel()
    other = folder / "stopped"
    other.mkdir()
    with Broker() as broker, ConsoleProcess(broker.url, other) as console, console.stopped():
        hung = await throughput(settings_for(broker.url), broker, 2, jobs)
    off, on = without["jobs_per_second"], beside["jobs_per_second"]
    return {
        "lost_percent": round((off - on) / off * 100, 1),
        "lost_percent_stopped": round((off - hung["jobs_per_second"]) / off * 100, 1),
        "jobs_per_second_without": off,
        "jobs_per_second_with": on,
        "jobs_per_second_stopped": hung["jobs_per_second"],
        "console_cpu_share_of_a_core": round(share, 2),
        **{f"lag_{name}": value for name, value in percentiles(lags or [0.0]).items()},
    }


async def _watch(console: ConsoleProcess, lags: list[float]) -> None:
    while True:
        health = await asyncio.to_thread(console.get, "/health")
        if health:
            lags.append(health["standing"]["behind_seconds"])
        await asyncio.sleep(_SAMPLE_SECONDS)


async def alerts(broker: Broker, folder: Path, hosts: int, deaths: int) -> Row:
    """From an event to the message at its receiver, and a rule tested over 14 days.

    Args:
        hosts: lost one after another, each with a rule of its own.
        deaths: jobs that died within the 14 days.
    """
    async with (
        connected(broker.url) as bus,
        _receiver() as (port, received),
        claims(bus) as claimed,
    ):
        await append(bus, _deaths(deaths))
        with ConsoleProcess(broker.url, folder, acts=True) as console:
            while not (console.get("/alerts/rules") or {}).get("items"):
                await asyncio.sleep(0.1)
            channel = {"id": "hook", "name": "hook", "kind": "webhook"}
            url = f"http://127.0.0.1:{port}/"
            console.send("POST", "/alerts/channels", {**channel, "url": url})
            for number in range(hosts):
                console.send("POST", "/alerts/rules", _rule(number))
            waits: list[float] = []
            claim_waits: list[float] = []
            for number in range(hosts):
                host = f"host-{number}"
                await append(bus, [HostJoined(host=host, cpu_cores=4, memory_bytes=2**33)])
                began = time.perf_counter()
                await append(bus, [HostLost(host=host, silent_seconds=9.0)])
                async with asyncio.timeout(30):
                    while min(len(received), len(claimed)) <= number:
                        await asyncio.sleep(0.001)
                waits.append(received[number] - began)
                claim_waits.append(claimed[number] - began)
            tests: list[float] = []
            for _ in range(3):
                began = time.perf_counter()
                answer = await asyncio.to_thread(
                    console.send, "POST", "/alerts/rules/deaths/backtest", _DEATHS_RULE
                )
                tests.append(time.perf_counter() - began)
    return {
        # The first one may wait until the console leads alerts.
        **{f"sent_{name}": value for name, value in percentiles(waits[1:] or waits).items()},
        **{
            f"claimed_{name}": value
            for name, value in percentiles(claim_waits[1:] or claim_waits).items()
        },
        "backtest_seconds": round(statistics.median(tests), 2),
        "backtest_events": deaths,
        "backtest_fired": answer["fired"],
    }


_DEATHS_RULE = {
    "id": "deaths",
    "name": "Jobs die",
    "condition": {"kind": "dead-letters", "when": "surge", "at_least": 5},
}


def _rule(number: int) -> Row:
    condition = {"kind": "host-lost", "host": f"host-{number}"}
    return {
        "id": f"lost-{number}", "name": f"host-{number} is lost", "condition": condition,
        "for_seconds": 0, "keep_seconds": 0, "channels": ["hook"],
    }  # fmt: skip


async def bulk(broker: Broker, folder: Path, jobs: int, attempts: int) -> Row:
    """Dead jobs retried as one action, at the highest speed that can be asked for.

    Args:
        jobs: that are dead.
        attempts: that each of them had.
    """
    async with connected(broker.url) as bus:
        last = await die(bus, jobs, attempts)
        assert broker.child is not None
        served = psutil.Process(broker.child.pid)
        with ConsoleProcess(broker.url, folder, acts=True) as console:
            await console.folded(last, _MOST_SECONDS)
            chosen = {"target": "jobs", "verb": "retry", "filter": "state:dead"}
            shown = console.send("POST", "/bulk/preview", chosen)
            confirmed = {"confirm": shown["confirm"], "count": shown["count"]}
            cpu, began = console.cpu_seconds, time.perf_counter()
            broker_cpu = cpu_seconds(served)
            fastest = {**chosen, **confirmed, "per_second": 10_000}
            action = console.send("POST", "/bulk", fastest)
            while (now := console.get(f"/bulk/{action['id']}"))["state"] == "running":
                await asyncio.sleep(0.05)
            seconds = time.perf_counter() - began
            return {
                "retried_per_second": round(now["done"] / seconds),
                "cpu_us_per_job": round((console.cpu_seconds - cpu) / now["done"] * 1e6),
                "broker_cpu_us_per_job": round(
                    (cpu_seconds(served) - broker_cpu) / now["done"] * 1e6
                ),
                "jobs": jobs,
                "refused": now["refused"],
                "letters_left": (await bus.extent(Subjects().dead_stream)).messages,
            }


async def preview(broker: Broker, folder: Path) -> Row:
    """All jobs of a database that can be cancelled, counted for a bulk action.

    Args:
        folder: of a console whose jobs all wait.
    """
    with ConsoleProcess(broker.url, folder, acts=True) as console:
        chosen = {"target": "jobs", "verb": "cancel", "filter": f"queue:{QUEUES[0]}"}
        took: list[float] = []
        for _ in range(3):
            began = time.perf_counter()
            shown = await asyncio.to_thread(console.send, "POST", "/bulk/preview", chosen)
            took.append(time.perf_counter() - began)
        return {"seconds": round(statistics.median(took), 2), "jobs": shown["count"]}


_ERROR = JobError(kind="builtins.TimeoutError", message="late")


def _deaths(count: int) -> list[JobDead]:
    """So many jobs that died, over the time that rules are tested over."""
    end, step = datetime.now(UTC), timedelta(days=_BACKTEST_DAYS) / max(count, 1)
    return [
        JobDead(
            job_id=f"past-{number}", at=end - (count - number) * step, queue="bench",
            function=f"shop.function_{number % 40}", error=_ERROR,
        )
        for number in range(count)
    ]  # fmt: skip


@asynccontextmanager
async def _receiver() -> AsyncIterator[tuple[int, list[float]]]:
    """A webhook's receiver: its port, and when each message came."""
    received: list[float] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        received.append(time.perf_counter())
        await reader.readexactly(content_length(head))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], received
