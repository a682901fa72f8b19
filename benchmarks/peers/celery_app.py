"""The benchmark's jobs for Celery, on Redis."""

from __future__ import annotations

import os
import time

from celery import Celery

_URL, _RELIABLE = os.environ["PEERS_URL"], os.environ["PEERS_MODE"] == "reliable"

app = Celery("celery_app", broker=f"{_URL}/0", backend=f"{_URL}/1")
app.conf.update(
    task_default_queue="bench",
    task_acks_late=_RELIABLE,
    task_reject_on_worker_lost=_RELIABLE,
    worker_prefetch_multiplier=int(os.environ.get("PEERS_PREFETCH") or (4 if _RELIABLE else 128)),
)


@app.task(name="noop")
def noop(number: int) -> int:
    return number


@app.task(name="nap")
def nap(number: int) -> int:
    time.sleep(0.1)
    return number


@app.task(name="call")
def call(number: int) -> int:
    time.sleep(1.0)
    return number


@app.task(name="stamp")
def stamp() -> float:
    return time.time()


def dispatch(name: str, count: int) -> None:
    task = app.tasks[name]
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            task.apply_async((number,), producer=producer)


def ask() -> float:
    return float(stamp.apply_async().get(timeout=30))


def recorded() -> int:
    """A result is a key, and there is nothing else in that database."""
    return int(app.backend.client.dbsize())
