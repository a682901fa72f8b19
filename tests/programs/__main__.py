"""Random workflows with a process killed at each message that they store. Prints JSON.

Each seed is a program: a tree of jobs that fail and are tried again, batches, workflows that are
steps, inline steps, timers, signals that come early, twice, late and never, gathers, races, errors
that are caught, errors of the workflow's own code, until it is mended and requeued, compensation,
cancels, and new generations. One or two real workers and orchestrators run it over the bus in
memory, on a clock that jumps. First undisturbed: it ends as plain asyncio code says, at that time.
Then as often as its processes store a message, the process that stores it is killed once before and
once after; then two of them are, a few times; and once each queue message is stored twice. The
outcome, the steps, the jobs and the number of inline runs are the same, no rule of
`penstock verify` is broken, and nothing is left behind.

Exit code 0 if all that holds for each seed. By SIGTERM it ends after a seed, and prints what was
judged so far.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from typing import Any

from tests.programs.proof import Verdict, prove

_MOST_SHOWN = 20


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000, help="programs: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first; counts up")
    parser.add_argument("--beside", type=int, default=1, help="processes: %(default)s")
    return parser.parse_args(words)


def summary(verdict: Verdict, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What is printed."""
    return {
        "seeds": [options.seed, options.seed + options.runs - 1],
        "programs": verdict.programs,
        "undetermined": verdict.undetermined,
        "ended": dict(verdict.states.most_common()),
        "crashes": verdict.crashes,
        "killed_at": dict(sorted(verdict.killed_at.items())),
        "slowest_recovery_seconds": round(verdict.slowest_seconds, 1),
        "seconds": round(seconds, 1),
        "wrong": len(verdict.wrong),
        "first_wrong": verdict.wrong[:_MOST_SHOWN],
    }


def main() -> None:
    options = arguments(sys.argv[1:])
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    began, total = time.monotonic(), Verdict()
    for verdict in _verdicts(range(options.seed, options.seed + options.runs), options.beside):
        total.add(verdict)
        for line in verdict.wrong:
            sys.stderr.write(f"{line}\n")
        if signals:
            break
    sys.stdout.write(json.dumps(summary(total, options, time.monotonic() - began), indent=2) + "\n")
    sys.exit(bool(total.wrong))


def _verdicts(seeds: Iterable[int], beside: int) -> Iterator[Verdict]:
    if beside == 1:
        _be_quiet()
        yield from map(prove, seeds)
        return
    with get_context("spawn").Pool(beside, _be_quiet) as pool:
        yield from pool.imap_unordered(prove, seeds)


def _be_quiet() -> None:
    logging.basicConfig(level=logging.CRITICAL)  # jobs that fail and steps left out are no news


if __name__ == "__main__":
    main()
