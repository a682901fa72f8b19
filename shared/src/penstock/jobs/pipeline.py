"""The data pipeline's jobs, for installations whose settings name a lake; see docs/pipeline.md.

Each is a `penstock` command in a process of its own: Spark's Java and Python processes come and go
with it, and the worker stays as small as any.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

from penstock.config.embedded import PIPELINE_QUEUE
from penstock.config.settings import Pipeline
from penstock.jobs.context import Context
from penstock.jobs.job_type import Call
from penstock.jobs.registry import job
from penstock.runtime.interpreter import module_command

_LOOK_SECONDS = 5.0
_MOST_LETTERS = 2000
_WHY = "penstock: "
_LOGGED = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")


class PipelineFailed(RuntimeError):
    """A command of the pipeline ended with an error: why, in its own words."""


_of_this_worker: list[Pipeline] = []


def use(settings: Pipeline) -> None:
    """Has the jobs of this process work with these settings; the worker calls it at its start."""
    _of_this_worker[:] = [settings]


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=4 * 3600)
def land(context: Context, lake: str = "", master: str = "", nkey_file: str = "") -> dict[str, int]:
    """Lands what was stored since the last time, and sums it up; rows in the lake by part.

    Args:
        lake: ignored, as the others: the settings of the worker's host decide where a job writes,
            which Spark it trusts, and whose key it uses. Messages of earlier versions have them.
    """
    own = _settings(context, lake=lake, master=master, nkey_file=nkey_file)
    parts = _run(context, own.nkey_file, "run", *_where(own), "--catch-up", "--rollup")
    return {part["part"]: part["rows"] for part in parts}


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
    """Lands what is new, makes forecasts and publishes them to the deciders; names of the pools.

    Args:
        lake: ignored, as the others; see `land`.
    """
    own = _settings(
        context, lake=lake, master=master, weeks=weeks, zone=zone, special_days=special_days,
        nkey_file=nkey_file,
    )  # fmt: skip
    land.function(context)
    special = [part for day in own.special_days for part in ("--special-day", day)]
    options = ("--weeks", f"{own.weeks:g}", "--zone", own.zone, *special)
    forecasts = _run(context, own.nkey_file, "forecast", *_where(own), *options)
    return [forecast["pool"] for forecast in forecasts]


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=3600)
def report(context: Context, lake: str = "", master: str = "", out: str = "") -> None:
    """Writes a page about the last seven days.

    Args:
        lake: ignored, as the others; see `land`.

    Raises:
        PipelineFailed: this host's settings name no page.
    """
    own = _settings(context, lake=lake, master=master, report_file=out)
    if not own.report_file:
        raise PipelineFailed("pipeline.report_file is empty here; name the page on this host")
    _run(context, "", "report", *_where(own), "--out", own.report_file)


def by_clock(settings: Pipeline) -> dict[str, tuple[str, Call]]:
    """Cron expression and call by the name of the schedule."""
    schedules = {
        "pipeline-land": (settings.land, land()),
        "pipeline-forecast": (settings.forecast, forecast()),
    }
    if settings.report_file:
        schedules["pipeline-report"] = (settings.report, report())
    return {
        name: (cron, call) for name, (cron, call) in schedules.items() if settings.lake and cron
    }


def _settings(context: Context, **arguments: Any) -> Pipeline:
    """The settings of this worker's host, whatever the call names.

    Raises:
        PipelineFailed: it names no lake.
    """
    own = _of_this_worker[0] if _of_this_worker else Pipeline()
    if not own.lake:
        raise PipelineFailed(
            "pipeline.lake is empty in the settings of this worker's host; name the lake there: "
            "the jobs of the pipeline take nothing from their arguments"
        )
    differing = sorted(
        name for name, value in arguments.items() if value and value != getattr(own, name)
    )
    if differing:
        context.logger.warning(
            "arguments are ignored, this host's settings [pipeline] are in force: %s",
            ", ".join(differing),
        )
    return own


def _where(own: Pipeline) -> tuple[str, ...]:
    return "--lake", own.lake, "--master", own.master


def _run(context: Context, nkey_file: str, command: str, *options: str) -> Any:
    """What the command printed as JSON; run with a key of its own if need be.

    Raises:
        PipelineFailed
    """
    words = [command] if command == "report" else ["pipeline", command]
    argv = module_command("penstock.cli.main", "--json", *words, *options)
    key = {"PENSTOCK_NATS__NKEY_FILE": nkey_file} if nkey_file else {}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **key}
    ) as run:
        try:
            while True:
                try:
                    output, errors = run.communicate(timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    context.heartbeat()
        except BaseException:  # a timeout or an order to end: another attempt goes on
            run.terminate()
            raise
    if run.returncode:
        raise PipelineFailed(reason(errors))
    return json.loads(output)


def reason(errors: str) -> str:
    """Why a command ended: the error among its lines on standard error, without its log."""
    printed = errors.strip().splitlines() or ["no error was printed"]
    starts = [number for number, line in enumerate(printed) if line.startswith(_WHY)]
    if not starts:
        return printed[-1][-_MOST_LETTERS:]
    lines = (line for line in printed[starts[-1] :] if not _LOGGED.match(line))
    return "\n".join(lines)[-_MOST_LETTERS:]
