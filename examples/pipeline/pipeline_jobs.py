"""The data pipeline as a job of the platform that it learns from; see docs/pipeline.md.

It runs as a process of its own: Spark's Java and Python processes come and go with it, and the
worker stays as small as any.
"""

from __future__ import annotations

import json
import subprocess
import sys

from penstock.jobs import Context, job

LOOK_SECONDS = 5.0


class PipelineFailed(RuntimeError):
    """The pipeline ended with an error: its last words."""


@job(queue="pipeline", tries=3, timeout_seconds=3600)
def refresh(context: Context, lake: str, master: str = "local[2]") -> dict[str, int]:
    """Lands what was stored since the last time and sums it up; rows in the lake by part.

    Args:
        lake: a folder on any file system that Hadoop knows. master: ``local[2]``, or a cluster's.
    """
    argv = [sys.executable, "-m", "penstock.cli.main", "--json", "pipeline", "run"]
    argv += ["--lake", lake, "--master", master, "--catch-up", "--rollup"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            while True:
                try:
                    said, errors = run.communicate(timeout=LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    context.heartbeat()
        except BaseException:  # a timeout or an order to end: it goes on another time
            run.terminate()
            raise
    if run.returncode:
        raise PipelineFailed(errors.strip().rpartition("\n")[2][-2000:])
    return {part["part"]: part["rows"] for part in json.loads(said)}
