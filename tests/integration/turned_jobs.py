"""Jobs of the tests of a log that turns over."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.jobs import Backoff, job
from penstock.jobs.batches.outcome import Outcome

_QUEUE = "turned"


def _note(diary: str, line: str) -> None:
    with Path(diary).open("a") as file:
        file.write(f"{line}\n")


@job(queue=_QUEUE)
def note(diary: str, line: str) -> str:
    """Leaves one line in a file."""
    _note(diary, line)
    return line


@job(queue=_QUEUE)
def hold(diary: str, line: str, gate: str) -> str:
    """Waits until a file is there."""
    while not Path(gate).exists():
        time.sleep(0.01)
    _note(diary, line)
    return line


@job(queue=_QUEUE, tries=3, backoff=Backoff(first_seconds=3, jitter=0))
def mend(diary: str, line: str, mended: str) -> str:
    """Fails until a file is there."""
    if not Path(mended).exists():
        raise RuntimeError("not mended yet")
    _note(diary, line)
    return line


@job(queue=_QUEUE)
def join(diary: str, text: str) -> str:
    """A step that takes the result of another."""
    _note(diary, f"joined {text}")
    return text


@job(queue=_QUEUE)
def counted(diary: str, outcome: Outcome) -> None:
    """A batch's callback."""
    _note(diary, f"batch {outcome.counts.completed} of {outcome.counts.total}")
