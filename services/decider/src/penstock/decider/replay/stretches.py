"""A long log in stretches, each replayed by a process of its own.

Checkpoints make that possible: a stretch begins with the first checkpoint in its part of the file
and ends with the first one beyond, where the state it arrived at is compared with the one kept.
Rounds before the first checkpoint of a log cannot be recomputed and are left out.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import pairwise
from pathlib import Path

from penstock.bus.saved_log import MOST_LINE_BYTES, Entry, read
from penstock.decider import garbage, plugins
from penstock.decider.publishing.adopting import Adopted
from penstock.decider.replay.chain import Installed
from penstock.decider.replay.recompute import Recomputer, recorded_settings
from penstock.decider.replay.verdict import Verdict, add
from penstock.decider.replay.verify import Verifier
from penstock.runtime.children import end_with

_LEAST_BYTES = 2_000_000
_OVERLAP_BYTES = 32_000_000
"""Before a stretch: a checkpoint's first parts, and snapshots that it does not include."""


def verify(
    path: Path,
    pool: str | None = None,
    processes: int = 1,
    progress: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """The verdict on a log.

    Args:
        path: the exported log.
        pool: only the published decisions of this one are compared.
        processes: that replay at a time.
        progress: called with the share that is done.

    Raises:
        BadLog: the file is no log.
    """
    spans = _spans(path.stat().st_size, processes)
    if len(spans) == 1:
        verdict = _stretch(path, spans[0], pool)
        progress(1.0)
        return verdict
    verdicts: dict[int, Verdict] = {}
    spawn = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(processes, spawn, end_with, (os.getpid(),)) as executor:
        running = {
            executor.submit(_stretch, path, span, pool): number for number, span in enumerate(spans)
        }
        try:
            for done in as_completed(running):
                verdicts[running[done]] = done.result()
                progress(len(verdicts) / len(spans))
        except BaseException:  # else the executor waits for all stretches
            executor.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise
    return add([verdicts[number] for number in sorted(verdicts)])


def installed() -> Installed:
    return Installed(plugins.strategies(), plugins.policies())


def settings(path: Path) -> dict[str, Adopted]:
    """The settings at the head of a log."""
    return recorded_settings(entries(path))


def entries(path: Path) -> Iterator[Entry]:
    """All of a log."""
    with path.open("rb") as file:
        for _, entry in read(file):
            yield entry


def _spans(size: int, processes: int) -> list[tuple[int, int]]:
    """Several stretches a process, so that none waits long for the last."""
    count = max(1, min(processes * 4, size // _LEAST_BYTES)) if processes > 1 else 1
    cuts = [size * number // count for number in range(count)] + [size + 1]
    return list(pairwise(cuts))


def _stretch(path: Path, span: tuple[int, int], pool: str | None) -> Verdict:
    garbage.look_rarely()
    start, end = span
    recomputer = Recomputer(settings(path), installed())
    verifier = Verifier(pool)
    with path.open("rb") as file:
        file.seek(max(start - _OVERLAP_BYTES, 0))
        # the cut is in the middle of a line, which belongs to the stretch before
        if file.tell():
            file.readline(MOST_LINE_BYTES)
        for offset, entry in read(file):
            if offset < start:
                recomputer.glance(entry)
                continue
            for result in recomputer.take(entry):
                if verifier.take(result, offset >= end):
                    return verifier.finish()
    return verifier.finish()
