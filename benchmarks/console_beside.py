"""What jobs notice of a console: its states in turn beside one broker and the same two workers.

The states of a round are compared with the round's first stretch, which has no console. Its last
stretch has none either: how far these two differ is what other programs on the machine cost.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

from console_process import ConsoleProcess, percentiles
from noop_crew import EVENTS_PER_JOB, at_work, fork, settings_for, stored_events
from noop_jobs import noop
from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events.job import JOB_EVENTS, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.runtime.broker import Broker
from throughput import WARM_JOBS, cpu_seconds, dispatch, warm

Row = dict[str, Any]
ABSENT, AGAIN = "absent", "absent again"
STATES = ("running", "ended", "hung", "slow")
"""``slow``: it runs for a quarter of each second."""
_RUNS_SECONDS, _HALTS_SECONDS = 0.25, 0.75
_MOST_SECONDS = 240.0


async def beside(folder: Path, jobs: int, singles: int, rounds: int) -> Row:
    """Throughput and start times without a console, and beside one in each state.

    Args:
        jobs: of a stretch, all at once.
        singles: of a stretch, one after the other on idle workers.
        rounds: in each of which the states come in another order.
    """
    stretches: dict[str, list[Row]] = {}
    with Broker() as broker:
        settings = settings_for(broker.url)
        bus = await connect(settings, makes_streams=True)
        with at_work(settings, 2) as workers:
            assert broker.child is not None
            watched = [psutil.Process(pid) for pid in (broker.child.pid, *workers)]
            await warm(Client(bus), WARM_JOBS)
            for number in range(rounds):
                turn = number % len(STATES)
                for state in (ABSENT, *STATES[turn:], *STATES[:turn], AGAIN):
                    with _console(state, broker, folder, await _last(bus)):
                        row = await _stretch(bus, settings, broker, watched, jobs, singles)
                    stretches.setdefault(state, []).append(row)
        await bus.close()
    return {state: _summed(rows, stretches[ABSENT]) for state, rows in stretches.items()}


def _summed(rows: list[Row], absent: list[Row]) -> Row:
    """Medians of some stretches, and of what each lost compared with that of its round."""
    pairs = list(zip(rows, absent, strict=True))
    lost = [percent_less(row["jobs_per_second"], one["jobs_per_second"]) for row, one in pairs]
    dearer = [-percent_less(row["cpu_us_per_job"], one["cpu_us_per_job"]) for row, one in pairs]
    later = [row["start_p50_ms"] - one["start_p50_ms"] for row, one in pairs]
    middle = {name: round(statistics.median(row[name] for row in rows), 2) for name in rows[0]}
    return {
        **middle,
        "lost_percent": round(statistics.median(lost), 1),
        "lost_percents": [round(one, 1) for one in lost],
        "cpu_dearer_percent": round(statistics.median(dearer), 1),
        "cpu_dearer_percents": [round(one, 1) for one in dearer],
        "start_p50_later_ms": round(statistics.median(later), 2),
    }


def percent_less(figure: float, than: float) -> float:
    """By how much a figure is less, in percent."""
    return (than - figure) / than * 100


@contextmanager
def _console(state: str, broker: Broker, folder: Path, last: int) -> Iterator[None]:
    """A console in a state, which has read the event log before."""
    if state in (ABSENT, AGAIN):
        yield
        return
    with ConsoleProcess(broker.url, folder) as console:
        _wait_until(lambda: _position(console) >= last)
        if state == "hung":
            with console.stopped():
                yield
        elif state == "slow":
            with _halting(console):
                yield
        elif state == "running":
            yield
    if state == "ended":
        yield


def _position(console: ConsoleProcess) -> int:
    health = console.get("/health")
    return int(health["standing"]["position"]) if health else 0


def _wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not is_reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the console does not catch up within {_MOST_SECONDS:.0f} s")
        time.sleep(0.05)


@contextmanager
def _halting(console: ConsoleProcess) -> Iterator[None]:
    """It runs for a quarter of each second."""
    over = threading.Event()

    def halt() -> None:
        while not over.is_set():
            with console.stopped():
                over.wait(_HALTS_SECONDS)
            over.wait(_RUNS_SECONDS)

    halting = threading.Thread(target=halt)
    halting.start()
    try:
        yield
    finally:
        over.set()
        halting.join()


async def _stretch(
    bus: NatsBus,
    settings: Settings,
    broker: Broker,
    watched: list[psutil.Process],
    jobs: int,
    singles: int,
) -> Row:
    """Jobs a second, CPU of broker and workers, start times, what the broker holds in the end."""
    used = sum(cpu_seconds(one) for one in watched)
    stored, began = await stored_events(bus), time.perf_counter()
    dispatcher = fork.Process(target=dispatch, args=(settings, jobs))
    dispatcher.start()
    while await stored_events(bus) < stored + EVENTS_PER_JOB * jobs:
        await asyncio.sleep(0.01)
    seconds = time.perf_counter() - began
    used = sum(cpu_seconds(one) for one in watched) - used
    dispatcher.join()
    starts = percentiles([await _start_seconds(bus, number) for number in range(singles)])
    memory = watched[0].memory_info().rss
    return {
        "jobs_per_second": round(jobs / seconds),
        "cpu_us_per_job": round(used / jobs * 1e6, 1),
        **{f"start_{name}": value for name, value in starts.items()},
        "broker_mib": round(memory / 2**20),
        "pending_kib": round(_most_pending(broker) / 2**10),
    }


async def _start_seconds(bus: NatsBus, number: int) -> float:
    """From a dispatch to the start of its job."""
    client, subjects = Client(bus), Subjects()
    asked = time.time()
    job_id = await client.dispatch(noop(number=number))
    await client.wait(job_id, 10)
    for message in await bus.history(subjects.events_stream, subjects.job(job_id)):
        event = JOB_EVENTS.decode(message.body)
        if isinstance(event, JobStarted):
            return event.at.timestamp() - asked
    raise AssertionError(f"job {job_id} has not started")


def _most_pending(broker: Broker) -> int:
    """Bytes that the broker holds for the connection that reads slowest."""
    with urlopen(f"{broker.monitor_url}/connz?limit=1024", timeout=10) as answer:
        connections = json.load(answer)["connections"]
    return max(int(one["pending_bytes"]) for one in connections)


async def _last(bus: NatsBus) -> int:
    return (await bus.extent(Subjects().events_stream)).last
