"""What the stack is given to run. Mounted into executors, so it imports nothing of the tests."""

from __future__ import annotations

import os
import time

from penstock.jobs import Context, job

_STEP_SECONDS = 0.02


@job(queue="work")
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@job(queue="vault")
def guard(context: Context, seconds: float) -> None:
    """Tells again and again that it runs: job, token, seconds of a clock that containers share."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        line = f"{context.job_id} {context.fencing_token} {time.monotonic()}\n"
        file = os.open("/witness/guard", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(file, line.encode())
        os.close(file)
        time.sleep(_STEP_SECONDS)


@job(queue="reports")
def add_up(context: Context, numbers: int) -> int:
    """0 + 1 + … on Spark, by tasks of Python: workers of the cluster start theirs."""
    frame = context.spark.range(numbers, numPartitions=2)
    doubled = frame.mapInPandas(lambda parts: (part * 2 for part in parts), "id long")
    total = doubled.selectExpr("sum(id) as total").first()
    return int(total["total"]) if total else 0
