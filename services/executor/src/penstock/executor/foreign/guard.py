"""Ends the foreign processes of an executor that died and was not followed by another.

``python -m penstock.executor.foreign.guard --run-dir DIR …``, one beside each executor that runs
such processes, and outliving it. They cannot see, as job workers do, that no executor claims them.
While the executor lives the guard sleeps. Then, where processes are left, it waits for an executor
that holds ``executor.lock`` and adopts them; if none comes, it ends each by the drain of its pool.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.executor.foreign import leftovers
from penstock.executor.foreign.leftovers import Ending
from penstock.executor.host import guarding
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor.foreign.guard")

_MODULE = "penstock.executor.foreign.guard"


async def keep(run_dir: Path, grace_seconds: float) -> None:
    """Keeps a guard beside this process; cancelled, it leaves the guard to its task."""
    await guarding.keep(_MODULE, "the guard of foreign workers", run_dir, grace_seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """The process."""
    parser = guarding.parser(_MODULE, "Ends foreign workers that no executor claims.")
    options = parser.parse_args(arguments)
    lines.start("info", options.log_json)
    guarding.wait_for_end(options.executor)
    if guarding.is_followed(
        options.run_dir, options.grace_seconds, lambda: bool(leftovers.running(options.run_dir))
    ):
        return 0
    _end(options.run_dir)
    return 0


def _end(run_dir: Path) -> None:
    endings: dict[str, Ending] = {}
    while running := leftovers.running(run_dir):
        for worker in running:
            if worker not in endings:
                log.warning("no executor claims worker %s: it is ended", worker)
                endings[worker] = Ending(run_dir, worker)
        for worker, ending in endings.items():
            ending.step(running.get(worker, set()))
        time.sleep(guarding.POLL_SECONDS)
    for ending in endings.values():
        ending.step(())  # nothing runs: what was kept of it is removed


if __name__ == "__main__":
    sys.exit(main())
