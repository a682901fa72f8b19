"""Processes that the benchmarks of no-op jobs run against: workers of one pool, orchestrators."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from penstock.bus.nats import NatsBus
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.subjects import Subjects
from penstock.orchestrator import app
from penstock.worker import app as worker_app

EVENTS_PER_JOB = 3
fork = multiprocessing.get_context("fork")


def settings_for(url: str, module: str = "noop_jobs", **pool: Any) -> Settings:
    """Settings of one pool, ``bench``.

    Args:
        module: of its jobs.
        pool: fields of its table.
    """
    return check(
        {
            "nats": {"url": url, "request_timeout_seconds": 30},
            "jobs": {"modules": [module]},
            "pools": {"bench": pool},
        }
    )


@contextmanager
def at_work(
    settings: Settings, workers: int, orchestrators: int = 0, orchestrating: Settings | None = None
) -> Iterator[list[int]]:
    """Runs them, and gives the process ids of the workers.

    Args:
        orchestrating: settings of orchestrators, where these have a key of their own.
    """
    orchestrating = orchestrating or settings
    serving = [fork.Process(target=_serve, args=(settings,)) for _ in range(workers)]
    others = [fork.Process(target=app.run, args=(orchestrating,)) for _ in range(orchestrators)]
    running: list[BaseProcess] = [*serving, *others]
    for each in running:
        each.start()
    try:
        yield [each.pid for each in serving if each.pid]
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.join()


def _serve(settings: Settings) -> None:
    sys.exit(worker_app.main(worker_app.without_executor(settings, "bench")))


async def stored_events(bus: NatsBus) -> int:
    """How many the log holds."""
    info = await bus._api(f"STREAM.INFO.{Subjects().events_stream}")
    return int(info["state"]["messages"])
