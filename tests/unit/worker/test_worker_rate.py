"""Rate limits as values: whoever asks, whenever, no limit is exceeded and none is left unused."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.core.rate import RateState, Rule, ask

START = 1_700_000_000.0
SLIDING = Rule(limit=10, per_seconds=1.0, burst=10, window="sliding")
BUCKET = Rule(limit=10, per_seconds=1.0, burst=3, window="bucket")

pauses = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.05, 0.3, 0.9, 1.1]), st.integers(min_value=1, max_value=7)
    ),
    min_size=5,
    max_size=200,
)


def starts(rule: Rule, asked: list[tuple[float, int]], late: list[float]) -> list[float]:
    """When jobs start: as late in the life of what they were given as ``late`` says, in turn."""
    state, now, found = RateState(), START, []
    for number, (pause, want) in enumerate(asked):
        now += pause
        grant, state = ask(rule, state, want, now)
        found += [now + late[number % len(late)] * rule.life_seconds] * grant.starts
    return sorted(found)


@given(pauses, st.lists(st.sampled_from([0.0, 0.5, 0.999]), min_size=1, max_size=9))
def test_no_stretch_of_a_sliding_window_holds_more(
    asked: list[tuple[float, int]], late: list[float]
) -> None:
    found = starts(SLIDING, asked, late)
    for index, at in enumerate(found):
        assert bisect_left(found, at + SLIDING.per_seconds) - index <= SLIDING.limit


@given(pauses)
def test_a_bucket_gives_its_burst_and_then_its_rate(asked: list[tuple[float, int]]) -> None:
    found = starts(BUCKET, asked, [0.0])
    for index, at in enumerate(found):
        for count, later in enumerate(found[index:], 1):
            assert count <= BUCKET.burst + (later - at) * 10 + 1e-3


@pytest.mark.parametrize("rule", [SLIDING, BUCKET])
def test_who_comes_when_told_gets_a_start(rule: Rule) -> None:
    state, now = RateState(), START
    given_so_far = 0
    for _ in range(50):
        grant, state = ask(rule, state, 1, now)
        given_so_far += grant.starts
        now = now if grant.starts else grant.again_at + 1e-6
    assert now - START < given_so_far / rule.limit * rule.per_seconds * 1.3


def test_those_in_line_come_one_after_another() -> None:
    _, state = ask(BUCKET, RateState(), 3, START)
    first, state = ask(BUCKET, state, 4, START)
    second, _ = ask(BUCKET, state, 1, START)
    assert (first.starts, first.places) == (0, 4)
    assert second.again_at == pytest.approx(first.again_at + 4 * BUCKET.spacing_seconds)


def test_many_small_grants_are_remembered_in_little_room() -> None:
    rule = Rule(limit=100_000, per_seconds=60, burst=1, window="sliding")
    state = RateState()
    for number in range(1000):
        _, state = ask(rule, state, 1, START + number / 100)
    assert len(state.given) <= 64
    assert sum(count for _, count in state.given) == 1000
