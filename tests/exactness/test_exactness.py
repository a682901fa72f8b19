"""Decisions recompute equal, bit for bit, under generated settings, strategies and measurements."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.exactness import property

_FEW = settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],  # to shrink so large an example takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@_FEW
@given(property.TERMS, st.integers(0, 2**32))
def test_whatever_is_configured_and_measured_is_recomputed_equal(terms, seed):
    property.replays_equal(terms, seed)
