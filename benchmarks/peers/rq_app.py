"""The benchmark's jobs for RQ."""

from __future__ import annotations

import os
import time

from redis import Redis
from rq import Queue, Retry
from rq.job import Job

_CHUNK = 1000
_RETRY = Retry(max=3) if os.environ["PEERS_MODE"] == "reliable" else None

redis = Redis.from_url(f"{os.environ['PEERS_URL']}/0")
queue = Queue("bench", connection=redis)


def noop(number: int) -> int:
    return number


def nap(number: int) -> int:
    time.sleep(0.1)
    return number


def stamp() -> float:
    return time.time()


def dispatch(name: str, count: int) -> None:
    function = f"rq_app.{name}"
    for start in range(0, count, _CHUNK):
        numbers = range(start, min(start + _CHUNK, count))
        queue.enqueue_many([Queue.prepare_data(function, (n,), retry=_RETRY) for n in numbers])


def ask() -> float:
    job: Job = queue.enqueue("rq_app.stamp", retry=_RETRY)
    while (found := job.latest_result(timeout=5)) is None:
        pass
    return float(found.return_value)


def recorded() -> int:
    return int(redis.zcard("rq:finished:bench"))
