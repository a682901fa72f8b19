"""No-op jobs through a small event log that turns over, with jobs that wait all the while. JSON.

Jobs are delayed until the end, and no-op jobs run until as many as asked for have ended, or the
time is up. The orchestrator shortens history meanwhile; it is killed again and again if asked. Each
completion is read from the log as it is stored and set against the dispatches: the program keeps
only the jobs in flight, so its own memory says nothing about their number. In the end each job that
was delayed is released and must complete.

Exit code 1 unless each dispatched job completed exactly once, each delayed job was shown and ended,
the queues are empty and there is no dead letter.

The series has the memory and disk of the broker and the memory of the orchestrator, resident, and
what the broker's last garbage collection kept; slopes are those of a straight line through the
second half, in bytes a job.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import linear_regression
from typing import Any

import msgspec
import psutil
import uvloop

from broker_memory import live_heap_bytes
from machine import describe
from noop_crew import at_work, fork, settings_for
from noop_jobs import noop
from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.errors import NotFound
from penstock.orchestrator import app
from penstock.runtime.broker import Broker

_CHUNK = 500
_MOST_OPEN = 3_000
_PAUSE_SECONDS, _LOOK_SECONDS = 0.005, 0.25
_STANDSTILL_SECONDS = 60.0
_SLOPES = ("broker_mib", "broker_heap_mib", "orchestrator_mib", "disk_mb")
_UNITS = {"mib": 2**20, "mb": 1e6}


class Account:
    """Completions set against dispatches, by id; it holds the jobs in flight and no others.

    Attributes:
        dispatched: how many. completed: how many of these did. other_ends: dead or cancelled.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._unmatched: Counter[str] = Counter()
        self.dispatched = self.completed = self.other_ends = 0

    def dispatch(self, job_ids: Sequence[str]) -> None:
        self.dispatched += len(job_ids)
        for job_id in job_ids:
            if not self._unmatched[job_id]:
                self._open.add(job_id)
                continue
            self.completed += 1  # before its dispatch was answered
            self._unmatched[job_id] -= 1
            if not self._unmatched[job_id]:
                del self._unmatched[job_id]

    def complete(self, job_id: str) -> None:
        if job_id in self._open:
            self._open.remove(job_id)
            self.completed += 1
        else:
            self._unmatched[job_id] += 1

    @property
    def not_completed(self) -> int:
        return len(self._open)

    @property
    def more_than_once(self) -> int:
        """Completions of jobs that had completed before, or that were never dispatched."""
        return self._unmatched.total()


class Sizes:
    """Memory and disk, by the number of jobs that have completed.

    Args:
        every: jobs between two rows of the series.

    Attributes:
        orchestrator: the process that is measured; another one after a kill.
    """

    def __init__(self, broker: Broker, every: int) -> None:
        assert broker.child is not None
        self._broker, self._process = broker, psutil.Process(broker.child.pid)
        self._every, self._next = every, 0
        self.orchestrator: BaseProcess | None = None
        self.series: list[dict[str, float]] = []
        self.at_most: Counter[str] = Counter()

    async def look(self, bus: NatsBus, stream: str, jobs: int, seconds: float) -> None:
        now = {
            "log_mb": (await bus.extent(stream)).bytes,
            "disk_mb": _disk_bytes(self._broker._folder / "store"),
            "broker_mib": self._process.memory_info().rss,
            "broker_heap_mib": await asyncio.to_thread(live_heap_bytes, self._broker),
            "orchestrator_mib": _rss(self.orchestrator),
        }
        row = {name: round(size / _unit(name), 2) for name, size in now.items()}
        for name, size in row.items():
            self.at_most[name] = max(self.at_most[name], size)  # type: ignore[assignment]
        if jobs >= self._next:
            self._next = jobs + self._every
            self.series.append({"jobs": jobs, "seconds": round(seconds, 1), **row})

    def slopes(self) -> dict[str, float]:
        """Bytes a job, over the second half of the series."""
        half = self.series[len(self.series) // 2 :]
        if len(half) < 2:
            return {}
        jobs = [row["jobs"] for row in half]
        lines = {name: linear_regression(jobs, [row[name] for row in half]) for name in _SLOPES}
        return {name: round(line.slope * _unit(name), 1) for name, line in lines.items()}


def _unit(name: str) -> float:
    return _UNITS[name.rpartition("_")[2]]


def _rss(process: BaseProcess | None) -> int:
    with suppress(psutil.Error):
        if process is not None and process.pid:
            return int(psutil.Process(process.pid).memory_info().rss)
    return 0


def _disk_bytes(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):  # goes on where a file vanishes meanwhile
        for name in names:
            with suppress(OSError):
                size += (Path(place) / name).stat().st_blocks * 512
    return size


async def feed(settings: Settings, account: Account, jobs: int, minutes: float) -> None:
    """Dispatches as fast as jobs complete; waits where the log takes no more for a while."""
    until = time.monotonic() + minutes * 60 if minutes else float("inf")
    async with Client.connect(settings) as client:
        for start in range(0, jobs, _CHUNK):
            while account.not_completed > _MOST_OPEN:
                await asyncio.sleep(_PAUSE_SECONDS)
            if time.monotonic() > until:
                return
            calls = [noop(number=start + at) for at in range(min(_CHUNK, jobs - start))]
            account.dispatch(await client.dispatch_many(calls))


async def count(bus: NatsBus, account: Account, begins: int) -> None:
    """Reads each end of a job from the log, until it is cancelled."""
    subjects = bus.subjects
    ends = [subjects.events("job", "*", f"Job{end}") for end in ("Completed", "Dead", "Cancelled")]
    async for stored in bus.follow(subjects.events_stream, ends, begins):
        *_, job_id, name = stored.subject.split(".")
        if name == "JobCompleted":
            account.complete(job_id)
        else:
            account.other_ends += 1


async def waiting(bus: NatsBus) -> int:
    """Messages in queues, claimed ones included."""
    return sum((await bus.count(bus.subjects.jobs_stream, bus.subjects.queue("*"))).values())


async def measure(
    settings: Settings, broker: Broker, options: argparse.Namespace
) -> dict[str, Any]:
    bus = await connect(settings)
    client = Client(bus)
    subjects = Subjects()
    due = datetime.now(UTC) + timedelta(days=300)
    kept = [await client.dispatch(noop(number=-1), at=due) for _ in range(options.living)]
    account, sizes = Account(), Sizes(broker, options.every)
    begins = (await bus.extent(subjects.events_stream)).last + 1
    counting = asyncio.create_task(count(bus, account, begins))
    with at_work(settings, options.workers):
        began = time.perf_counter()
        kills = await _run(settings, bus, account, sizes, options)
        seconds = time.perf_counter() - began
        left = await waiting(bus)
        shown = sum([await is_shown(client, name) for name in kept])
        ends_before = account.other_ends
        for name in kept:
            await client.cancel(name, "the measurement is over")
        ended = [await client.wait(name, 60) for name in kept]
    counting.cancel()
    if sizes.orchestrator is not None:
        sizes.orchestrator.terminate()
        sizes.orchestrator.join()
    extent = await bus.extent(subjects.events_stream)
    letters = await bus.count(subjects.dead_stream, subjects.dead("*", "*"))
    await bus.close()
    return {
        "jobs_dispatched": account.dispatched,
        "jobs_completed_exactly_once": account.completed,
        "jobs_not_completed": account.not_completed,
        "completions_more_than_once": account.more_than_once,
        "jobs_that_ended_otherwise": ends_before,
        "messages_left_in_queues": left,
        "seconds": round(seconds, 1),
        "jobs_per_second": round(account.completed / seconds),
        "living_jobs": len(kept),
        "living_jobs_shown": shown,
        "living_jobs_ended": sum(view.state.ended for view in ended),
        "orchestrators_killed": kills,
        "dead_letters": len(letters),
        "log_limit_bytes": options.log_bytes,
        "messages_removed": extent.first - 1,
        "at_most": dict(sizes.at_most),
        "slopes_bytes_a_job": sizes.slopes(),
        "series": sizes.series,
    }


async def _run(
    settings: Settings,
    bus: NatsBus,
    account: Account,
    sizes: Sizes,
    options: argparse.Namespace,
) -> int:
    """Returns how often the orchestrator was killed, when all have completed or nothing goes on."""
    stream, kills = bus.subjects.events_stream, 0
    sizes.orchestrator = _orchestrator(settings)
    feeding = asyncio.create_task(feed(settings, account, options.jobs, options.minutes))
    began = killed_at = moved_at = time.monotonic()
    completed = 0
    while not feeding.done() or account.not_completed:
        now = time.monotonic()
        await sizes.look(bus, stream, account.completed, now - began)
        if account.completed != completed:
            completed, moved_at = account.completed, now
        elif now - moved_at > _STANDSTILL_SECONDS:
            break
        if options.kill_seconds and now - killed_at > options.kill_seconds:
            os.kill(sizes.orchestrator.pid or 0, signal.SIGKILL)
            sizes.orchestrator.join()
            sizes.orchestrator, killed_at = _orchestrator(settings), now
            kills += 1
        await asyncio.sleep(_LOOK_SECONDS)
    if feeding.done():
        feeding.result()  # what failed ends the run
    feeding.cancel()
    return kills


def _orchestrator(settings: Settings) -> BaseProcess:
    process = fork.Process(target=app.run, args=(settings,))
    process.start()
    return process


async def is_shown(client: Client, name: str) -> bool:
    try:
        return (await client.job(name)).state == "scheduled"
    except NotFound:
        return False


def is_good(figures: dict[str, Any]) -> bool:
    return (
        figures["jobs_completed_exactly_once"] == figures["jobs_dispatched"] > 0
        and figures["living_jobs_shown"] == figures["living_jobs_ended"] == figures["living_jobs"]
        and not figures["completions_more_than_once"]
        and not figures["jobs_that_ended_otherwise"]
        and not figures["messages_left_in_queues"]
        and not figures["dead_letters"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000, help="no-op jobs: %(default)s")
    parser.add_argument("--minutes", type=float, default=0.0, help="at most; 0: no limit")
    parser.add_argument("--living", type=int, default=500, help="that wait: %(default)s")
    parser.add_argument("--log-bytes", type=int, default=16_000_000, help="%(default)s")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=int, default=10_000, help="jobs a row: %(default)s")
    parser.add_argument("--kill-seconds", type=float, default=0.0, help="between kills; 0: none")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    about = describe()
    with Broker() as broker:
        settings = settings_for(broker.url)
        bounded = msgspec.structs.replace(settings.streams, events_max_bytes=options.log_bytes)
        patient = msgspec.structs.replace(settings.dispatch, when_away="wait", wait_seconds=300.0)
        settings = msgspec.structs.replace(settings, streams=bounded, dispatch=patient)
        figures = uvloop.run(measure(settings, broker, options))
    print(json.dumps({"machine": about, **figures}, indent=2))
    sys.exit(not is_good(figures))


if __name__ == "__main__":
    main()
