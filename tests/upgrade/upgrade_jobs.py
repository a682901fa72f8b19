"""Jobs of an installation that is upgraded while they live; each run is a line in the diary."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.jobs import Backoff, Context, Outcome, job

_PATIENCE_SECONDS = 120.0


def _write(diary: str, name: str) -> None:
    with Path(diary).open("a") as lines:
        lines.write(f"{name}\n")


@job(queue="work")
def note(diary: str, name: str) -> str:
    _write(diary, name)
    return name


@job(queue="work", tries=3, backoff=Backoff(first_seconds=20, jitter=0))
def fail_once(context: Context, diary: str, name: str) -> str:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")
    _write(diary, name)
    return name


@job(queue="work", tries=1)
def fail(diary: str, name: str) -> None:
    if not Path(diary).with_name("mended").exists():
        raise RuntimeError(f"{name} fails until it is mended")
    _write(diary, name)


@job(queue="held")
def hold(diary: str, name: str) -> str:
    """Runs until the gate opens; an attempt that the platform interrupts leaves no line."""
    began = time.monotonic()
    while not Path(diary).with_name("gate").exists():
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise RuntimeError("the gate stayed closed")
        time.sleep(0.02)
    _write(diary, name)
    return name


@job(queue="work")
def double(value: str) -> str:
    return f"{value}{value}"


@job(queue="paused")
def join(diary: str, name: str, left: str, right: str) -> str:
    _write(diary, name)
    return f"{left}+{right}"


@job(queue="work")
def counted(outcome: Outcome, diary: str, name: str) -> str:
    _write(diary, f"{name}: {outcome.counts.completed}")
    return name


@job(queue="work")
def tick(diary: str) -> None:
    _write(diary, "tick")
