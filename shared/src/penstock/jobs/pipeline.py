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
from penstock.jobs.registry import Call, job
from penstock.runtime.interpreter import module_command

_LOOK_SECONDS = 5.0
_SAID_LETTERS = 2000
_WHY = "penstock: "
_LOGGED = re.compile(r"\d\d:\d\d:\d\d\.\d{3} ")


class PipelineFailed(RuntimeError):
    """A command of the pipeline ended with an error: why, in its own words."""


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=4 * 3600)
def land(context: Context, lake: str, master: str, nkey_file: str = "") -> dict[str, int]:
    """Lands what was stored since the last time, and sums it up; rows in the lake by part."""
    said = _run(
        context, nkey_file, "run", "--lake", lake, "--master", master, "--catch-up", "--rollup"
    )
    return {part["part"]: part["rows"] for part in said}


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=4 * 3600)
def forecast(
    context: Context,
    lake: str,
    master: str,
    weeks: float,
    zone: str,
    special_days: tuple[str, ...],
    nkey_file: str = "",
) -> list[str]:
    """Forecasts, made of what is new, too, and told to whoever decides; of which pools."""
    land.function(context, lake, master, nkey_file)
    special = [part for day in special_days for part in ("--special-day", day)]
    options = ("--weeks", f"{weeks:g}", "--zone", zone, *special)
    lake_and_master = ("--lake", lake, "--master", master)
    said = _run(context, nkey_file, "forecast", *lake_and_master, *options)
    return [made["pool"] for made in said]


@job(queue=PIPELINE_QUEUE, tries=3, timeout_seconds=3600)
def report(context: Context, lake: str, master: str, out: str) -> None:
    """Writes a page about the last seven days."""
    _run(context, "", "report", "--lake", lake, "--master", master, "--out", out)


def by_clock(wanted: Pipeline) -> dict[str, tuple[str, Call]]:
    """Cron expression and call by the name of the schedule."""
    lake, master, key = wanted.lake, wanted.master, wanted.nkey_file
    found = {
        "pipeline-land": (wanted.land, land(lake, master, key)),
        "pipeline-forecast": (
            wanted.forecast,
            forecast(lake, master, wanted.weeks, wanted.zone, wanted.special_days, key),
        ),
    }
    if wanted.report_file:
        found["pipeline-report"] = (wanted.report, report(lake, master, wanted.report_file))
    return {name: (cron, call) for name, (cron, call) in found.items() if lake and cron}


def _run(context: Context, nkey_file: str, command: str, *options: str) -> Any:
    """What the command said, with a key of its own if need be. Raises PipelineFailed."""
    words = [command] if command == "report" else ["pipeline", command]
    argv = module_command("penstock.cli.main", "--json", *words, *options)
    key = {"PENSTOCK_NATS__NKEY_FILE": nkey_file} if nkey_file else {}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **key}
    ) as run:
        try:
            while True:
                try:
                    said, errors = run.communicate(timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    context.heartbeat()
        except BaseException:  # a timeout or an order to end: it goes on another time
            run.terminate()
            raise
    if run.returncode:
        raise PipelineFailed(reason(errors))
    return json.loads(said)


def reason(errors: str) -> str:
    """Why a command ended, of what it said on standard error; without its log."""
    told = errors.strip().splitlines() or ["it said nothing"]
    starts = [number for number, line in enumerate(told) if line.startswith(_WHY)]
    if not starts:
        return told[-1][-_SAID_LETTERS:]
    lines = (line for line in told[starts[-1] :] if not _LOGGED.match(line))
    return "\n".join(lines)[-_SAID_LETTERS:]
