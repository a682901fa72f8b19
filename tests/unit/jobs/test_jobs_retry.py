"""When a job goes again: exponential, a list, a function; fatal and harmless errors."""

from __future__ import annotations

import pytest

from penstock.jobs.errors import BadArguments
from penstock.jobs.middleware import RateLimited, Timeout, Unique, WithoutOverlapping, key_of, token
from penstock.jobs.registry import job
from penstock.jobs.retry import Backoff, Outlook, outlook, retries


class Odd(ValueError):
    pass


def test_a_list_is_gone_through_and_its_last_stands() -> None:
    backoff = retries([1, 5.5, 30]).backoff
    assert [backoff.delay_seconds(attempt) for attempt in (1, 2, 3, 4, 9)] == [1, 5.5, 30, 30, 30]


def test_a_function_says_when_or_that_it_is_over() -> None:
    asked = retries(lambda attempt, error: None if isinstance(error, Odd) else attempt * 2.0)
    assert outlook(asked, 3, ValueError()) == Outlook(delay_seconds=6.0)
    assert outlook(asked, 3, Odd()) == Outlook(fatal=True)


@pytest.mark.parametrize(("seconds", "kept"), [(-5, 0.0), (1e12, 366 * 86_400)])
def test_what_a_function_says_is_kept_within_bounds(seconds: float, kept: float) -> None:
    assert outlook(retries(lambda *_: seconds), 1, ValueError()).delay_seconds == kept


def test_kinds_of_errors() -> None:
    known = retries(Backoff(), fatal=[LookupError], harmless=[Odd])
    assert outlook(known, 1, KeyError()) == Outlook(fatal=True)
    assert outlook(known, 1, Odd()) == Outlook(harmless=True)
    assert outlook(known, 1, ValueError()) == Outlook()


@pytest.mark.parametrize("listed", [[-1], [1e12], [1.0] * 1001])
def test_delays_that_cannot_be(listed: list[float]) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        retries(listed)


def test_what_is_no_type_of_errors() -> None:
    with pytest.raises(TypeError, match="types of errors"):
        retries(Backoff(), fatal=["ValueError"])  # type: ignore[list-item]


def test_a_timeout_is_the_job_s_own() -> None:
    def nothing() -> None: ...

    assert job(middleware=[Timeout(3)])(nothing).timeout_seconds == 3
    assert job(middleware=[Timeout(3)], timeout_seconds=2)(nothing).timeout_seconds == 2
    assert job(middleware=[Timeout(3)])(nothing).middleware == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateLimited(0),
        lambda: RateLimited(1, per_seconds=0),
        lambda: WithoutOverlapping(limit=0),
        lambda: WithoutOverlapping(defer_seconds=0),
        lambda: Timeout(0),
        lambda: Unique(0),
    ],
)
def test_values_that_cannot_be(make: object) -> None:
    with pytest.raises(ValueError, match="found"):
        make()  # type: ignore[operator]


def test_keys() -> None:
    assert key_of("{a}-{b}", {"a": 1, "b": "x", "c": 0}) == "1-x"
    assert key_of(lambda a, **_: a + 1, {"a": 1, "b": 2}) == "2"
    for key in ("{nothing}", lambda a: a):
        with pytest.raises(BadArguments, match="does not fit"):
            key_of(key, {"a": 1, "b": 2} if callable(key) else {"a": 1})


def test_tokens_of_other_texts_differ() -> None:
    assert token("a", "b") == token("a", "b")
    assert len({token("ab", ""), token("a", "b"), token("", "ab"), token("ab")}) == 4
