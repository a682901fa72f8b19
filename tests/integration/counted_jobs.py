"""Jobs of batches and chains that real workers run; see `tests.integration.test_batches_killed`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.integration.sample_jobs import QUEUE, write

from penstock.jobs import Backoff, Context, job
from penstock.jobs.batches.outcome import Outcome


@job(queue=QUEUE)
def count(number: int) -> int:
    return number


@job(queue=QUEUE, tries=2, backoff=Backoff(first_seconds=0.2, jitter=0))
def fail_for_good(diary: str, name: str) -> None:
    write(diary, name, "ran")
    raise RuntimeError(name)


@job(queue=QUEUE)
def spread_and_die(context: Context, diary: str, name: str, jobs: int) -> int:
    """The first time its worker dies when half of the jobs are added."""
    assert context.batch is not None
    write(diary, name, "begun")
    context.batch.add([count(number=number) for number in range(jobs // 2)])
    if _first_time(diary, name):
        os.kill(os.getpid(), signal.SIGKILL)
    context.batch.add([count(number=number) for number in range(jobs // 2)])
    return jobs


def _first_time(diary: str, name: str) -> bool:
    return Path(diary).read_text("utf-8").count(f"{name} begun") == 1


@job(queue=QUEUE)
def told(outcome: Outcome, diary: str, name: str) -> list[Any]:
    write(diary, name, f"{outcome.state}-{outcome.counts.total}")
    return [outcome.state, outcome.counts.completed, outcome.counts.failed]


@job(queue=QUEUE)
def count_up(context: Context, diary: str, name: str, gate: str, total: int) -> list[int]:
    """Counts by tens, saves each time, waits at a gate of its attempt's own half-way."""
    start = done = context.checkpoint.restore(int) or 0
    write(diary, name, f"from-{start}")
    try:
        while context.checkpoint.has_more_work:
            done += 10
            context.checkpoint.save(done, has_more_work=done < total)
            write(diary, name, f"saved-{done}")
            if done == start + 20 and done < total:
                while not Path(f"{gate}-{start}").exists():
                    time.sleep(0.005)
    except BaseException as error:
        write(diary, name, f"ended-by-{type(error).__name__}")
        raise
    return [start, done]


@job(queue=QUEUE, encrypted=True, masked=["card"])
def pay(diary: str, name: str, card: str) -> dict[str, str]:
    write(diary, name, "paid")
    return {"card": card}
