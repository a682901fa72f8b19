"""The broker's clock, between the answers from which it learns."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from penstock.bus.clock import BrokerClock


@given(st.floats(min_value=0, max_value=4e9), st.floats(min_value=0, max_value=1e8))
def test_a_time_is_what_an_event_with_it_reads_back(wall: float, monotonic: float) -> None:
    clock = BrokerClock(wall=lambda: wall, monotonic=lambda: monotonic)
    now = clock.now()
    assert datetime.fromtimestamp(now, UTC).timestamp() == now
    assert abs(now - wall) < 2e-6


def test_a_message_stored_between_two_moments_moves_the_clock_between_them() -> None:
    clock = BrokerClock(wall=lambda: 1_000.0, monotonic=lambda: 5.0)
    clock.learn(2_000.0, sent_at=4.0, answered_at=6.0)
    assert clock.now() == 2_000.0
    clock.learn(2_000.4, sent_at=4.0, answered_at=6.0)  # fits: nothing is learnt
    assert clock.now() == 2_000.0
