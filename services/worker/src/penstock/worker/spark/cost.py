"""What an attempt has cost on Spark, by the monitoring interface of its driver.

Spark reports to no client what a query used; its REST interface (part of the web UI) has it by
stage, and each job there carries the tags that this attempt's work was given.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.request import urlopen

from penstock.events.job import SparkCost

log = logging.getLogger(__name__)

_SECONDS = 5.0
_FIRST_SECONDS = 60.0
"""A web UI that was never asked loads its classes first: seconds, and many on a busy host."""
_MOST_BYTES = 32_000_000

Row = Mapping[str, Any]


def warm(ui: str) -> None:
    """Asks for what any cost needs, so that the web UI is quick when an attempt has ended.

    Blocks until the web UI answers; meant for a thread beside the first job.
    """
    try:
        _read(f"{ui}/api/v1/applications", _FIRST_SECONDS)
    except (OSError, ValueError) as error:
        log.info("Spark's web UI at %s does not answer: %r", ui, error)


def ask(ui: str, tag: str) -> SparkCost | None:
    """The cost of all work with a tag; None when it is not available. Blocks for a moment.

    Args:
        ui: address of the driver's web UI.
    """
    try:
        [application, *_] = _read(f"{ui}/api/v1/applications")
        base = f"{ui}/api/v1/applications/{application['id']}"
        return total(_read(f"{base}/jobs"), _read(f"{base}/stages"), tag)
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.info("the cost on Spark is not available: %r", error)
        return None


def total(jobs: Sequence[Row], stages: Sequence[Row], tag: str) -> SparkCost:
    """The sum over all stages of the jobs that carry ``tag``; attempts that failed cost, too."""
    wanted = {
        stage
        for job in jobs
        if any(job_tag.endswith(f"_{tag}") for job_tag in job.get("jobTags", ()))
        for stage in job["stageIds"]
    }
    own_stages = [stage for stage in stages if stage["stageId"] in wanted]

    def add(name: str) -> int:
        return sum(int(stage.get(name, 0)) for stage in own_stages)

    return SparkCost(
        cpu_seconds=add("executorCpuTime") / 1e9,
        rows_read=add("inputRecords"),
        rows_written=add("outputRecords"),
        shuffle_read_bytes=add("shuffleReadBytes"),
        shuffle_write_bytes=add("shuffleWriteBytes"),
        peak_memory_bytes=max(
            (int(s.get("peakExecutionMemory", 0)) for s in own_stages), default=0
        ),
        stages=sum(int(stage.get("numCompleteTasks", 0)) > 0 for stage in own_stages),
    )


def _read(url: str, seconds: float = _SECONDS) -> Any:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"found {url[:80]!r}, expected the address of Spark's web UI")
    with urlopen(url, timeout=seconds) as answer:  # noqa: S310 - checked above
        return json.loads(answer.read(_MOST_BYTES))
