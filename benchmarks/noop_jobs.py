"""The jobs that the benchmarks run."""

from __future__ import annotations

import time

from penstock.jobs import Context, job


@job(queue="bench")
def noop(number: int) -> int:
    """Nothing, with an argument and a result."""
    return number


@job(queue="bench")
def busy(number: int, milliseconds: float) -> int:
    """Uses a core for so long."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        pass
    return number


@job(queue="bench")
def first_answer(context: Context) -> float:
    """The smallest Spark query; returns how long it took, with the session opened if need be."""
    started = time.perf_counter()
    context.spark.sql("select 1").collect()
    return time.perf_counter() - started
