"""The process in which one of the pipeline's jobs runs; `penstock.jobs.pipeline` starts it.

``python -m penstock.pipeline.job_process land|forecast|report PIPELINE`` works as PIPELINE says,
the settings ``[pipeline]`` of the worker's host as JSON. It prints its result as JSON. An error is
one line on standard error that begins with ``penstock: ``, and exit code 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock import telemetry
from penstock.bus.nats import connect
from penstock.config import Settings, load
from penstock.config.spark import Pipeline
from penstock.config.topology import pools
from penstock.events.forecasting import ForecastMade
from penstock.pipeline import app
from penstock.pipeline.analysis import forecasts, reporting
from penstock.pipeline.core.forecast import Plan
from penstock.pipeline.pages.page import page
from penstock.pipeline.publishing import publish
from penstock.runtime.interpreter import PAUSING
from penstock.runtime.local_broker import reachable
from penstock.telemetry import lines

_REPORTED_DAYS = 7.0


def land(pipeline: Pipeline) -> dict[str, int]:
    """Lands what was stored since the last time and rolls it up; rows in the lake by part."""
    run = app.Run(lake=pipeline.lake, master=pipeline.master, catch_up=True, rollup=True)
    landed = app.run(reachable(load()), run)
    return {part: contents.rows for part, contents in landed.items()}


def forecast(pipeline: Pipeline) -> list[str]:
    """Publishes a forecast of each pool; returns the names of these pools."""
    plan = Plan(zone=pipeline.zone, special_days=tuple(sorted(pipeline.special_days)))
    wanted = forecasts.Wanted(
        lake=pipeline.lake, master=pipeline.master, weeks=pipeline.weeks, plan=plan
    )
    settings = reachable(load())
    made = forecasts.forecast(settings, wanted)
    asyncio.run(_publish(settings, made))
    return [event.pool for event in made]


def report(pipeline: Pipeline) -> None:
    """Writes the page about the last seven days."""
    configured, now = pools(load()), datetime.now(UTC)
    content = reporting.report(pipeline.lake, pipeline.master, configured, _REPORTED_DAYS, now)
    Path(pipeline.report_file).write_text(page(content), "utf-8")


JOBS: dict[str, Callable[[Pipeline], Any]] = {"land": land, "forecast": forecast, "report": report}


async def _publish(settings: Settings, made: list[ForecastMade]) -> None:
    bus = await connect(settings, "pipeline")
    end_telemetry = telemetry.setup("penstock-pipeline", str(os.getpid()), settings)
    try:
        await publish(bus, settings.prefix, made)
    finally:
        await bus.close()
        end_telemetry()


def main(arguments: list[str]) -> int:
    """Runs the job that the first argument names.

    Returns:
        The exit code.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, PAUSING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the session ends its Java
    lines.start("warning")
    name, text = arguments
    try:
        result = JOBS[name](msgspec.json.decode(text, type=Pipeline))
    except Exception as error:
        own = type(error).__module__.startswith("penstock.")
        message = str(error) if own and str(error) else f"{type(error).__name__}: {error}"
        line = " ".join(message.split())
        sys.stderr.write(f"penstock: {lines.printable(line)}\n")
        return 1
    sys.stdout.write(msgspec.json.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
