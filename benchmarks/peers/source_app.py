"""The task of `benchmarks/sources.py` for Celery, and the program that sends the messages.

The task logs its start and its end, which is the benchmark's oracle. `python source_app.py PLAN`
sends one message for each line of PLAN (seconds from the first, seconds of work).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from celery import Celery

_ORACLE = Path(os.environ["SOURCES_ORACLE"])

app = Celery("source_app", broker=os.environ["SOURCES_URL"])
app.conf.update(
    task_default_queue="bench",
    task_ignore_result=True,
    task_acks_late=True,  # else a busy worker takes a second message, which starts nowhere else
    worker_prefetch_multiplier=1,
)


@app.task(name="work")
def work(number: int, seconds: float) -> None:
    _log("start", number)
    time.sleep(seconds)
    _log("end", number)


def _log(what: str, number: int) -> None:
    """One write, so that lines of several processes do not mix."""
    line = f"{what} {number} {time.time():.3f} {os.getpid()}\n"
    handle = os.open(_ORACLE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def send(plan: Path) -> None:
    began = time.time()
    with app.producer_pool.acquire(block=True) as producer:
        for number, line in enumerate(plan.read_text("utf-8").splitlines()):
            at, seconds = map(float, line.split())
            time.sleep(max(began + at - time.time(), 0.0))
            _log("sent", number)
            work.apply_async((number, seconds), producer=producer)


if __name__ == "__main__":
    send(Path(sys.argv[1]))
