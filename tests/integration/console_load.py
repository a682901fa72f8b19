"""The events of jobs as a platform stores them, at a rate, until SIGTERM; a process of its own.

    python -m tests.integration.console_load URL PREFIX FILE JOBS_PER_SECOND

It takes the place of workers that reach such a rate: the events are real ones, in a real log. FILE
gets one byte for each event, at the offset of its sequence: which kind it is.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobStarted,
)
from penstock.events.subjects import Subjects

DISPATCHED, STARTED, COMPLETED, DEAD = b"d", b"s", b"c", b"x"
_MOST_JOBS = 333
"""The broker stores 1,000 messages at once."""
_ERROR = JobError(kind="builtins.TimeoutError", message="orders timed out")


def life(number: int) -> list[tuple[bytes, JobEvent]]:
    """One job of fifty dies, and one of ten has not started when the next ones come."""
    about = {"job_id": f"job-{number:08}", "queue": ("reports", "imports")[number % 2]}
    function = f"shop.part_{number % 7}"
    dispatched = JobDispatched(**about, function=function, payload=b"\x80", tags=("load",))
    if number % 10 == 9:
        return [(DISPATCHED, dispatched)]
    started = JobStarted(**about, attempt=1, host="h1", worker=f"w{number % 4}", function=function)
    if number % 50 == 0:
        dead = JobDead(**about, function=function, error=_ERROR, attempt=1)
        return [(DISPATCHED, dispatched), (STARTED, started), (DEAD, dead)]
    completed = JobCompleted(**about, attempt=1, function=function, run_seconds=0.01)
    return [(DISPATCHED, dispatched), (STARTED, started), (COMPLETED, completed)]


async def load(url: str, prefix: str, kinds: Path, jobs_per_second: float) -> None:
    """Stores events until the process is asked to end."""
    bus = await connect(check({"prefix": prefix, "nats": {"url": url}}))
    subjects, stopping = Subjects(prefix), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    number, begin = 0, time.monotonic()
    with kinds.open("wb", buffering=0) as stored:
        while not stopping.is_set():
            due = int((time.monotonic() - begin) * jobs_per_second) - number
            if due <= 0:
                await asyncio.sleep(0.005)
                continue
            lives = [life(number + i) for i in range(min(due, _MOST_JOBS))]
            number += len(lives)
            events = [one for step in range(3) for life in lives for one in life[step : step + 1]]
            messages = [Outgoing(subjects.event(event), encode(event)) for _, event in events]
            last = await bus.append_atomic(messages)
            stored.seek(last - len(events))
            stored.write(b"".join(kind for kind, _ in events))
    seconds = time.monotonic() - begin
    sys.stdout.write(f"{number} jobs in {seconds:.1f} s, {number / seconds:.0f} jobs/s\n")
    await bus.close()


if __name__ == "__main__":
    asyncio.run(load(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])))
