"""Jobs that write down what happens to them, line by line, in a file that many processes share.

A gate is a path: a job that waits at one goes on when the file is there.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from penstock.jobs import Backoff, Context, job

QUEUE = "work"
_SOON = Backoff(first_seconds=0.4, jitter=0)
_PATIENCE_SECONDS = 60.0


def write(diary: str, name: str, what: str) -> None:
    """One line, whole, whoever else writes: ``name what pid``."""
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{name} {what} {os.getpid()}\n".encode())
    finally:
        os.close(file)


def _closed(gate: str, began: float) -> bool:
    assert time.monotonic() - began < _PATIENCE_SECONDS, f"nobody opened {gate}"
    return not Path(gate).exists()


@job(queue=QUEUE)
def note(diary: str, name: str) -> str:
    write(diary, name, "ran")
    return name


@job(queue=QUEUE)
async def note_soon(context: Context, diary: str, name: str) -> list[str]:
    await asyncio.sleep(0.01)
    write(diary, name, "ran")
    return [name, context.job_id]


@job(queue=QUEUE)
def send_note(context: Context, diary: str, name: str) -> str:
    return context.dispatch(note(diary=diary, name=name))


@job(queue=QUEUE)
def speak(context: Context, diary: str, name: str, gate: str) -> None:
    """Prints a line, and holds until the gate opens."""
    print(f"{name} speaks in attempt {context.attempt}")  # noqa: T201 - that is what is looked for
    write(diary, name, "begun")
    began = time.monotonic()
    while _closed(gate, began):
        time.sleep(0.005)


@job(queue=QUEUE)
def hold(context: Context, diary: str, name: str, gate: str) -> str:
    """Runs until the gate opens; looks whether it is still wanted."""
    write(diary, name, "begun")
    began = time.monotonic()
    while _closed(gate, began):
        if context.cancelled:
            write(diary, name, "stopped")
            return "stopped"
        time.sleep(0.005)
    write(diary, name, "done")
    return name


@job(queue=QUEUE)
def hold_unasked(diary: str, name: str, gate: str) -> None:
    """Runs until the gate opens; never looks, but can be interrupted."""
    write(diary, name, "begun")
    began = time.monotonic()
    try:
        while _closed(gate, began):
            time.sleep(0.005)
    except BaseException as error:
        write(diary, name, f"interrupted-{type(error).__name__}")
        raise
    write(diary, name, "done")


@job(queue=QUEUE, timeout_seconds=0.3, tries=2, backoff=_SOON)
def overrun(context: Context, diary: str, name: str, gate: str) -> int:
    """Too slow until the gate is open."""
    write(diary, name, "begun")
    began = time.monotonic()
    while _closed(gate, began):
        time.sleep(0.005)
    write(diary, name, "done")
    return context.attempt


def _shrug(diary: str, name: str, gate: str) -> None:
    write(diary, name, "begun")
    began = time.monotonic()
    while Path(gate).parent.exists() and time.monotonic() - began < _PATIENCE_SECONDS:
        try:
            while _closed(gate, began):
                time.sleep(0.005)
            return
        except BaseException as error:
            write(diary, name, f"shrugged-{type(error).__name__}")


@job(queue=QUEUE)
def stubborn(diary: str, name: str, gate: str) -> None:
    """Nothing but the end of its process stops it."""
    _shrug(diary, name, gate)


@job(queue=QUEUE, timeout_seconds=0.3, tries=1)
def stubborn_overrun(diary: str, name: str, gate: str) -> None:
    _shrug(diary, name, gate)


@job(queue=QUEUE)
def advance(context: Context, diary: str, name: str, gate: str, total: int) -> str:
    """Tells its progress until the gate opens."""
    write(diary, name, "begun")
    began, done = time.monotonic(), 0
    while _closed(gate, began):
        done = min(done + 1, total)
        context.progress(done, total)
        time.sleep(0.005)
    write(diary, name, "done")
    return name


@job(queue=QUEUE)
def compute(diary: str, name: str, seconds: float) -> int:
    """Burns CPU, never sleeps."""
    write(diary, name, "begun")
    until, turns = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turns += 1
    write(diary, name, "done")
    return turns


@job(queue=QUEUE, tries=3, backoff=_SOON)
def fail(context: Context, diary: str, name: str, times: int) -> int:
    write(diary, name, f"attempt-{context.attempt}")
    if context.attempt <= times:
        raise RuntimeError(f"attempt {context.attempt} is too early")
    return context.attempt


@job(queue=QUEUE, tries=1)
def need(diary: str, name: str, path: str) -> str:
    """Fails while the file is not there."""
    write(diary, name, "ran")
    return Path(path).read_text("utf-8")
