"""Equal questions share one computation."""

from __future__ import annotations

import asyncio

import pytest

from penstock.console.computing.commands import ComputationFailed
from penstock.console.computing.shared_answers import SharedAnswers


class Slow:
    """A computation that ends when it is told to."""

    def __init__(self) -> None:
        self.began = self.cancelled = 0
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def compute(self) -> str:
        self.began += 1
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def shared(most: int = 10) -> SharedAnswers[str]:
    return SharedAnswers(most, keeps=lambda answer: answer != "not yet")


async def begun(answers: SharedAnswers[str], slow: Slow, count: int) -> list[asyncio.Task[str]]:
    callers = [asyncio.create_task(answers.answer("q", slow.compute)) for _ in range(count)]
    for _ in range(5):
        await asyncio.sleep(0)
    return callers


async def test_equal_questions_share_one_computation_and_its_answer_is_kept() -> None:
    answers, slow = shared(), Slow()
    callers = await begun(answers, slow, 5)
    slow.answer.set_result("44")
    assert await asyncio.gather(*callers) == ["44"] * 5
    assert await answers.answer("q", slow.compute) == "44"
    assert slow.began == 1
    assert answers.kept("q") == "44"


async def test_it_goes_on_while_one_caller_waits_and_ends_with_the_last_one() -> None:
    answers, slow = shared(), Slow()
    callers = await begun(answers, slow, 2)
    callers[0].cancel()
    await asyncio.gather(callers[0], return_exceptions=True)
    assert slow.cancelled == 0
    callers[1].cancel()
    await asyncio.gather(callers[1], return_exceptions=True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert slow.cancelled == 1
    again = await begun(answers, slow, 1)
    slow.answer.set_result("44")
    assert await again[0] == "44"
    assert slow.began == 2


async def test_what_may_be_true_later_is_not_kept_and_the_oldest_answer_goes_first() -> None:
    answers = shared(most=2)

    async def answer(text: str) -> str:
        return text

    await answers.answer("early", lambda: answer("not yet"))
    assert answers.kept("early") is None
    for text in ("a", "b"):
        await answers.answer(text, lambda text=text: answer(text))
    assert answers.kept("a") == "a"
    await answers.answer("c", lambda: answer("c"))
    assert [answers.kept(one) for one in ("a", "b", "c")] == ["a", None, "c"]


async def test_a_failure_reaches_every_caller_and_is_not_kept() -> None:
    answers, slow = shared(), Slow()
    callers = await begun(answers, slow, 2)
    slow.answer.set_exception(ComputationFailed("no"))
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [str(one) for one in results] == ["no", "no"]
    assert not answers.is_computed("q")


async def test_the_end_of_the_console_is_a_sentence_to_its_callers() -> None:
    answers, slow = shared(), Slow()
    callers = await begun(answers, slow, 2)
    await answers.end()
    for caller in callers:
        with pytest.raises(ComputationFailed, match="the console ends"):
            await caller
    assert slow.cancelled == 1
