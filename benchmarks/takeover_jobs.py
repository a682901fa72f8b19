"""Jobs that tell when they began, by a clock that all processes of a machine share."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from penstock.jobs import Context, job

VICTIMS, LIVE = "victims", "live"


class Begun(NamedTuple):
    job_id: str
    pid: int
    at: float


def tell(path: str, context: Context) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{context.job_id} {os.getpid()} {time.monotonic()}\n".encode())
    finally:
        os.close(file)


def begun(path: Path) -> list[Begun]:
    """All beginnings, in order."""
    if not path.exists():
        return []
    lines = (line.split() for line in path.read_text("utf-8").splitlines())
    return [Begun(job_id, int(pid), float(at)) for job_id, pid, at in lines]


@job(queue=VICTIMS)
def hold(context: Context, path: str, gate: str) -> None:
    """Until the gate is open."""
    tell(path, context)
    while not Path(gate).exists():
        time.sleep(0.01)


@job(queue=LIVE)
def burn_python(context: Context, path: str, seconds: float) -> None:
    tell(path, context)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@job(queue=LIVE)
def burn_c(context: Context, path: str, seconds: float) -> None:
    """In one call that holds the interpreter."""
    tell(path, context)
    turns, began = 5_000_000, time.thread_time()
    sum(range(turns))
    sum(range(int(turns * seconds / (time.thread_time() - began))))


@job(queue=LIVE)
def nap(context: Context, path: str, seconds: float) -> None:
    """Somebody stops its process now and then, for less than its claim."""
    tell(path, context)
    time.sleep(seconds)
