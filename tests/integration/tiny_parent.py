"""A warm parent whose workers do what their pool's name says."""

from __future__ import annotations

import logging
import signal
import sys

from penstock.runtime.workers.assignment import Assignment
from penstock.worker.warm_parent import parent


def entry(assignment: Assignment) -> int:
    match assignment.pool.split("-"):
        case ["code", number]:
            return int(number)
        case ["exit"]:
            sys.exit("an author's code said so")
        case ["raise"]:
            raise ValueError("raised on purpose")
        case _:
            signal.pause()
            return 0


if __name__ == "__main__":
    logging.basicConfig()
    sys.exit(parent.main(entry=entry))
