"""The data pipeline's jobs, for installations whose settings name a lake; see docs/pipeline.md.

Each runs in a process of its own, which the distribution ``penstock-pipeline`` provides: Spark's
Java and Python processes start and end with it, and the worker stays as small as any.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib.metadata import entry_points
from typing import Any, Literal

import msgspec

from penstock.config.embedded import PIPELINE_QUEUE
from penstock.config.spark import Pipeline
from penstock.jobs.job_type import Call
from penstock.jobs.registry import job
from penstock.jobs.running.context import Context
from penstock.runtime.interpreter import module_command

GROUP = "penstock.job_processes"
"""Entry-point group: the module that runs the jobs of ``pipeline``, as a program."""
_HEARTBEAT_SECONDS = 5.0
_ERROR_LETTERS = 2000
_ERROR_MARK = "penstock: "
_LOG_LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")


class PipelineFailed(RuntimeError):
    """A job of the pipeline failed; the text is the last error of its process."""


_host_settings: list[Pipeline] = []


def use(settings: Pipeline) -> None:
    """Makes the jobs of this process use these settings; the worker calls it when it starts."""
    _host_settings[:] = [settings]


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=4 * 3600)
def land(context: Context, lake: str = "", master: str = "", nkey_file: str = "") -> dict[str, int]:
    """Lands what was stored since the last time, and rolls it up; rows in the lake by part.

    The arguments are ignored: the settings of the worker's host decide where a job writes, which
    Spark it trusts, and whose key it uses. Messages of earlier versions have them.

    Args:
        context: of this attempt.
        lake: ignored.
        master: ignored.
        nkey_file: ignored.
    """
    settings = _settings(context, lake=lake, master=master, nkey_file=nkey_file)
    rows: dict[str, int] = _run(context, "land", settings)
    return rows


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=4 * 3600)
def forecast(
    context: Context,
    lake: str = "",
    master: str = "",
    weeks: float = 0,
    zone: str = "",
    special_days: tuple[str, ...] = (),
    nkey_file: str = "",
) -> list[str]:
    """Lands what is new, then forecasts each pool's arrivals and publishes the forecasts.

    Args:
        context: of this attempt.
        lake: ignored, as the others; see `land`.
        master: ignored.
        weeks: ignored.
        zone: ignored.
        special_days: ignored.
        nkey_file: ignored.

    Returns:
        The pools that have a forecast now.
    """
    settings = _settings(
        context, lake=lake, master=master, weeks=weeks, zone=zone, special_days=special_days,
        nkey_file=nkey_file,
    )  # fmt: skip
    land.function(context)
    pools: list[str] = _run(context, "forecast", settings)
    return pools


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=3600)
def report(context: Context, lake: str = "", master: str = "", out: str = "") -> None:
    """Writes a page about the last seven days.

    Args:
        context: of this attempt.
        lake: ignored, as the others; see `land`.
        master: ignored.
        out: ignored.

    Raises:
        PipelineFailed: the settings of this host name no page.
    """
    settings = _settings(context, lake=lake, master=master, report_file=out)
    if not settings.report_file:
        raise PipelineFailed("pipeline.report_file is empty here; name the page on this host")
    _run(context, "report", settings)


def by_clock(settings: Pipeline) -> dict[str, tuple[str, Call]]:
    """Cron expression and call by the name of the schedule."""
    schedules = {
        "pipeline-land": (settings.land, land()),
        "pipeline-forecast": (settings.forecast, forecast()),
    }
    if settings.report_file:
        schedules["pipeline-report"] = (settings.report, report())
    if not settings.lake:
        return {}
    return {name: (cron, call) for name, (cron, call) in schedules.items() if cron}


def _settings(context: Context, **arguments: Any) -> Pipeline:
    """The settings of this worker's host; arguments that differ from them are logged.

    Raises:
        PipelineFailed: the settings name no lake.
    """
    settings = _host_settings[0] if _host_settings else Pipeline()
    if not settings.lake:
        raise PipelineFailed(
            "pipeline.lake is empty in the settings of this worker's host; name the lake there: "
            "the jobs of the pipeline take nothing from their arguments"
        )
    differing = sorted(
        name for name, value in arguments.items() if value and value != getattr(settings, name)
    )
    if differing:
        context.logger.warning(
            "arguments are ignored, this host's settings [pipeline] are in force: %s",
            ", ".join(differing),
        )
    return settings


def _run(context: Context, name: Literal["land", "forecast", "report"], settings: Pipeline) -> Any:
    """Runs one job in a process and returns the JSON it printed. Raises PipelineFailed."""
    command = module_command(_module(), name, msgspec.json.encode(settings).decode())
    # a report only reads the lake: it needs no key of the broker
    with_key = settings.nkey_file and name != "report"
    key = {"PENSTOCK_NATS__NKEY_FILE": settings.nkey_file} if with_key else {}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **key},
    ) as process:
        try:
            while True:
                try:
                    output, errors = process.communicate(timeout=_HEARTBEAT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    context.heartbeat()
        except BaseException:  # a timeout or a cancellation: a later attempt continues
            process.terminate()
            raise
    if process.returncode:
        raise PipelineFailed(reason(errors))
    return msgspec.json.decode(output)


def _module() -> str:
    for point in entry_points(group=GROUP, name="pipeline"):
        return point.module
    raise PipelineFailed("this worker's host lacks the package penstock-pipeline; install it there")


def reason(errors: str) -> str:
    """Why a process ended.

    Args:
        errors: its standard error.

    Returns:
        The last error without the log lines around it, else the last line.
    """
    lines = errors.strip().splitlines() or ["it printed no error"]
    starts = [number for number, line in enumerate(lines) if line.startswith(_ERROR_MARK)]
    if not starts:
        return lines[-1][-_ERROR_LETTERS:]
    own = (line for line in lines[starts[-1] :] if not _LOG_LINE.match(line))
    return "\n".join(own)[-_ERROR_LETTERS:]
