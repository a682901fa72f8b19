"""Random workflows with a process killed at each message that they store. Prints JSON.

Each seed is a program: a tree of jobs that fail and are tried again, batches, workflows that are
steps, inline steps, timers, signals that come early, twice, late and never, gathers, races, errors
that are caught, errors of the workflow's own code, until it is mended and requeued, compensation,
cancels, pauses, code that is deployed meanwhile, and new generations. One or two real workers and
orchestrators run it over the bus in memory, on a clock that jumps. First undisturbed: it ends as
plain asyncio code says, at that time. Then as often as its processes store a message, the process
that stores it is killed once before and once after; then two of them are, a few times; and once
each queue message is stored twice. The outcome, the steps, the jobs and the records of inline steps
are the same, no rule of `penstock verify` is broken, and nothing is left behind.

Exit code 0 if all that holds for each seed. By SIGTERM it ends after a seed, and prints what was
judged so far.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import msgspec
from tests.programs.proof import Verdict, prove

_MOST_SHOWN = 20


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000, help="seeds: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first; counts up")
    parser.add_argument("--beside", type=int, default=1, help="processes: %(default)s")
    parser.add_argument(
        "--into",
        type=Path,
        metavar="FILE",
        help="goes on where an earlier run, which was ended by SIGTERM, wrote its result to",
    )
    return parser.parse_args(words)


class Result(msgspec.Struct, kw_only=True):
    """What is printed.

    Attributes:
        machine: where it ran.
        seeds: first and last.
        programs: that were judged.
        undetermined: seeds without one right outcome.
        parts: programs that hold each part.
        ended: how they ended.
        crashes: processes killed.
        killed_at: how often at each kind of message.
        slowest_recovery_seconds: longest time by which a crash delayed an end.
        seconds: that it took.
        wrong: how many programs ended, or went, otherwise than they must.
        first_wrong: lines about some of them.
    """

    machine: str
    seeds: list[int]
    programs: int = 0
    undetermined: int = 0
    parts: dict[str, int] = {}
    ended: dict[str, int] = {}
    crashes: int = 0
    killed_at: dict[str, int] = {}
    slowest_recovery_seconds: float = 0.0
    seconds: float = 0.0
    wrong: int = 0
    first_wrong: list[str] = []

    def add(self, verdict: Verdict) -> None:
        """Takes the verdict on the next seed."""
        self.seeds[1] += 1
        self.programs += verdict.programs
        self.undetermined += verdict.undetermined
        self.crashes += verdict.crashes
        self.parts = _sum(self.parts, verdict.parts)
        self.ended = _sum(self.ended, verdict.states)
        self.killed_at = _sum(self.killed_at, verdict.killed_at)
        slowest = max(self.slowest_recovery_seconds, verdict.slowest_seconds)
        self.slowest_recovery_seconds = round(slowest, 1)
        self.wrong += bool(verdict.wrong)
        self.first_wrong = [*self.first_wrong, *verdict.wrong][:_MOST_SHOWN]


def _sum(counts: dict[str, int], others: dict[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(counts) + Counter(others)).items()))


def main() -> None:
    options = arguments(sys.argv[1:])
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    result = Result(machine=_machine(), seeds=[options.seed, options.seed - 1])
    if options.into and options.into.exists():
        result = msgspec.json.decode(options.into.read_bytes(), type=Result)
    began, seconds_before = time.monotonic(), result.seconds
    next_seed, missing = result.seeds[1] + 1, options.runs - result.programs - result.undetermined
    for verdict in _verdicts(range(next_seed, next_seed + missing), options.beside):
        result.add(verdict)
        for line in verdict.wrong:
            sys.stderr.write(f"{line}\n")
        if signals:
            break
    result.seconds = round(seconds_before + time.monotonic() - began, 1)
    text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"
    if options.into:
        options.into.write_text(text)
    sys.stdout.write(text)
    sys.exit(bool(result.wrong))


def _machine() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _verdicts(seeds: Iterable[int], beside: int) -> Iterator[Verdict]:
    if beside == 1:
        _get_ready()
        yield from map(prove, seeds)
        return
    with get_context("spawn").Pool(beside, _get_ready) as pool:
        yield from pool.imap(prove, seeds)


def _get_ready() -> None:
    gc.freeze()  # what is imported stays; each play leaves circles of tasks behind
    gc.set_threshold(50_000, 10, 10)
    logging.basicConfig(level=logging.CRITICAL)  # jobs that fail and steps left out are no news


if __name__ == "__main__":
    main()
