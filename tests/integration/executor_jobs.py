"""Jobs that the executor's tests run."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from itertools import chain, repeat

from tests.holding import hold_interpreter

from penstock.jobs import Context, job


def tell(path: str) -> None:
    with open(path, "a") as file:  # noqa: PTH123
        file.write(f"{os.getpid()}\n")


@job(queue="mail")
def quick() -> int:
    return os.getpid()


@job(queue="mail")
async def slow(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@job(queue="mail")
def silent(path: str) -> int:
    """Waits without a sign of life until the file is there; can be interrupted."""
    tell(f"{path}.begun")
    while not os.path.exists(path):  # noqa: PTH110 - as little as possible
        time.sleep(0.2)
    return os.getpid()


@job(queue="mail")
def deaf(path: str) -> int:
    """The same, and does not let itself be interrupted."""
    while True:
        try:
            return silent.function(path)
        except BaseException:
            continue


@job(queue="mail")
def lively(context: Context, path: str) -> int:
    tell(f"{path}.begun")
    while not os.path.exists(path):  # noqa: PTH110
        context.heartbeat()
        time.sleep(0.2)
    return os.getpid()


@job(queue="mail")
def wait_at(path: str, gate: str) -> int:
    tell(path)
    while not os.path.exists(gate):  # noqa: PTH110
        time.sleep(0.02)
    return os.getpid()


@job(queue="mail")
def in_c(path: str, seconds: float) -> int:
    """Computes in C code that holds the interpreter: no other thread of the process runs."""
    tell(path)
    hold_interpreter(seconds)
    return os.getpid()


@job(queue="mail", tries=1)
def hoard_in_c(path: str, megabytes: int) -> None:
    """Uses memory in one call of C code, which holds the interpreter and does not end for minutes:
    the worker cannot look at itself."""
    tell(path)
    parts = chain(repeat(bytes(1 << 20), megabytes), repeat(b""))
    deque(map(bytearray().extend, parts), maxlen=0)


@job(queue="mail", tries=2)
def hoard(path: str, megabytes: int) -> int:
    tell(path)
    held = bytearray(megabytes << 20)
    while True:
        time.sleep(0.02)
        len(held)
