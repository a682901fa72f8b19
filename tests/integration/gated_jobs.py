"""Jobs inside middleware; those that ran leave their moments (see `guarded_jobs`)."""

from __future__ import annotations

import ctypes
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.integration.guarded_jobs import mark

from penstock.jobs import Context, Defer, RateLimited, Skip, Timeout, WithoutOverlapping, job

QUEUE = "gated"
PER_SECOND = 10


@contextmanager
def outside(context: Context) -> Iterator[None]:
    note(context, "outside")
    yield
    note(context, "outside-left")


@asynccontextmanager
async def inside(context: Context) -> AsyncIterator[None]:
    note(context, "inside")
    yield
    note(context, "inside-left")


@contextmanager
def forgiving(context: Context) -> Iterator[None]:
    try:
        yield
    except LookupError:
        note(context, "forgiven")


def note(context: Context, what: str) -> None:
    context.logger.info(what)
    _told.append(what)


_told: list[str] = []


@job(queue=QUEUE, middleware=[outside, inside])
def told_plain() -> list[str]:
    return _tell("plain")


@job(queue=QUEUE, middleware=[inside, outside])
async def told_async() -> list[str]:
    return _tell("async")


@job(queue=QUEUE, middleware=[forgiving], tries=1)
def forgiven() -> int:
    raise LookupError("not there")


def _tell(what: str) -> list[str]:
    found = [*_told, what]
    _told.clear()
    return found


@job(queue=QUEUE, middleware=[RateLimited(PER_SECOND, window="sliding", name="api")])
def strictly(path: str, name: str) -> None:
    mark(path, name)


@job(queue=QUEUE, middleware=[RateLimited(40, burst=4, key="{customer}")])
def on_average(path: str, name: str, customer: str) -> None:
    mark(path, f"{customer}.{name}")


@job(queue=QUEUE, middleware=[WithoutOverlapping(key="{key}", defer_seconds=0.1)])
def alone(path: str, name: str, key: str, seconds: float, stubborn: bool = False) -> None:
    _occupy(path, name, seconds, stubborn)


@job(queue=QUEUE, middleware=[WithoutOverlapping(limit=2, defer_seconds=0.1)])
def by_two(path: str, name: str, seconds: float) -> None:
    _occupy(path, name, seconds, False)


@job(queue=QUEUE, middleware=[WithoutOverlapping(otherwise="skip")])
def or_not(path: str, name: str, seconds: float) -> None:
    _occupy(path, name, seconds, False)


def _occupy(path: str, name: str, seconds: float, stubborn: bool) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            mark(path, name)
            time.sleep(0.004)
        except BaseException:
            if not stubborn:
                raise


@job(queue=QUEUE)
def put_off_once(path: str, name: str) -> str:
    mark(path, name)
    if len(Path(path).read_text("utf-8").splitlines()) < 3:
        raise Defer(0.05, "not yet")
    return name


@job(queue=QUEUE)
def needless() -> None:
    raise Skip("there is nothing to do")


@job(queue=QUEUE, middleware=[Timeout(0.5)], tries=2, backoff=[0.05])
def stuck_in_c(path: str, name: str, attempts: int) -> int:
    """Holds the interpreter: no other thread of the process runs."""
    mark(path, name)
    if len(Path(path).read_text("utf-8").splitlines()) <= attempts:
        ctypes.PyDLL(None).sleep(60)
    return attempts


class Refused(RuntimeError):
    pass


class Gone(RuntimeError):
    pass


def delay_of(attempt: int, error: BaseException) -> float | None:
    return None if "enough" in str(error) else 0.02 * attempt


@job(queue=QUEUE, tries=9, backoff=delay_of, fatal=[Refused], harmless=[Gone])
def difficult(context: Context, words: list[str]) -> int:
    word = words[context.attempt - 1]
    if word == "refused":
        raise Refused(word)
    if word == "gone":
        raise Gone(word)
    if word:
        raise RuntimeError(word)
    return context.attempt


@job(queue=QUEUE, tries=4, backoff=[0.01, 0.05])
def listed(context: Context) -> int:
    if context.attempt < 4:
        raise RuntimeError(str(context.attempt))
    return context.attempt
