"""Jobs that tell when they ran, by a clock that all processes of a machine share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from penstock.jobs import job

VAULT = "vault"
_STEP_SECONDS = 0.004


class Moment(NamedTuple):
    name: str
    pid: int
    at: float


def mark(path: str, name: str) -> None:
    """One line, whole, whoever else writes."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{name} {os.getpid()} {time.monotonic()}\n".encode())
    finally:
        os.close(file)


def moments(path: str) -> list[Moment]:
    if not Path(path).exists():
        return []
    lines = (line.split() for line in Path(path).read_text("utf-8").splitlines())
    return [Moment(name, int(pid), float(at)) for name, pid, at in lines]


def overlaps(found: Iterable[Moment]) -> list[tuple[Moment, Moment]]:
    """Neighbours in time, where a run goes on after another one has begun."""
    runs: dict[tuple[str, int], list[Moment]] = {}
    for moment in found:
        runs.setdefault((moment.name, moment.pid), []).append(moment)
    spans = sorted((marks[0], marks[-1]) for marks in _by_time(runs.values()))
    spans.sort(key=lambda span: span[0].at)
    return [(last, first) for (_, last), (first, _) in pairwise(spans) if first.at < last.at]


def _by_time(runs: Iterable[list[Moment]]) -> list[list[Moment]]:
    return [sorted(run, key=lambda moment: moment.at) for run in runs]


@job(queue=VAULT)
def occupy(path: str, name: str, seconds: float, stubborn: bool = False) -> int:
    """Marks each moment of its run; if ``stubborn``, only the end of its process stops it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            mark(path, name)
            time.sleep(_STEP_SECONDS)
        except BaseException:
            if not stubborn:
                raise
    return os.getpid()
