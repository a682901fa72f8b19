"""A worker's process: connects, serves its queues, ends when asked to."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import uuid

import uvloop

from penstock import telemetry
from penstock.bus.nats import connect
from penstock.config import ConfigError, Settings
from penstock.config.embedded import PIPELINE_JOBS
from penstock.config.topology import pools
from penstock.jobs import registry
from penstock.runtime.interpreter import HELD_BACK
from penstock.runtime.workers.assignment import Assignment
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble


def run(settings: Settings, pool: str = "", burst: bool = False) -> None:
    """``penstock worker --pool NAME``: one worker without an executor, until it is asked to end.

    Args:
        pool: may be empty when the settings have only one.
        burst: end as soon as the queues are empty.

    Raises:
        ConfigError: unknown pool, or none named where there are several.
    """
    names = sorted(pools(settings))
    if not pool and len(names) != 1:
        listed = ", ".join(names) or "none"
        raise ConfigError(f"which pool? add --pool NAME; pools of the settings: {listed}")
    sys.exit(main(without_executor(settings, pool or names[0], burst)))


def without_executor(settings: Settings, pool: str, burst: bool = False) -> Assignment:
    """The assignment of a worker that no executor started. Raises ConfigError."""
    tables = pools(settings)
    if pool not in tables:
        raise ConfigError(f"no pool {pool!r}; known pools: {', '.join(sorted(tables)) or 'none'}")
    return Assignment(
        worker=f"{pool}-{os.getpid()}-{uuid.uuid4().hex[:6]}",
        host=settings.host.name,
        pool=pool,
        queues=tables[pool].queues,
        run_dir="",
        settings=settings,
        commanded_at=0.0,
        burst=burst,
    )


def main(assignment: Assignment) -> int:
    """Runs one worker to its end, in a fresh process or fork; returns the exit code."""
    # `pyspark.sql.functions` build columns for Connect, also before the first session is open
    os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
    registry.load(assignment.settings.jobs.modules)
    if PIPELINE_JOBS in assignment.settings.jobs.modules:
        from penstock.jobs import pipeline  # noqa: PLC0415 - declares jobs when it is imported

        pipeline.use(assignment.settings.pipeline)
    if nice := pools(assignment.settings)[assignment.pool].profile.nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    gc.freeze()
    return uvloop.run(_serve(assignment))


async def _serve(assignment: Assignment) -> int:
    bus = await connect(assignment.settings, f"worker {assignment.worker}")
    end_telemetry = telemetry.setup("penstock-worker", assignment.worker, assignment.settings)
    try:
        parts = assemble(bus, assignment)
        async with parts.output.opened():
            worker = Worker(parts)
            worker.guard_process()
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, worker.stop, "asked to end")
            loop.add_signal_handler(signal.SIGINT, worker.stop, "interrupted")
            loop.add_signal_handler(signal.SIGQUIT, worker.quit, "asked to end quickly")
            loop.add_signal_handler(signal.SIGUSR1, worker.pause)
            loop.add_signal_handler(signal.SIGUSR2, worker.resume)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
            await worker.run()
            return worker.exit_code
    finally:
        await bus.close()
        end_telemetry()
