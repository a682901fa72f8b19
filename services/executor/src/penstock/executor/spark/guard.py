"""Ends the Spark Workers of an executor that died and was not followed by another.

``python -m penstock.executor.spark.guard --run-dir DIR …``, one beside each executor that has Spark
pools, and outliving it. A Worker is plain Java: it cannot see, as job workers do, that no
executor claims it. While the executor lives the guard sleeps. Then, where Workers are left, it
waits for an executor that holds ``executor.lock`` and adopts them; if none comes, it has them end
gently.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.executor.host import guarding
from penstock.executor.host.guarding import until
from penstock.executor.spark.leftovers import has_executors, running, send
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor.spark.guard")

_MODULE = "penstock.executor.spark.guard"
_TERM_SECONDS = 3.0


async def keep(run_dir: Path, grace_seconds: float, drain_seconds: float) -> None:
    """Keeps a guard beside this process; cancelled, it leaves the guard to its task."""
    further = ("--drain-seconds", str(drain_seconds))
    await guarding.keep(_MODULE, "the guard of Spark Workers", run_dir, grace_seconds, further)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    parser = guarding.parser(_MODULE, "Ends Spark Workers that no executor claims.")
    parser.add_argument("--drain-seconds", type=float, required=True, help="to finish tasks")
    options = parser.parse_args(arguments)
    lines.start("info", options.log_json)
    guarding.wait_for_end(options.executor)
    if guarding.is_followed(
        options.run_dir, options.grace_seconds, lambda: bool(running(options.run_dir))
    ):
        return 0
    if left := running(options.run_dir):
        log.warning("no executor claims Spark Workers %s: they are ended", ", ".join(sorted(left)))
        _end(options.run_dir, options.drain_seconds)
    return 0


def _end(run_dir: Path, drain_seconds: float) -> None:
    """As an executor does it: decommission, TERM once they are empty, TERM and KILL at the end."""
    send(run_dir, signal.SIGPWR)
    if until(lambda: not _term_empty(run_dir), drain_seconds):
        return
    send(run_dir, signal.SIGTERM)
    if not until(lambda: not running(run_dir), _TERM_SECONDS):
        send(run_dir, signal.SIGKILL)


def _term_empty(run_dir: Path) -> int:
    """Ends those in which nothing runs any more; how many were left."""
    return send(run_dir, signal.SIGTERM, lambda pid: not has_executors(pid))


if __name__ == "__main__":
    sys.exit(main())
