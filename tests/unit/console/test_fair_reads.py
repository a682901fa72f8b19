"""Reads of one caller neither hold up those of others nor grow without end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from litestar.exceptions import TooManyRequestsException

from penstock.console.alerts.backtests import MOST_AT_ONCE, Backtests
from penstock.console.api.events import MOST_STREAMS, MOST_STREAMS_OF_CALLER
from penstock.console.computing.commands import TooManyComputations
from penstock.console.core.alerts.backtest import Backtest
from penstock.console.live.places import Places
from penstock.console.read_models.fair_reads import (
    CALLER,
    MOST_OF_CALLER,
    FairReads,
    Remembered,
    TooManyReads,
)

BACKTEST = Backtest(
    summary="", incidents=(), fired=0, seconds=0, messages=0, flapped=0, examined_days=0
)


@pytest.fixture
def reads() -> Iterator[FairReads]:
    made = FairReads(threads=1)
    yield made
    made.close()


async def as_caller(name: str, reads: FairReads, work: object) -> None:
    CALLER.set(name)
    await reads.run(work)  # type: ignore[arg-type]


async def test_callers_have_their_turn_one_after_the_other(reads: FairReads) -> None:
    go_on, order = threading.Event(), list[str]()
    tasks = [asyncio.create_task(as_caller("first", reads, go_on.wait))]
    for name in ("greedy", "greedy", "greedy", "other"):
        work = lambda name=name: order.append(name)  # noqa: E731
        tasks.append(asyncio.create_task(as_caller(name, reads, work)))
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(*tasks)
    assert order == ["greedy", "other", "greedy", "greedy"]


async def test_one_caller_has_a_bounded_number_of_reads(reads: FairReads) -> None:
    go_on = threading.Event()
    tasks = [
        asyncio.create_task(as_caller("greedy", reads, go_on.wait)) for _ in range(MOST_OF_CALLER)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyReads):
        await asyncio.create_task(as_caller("greedy", reads, go_on.wait))
    other = asyncio.create_task(as_caller("other", reads, go_on.wait))
    go_on.set()
    await asyncio.gather(*tasks, other)
    await as_caller("greedy", reads, go_on.wait)


async def test_reads_whose_callers_left_are_not_run(reads: FairReads) -> None:
    go_on, order = threading.Event(), list[str]()
    first = asyncio.create_task(as_caller("first", reads, go_on.wait))
    left = asyncio.create_task(as_caller("left", reads, lambda: order.append("left")))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    go_on.set()
    await first
    await as_caller("other", reads, lambda: order.append("other"))
    assert order == ["other"]


async def test_an_answer_is_computed_once_for_each_version() -> None:
    computed, version = list[int](), 1
    remembered = Remembered(lambda: version)

    async def read() -> int:
        await asyncio.sleep(0)
        computed.append(version)
        return version

    assert set(await asyncio.gather(*(remembered.answer("q", read) for _ in range(50)))) == {1}
    version = 2
    assert await remembered.answer("q", read) == 2
    assert computed == [1, 2]


def test_one_caller_leaves_places_for_streams_of_others() -> None:
    places = Places(MOST_STREAMS, MOST_STREAMS_OF_CALLER)
    leave = [places.take("greedy") for _ in range(MOST_STREAMS_OF_CALLER)]
    with pytest.raises(TooManyRequestsException):
        places.take("greedy")
    others = MOST_STREAMS - MOST_STREAMS_OF_CALLER
    assert len([places.take(f"other-{number}") for number in range(others)]) == others
    with pytest.raises(TooManyRequestsException):
        places.take("one-more")
    leave[0]()
    leave[0]()
    places.take("greedy")


def test_one_alone_takes_half_and_who_comes_later_finds_some() -> None:
    places = Places(100, 5, is_shared=True)

    def taken(caller: str) -> int:
        for number in range(101):
            try:
                places.take(caller)
            except TooManyRequestsException as error:
                assert error.headers == {"Retry-After": "5"}
                return number
        raise AssertionError("there is no limit")

    assert [taken(caller) for caller in ("one", "two", "three", "four", "five")] == [
        50,
        25,
        13,
        6,
        5,
    ]


async def test_backtests_are_shared_and_two_at_once_at_most() -> None:
    backtests, go_on, computed = Backtests(), asyncio.Event(), list[int]()

    async def compute() -> Backtest:
        computed.append(1)
        await go_on.wait()
        return BACKTEST

    waiting = [
        asyncio.create_task(backtests.answer(question, compute))
        for question in range(MOST_AT_ONCE)
        for _ in range(30)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyComputations):
        await backtests.answer("further", compute)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    with pytest.raises(TooManyComputations):  # what began goes on, whoever waits
        await backtests.answer("further", compute)
    go_on.set()
    assert await backtests.answer(0, compute) == BACKTEST
    assert await backtests.answer("further", compute) == BACKTEST
    assert len(computed) == MOST_AT_ONCE + 1
