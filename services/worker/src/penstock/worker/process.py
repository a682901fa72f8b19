"""A job worker's process: connects, serves its queues, ends when told."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import uuid

import uvloop

from penstock import telemetry
from penstock.bus.nats import connect
from penstock.config import ConfigError, Settings
from penstock.config.embedded import PIPELINE_JOBS
from penstock.config.topology import pools
from penstock.jobs import registry
from penstock.runtime.interpreter import PAUSING
from penstock.runtime.workers.assignment import Assignment
from penstock.worker.loop import Worker

log = logging.getLogger("penstock.worker")


def main(assignment: Assignment) -> int:
    """Runs one worker to its end; returns the exit code. Called in a fresh process or fork."""
    # `pyspark.sql.functions` build columns for Connect, also before the first session is open
    os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
    registry.load(assignment.settings.jobs.modules)
    if PIPELINE_JOBS in assignment.settings.jobs.modules:
        from penstock.jobs import pipeline  # noqa: PLC0415 - declares jobs when it is imported

        pipeline.use(assignment.settings.pipeline)
    gc.freeze()
    return uvloop.run(_serve(assignment))


async def _serve(assignment: Assignment) -> int:
    bus = await connect(assignment.settings, f"worker {assignment.worker}")
    end_telemetry = telemetry.setup("penstock-worker", assignment.worker, assignment.settings)
    try:
        worker = Worker(bus, assignment)
        worker.guard_process()
        loop = asyncio.get_running_loop()
        for number, reason in (
            (signal.SIGTERM, "asked to end"),
            (signal.SIGINT, "interrupted"),
        ):
            loop.add_signal_handler(number, worker.stop, reason)
        loop.add_signal_handler(signal.SIGQUIT, worker.quit, "asked to end quickly")
        loop.add_signal_handler(signal.SIGUSR1, worker.pause)
        loop.add_signal_handler(signal.SIGUSR2, worker.resume)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PAUSING)
        await worker.run()
        return worker.exit_code
    finally:
        await bus.close()
        end_telemetry()


def alone(settings: Settings, pool: str, burst: bool = False) -> Assignment:
    """What a worker without an executor is told. Raises ConfigError for an unknown pool."""
    found = pools(settings)
    if pool not in found:
        raise ConfigError(f"no pool {pool!r}; known pools: {', '.join(sorted(found)) or 'none'}")
    return Assignment(
        worker=f"{pool}-{os.getpid()}-{uuid.uuid4().hex[:6]}",
        host=settings.host.name,
        pool=pool,
        queues=found[pool].queues,
        run_dir="",
        settings=settings,
        commanded_at=0.0,
        burst=burst,
    )
