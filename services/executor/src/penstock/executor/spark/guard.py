"""Ends the Spark Workers of an executor that died and was not followed by another.

``python -m penstock.executor.spark.guard --run-dir DIR …``, one beside each executor that has Spark
pools, and outliving it. A Worker is plain Java: it cannot see, as job workers do, that no
executor claims it. While the executor lives the guard sleeps. Then, where Workers are left, it
waits for an executor that holds ``executor.lock`` and adopts them; if none comes, it has them end
gently.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.executor.spark.leftovers import has_executors, running, send
from penstock.runtime import children
from penstock.runtime.file_lock import EXECUTOR_LOCK, is_held
from penstock.runtime.interpreter import module_command
from penstock.runtime.supervised import Backoff, Supervised
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor.spark.guard")

_POLL_SECONDS = 0.2
_TERM_SECONDS = 3.0
_BACKOFF = Backoff(first_seconds=5.0, longest_seconds=5.0)


async def keep(run_dir: Path, grace_seconds: float, drain_seconds: float) -> None:
    """Keeps a guard beside this process; cancelled, it leaves the guard to its task."""
    argv = [
        *module_command("penstock.executor.spark.guard"),
        *("--run-dir", str(run_dir), "--executor", str(os.getpid())),
        *("--grace-seconds", str(grace_seconds), "--drain-seconds", str(drain_seconds)),
        *lines.flags(),
    ]
    begin = partial(children.start, argv, name="spark guard", parent_death_signal=0)
    await Supervised("the guard of Spark Workers", begin, log.warning, backoff=_BACKOFF).keep()


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    options = _parser().parse_args(arguments)
    lines.start("info", options.log_json)
    _wait_for_end(options.executor)
    if _is_followed(options.run_dir, options.grace_seconds):
        return 0
    if left := running(options.run_dir):
        log.warning("no executor claims Spark Workers %s: they are ended", ", ".join(sorted(left)))
        _end(options.run_dir, options.drain_seconds)
    return 0


def _wait_for_end(pid: int) -> None:
    """Returns when the executor beside which this guard runs has ended."""
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        if os.getppid() == pid:  # else it had died before, and this is another one
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll()
        os.close(pidfd)


def _is_followed(run_dir: Path, seconds: float) -> bool:
    """Whether another executor came in time; True also where nothing is left to be claimed."""
    lock = run_dir / EXECUTOR_LOCK
    return _until(lambda: is_held(lock) or not running(run_dir), seconds)


def _end(run_dir: Path, drain_seconds: float) -> None:
    """As an executor does it: decommission, TERM once they are empty, TERM and KILL at the end."""
    send(run_dir, signal.SIGPWR)
    if _until(lambda: not _term_empty(run_dir), drain_seconds):
        return
    send(run_dir, signal.SIGTERM)
    if not _until(lambda: not running(run_dir), _TERM_SECONDS):
        send(run_dir, signal.SIGKILL)


def _term_empty(run_dir: Path) -> int:
    """Ends those in which nothing runs any more; how many were left."""
    return send(run_dir, signal.SIGTERM, lambda pid: not has_executors(pid))


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.executor.spark.guard",
        description="Ends Spark Workers that no executor claims.",
    )
    parser.add_argument("--run-dir", type=Path, required=True, help="the host's run folder")
    parser.add_argument("--executor", type=int, required=True, help="its process id; the parent")
    parser.add_argument("--grace-seconds", type=float, required=True, help="for another executor")
    parser.add_argument("--drain-seconds", type=float, required=True, help="to finish tasks")
    parser.add_argument("--log-json", action="store_true", help="log one JSON object a line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
